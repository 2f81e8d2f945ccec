"""Relations: collections of rows, with what each column is and which expressions of a query it stands for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import attrs
from sqlglot import exp

from timely.dataflow import ScopeBuilder
from timely.differential.collections import Collection, collection
from timely.differential.tables.expressions.scalar_compiler import NameScope, Row
from timely.differential.tables.values.kinds import Column
from timely.errors import GraphError

HIDDEN: Final = "\0"
"""What names of columns begin with that no query has written."""


def hidden(width: int) -> list[exp.Expr]:
    """Return columns for the first ``width`` of a row that no query has written: no set of keys leaves them out."""
    return [exp.column(f"{HIDDEN}{place}") for place in range(width)]


def output_column(place: int) -> exp.Expr:
    """Return the name of a selected column in the ``ORDER BY`` of its query."""
    return exp.column(f"{HIDDEN}output {place}")


@attrs.frozen
class Relation:
    """A collection of rows; ``places`` says at which index of a row an expression stands."""

    collection: Collection[Any, Row]
    columns: tuple[Column, ...]
    places: Mapping[exp.Expr, int] = attrs.Factory(dict)
    tables: frozenset[str] = frozenset()

    @property
    def scope(self) -> NameScope:
        """What expressions over its rows are compiled against."""
        return NameScope(self.columns, self.places)

    def with_collection(self, rows: Collection[Any, Row]) -> Relation:
        """Return the same columns of other rows."""
        return attrs.evolve(self, collection=rows)

    def named(self, alias: str, names: Sequence[str] | None = None) -> Relation:
        """Return the relation as the table ``alias`` of a query."""
        columns = self.columns
        if names:
            columns = tuple(
                attrs.evolve(column, name=names[index]) if index < len(names) else column for index, column in enumerate(columns)
            )
        places: dict[exp.Expr, int] = {}
        for index, column in enumerate(columns):
            places.setdefault(exp.column(column.name, alias), index)  # of several columns of a name it is the first
        return Relation(self.collection, columns, places, frozenset([alias]))

    def extended(self, rows: Collection[Any, Row], columns: Iterable[Column], nodes: Iterable[exp.Expr]) -> Relation:
        """Return the relation of longer rows, whose new columns are ``nodes``."""
        width = len(self.columns)
        places = {**self.places, **{node: width + index for index, node in enumerate(nodes)}}
        return Relation(rows, (*self.columns, *columns), places, self.tables)


def beside(left: Relation, right: Relation, rows: Collection[Any, Row]) -> Relation:
    """Return the relation whose rows are those of ``left`` followed by those of ``right``."""
    width = len(left.columns)
    places = {**left.places, **{node: width + index for node, index in right.places.items()}}
    return Relation(rows, (*left.columns, *right.columns), places, left.tables | right.tables)


def entered(rows: Collection[Any, Any], scope: ScopeBuilder[Any]) -> Collection[Any, Any]:
    """Return a collection inside ``scope``, which is its own or nested in it."""
    if rows.scope is scope:
        return rows
    if scope.parent is None:
        raise GraphError(f"a table of scope {rows.scope.path!r} is read outside of it: bring it out with leave() first")
    return entered(rows, scope.parent).enter(scope)


_begins: ContextVar[Any] = ContextVar("_begins", default=None)


@contextmanager
def beginning_at(time: Any) -> Iterator[None]:
    """Have the constants of what is translated meanwhile begin at ``time``, where their dataflow's tables do."""
    token = _begins.set(time)
    try:
        yield
    finally:
        _begins.reset(token)


def constant(scope: ScopeBuilder[Any], rows: Sequence[Any]) -> Collection[Any, Any]:
    """Return the collection of ``rows``, once however many workers there are."""
    around, begins = scope, _begins.get()
    while around.parent is not None:
        around = around.parent
    made = collection(around, rows, on=0)
    return entered(made if begins is None else made.delay(lambda time: begins), scope)
