"""``sql``: a query over tables as a table that stays right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typing_extensions import TypeVar

from timely.dataflow import ScopeBuilder, warn
from timely.differential.collections import Collection
from timely.differential.tables.expressions.relation import Relation
from timely.differential.tables.names.queries import OrderedRows, answer_of, query_of, relation_of, useless_order
from timely.differential.tables.names.refusals import naming_the_line
from timely.differential.tables.sources import table
from timely.differential.tables.table_class import Table, relations, table_of
from timely.differential.tables.values.kinds import lower_case
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder, default=int)


def sql(scope: ScopeBuilder[T], query: str, /, **tables: Table[T] | Collection[T, Any]) -> Table[T]:
    """Return a query over ``tables``, or collections with a schema, as a table that stays right; the dialect is DuckDB's.

    ``SqlError`` for what is not kept up to date, with the construct and its position in the text. A view has no order:
    ``ORDER BY`` without ``LIMIT`` has no effect, which a ``TimelyWarning`` says.

    >>> import pyarrow as pa
    >>> import timely
    >>> from timely import differential as dd
    >>> with timely.Worker() as worker:
    ...     with worker.dataflow(int) as scope:
    ...         edges = dd.table(scope, pa.schema([("src", pa.int64()), ("dst", pa.int64())]))
    ...         reached = dd.sql(
    ...             scope,
    ...             "with recursive r(node) as (select 1 union select dst from edges join r on src = node) select node from r",
    ...             edges=edges,
    ...         ).output()
    ...     edges.session.insert((1, 2))
    ...     edges.session.insert((2, 3))
    ...     edges.session.advance_to(1)
    ...     edges.session.remove((2, 3))
    ...     edges.session.close()
    ...     reached.at(0), reached.at(1)
    ({(1,): 1, (2,): 1, (3,): 1}, {(1,): 1, (2,): 1})
    """
    return query_over(scope, query, tables, warns=True)


@naming_the_line
def query_over(
    scope: ScopeBuilder[T], query: str, tables: Mapping[str, Table[T] | Collection[T, Any]], *, warns: bool = False
) -> Table[T]:
    """Return what ``sql`` does, which also ``warns`` of an order that decides nothing."""
    tree = query_of(query)
    order = useless_order(tree) if warns else None
    result = table_of(relation_of(scope, tree, _sources(tables)))
    if order is not None:
        _warn(order, "")
    return result


def answer_over(scope: ScopeBuilder[Any], query: str, tables: Mapping[str, Table[Any]], *, ordered: bool) -> OrderedRows:
    """Return the rows of a query, and if it is ``ordered``, its order, whose columns are behind its own."""
    return answer_of(scope, query_of(query), _sources(tables), ordered=ordered)


def _sources(tables: Mapping[str, Any]) -> dict[str, Relation]:
    return relations({lower_case(name): _as_table(each) for name, each in tables.items()})


def _as_table(rows: Any) -> Any:
    return table(rows, rows.schema) if isinstance(rows, Collection) and rows.schema is not None else rows


def warn_of_order(query: str, view: str) -> None:
    """Warn of an ``ORDER BY`` that decides nothing: neither which rows there are, nor in which order they are read."""
    order = useless_order(query_of(query))
    if order is not None:
        _warn(order, view)


def _warn(position: str, view: str) -> None:
    warn(f"{view}a view has no order: ORDER BY{position} has no effect without LIMIT; sort when you read")
