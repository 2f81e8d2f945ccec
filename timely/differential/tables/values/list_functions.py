"""Functions of lists, whose values are tuples, as DuckDB defines them. The first element is number 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlglot import exp

from timely.differential.tables.values.kinds import NUMBERS, Kind, canonical_float, common, fitting, list_of, sortable
from timely.differential.tables.values.overloads import Overload, Rule, SqlFunction, overload
from timely.differential.tables.values.sizes import check_length, joined
from timely.differential.tables.values.text_functions import as_text
from timely.operators.keyed.numbers import ExactSum

Values = tuple[Any, ...]


def element(values: Values, number: int) -> Any:
    """Return an element by its number, from 1, or from -1 back; ``None`` where there is none.

    >>> element(("a", "b"), 1), element(("a", "b"), -1), element(("a", "b"), 3)
    ('a', 'b', None)
    """
    index = number - 1 if number > 0 else len(values) + number
    return values[index] if number and 0 <= index < len(values) else None


def part(values: Values, first: int, last: int) -> Values:
    """Return the elements from one number to another, both with it.

    >>> part((1, 2, 3), 2, 3), part((1, 2, 3), -2, -1), part((1, 2), 2, 1)
    ((2, 3), (2, 3), ())
    """
    count = len(values)
    begin = first - 1 if first > 0 else count + first if first < 0 else 0
    end = last if last >= 0 else count + last + 1
    return values[max(begin, 0) : max(end, 0)]


def text_part(text: str, first: int, last: int) -> str:
    """Return the letters of a text from one number to another."""
    return "".join(part(tuple(text), first, last))


def _position(values: Values | None, value: Any) -> int | None:
    return None if values is None or value not in values else values.index(value) + 1


def _join(convert: Callable[[Any], str]) -> Callable[[Values | None, str | None], str | None]:
    def join(values: Values | None, separator: str | None) -> str | None:
        if values is None:
            return None
        separator = "," if separator is None else separator
        present = [convert(value) for value in values if value is not None]
        return joined(separator, present) if present or not values else None

    return join


def _contains(values: Values | None, value: Any) -> bool | None:
    if values is None or value is None:
        return False if values == () else None
    return value in values


def _sum(values: Values) -> Any:
    present = [(value, 1) for value in values if value is not None]
    return ExactSum.of(present).result() if present else None


def _average(values: Values) -> float | None:
    present = [(value, 1) for value in values if value is not None]
    return canonical_float(float(ExactSum.of(present).result()) / len(present)) if present else None


def _extreme(choose: Callable[..., Any]) -> Callable[[Values], Any]:
    def extreme(values: Values) -> Any:
        return choose((value for value in values if value is not None), key=sortable, default=None)

    return extreme


def ordered(values: Values, descending: bool = False, nulls_first: bool = False) -> Values:
    """Return a list in order, with ``None`` at one end.

    >>> ordered((2, None, 3), descending=True)
    (3, 2, None)
    """
    present = sorted((value for value in values if value is not None), key=sortable, reverse=descending)
    missing = (None,) * (len(values) - len(present))
    return (*missing, *present) if nulls_first else (*present, *missing)


# -- overloads, for lists of any kind ------------------------------------------------------------------------------


def _of_list(f: Callable[..., Any], result: Callable[[Kind], Kind], *more: Kind, optional: bool = False) -> Rule:
    """Return the rule of a function of a list and other arguments."""

    def rule(kinds: Sequence[Kind]) -> Overload | None:
        inner = kinds[0].element if len(kinds) == 1 + len(more) else None
        return None if inner is None else overload(f, result(inner), kinds[0], *more, optional=optional)

    return rule


def _of_element(f: Callable[..., Any], result: Kind, *, sees_null: bool = False) -> Rule:
    """Return the rule of a function of a list and a value that could be in it; its result may be ``None``."""

    def rule(kinds: Sequence[Kind]) -> Overload | None:
        inner = kinds[0].element if len(kinds) == 2 else None
        kind = None if inner is None else common(inner, kinds[1])
        return None if kind is None else Overload((list_of(kind), kind), result, f, True, sees_null)

    return rule


def _of_lists(f: Callable[..., Any], result: Kind | None, sees_null: bool = False) -> Rule:
    """Return the rule of a function of lists that are alike; without ``result``, that is another one like them."""

    def rule(kinds: Sequence[Kind]) -> Overload | None:
        kind: Kind | None = Kind.NULL
        for found in kinds:
            kind = None if kind is None else common(kind, found)
        if kind is None or kind.element is None:
            return None
        return Overload((kind,) * len(kinds), kind if result is None else result, f, sees_null=sees_null)

    return rule


def concatenated(*lists: Values | None) -> Values:
    """Return lists one behind the other, without those that are ``None``."""
    check_length(sum(len(values or ()) for values in lists), "list")
    return tuple(value for values in lists for value in values or ())


def _with_element(at_end: bool) -> Rule:
    def added(values: Values | None, value: Any) -> Values:
        return (*(values or ()), value) if at_end else (value, *(values or ()))

    def rule(kinds: Sequence[Kind]) -> Overload | None:
        inner = kinds[0].element
        kind = None if inner is None else common(inner, kinds[1])
        return None if kind is None else Overload((list_of(kind), kind), list_of(kind), added, sees_null=True)

    return rule


def _flat(kinds: Sequence[Kind]) -> Overload | None:
    inner = kinds[0].element
    if inner is None or inner.element is None:
        return None
    return overload(lambda lists: concatenated(*lists), inner, kinds[0])


def _joined(kinds: Sequence[Kind]) -> Overload | None:
    inner = kinds[0].element
    convert = None if inner is None else as_text(inner)
    if convert is None or len(kinds) != 2:
        return None
    return Overload((kinds[0], Kind.TEXT), Kind.TEXT, _join(convert), optional=True, sees_null=True)


def _numeric(f: Callable[[Values], Any], result: Kind | None = None) -> Rule:
    def rule(kinds: Sequence[Kind]) -> Overload | None:
        inner = kinds[0].element
        if len(kinds) != 1 or inner is None or inner.base not in NUMBERS:
            return None
        if result is None and inner.scale is not None:
            fit = fitting(38, inner.scale)
            return overload(lambda values: None if (found := f(values)) is None else fit(found), inner, kinds[0], optional=True)
        return overload(f, result or inner, kinds[0], optional=True)

    return rule


def _identity(kind: Kind) -> Kind:
    return kind


def _same_list(kind: Kind) -> Kind:
    return list_of(kind)


_I, _B, _T = Kind.INTEGER, Kind.BOOLEAN, Kind.TEXT

LENGTH: Final[tuple[Rule, ...]] = (overload(len, _I, _T), _of_list(len, lambda kind: _I))
_ELEMENT: Final[tuple[Rule, ...]] = (
    _of_list(element, _identity, _I, optional=True),
    overload(lambda text, number: element(tuple(text), number) or "", _T, _T, _I),
)
_PART: Final[tuple[Rule, ...]] = (_of_list(part, _same_list, _I, _I), overload(text_part, _T, _T, _I, _I))
_POSITION: Final[tuple[Rule, ...]] = (_of_element(_position, _I, sees_null=True),)

LIST_FUNCTIONS: Final[dict[Any, SqlFunction]] = {
    exp.Length: SqlFunction(("this",), LENGTH),
    exp.ArraySize: SqlFunction(("this",), LENGTH[1:]),
    exp.ArrayContains: SqlFunction(
        ("this", "expression"), (_of_element(_contains, _B, sees_null=True),), ("check_null", "ensure_variant")
    ),
    exp.ArrayPosition: SqlFunction(("this", "expression"), _POSITION, ("zero_based",)),
    exp.ArrayConcat: SqlFunction(("this", "expressions"), (_of_lists(concatenated, None, True),), ("null_propagation",)),
    exp.ArrayAppend: SqlFunction(("this", "expression"), (_with_element(True),), ("null_propagation",)),
    exp.ArrayPrepend: SqlFunction(("this", "expression"), (_with_element(False),), ("null_propagation",)),
    exp.ArrayMin: SqlFunction(("this",), (_of_list(_extreme(min), _identity, optional=True),)),
    exp.ArrayMax: SqlFunction(("this",), (_of_list(_extreme(max), _identity, optional=True),)),
    exp.ArraySlice: SqlFunction(("this", "start", "end"), _PART, ("is_length", "zero_based")),
    exp.ArrayOverlaps: SqlFunction(
        ("this", "expression"),
        (_of_lists(lambda one, other: any(value in other for value in one if value is not None), _B),),
        ("null_safe",),
    ),
    exp.Flatten: SqlFunction(("this",), (_flat,)),
    exp.ArrayToString: SqlFunction(("this", "expression"), (_joined,)),
}
"""The functions that sqlglot has a node for."""

NAMED_LIST_FUNCTIONS: Final[dict[str, tuple[Rule, ...]]] = {
    "list_extract": _ELEMENT,
    "list_element": _ELEMENT,
    "array_extract": _ELEMENT,
    "list_slice": _PART,
    "list_position": _POSITION,
    "list_indexof": _POSITION,
    "list_cat": (_of_lists(concatenated, None, True),),
    "list_reverse": (_of_list(lambda values: values[::-1], _same_list),),
    "array_reverse": (_of_list(lambda values: values[::-1], _same_list),),
    "list_sum": (_numeric(_sum),),
    "list_avg": (_numeric(_average, Kind.DOUBLE),),
    "list_count": (_of_list(lambda values: sum(value is not None for value in values), lambda kind: _I),),
    "list_has_all": (_of_lists(lambda one, other: all(value in one for value in other if value is not None), _B),),
    "list_unique": (_of_list(lambda values: len({value for value in values if value is not None}), lambda kind: _I),),
}
"""The others, by name."""
