"""Sessions of Spark Connect: how they are known, and what can be asked of them.

Such a session sends plans to a server, and has no Java and no context. The invariant: what cannot be asked through it is not
guessed; the error says what to set.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType
from pyspark.sql.utils import is_remote

from timely.errors import SparkError
from timely.spark.versions import parsed_type

_PARALLELISM = ("spark.default.parallelism", "spark.sql.leafNodeDefaultParallelism")
"""Settings that say how many partitions a table has that is made of nothing, whatever slots there are."""

_PROBE = 1 << 20
"""Rows that are enough for each slot to get some."""


def is_connect(thing: object) -> bool:
    """Return whether a session or DataFrame is one of Spark Connect, by its class alone."""
    return any(kind.__module__.startswith("pyspark.sql.connect.") for kind in type(thing).__mro__)


def refuse_connect(what: str, thing: object, remedy: str) -> None:
    """Raise :class:`~timely.errors.SparkError` where a session or DataFrame is one of Spark Connect."""
    if is_connect(thing):
        raise SparkError(
            f"{what} is one of Spark Connect, and this needs a classic session, whose program runs in Spark's driver: {remedy}"
        )


def check_functions(what: str, thing: object) -> None:
    """Raise :class:`~timely.errors.SparkError` unless ``pyspark.sql.functions`` makes columns for the session of a DataFrame.

    A process that has sessions of both kinds gets columns for one of them alone.
    """
    if is_connect(thing) and not is_remote():
        raise SparkError(
            f"{what} is one of Spark Connect, and pyspark.sql.functions makes columns for classic sessions in this process: make "
            "the session with SparkSession.builder.remote(...), in a program that has no classic one, or set the environment "
            "variable SPARK_CONNECT_MODE_ENABLED=1"
        )


def functions_of(session: SparkSession) -> Any:
    """Return the module of Spark's functions on columns that a session takes: a process may have both kinds of sessions."""
    return importlib.import_module("pyspark.sql.connect.functions" if is_connect(session) else "pyspark.sql.functions")


def sent_frame(frame: DataFrame) -> bytes:
    """Return a DataFrame of a session of Spark Connect as what :func:`received_frame` takes: its plan."""
    remote: Any = frame
    data: bytes = remote._plan.to_proto(remote.sparkSession.client).root.SerializeToString()
    return data


def received_frame(session: SparkSession, data: bytes) -> DataFrame:
    """Return a DataFrame that was sent, in a session that was made of the sender's, and has its functions and files."""
    from pyspark.sql.connect import proto
    from pyspark.sql.connect.dataframe import DataFrame as ConnectFrame
    from pyspark.sql.connect.plan import LogicalPlan

    class Received(LogicalPlan):
        def plan(self, session: Any) -> Any:
            return proto.Relation.FromString(data)

    remote: Any = session
    return ConnectFrame(Received(None), remote)


def parsed_ddl(session: SparkSession, text: str) -> DataType:
    """Return the type that a DDL string stands for. Raises what Spark raises for one that stands for none."""
    if not is_connect(session):
        return parsed_type(text)
    remote: Any = session  # what DataType.fromDDL does where a process has sessions of Spark Connect alone
    kind: DataType = remote.client._analyze(method="ddl_parse", ddl_string=text).parsed
    return kind


def connect_settings(session: SparkSession) -> Callable[[str, str], str]:
    """Return what looks up the settings that a server has now, all asked for at once; ``settings(name, default)``."""
    known = dict(session.conf.getAll)
    return lambda name, default: str(known.get(name, default))


def connect_slots(session: SparkSession, settings: Callable[[str, str], str]) -> int | None:
    """Return how many tasks can run at the same time, busy slots included; ``None`` where this cannot be known.

    A local master's name says it. Otherwise a small job is run: Spark cuts a table that is made of nothing into one partition for
    each core, unless a setting says otherwise.
    """
    cpus = int(settings("spark.task.cpus", "1"))
    master = settings("spark.master", "")
    if (match := re.fullmatch(r"local(?:\[(\d+)(?:,\s*\d+)?\])?", master)) is not None:
        return int(match[1] or 1) // cpus
    if any(settings(name, "") for name in _PARALLELISM):
        return None
    functions = functions_of(session)
    last = session.range(0, _PROBE).select(functions.max(functions.spark_partition_id()).alias("last")).collect()[0].last
    return (int(last) + 1) // cpus
