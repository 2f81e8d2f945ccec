"""One Spark session for all tests, on three slots, tables that several of them read, and a rendezvous without Spark.

White box: how many tasks a session runs at the same time is asked of Spark as the library does it.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.spark.runs import EDGES
from timely.spark import local_session
from timely.spark.rendezvous import Rendezvous
from timely.spark.session import concurrent_tasks

SLOTS = 3

collect_ignore = ["test_sinks.py"] if pyspark.__version__ < "4" else []  # whose stand-in for Delta is a data source in Python


@pytest.fixture(scope="session")
def session() -> Iterator[SparkSession]:
    """A session with :data:`SLOTS` slots, in place of a smaller one that may be up."""
    active = SparkSession.getActiveSession()
    if active is not None and concurrent_tasks(active.sparkContext) != SLOTS:
        active.stop()
    session = local_session(SLOTS)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def edges(session: SparkSession) -> DataFrame:
    """A few edges between strings, with nulls among them."""
    return session.createDataFrame(EDGES, "src string, dst string")


@pytest.fixture(scope="module")
def numbers(session: SparkSession) -> DataFrame:
    """A hundred numbers, on four days."""
    return session.range(100).select(F.col("id").alias("n"), (F.col("id") % 4).cast("int").alias("day"))


@pytest.fixture
def server() -> Iterator[Rendezvous]:
    """A rendezvous."""
    server = Rendezvous("127.0.0.1", "127.0.0.1")
    yield server
    server.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads that play workers."""
    with ThreadPoolExecutor(8) as pool:
        yield pool
