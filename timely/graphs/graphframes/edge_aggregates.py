"""Aggregates along edges without a loop: of messages, along walks of some hops, and sketches of what is reached."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ByteType, IntegerType, LongType, ShortType, StringType

from timely.errors import ConfigurationError, SchemaError
from timely.graphs.graphframes.graph_tables import condition
from timely.graphs.spark.graph_columns import quoted


class _ColumnOfClass:
    """An attribute of a class that is made at each access: a Spark column needs a session that is up."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> Column:
        return F.col(self._name)


class AggregateMessages:
    """The columns that messages and their aggregation are made of.

    ``src`` and ``dst`` are structs of the vertices at the ends of an edge, ``edge`` is one of the edge; ``msg`` is a message.

    >>> from timely.spark import local_session
    >>> session = local_session(2)
    >>> AM = AggregateMessages
    >>> AM.src, AM.msg
    (Column<'src'>, Column<'MSG'>)
    """

    src = _ColumnOfClass("src")
    dst = _ColumnOfClass("dst")
    edge = _ColumnOfClass("edge")
    msg = _ColumnOfClass("MSG")


Expressions = Sequence[Column | str] | Column | str
"""One or several column expressions, or SQL expressions."""


def aggregated_messages(
    triplets: DataFrame, aggregates: Expressions, to_src: Expressions | None, to_dst: Expressions | None
) -> DataFrame:
    """Return ``(id, ...)`` with a column for each of ``aggregates``, for the vertices that receive a message."""
    wanted = _columns("aggCol", aggregates)
    if not wanted:
        raise ConfigurationError("aggregateMessages: aggCol must have an aggregate, such as F.sum(AggregateMessages.msg)")
    sent = [
        triplets.select(F.col(f"{end}.id").alias("id"), (messages[0] if len(messages) == 1 else F.struct(*messages)).alias("MSG"))
        for end, name, sent_along in (("src", "sendToSrc", to_src), ("dst", "sendToDst", to_dst))
        if (messages := _columns(name, sent_along))
    ]
    if not sent:
        raise ConfigurationError("aggregateMessages: there are no messages: give sendToSrc, sendToDst, or both")
    return reduce(DataFrame.unionAll, sent).groupBy("id").agg(*wanted)


def _columns(name: str, columns: Expressions | None) -> list[Column]:
    several: Sequence[Any] = [] if columns is None else [columns] if isinstance(columns, Column | str) else list(columns)
    for one in several:
        if not isinstance(one, Column | str):
            raise ConfigurationError(f"aggregateMessages: {name} takes columns and SQL expressions, not {one!r}")
    return [condition(one) for one in several]


_STOPPED = "_timely_stopped"


class AggregateNeighbors:
    """The columns that accumulators and conditions are made of: attributes of an edge and of its ends.

    >>> from timely.spark import local_session
    >>> session = local_session(2)
    >>> AggregateNeighbors.dst_attr("age")
    Column<'dst_attributes[...age...]'>
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


def neighborhood_sketches(edges: DataFrame, hops: int, size: int) -> DataFrame:
    """Return ``(id, hop_0, ..., hop_n)`` for the ids at which an edge starts.

    ``hop_k`` is a sketch of the ends of all walks of ``k`` edges, empty where there is none. It has ``2**size`` registers.
    ``SchemaError`` for ids that Spark has no sketches of.
    """
    if not isinstance(size, int) or not 4 <= size <= 21:
        raise ConfigurationError(f"hyper_anf: lg_nom_entries must be a whole number from 4 to 21, not {size!r}")
    kind = edges.schema["src"].dataType
    if not isinstance(kind, ByteType | ShortType | IntegerType | LongType | StringType):
        raise SchemaError(f"hyper_anf: the ids are {kind.simpleString()}, which Spark has no sketches of: cast them to string")
    value = "int" if isinstance(kind, ByteType | ShortType) else kind.simpleString()
    own, first = (F.hll_sketch_agg(F.col(end).cast(value), size) for end in ("src", "dst"))
    sketches = edges.groupBy(F.col("src").alias("id")).agg(own.alias("hop_0"), first.alias("hop_1"))
    for hop in range(2, hops + 1):
        before = sketches.select(F.col("id").alias("dst"), F.col(f"hop_{hop - 1}").alias("sketch"))
        reached = edges.join(before, "dst", "left").groupBy(F.col("src").alias("id"))
        sketches = sketches.join(reached.agg(F.hll_union_agg("sketch").alias(f"hop_{hop}")), "id")
    return sketches
