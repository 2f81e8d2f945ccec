"""Relations: collections of rows, with what each column is and its number in the plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from timely.dataflow import ScopeBuilder
from timely.differential.collections import Collection, collection
from timely.differential.tables.expressions.scalar_compiler import Row, RowScope
from timely.differential.tables.values.kinds import Column
from timely.errors import GraphError


@attrs.frozen
class Relation:
    """A collection of rows; ``ids`` are the numbers of its columns.

    ``watermarks`` are by the places of columns: rows of one moment, of which no change of a later time is below the greatest.
    Rows of one that ``grows`` are never taken away.
    """

    collection: Collection[Any, Row]
    columns: tuple[Column, ...]
    ids: tuple[int, ...] = ()
    watermarks: tuple[tuple[int, Collection[Any, Row]], ...] = ()
    grows: bool = False

    @property
    def scope(self) -> RowScope:
        """What expressions over its rows are compiled against."""
        return RowScope(self.columns, {number: place for place, number in enumerate(self.ids)})

    def with_collection(self, rows: Collection[Any, Row]) -> Relation:
        """Return the same columns of other rows."""
        return attrs.evolve(self, collection=rows)

    def extended(self, rows: Collection[Any, Row], columns: Iterable[Column], ids: Iterable[int]) -> Relation:
        """Return the relation of longer rows."""
        return Relation(rows, (*self.columns, *columns), (*self.ids, *ids))

    def optional(self) -> Relation:
        """Return the relation as one whose columns may all be ``None``."""
        return attrs.evolve(self, columns=tuple(attrs.evolve(column, nullable=True) for column in self.columns))


def beside(left: Relation, right: Relation, rows: Collection[Any, Row]) -> Relation:
    """Return the relation whose rows are those of ``left`` followed by those of ``right``."""
    return left.extended(rows, right.columns, right.ids)


def entered(rows: Collection[Any, Any], scope: ScopeBuilder[Any]) -> Collection[Any, Any]:
    """Return a collection inside ``scope``, which is its own or nested in it."""
    if rows.scope is scope:
        return rows
    if scope.parent is None:
        raise GraphError(f"a table of scope {rows.scope.path!r} is read outside of it: bring it out with leave() first")
    return entered(rows, scope.parent).enter(scope)


def constant(scope: ScopeBuilder[Any], rows: Sequence[Any]) -> Collection[Any, Any]:
    """Return the collection of ``rows``, once however many workers there are."""
    around = scope
    while around.parent is not None:
        around = around.parent
    return entered(collection(around, rows, on=0), scope)
