"""A server of Spark Connect inside the Java of the tests' session, and a session that is connected to it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession


@contextlib.contextmanager
def connected(session: SparkSession) -> Iterator[SparkSession]:
    """A session of Spark Connect whose server runs its tasks where ``session`` runs its own: a second Java takes 10 s."""
    if pyspark.__version__ < "4":
        pytest.skip("sessions of Spark Connect are refused on Spark 3.5")
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    java: Any = session.sparkContext._jsc
    jvm: Any = session._jvm
    service = jvm.org.apache.spark.sql.connect.service.SparkConnectService
    settings = java.sc().conf()
    settings.set("spark.connect.grpc.binding.address", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings.set("spark.connect.grpc.binding.port", str(port))
    service.start(java.sc())
    remote: Any = ConnectSession(f"sc://127.0.0.1:{port}")
    try:
        yield remote
    finally:
        remote.stop()
        service.stop(jvm.scala.Option.empty(), jvm.scala.Option.empty())
