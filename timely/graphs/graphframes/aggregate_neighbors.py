"""``aggregate_neighbors``: values accumulated along all walks from some vertices, hop by hop; each hop is two joins."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from timely.errors import ConfigurationError, SchemaError
from timely.graphs.graphframes.structs import condition
from timely.graphs.spark.graph_columns import quoted

_STOPPED = "_timely_stopped"


class AggregateNeighbors:
    """The columns that accumulators and conditions are made of: attributes of an edge and of its ends.

    >>> from timely.spark import local_session
    >>> session = local_session(2)
    >>> AggregateNeighbors.dst_attr("age")
    Column<'dst_attributes['age']'>
    """

    @staticmethod
    def src_attr(colName: str) -> Column:
        """Return an attribute of the vertex that a walk leaves."""
        return F.col("src_attributes").getField(colName)

    @staticmethod
    def dst_attr(colName: str) -> Column:
        """Return an attribute of the vertex that a walk enters."""
        return F.col("dst_attributes").getField(colName)

    @staticmethod
    def edge_attr(colName: str) -> Column:
        """Return an attribute of the edge that a walk takes."""
        return F.col("edge_attributes").getField(colName)


def aggregated_neighbors(
    vertices: DataFrame,
    edges: DataFrame,
    starts: Column | str,
    names: Sequence[str],
    initial: Sequence[Column | str],
    updates: Sequence[Column | str],
    hops: int,
    stop: Column | str | None,
    target: Column | str | None,
    along: Column | str | None,
) -> DataFrame:
    """Return ``(*names, id, hop)``: the accumulators of the walks that ended, where, and after how many hops.

    A walk ends where ``target`` holds, or ``stop`` if there is no ``target``. With both, one for which only ``stop`` holds is
    dropped.
    """
    if not names or not len(names) == len(initial) == len(updates):
        raise ConfigurationError(
            "aggregate_neighbors: each accumulator needs a name, an initial value and an update, and one is needed"
        )
    if stop is None and target is None:
        raise ConfigurationError("aggregate_neighbors: give a stopping_condition, a target_condition, or both")
    taken = {"id", "hop", "src", "dst", "src_attributes", "dst_attributes", "edge_attributes", *vertices.columns}
    for name in names:
        if name in taken or list(names).count(name) > 1:
            raise SchemaError(f"aggregate_neighbors: the accumulator {name!r} has the name of another column: rename it")
    ends = F.coalesce(condition(target if target is not None else stop), F.lit(False))  # type: ignore[arg-type]
    drops = F.lit(False) if stop is None or target is None else F.coalesce(condition(stop), F.lit(False)) & ~ends
    targets = vertices.select(F.col("id").alias("_timely_id"), _struct(vertices, "dst_attributes"))
    steps = edges.select("src", "dst", _struct(edges, "edge_attributes"))
    steps = steps.join(targets, F.col("dst") == F.col("_timely_id")).drop("_timely_id")
    walks = vertices.filter(condition(starts)).select(
        *(condition(value).alias(name) for name, value in zip(names, initial, strict=True)),
        F.col("id").alias("_timely_at"),
        F.lit(0).alias("hop"),
        _struct(vertices, "src_attributes"),
        F.lit(False).alias(_STOPPED),
    )
    for hop in range(1, hops + 1):
        leaves = ~F.col(_STOPPED) & (F.col("_timely_at") == F.col("src"))
        longer = walks.join(steps, leaves if along is None else leaves & condition(along), "left")
        longer = longer.filter(F.col(_STOPPED) | (F.col("src").isNotNull() & ~drops))
        now: dict[str, Column] = {name: condition(update) for name, update in zip(names, updates, strict=True)}
        now.update({"_timely_at": F.col("dst"), "hop": F.lit(hop), "src_attributes": F.col("dst_attributes"), _STOPPED: ends})
        walks = longer.select(*(F.when(F.col(_STOPPED), F.col(name)).otherwise(new).alias(name) for name, new in now.items()))
    return walks.filter(_STOPPED).select(*names, F.col("_timely_at").alias("id"), "hop")


def _struct(frame: DataFrame, name: str) -> Column:
    return F.struct(*map(quoted, frame.columns)).alias(name)
