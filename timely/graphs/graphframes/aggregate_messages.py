"""``aggregateMessages``: messages along edges, aggregated at the vertices that receive them. A grouping, without a loop."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from timely.errors import ConfigurationError
from timely.graphs.graphframes.structs import condition


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
