"""The demo on Spark in local mode: CSV files to DataFrames, timely workers in a barrier stage, DataFrames to Parquet.

What :mod:`timely.cli.local` does with tables, on DataFrames, as one would on a cluster. The invariant: the components
go from the workers to the Parquet file without passing through the driver; only the circles that are shown come to it.
A caller may assume that the session is up for no longer than :func:`find` runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from timely.cli.circles import Findings, assemble
from timely.cli.debian import Debian
from timely.errors import ConfigurationError

try:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as F
except ModuleNotFoundError as error:
    raise ConfigurationError(
        "the demo on Spark needs the package pyspark: pip install '.[spark]' in a checkout of timely, or run"
        " timely demo --engine local"
    ) from error

from timely.graphs.spark import strongly_connected_components
from timely.spark import local_session


def find(
    data: Debian, parquet: Path, *, kinds: Sequence[str], workers: int, top: int, say: Callable[[str], None]
) -> Findings:
    """Find the circles among the requirements of ``kinds``, in ``workers`` tasks, and ``say`` what has been done.

    All components, (node, component), are written to ``parquet``; the ``top`` largest circles are returned.
    """
    session = local_session(workers)
    try:
        say("started Spark")
        requires = _read(session, data.requires).where(F.col("kind").isin(*kinds)).cache()
        components = strongly_connected_components(requires, src="package", dst="requires", workers=workers)
        components.write.mode("overwrite").parquet(str(parquet))
        say("read the requirements, found the components and wrote them")
        return _findings(requires, session.read.parquet(str(parquet)), _read(session, data.packages), top)
    finally:
        session.stop()


def _read(session: SparkSession, path: Path) -> DataFrame:
    return session.read.csv(str(path), header=True, escape='"')


def _findings(requires: DataFrame, components: DataFrame, packages: DataFrame, top: int) -> Findings:
    sizes = components.groupBy("component").agg(F.count("node").alias("size")).cache()
    circles = sizes.where("size > 1")
    ((nodes, alone, count),) = sizes.agg(F.sum("size"), F.count_if(F.col("size") == 1), F.count("*")).collect()
    largest = circles.orderBy(F.desc("size"), "component").limit(top)
    members = components.join(F.broadcast(largest), "component").select("component", "node").cache()
    described = members.join(packages, members["node"] == packages["package"], "left")
    rows = described.select("component", "node", "description").collect()
    return Findings(
        packages=nodes,
        requirements=requires.count(),
        circles=count - alone,
        within=nodes - alone,
        largest=assemble(map(tuple, rows), map(tuple, _within(requires, members).collect())),
    )


def _within(requires: DataFrame, members: DataFrame) -> DataFrame:
    """Return the requirements (package, requires, kind) between two members of the same component."""
    sources = members.select(F.col("component"), F.col("node").alias("package"))
    targets = members.select(F.col("component"), F.col("node").alias("requires"))
    within = requires.join(sources, "package").join(targets, ["component", "requires"])
    return within.select("package", "requires", "kind")
