"""Bound expressions: typed records in which each name is the number of a column. Equal expressions are equal records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import attrs

from timely.differential.tables.values.kinds import Kind
from timely.differential.tables.values.overloads import Overload
from timely.errors import SqlError


@attrs.frozen
class Expr:
    """An expression of a ``kind``; ``at`` is what it was written as, for errors, and no part of what it is."""

    kind: Kind
    at: Any = attrs.field(default=None, eq=False, repr=False, kw_only=True)
    _made_of: ClassVar[tuple[str, ...]] = ()

    @property
    def parts(self) -> tuple[Expr, ...]:
        """The expressions that it is made of, over the same rows."""
        return expressions_of(self, self._made_of) if self._made_of else ()

    def with_parts(self, parts: Sequence[Expr]) -> Expr:
        """Return the same of other parts."""
        return with_expressions(self, self._made_of, parts)

    @property
    def outer(self) -> frozenset[int]:
        """The columns that it reads otherwise than by its parts."""
        return frozenset()


@attrs.frozen
class Ref(Expr):
    """A column of the rows."""

    id: int


@attrs.frozen
class Literal(Expr):
    """A value; ``text`` is that of a literal text, which becomes what it meets."""

    value: Any
    text: str | None = attrs.field(default=None, eq=False)


@attrs.frozen(cache_hash=True)  # parts are shared, so that hashes of hashes would take 2^n
class Call(Expr):
    """A function or an operator; texts of ``prepared`` arguments are read before the function has them."""

    name: str
    arguments: tuple[Expr, ...]
    overload: Overload = attrs.field(eq=False, repr=False)
    prepared: Mapping[int, Callable[..., Any]] = attrs.field(default=MappingProxyType({}), eq=False, repr=False)
    _made_of = ("arguments",)


@attrs.frozen
class Element(Expr):
    """The element of a list that is selected by ``unnest``."""

    list: Expr
    _made_of = ("list",)


@attrs.frozen
class NamedExpr:
    """An expression, and the number of the column that it becomes."""

    id: int
    value: Expr

    @property
    def ref(self) -> Ref:
        """The column."""
        return Ref(self.value.kind, self.id)


@attrs.frozen
class SortKey:
    """An expression of ``ORDER BY``."""

    value: Expr
    descending: bool = False
    nulls_first: bool = False


@attrs.frozen
class Subquery(Expr):
    """A subquery; ``plan`` is its plan, which reads the columns ``outer`` of the rows around it."""

    plan: Any = attrs.field(repr=False)
    outer: frozenset[int]


@attrs.frozen(cache_hash=True)
class ScalarQuery(Subquery):
    """The value of the one row that a subquery has."""

    error: str = attrs.field(default="", eq=False, kw_only=True)


@attrs.frozen(cache_hash=True)
class Membership(Subquery):
    """``EXISTS``, or whether ``asked`` are equal to the columns of a row, as ``equal`` compares them; or its opposite."""

    asked: tuple[Expr, ...]
    equal: tuple[Expr, ...]
    """Of each of ``asked`` with the column of the subquery at its place."""
    negated: bool = False

    @property
    def parts(self) -> tuple[Expr, ...]:
        return self.asked

    def with_parts(self, parts: Sequence[Expr]) -> Expr:
        changed = dict(zip(self.asked, parts))
        return attrs.evolve(self, asked=tuple(parts), equal=tuple(substituted(part, changed) for part in self.equal))


def expressions_of(record: Any, names: Iterable[str]) -> tuple[Expr, ...]:
    """Return the expressions in some fields of a record: alone, in tuples, named, or as keys of an order."""
    parts: list[Expr] = []
    for name in names:
        value = getattr(record, name)
        if isinstance(value, tuple):
            parts += [part if isinstance(part, Expr) else part.value for part in value]
        elif value is not None:
            parts.append(value)
    return tuple(parts)


R = TypeVar("R")


def with_expressions(record: R, names: Iterable[str], parts: Iterable[Expr]) -> R:
    """Return a record with others of the expressions that ``expressions_of`` returns."""
    left = iter(parts)
    changed = {name: _changed(getattr(record, name), left) for name in names}
    return attrs.evolve(record, **changed) if changed else record  # type: ignore[misc]


def _changed(value: Any, parts: Iterator[Expr]) -> Any:
    if isinstance(value, tuple):
        return tuple(next(parts) if isinstance(part, Expr) else attrs.evolve(part, value=next(parts)) for part in value)
    return None if value is None else next(parts)


def parts_in(expressions: Iterable[Expr]) -> list[Expr]:
    """Return expressions with all that they are made of."""
    parts = list(expressions)
    for part in parts:
        parts += part.parts
    return parts


def ids_in(*expressions: Expr) -> set[int]:
    """Return the columns that expressions read, those of their subqueries from outside too."""
    ids: set[int] = set()
    for part in parts_in(expressions):
        if isinstance(part, Ref):
            ids.add(part.id)
        else:
            ids |= part.outer
    return ids


def has_query(expression: Expr) -> bool:
    """Return whether a subquery is in an expression."""
    return any(isinstance(part, Subquery) for part in parts_in([expression]))


def substituted(expression: Expr, values: Mapping[Expr, Expr]) -> Expr:
    """Return an expression with others for some of its parts."""
    value = values.get(expression)
    if value is not None:
        return value
    parts = expression.parts
    if not parts:
        return expression
    changed = [substituted(part, values) for part in parts]
    return expression if all(one is other for one, other in zip(parts, changed)) else expression.with_parts(changed)


class PlacedError(SqlError):
    """What is wrong with an expression, and where it was written."""

    def __init__(self, why: str, at: Any) -> None:
        super().__init__(why)
        self.at = at
