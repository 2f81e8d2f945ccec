"""The order of an answer: rows of a view have none, and those of an answer have that of ``ORDER BY``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import attrs
from sqlglot import exp

from timely.differential.tables.expressions.bound import Ref, SortKey
from timely.differential.tables.expressions.scalar_compiler import RowScope
from timely.differential.tables.names.aggregate_rules import is_aggregate
from timely.differential.tables.names.clauses import last_of_name
from timely.differential.tables.names.dialect import WRITTEN
from timely.differential.tables.names.queries import query_of
from timely.differential.tables.names.refusals import refusal
from timely.differential.tables.operators.sorting import sort_key
from timely.differential.tables.values.kinds import Column, lower_case
from timely.server.contents import Row

_UNKNOWN = "an answer is put in the order of columns that it has: select this too"


class SortColumn(NamedTuple):
    """A column that rows are sorted by, with where ``NULL`` stands."""

    column: str
    descending: bool
    nulls_first: bool


@attrs.frozen
class AnswerOrder:
    """How to put the rows of ``query`` in order: it has the ``width`` columns of the answer, then those of the order alone."""

    query: str
    width: int
    _orders: tuple[exp.Expr, ...]
    _places: tuple[int, ...]

    def sort_columns(self, columns: Sequence[Column]) -> tuple[SortColumn, ...]:
        """Return which of the columns of ``query`` rows are sorted by."""
        return tuple(
            SortColumn(columns[place].name, bool(ordered.args.get("desc")), bool(ordered.args.get("nulls_first")))
            for ordered, place in zip(self._orders, self._places, strict=True)
        )

    def key(self, columns: Sequence[Column]) -> Callable[[Row], Any]:
        """Return what the rows of ``query``, which has these columns, are sorted by."""
        keys = [
            SortKey(Ref(columns[place].kind, place), bool(ordered.args.get("desc")), bool(ordered.args.get("nulls_first")))
            for ordered, place in zip(self._orders, self._places, strict=True)
        ]
        return sort_key(keys, RowScope(tuple(columns), {place: place for place in range(len(columns))}), len(columns))


def answer_order(query: str, columns_of: Callable[[], Sequence[Column]]) -> AnswerOrder | None:
    """Return the order of a query that has the columns of ``columns_of()``, or ``None`` where it has none.

    What it is ordered by, and does not select, becomes a column of its own. ``SqlError`` where that cannot be.

    >>> from timely.differential.tables.values.kinds import Kind
    >>> order = answer_order("select name from people order by age desc", lambda: [Column("name", Kind.TEXT)])
    >>> order.query, order.width
    ('SELECT name, age AS "order 0" FROM people ORDER BY age DESC', 1)
    """
    tree = query_of(query)
    order = tree.args.get("order")
    if order is None:
        return None
    columns = columns_of()
    names = [column.name for column in columns]
    orders: list[exp.Expr] = []
    places: list[int] = []
    more: list[exp.Expr] = []
    for ordered in order.expressions:
        part = ordered.this.unnest()
        repeated = last_of_name(tree, part)
        if repeated is not None:
            ordered_by = [len(columns) + len(more)]
            more.append(_own_column(tree, repeated))
        elif isinstance(part, exp.Var) and part.name.upper() == "ALL":
            ordered_by = list(range(len(columns)))
        elif isinstance(part, exp.Literal) and part.is_int and 0 < int(part.name) <= len(columns):
            ordered_by = [int(part.name) - 1]
        elif isinstance(part, exp.Column) and not part.table and names.count(lower_case(part.name)) == 1:
            ordered_by = [names.index(lower_case(part.name))]
        else:
            ordered_by = [len(columns) + len(more)]
            more.append(_own_column(tree, part))
        orders += [ordered] * len(ordered_by)
        places += ordered_by
    if not more:
        return AnswerOrder(query, len(columns), tuple(orders), tuple(places))
    wider = tree.copy()
    for number, part in enumerate(more):
        wider.append("expressions", exp.alias_(part.copy(), f"order {number}", quoted=True))
    return AnswerOrder(wider.sql(dialect=WRITTEN), len(columns), tuple(orders), tuple(places))


def _own_column(tree: exp.Expr, part: exp.Expr) -> exp.Expr:
    """Return an expression of ``ORDER BY`` as one of the selected ones, where names are those of ``FROM`` first as well."""
    group = tree.args.get("group")
    if not isinstance(tree, exp.Select) or tree.args.get("distinct") is not None or isinstance(part, exp.Literal):
        raise refusal(part, _UNKNOWN)
    if group is not None and group.args.get("all") and not any(map(is_aggregate, part.walk())):  # it would be a key
        raise refusal(part, _UNKNOWN)
    return part.copy()
