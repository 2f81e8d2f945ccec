"""Calls of functions: the overload that the kinds of the arguments choose, and values as the kinds that are expected."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import permutations
from types import MappingProxyType
from typing import Any, Final

import attrs

from timely.differential.tables.expressions.bound import Call, Expr, Literal, PlacedError
from timely.differential.tables.values.functions import FUNCTIONS
from timely.differential.tables.values.kinds import MOMENTS, NUMBERS, Kind, common, conversion
from timely.differential.tables.values.overloads import Arguments, Overload, SqlFunction, WrongArgumentError
from timely.errors import SqlError


def call(name: str, arguments: Sequence[Expr], at: Any = None, own: Mapping[str, SqlFunction] = MappingProxyType({})) -> Call:
    """Return a call of the first overload that has the kinds of the arguments, or else of the first that they can become.

    ``own`` are functions of the program.
    """
    function, passed = own.get(name) or FUNCTIONS[name], list(arguments)
    kinds = Arguments([argument.kind for argument in passed], list(map(_written, passed)))
    try:
        overloads = _overloads(function, kinds)
    except SqlError as error:
        raise PlacedError(str(error), passed[error.place].at if isinstance(error, WrongArgumentError) else at) from None
    for place, prepare in function.prepared.items():
        argument = passed[place] if place < len(passed) else None
        if isinstance(argument, Literal) and argument.text is not None:
            checked(prepare, argument.text, argument.at)
            passed[place] = attrs.evolve(argument, text=None)
    fitting = _fitting(overloads, passed)
    if not fitting and len(overloads) == 1 and overloads[0].sees == "functions":  # the argument that does not fit is refused
        fitting = overloads
    if not fitting:
        shown = ", ".join(kind.value for kind in kinds)
        raise PlacedError(f"it does not take ({shown}){_instead(function, arguments)}", at)
    chosen = fitting[0]
    converted = [part if kind is None else as_kind(part, kind) for part, kind in zip(passed, chosen.kinds)]
    return Call(chosen.result, name, tuple(converted), chosen, function.prepared, at=at)


def _overloads(function: SqlFunction, kinds: Arguments) -> list[Overload]:
    made = [rule if isinstance(rule, Overload) else rule(kinds) if kinds else None for rule in function.rules]
    return [overload for overload in made if overload is not None and len(overload.kinds) == len(kinds)]


def _fitting(overloads: Sequence[Overload], passed: Sequence[Expr]) -> list[Overload]:
    return [one for fits in (_is_exactly, _can_become) for one in overloads if all(map(fits, passed, one.kinds))]


def _instead(function: SqlFunction, arguments: Sequence[Expr]) -> str:
    """Return what a function takes instead, for errors: its arguments in another order, or others."""
    for passed in permutations(arguments) if len(arguments) < 4 else ():
        with suppress(SqlError):
            kinds = Arguments([argument.kind for argument in passed], list(map(_written, passed)))
            if _fitting(_overloads(function, kinds), passed):
                return f", but ({', '.join(kind.value for kind in kinds)}): write them in this order"
    taken = [rule.kinds for rule in function.rules if isinstance(rule, Overload)][:3]
    texts = (", ".join("a literal" if kind is None else kind.value for kind in kinds) for kinds in taken)
    return f": it takes ({') or ('.join(texts)})" if taken else ": cast its arguments, or it is not supported for these"


def as_kind(expression: Expr, kind: Kind) -> Expr:
    """Return an expression where ``kind`` is expected: literals and narrower numbers become that."""
    text = expression.text if isinstance(expression, Literal) else None
    if expression.kind is kind:
        return attrs.evolve(expression, text=None) if isinstance(expression, Literal) and text is not None else expression
    if isinstance(expression, Literal) and expression.kind is Kind.NULL:
        return attrs.evolve(expression, kind=kind)
    convert = conversion(expression.kind, kind)
    if text is not None and kind.base in _OF_LITERALS:
        assert convert is not None
        return Literal(kind, checked(convert, text, expression.at), at=expression.at)
    if expression.kind is not Kind.NULL and not _widens(expression.kind, kind):
        raise PlacedError(f"a value of {expression.kind.value} stands where {kind.value} is expected: cast it", expression.at)
    if convert is None:
        raise PlacedError(f"a cast of {expression.kind.value} to {kind.value} is not supported", expression.at)
    return Call(kind, "convert", (expression,), Overload((expression.kind,), kind, convert), at=expression.at)


def checked(f: Callable[[str], Any], text: str, at: Any) -> Any:
    """Return ``f`` of a text that is written there; errors have its place."""
    try:
        return f(text)
    except SqlError as error:
        raise PlacedError(str(error), at) from None


_OF_LITERALS: Final = (*MOMENTS, *NUMBERS, Kind.TIME, Kind.BOOLEAN, Kind.BLOB, Kind.JSON, Kind.UUID)
"""Kinds that a literal text becomes where they are expected."""


def _written(expression: Expr) -> Any:
    """Return the literal that an argument is: a text, a whole number, the months and duration of an interval; or ``None``."""
    if isinstance(expression, Literal) and expression.kind in (Kind.INTERVAL, Kind.MONTHS):
        return expression.value if expression.kind is Kind.MONTHS else (0, expression.value)
    if isinstance(expression, Literal) and expression.text is not None:
        return expression.text
    return whole_number(expression)


def whole_number(expression: Expr) -> int | None:
    """Return a whole number that is written there."""
    if isinstance(expression, Literal):
        value = expression.value if expression.kind is Kind.INTEGER else None
        return value if isinstance(value, int) and value < 10**19 else None
    if isinstance(expression, Call) and expression.name == "-" and len(expression.arguments) == 1:
        number = whole_number(expression.arguments[0])
        return None if number is None else -number
    return None


def _is_exactly(expression: Expr, kind: Kind | None) -> bool:
    return kind is None or expression.kind is kind or expression.kind is Kind.NULL


def _can_become(expression: Expr, kind: Kind | None) -> bool:
    if kind is None or _is_exactly(expression, kind):
        return True
    if isinstance(expression, Literal) and expression.text is not None:
        return kind.base in _OF_LITERALS
    return _widens(expression.kind, kind)


def _widens(own: Kind, kind: Kind) -> bool:
    """Return whether values of one kind become another where that is expected; JSON is a text."""
    return common(own, kind) is kind or (own is Kind.JSON and kind is Kind.TEXT)
