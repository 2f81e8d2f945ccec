"""Expressions of sqlglot, compiled to Python functions of a row.

Conditions have three values: true, false, and ``None`` for unknown. What is not compiled here is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final

import attrs
from sqlglot import exp

from timely.differential.tables.values import moment_functions as moments
from timely.differential.tables.values import parsing
from timely.differential.tables.values.casts import cast_of, tried
from timely.differential.tables.values.functions import FUNCTIONS
from timely.differential.tables.values.kinds import MOMENTS, NUMBERS, Column, Kind, common, conversion, decimal
from timely.differential.tables.values.overloads import NO_LENGTH, Arguments, Overload, SqlFunction, WrongArgumentError
from timely.differential.tables.values.refusals import only, refusal
from timely.differential.tables.values.written_calls import bare, call_of, interval_of, unit_of, whole_number
from timely.errors import SqlError

Row = tuple[Any, ...]
Function = Callable[[Row], Any]


@attrs.frozen
class Scalar:
    """A compiled expression: its kind, whether it may be ``None``, and the function of a row."""

    kind: Kind
    nullable: bool
    function: Function
    literal: str | None = None  # a text literal takes the kind of what it meets


@attrs.frozen
class NameScope:
    """What expressions are compiled against: the columns of a row, and which expressions they are."""

    columns: tuple[Column, ...]
    places: Mapping[exp.Expr, int]


def compile_scalar(node: exp.Expr, scope: NameScope) -> Scalar:
    """Return ``node`` as a function of rows; ``SqlError`` where it is not translated, or kinds do not fit."""
    place = scope.places.get(node)
    if place is not None:
        return _column(scope.columns[place], place)
    if isinstance(node, exp.Column):
        raise refusal(node, "no such column here; next to aggregates it must stand in GROUP BY")
    if isinstance(node, exp.AggFunc):
        raise refusal(node, "an aggregate cannot stand here")
    if isinstance(node, exp.Window):
        raise refusal(node, "a window function cannot stand here: QUALIFY has conditions on it")
    compiler = _COMPILERS.get(type(node))
    if compiler is not None:
        return compiler(node, scope)
    call = call_of(node)
    function = None if call is None else FUNCTIONS.get(call.name)
    if call is None or function is None:
        raise refusal(node, f"this is not supported here{_advice(node)}")
    return _called(node, function, call.arguments, scope)


def compile_condition(node: exp.Expr, scope: NameScope) -> Function:
    """Return a condition as a function of rows: true, false or ``None``."""
    return as_kind(compile_scalar(node, scope), Kind.BOOLEAN, node).function


def as_kind(scalar: Scalar, kind: Kind, node: exp.Expr) -> Scalar:
    """Return ``scalar`` where ``kind`` is expected: literals and narrower numbers become that; ``SqlError`` for others."""
    if scalar.kind is kind or scalar.kind is Kind.NULL:
        return attrs.evolve(scalar, kind=kind, literal=None)
    if scalar.literal is not None and kind.base in _OF_LITERALS:
        convert = conversion(Kind.TEXT, kind)
        assert convert is not None
        value = _checked(convert, scalar.literal, node)
        return Scalar(kind, False, lambda row: value)
    if common(scalar.kind, kind) is not kind:
        raise refusal(node, f"a value of {scalar.kind.value} stands where {kind.value} is expected: cast it")
    return _converted(scalar, kind, node)


_OF_LITERALS: Final = (*MOMENTS, *NUMBERS, Kind.TIME, Kind.BOOLEAN, Kind.BLOB)
"""Kinds that a literal text becomes where they are expected."""


def _called(node: exp.Expr, function: SqlFunction, nodes: Sequence[exp.Expr], scope: NameScope) -> Scalar:
    """Return a call of the first overload that has the kinds of the arguments, or else of the first that they can become."""
    arguments = [_argument(argument, scope) for argument in nodes]
    kinds = Arguments([argument.kind for argument in arguments], list(map(_written, nodes, arguments)))
    try:
        made = [rule if isinstance(rule, Overload) else rule(kinds) if kinds else None for rule in function.rules]
    except SqlError as error:
        raise refusal(nodes[error.place] if isinstance(error, WrongArgumentError) else node, str(error)) from None
    overloads = [overload for overload in made if overload is not None and len(overload.kinds) == len(kinds)]
    for place, prepare in function.prepared.items():
        if place < len(nodes):
            arguments[place] = _prepared(arguments[place], prepare, nodes[place])
    fitting = [one for fits in (_is_exactly, _can_become) for one in overloads if all(map(fits, arguments, one.kinds))]
    if not fitting and len(overloads) == 1 and overloads[0].sees == "functions":  # the argument that does not fit is refused
        fitting = overloads
    if fitting:
        chosen = fitting[0]
        passed = zip(arguments, chosen.kinds, nodes)
        return _call(chosen, [as_kind(argument, kind, part) for argument, kind, part in passed if kind is not None])
    shown = ", ".join(kind.value for kind in kinds)
    raise refusal(node, f"it does not take ({shown}): cast its arguments, or it is not supported for these")


def _written(node: exp.Expr, argument: Scalar) -> Any:
    """Return the literal that an argument is: a text, a whole number, the months and duration of an interval; or ``None``."""
    if argument.literal is not None:
        return argument.literal
    inner = bare(node)
    return interval_of(inner) if isinstance(inner, exp.Interval) else whole_number(inner)


def _prepared(argument: Scalar, prepare: Callable[[Any], Any], node: exp.Expr) -> Scalar:
    """Return an argument after what a function does with its text: at once where it is a literal."""
    if argument.literal is None:
        return attrs.evolve(argument, function=strict(prepare, argument.function))
    value = _checked(prepare, argument.literal, node)
    return attrs.evolve(argument, function=lambda row: value, literal=None)


def _checked(f: Callable[[str], Any], text: str, node: exp.Expr) -> Any:
    """Return ``f`` of a text that is written there; ``SqlError`` with its place."""
    try:
        return f(text)
    except SqlError as error:
        raise refusal(node, str(error)) from None


def _is_exactly(scalar: Scalar, kind: Kind | None) -> bool:
    return kind is None or scalar.kind is kind or scalar.kind is Kind.NULL


def _can_become(scalar: Scalar, kind: Kind | None) -> bool:
    if kind is None or _is_exactly(scalar, kind):
        return True
    return kind.base in _OF_LITERALS if scalar.literal is not None else common(scalar.kind, kind) is kind


def _call(overload: Overload, arguments: Sequence[Scalar]) -> Scalar:
    f, functions = overload.f, [argument.function for argument in arguments]
    nullable = overload.nullable([argument.nullable for argument in arguments])
    if overload.sees == "functions":
        return Scalar(overload.result, nullable, f(*functions))
    if overload.sees == "nulls" or not functions:
        return Scalar(overload.result, nullable, lambda row: f(*[function(row) for function in functions]))
    return Scalar(overload.result, nullable, strict(f, *functions))


_VOLATILE: Final = ("now", "today", "random", "uuid", "gen_random_uuid", "get_current_time", "get_current_timestamp", "nextval")


def _advice(node: exp.Expr) -> str:
    volatile = isinstance(node, exp.Anonymous) and str(node.this).lower() in _VOLATILE
    if volatile or node.key.startswith("current") or isinstance(node, exp.Rand | exp.Uuid):
        return ": its value changes while the data does not, so no view can keep it"
    if isinstance(node, exp.Anonymous):
        return f": there is no function {str(node.this).lower()} here"
    if isinstance(node, exp.Explode | exp.Unnest):
        return ": UNNEST stands in FROM, or among the selected columns"
    if isinstance(node, exp.Parameter | exp.Placeholder):
        return ": parameters have no values here"
    return ""


def _column(column: Column, place: int) -> Scalar:
    return Scalar(column.kind, column.nullable, lambda row: row[place])


def _converted(scalar: Scalar, kind: Kind, node: exp.Expr) -> Scalar:
    if scalar.kind is kind:
        return scalar
    convert = conversion(scalar.kind, kind)
    if convert is None:
        raise refusal(node, f"a cast of {scalar.kind.value} to {kind.value} is not supported")
    return Scalar(kind, scalar.nullable, strict(convert, scalar.function))


def strict(f: Callable[..., Any], *arguments: Function) -> Function:
    """Return the function of a row that applies ``f``, and is ``None`` where an argument is."""
    if len(arguments) == 1:
        (one,) = arguments

        def unary(row: Row) -> Any:
            value = one(row)
            return None if value is None else f(value)

        return unary
    if len(arguments) == 2:
        left, right = arguments

        def binary(row: Row) -> Any:
            value = left(row)
            if value is None:
                return None
            other = right(row)
            return None if other is None else f(value, other)

        return binary

    def several(row: Row) -> Any:
        values = [argument(row) for argument in arguments]
        return None if None in values else f(*values)

    return several


def unify(nodes: Sequence[exp.Expr], scalars: Sequence[Scalar], node: exp.Expr) -> list[Scalar]:
    """Return expressions that must be of one kind, each converted to it."""
    try:
        kind = Arguments([scalar.kind for scalar in scalars], [scalar.literal for scalar in scalars]).together()
    except SqlError as error:
        raise refusal(node, str(error)) from None
    return [as_kind(scalar, kind, part) for part, scalar in zip(nodes, scalars)]


# -- literals ------------------------------------------------------------------------------------------------------


def _literal(node: exp.Expr, scope: NameScope) -> Scalar:
    text = str(node.this)
    if node.is_string:
        return Scalar(Kind.TEXT, False, lambda row: text, literal=text)
    value: Any
    whole, _, fraction = text.partition(".")
    try:
        if text.isdecimal():
            kind, value = Kind.INTEGER, parsing.integer_of(text)
        elif "e" in text.lower() or len(whole) + len(fraction) > 38:
            kind, value = Kind.DOUBLE, parsing.float_of(text)
        else:
            kind, value = decimal(len(fraction)), parsing.decimal_of(text)
    except SqlError as error:
        raise refusal(node, str(error)) from None
    return Scalar(kind, False, lambda row: value)


def _null(node: exp.Expr, scope: NameScope) -> Scalar:
    return Scalar(Kind.NULL, True, lambda row: None)


def _boolean(node: exp.Expr, scope: NameScope) -> Scalar:
    value = bool(node.this)
    return Scalar(Kind.BOOLEAN, False, lambda row: value)


def _paren(node: exp.Expr, scope: NameScope) -> Scalar:
    return compile_scalar(node.this, scope)


def _argument(node: exp.Expr, scope: NameScope) -> Scalar:
    """Return an argument of a call, which may be an interval of months: functions of moments take it."""
    inner = bare(node)
    return _any_interval(inner, scope) if isinstance(inner, exp.Interval) else compile_scalar(node, scope)


def _interval(node: exp.Expr, scope: NameScope) -> Scalar:
    interval = _any_interval(node, scope)
    if interval.kind is Kind.MONTHS:
        raise refusal(node, NO_LENGTH)
    return interval


def _any_interval(node: exp.Expr, scope: NameScope) -> Scalar:
    literal = interval_of(node)
    if literal is not None:
        value: Any = literal if literal[0] else literal[1]
        return Scalar(Kind.MONTHS if literal[0] else Kind.INTERVAL, False, lambda row: value)
    factor, step = unit_of(node)
    count = as_kind(compile_scalar(node.this, scope), Kind.INTEGER, node)
    if factor:
        return Scalar(Kind.MONTHS, count.nullable, strict(lambda number: (number * factor, timedelta()), count.function))
    return Scalar(Kind.INTERVAL, count.nullable, strict(lambda number: moments.duration(number * step), count.function))


def _cast(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "to", "_type", "safe", "requires_string")
    inner = compile_scalar(node.this, scope)
    cast = cast_of(inner.kind, node.args["to"], node)
    if isinstance(node, exp.TryCast):
        return _call(tried(cast, node), [inner])
    if inner.literal is not None:
        value = _checked(cast.f, inner.literal, node)
        return Scalar(cast.result, False, lambda row: value)
    return _call(cast, [inner])


_COMPILERS: Final[dict[Any, Callable[[Any, NameScope], Scalar]]] = {
    exp.Literal: _literal,
    exp.Null: _null,
    exp.Boolean: _boolean,
    exp.Paren: _paren,
    exp.Interval: _interval,
    exp.Cast: _cast,
    exp.TryCast: _cast,
}

COMPARISONS: Final[dict[Any, Callable[[Any, Any], Any]]] = {
    exp.EQ: eq,
    exp.NEQ: ne,
    exp.LT: lt,
    exp.LTE: le,
    exp.GT: gt,
    exp.GTE: ge,
}
"""The comparisons of sqlglot, for joins."""
