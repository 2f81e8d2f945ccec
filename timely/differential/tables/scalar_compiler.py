"""Expressions of sqlglot, compiled to Python functions of a row.

Conditions have three values: true, false, and ``None`` for unknown. What is not compiled here is refused.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from operator import add, eq, ge, gt, le, lt, mul, ne, neg, sub
from typing import Any, Final

import attrs
from sqlglot import exp

from timely.differential.tables import moment_functions as moments
from timely.differential.tables import scalars
from timely.differential.tables.functions import FUNCTIONS, NAMED_FUNCTIONS
from timely.differential.tables.kinds import (
    MOMENTS,
    NUMBERS,
    Column,
    Kind,
    common,
    conversion,
    list_of,
    rounded,
    sortable,
    struct_of,
    within,
)
from timely.differential.tables.list_functions import element, ordered, text_part
from timely.differential.tables.list_functions import part as list_part
from timely.differential.tables.number_functions import round_float
from timely.differential.tables.overloads import Overload, Rule
from timely.differential.tables.refusals import only, refusal
from timely.differential.tables.text_functions import as_text, lower, pad, trimmed
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
    scale: int | None = None  # digits behind the point of a decimal, where they are known


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
    function = FUNCTIONS.get(type(node))
    if compiler is None and function is not None:
        only(node, *function.arguments, *function.ignored)
        found = [node.args.get(name) for name in function.arguments]
        arguments = [more for value in found if value is not None for more in (value if isinstance(value, list) else [value])]
        return _call(node, function.rules, arguments, scope)
    if isinstance(node, exp.Anonymous) and str(node.this).lower() in ("date_part", "datepart"):
        return _date_part(node, scope)
    if isinstance(node, exp.Anonymous) and str(node.this).lower() in NAMED_FUNCTIONS:
        return _call(node, NAMED_FUNCTIONS[str(node.this).lower()], node.expressions, scope)
    if compiler is None:
        raise refusal(node, f"{node.key.upper()} is not supported{_advice(node)}")
    return compiler(node, scope)


def compile_condition(node: exp.Expr, scope: NameScope) -> Function:
    """Return a condition as a function of rows: true, false or ``None``."""
    return as_kind(compile_scalar(node, scope), Kind.BOOLEAN, node).function


def as_kind(scalar: Scalar, kind: Kind, node: exp.Expr) -> Scalar:
    """Return ``scalar`` where ``kind`` is expected: literals and narrower numbers become that; ``SqlError`` for others."""
    if scalar.kind is kind or scalar.kind is Kind.NULL:
        return attrs.evolve(scalar, kind=kind, literal=None)
    if scalar.literal is not None and kind in _OF_LITERALS:
        convert = conversion(Kind.TEXT, kind)
        assert convert is not None
        try:
            value = convert(scalar.literal)
        except SqlError as error:
            raise refusal(node, str(error)) from None
        return Scalar(kind, False, lambda row: value)
    if common(scalar.kind, kind) is not kind:
        raise refusal(node, f"a value of {scalar.kind.value} stands where {kind.value} is expected: cast it")
    return _converted(scalar, kind, node)


_OF_LITERALS: Final = (*MOMENTS, *NUMBERS, Kind.TIME, Kind.BOOLEAN, Kind.BLOB)
"""Kinds that a literal text becomes where they are expected."""


def _call(node: exp.Expr, rules: Sequence[Rule], arguments: Sequence[exp.Expr], scope: NameScope) -> Scalar:
    """Return a call of the first overload that has the kinds of the arguments, or else of the first that they can become."""
    given = [compile_scalar(argument, scope) for argument in arguments]
    kinds = [scalar.kind for scalar in given]
    overloads: list[Overload] = []
    for rule in rules:
        found = rule if isinstance(rule, Overload) else rule(kinds) if kinds else None
        if found is not None and len(found.kinds) == len(kinds):
            overloads.append(found)
    for fits in (_is_exactly, _can_become):
        for overload in overloads:
            if all(map(fits, given, overload.kinds)):
                return _called(overload, [as_kind(*argument) for argument in zip(given, overload.kinds, arguments)])
    shown = ", ".join(kind.value for kind in kinds)
    raise refusal(node, f"it does not take ({shown}): cast its arguments, or it is not supported for these")


def _is_exactly(scalar: Scalar, kind: Kind) -> bool:
    return scalar.kind is kind or scalar.kind is Kind.NULL


def _can_become(scalar: Scalar, kind: Kind) -> bool:
    if _is_exactly(scalar, kind):
        return True
    return kind in _OF_LITERALS if scalar.literal is not None else common(scalar.kind, kind) is kind


def _called(overload: Overload, arguments: Sequence[Scalar]) -> Scalar:
    f = overload.f
    functions = [argument.function for argument in arguments]
    if not functions:
        return Scalar(overload.result, overload.optional, lambda row: f())
    if overload.sees_null:
        return Scalar(overload.result, overload.optional, lambda row: f(*[function(row) for function in functions]))
    nullable = overload.optional or any(argument.nullable for argument in arguments)
    return Scalar(overload.result, nullable, strict(f, *functions))


_VOLATILE: Final = ("now", "today", "random", "uuid", "gen_random_uuid", "get_current_time", "get_current_timestamp", "nextval")


def _advice(node: exp.Expr) -> str:
    volatile = isinstance(node, exp.Anonymous) and str(node.this).lower() in _VOLATILE
    if volatile or node.key.startswith("current") or isinstance(node, exp.Rand | exp.Uuid):
        return ": its value changes while the data does not, so no view can keep it"
    if isinstance(node, exp.Anonymous):
        return f": there is no function {str(node.this).lower()} here"
    if isinstance(node, exp.Parameter | exp.Placeholder):
        return ": parameters have no values here"
    return ""


def _column(column: Column, place: int) -> Scalar:
    return Scalar(column.kind, column.nullable, lambda row: row[place], scale=column.scale)


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


def unify(nodes: Sequence[exp.Expr], scalars_: Sequence[Scalar], node: exp.Expr) -> list[Scalar]:
    """Return expressions that must be of one kind, each converted to it."""
    kind = Kind.NULL
    for scalar in scalars_:
        if scalar.literal is None:
            found = common(kind, scalar.kind)
            if found is None:
                raise refusal(node, f"{kind.value} and {scalar.kind.value} do not go together: cast one")
            kind = found
    if kind is Kind.NULL and any(scalar.literal is not None for scalar in scalars_):
        kind = Kind.TEXT
    return [as_kind(scalar, kind, part) for part, scalar in zip(nodes, scalars_)]


def _unified(nodes: Sequence[exp.Expr], scope: NameScope, node: exp.Expr) -> list[Scalar]:
    return unify(nodes, [compile_scalar(part, scope) for part in nodes], node)


# -- literals ------------------------------------------------------------------------------------------------------


def _literal(node: exp.Expr, scope: NameScope) -> Scalar:
    text = str(node.this)
    if node.is_string:
        return Scalar(Kind.TEXT, False, lambda row: text, literal=text)
    value: Any
    if text.isdigit():
        kind, value = Kind.INTEGER, int(text)
    elif "e" in text.lower():
        kind, value = Kind.DOUBLE, float(text)
    else:
        kind, value = Kind.DECIMAL, Decimal(text)
        return Scalar(kind, False, lambda row: value, scale=len(text.partition(".")[2]))
    return Scalar(kind, False, lambda row: value)


def _null(node: exp.Expr, scope: NameScope) -> Scalar:
    return Scalar(Kind.NULL, True, lambda row: None)


def _boolean(node: exp.Expr, scope: NameScope) -> Scalar:
    value = bool(node.this)
    return Scalar(Kind.BOOLEAN, False, lambda row: value)


def _paren(node: exp.Expr, scope: NameScope) -> Scalar:
    return compile_scalar(node.this, scope)


# -- arithmetic ----------------------------------------------------------------------------------------------------

_ARITHMETIC: Final[dict[Any, dict[Kind, Callable[[Any, Any], Any]]]] = {
    exp.Add: {Kind.INTEGER: add, Kind.DECIMAL: scalars.EXACT.add, Kind.DOUBLE: scalars.add_floats},
    exp.Sub: {Kind.INTEGER: sub, Kind.DECIMAL: scalars.EXACT.subtract, Kind.DOUBLE: scalars.subtract_floats},
    exp.Mul: {Kind.INTEGER: mul, Kind.DECIMAL: scalars.EXACT.multiply, Kind.DOUBLE: scalars.multiply_floats},
    exp.Mod: {Kind.INTEGER: scalars.remainder, Kind.DECIMAL: scalars.remainder, Kind.DOUBLE: scalars.remainder},
}


def _arithmetic(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "expression", "safe", "typed")
    if isinstance(node, exp.Add | exp.Sub):
        found = _moved_by_months(node, scope)
        if found is not None:
            return found
    left, right = compile_scalar(node.this, scope), compile_scalar(node.expression, scope)
    of_moments = _moment_arithmetic(node, left, right)
    if of_moments is not None:
        return of_moments
    left, right = unify([node.this, node.expression], [left, right], node)
    kind = left.kind
    nullable = left.nullable or right.nullable
    if kind is Kind.NULL:
        return left
    if kind not in NUMBERS:
        raise refusal(node, f"arithmetic on {kind.value} is not supported")
    if isinstance(node, exp.Div):
        left, right = as_kind(left, Kind.DOUBLE, node), as_kind(right, Kind.DOUBLE, node)
        return Scalar(Kind.DOUBLE, nullable, strict(scalars.divide, left.function, right.function))
    if isinstance(node, exp.IntDiv):
        if kind is not Kind.INTEGER:
            raise refusal(node, "// is supported for whole numbers")
        return Scalar(kind, nullable, strict(scalars.quotient, left.function, right.function))
    return Scalar(kind, nullable, strict(_ARITHMETIC[type(node)][kind], left.function, right.function))


def _moment_arithmetic(node: exp.Expr, left: Scalar, right: Scalar) -> Scalar | None:
    """Return arithmetic on dates, times and intervals, or ``None`` where there is none."""
    found = _OF_MOMENTS.get((type(node), left.kind, right.kind))
    if found is None:
        return None
    kind, f = found
    return Scalar(kind, left.nullable or right.nullable, strict(f, left.function, right.function))


def interval_of(interval: exp.Expr, sign: int) -> tuple[int, datetime.timedelta] | None:
    """Return the months and the duration of a literal interval, times ``sign``; ``None`` for others."""
    if not isinstance(interval.this, exp.Literal):
        return None
    months, delta = (scalar.function(()) for scalar in _interval_parts(interval, NameScope((), {})))
    return sign * months, sign * delta


def _moment_rules() -> dict[tuple[Any, Kind, Kind], tuple[Kind, Callable[[Any, Any], Any]]]:
    date, time, whole, span = Kind.DATE, Kind.TIME, Kind.INTEGER, Kind.INTERVAL
    found: dict[tuple[Any, Kind, Kind], tuple[Kind, Callable[[Any, Any], Any]]] = {}

    def both_ways(operator: Any, one: Kind, other: Kind, kind: Kind, f: Callable[[Any, Any], Any]) -> None:
        found[operator, one, other] = kind, f
        found[operator, other, one] = kind, lambda value, more: f(more, value)

    for moment in MOMENTS:
        moved = Kind.TIMESTAMP if moment is date else moment
        both_ways(exp.Add, moment, span, moved, lambda value, delta: moments.add_interval(value, 0, delta))
        found[exp.Sub, moment, span] = moved, lambda value, delta: moments.add_interval(value, 0, -delta)
        for other in MOMENTS:
            found[exp.Sub, moment, other] = span, lambda value, more: moments.naive(value) - moments.naive(more)
    both_ways(exp.Add, date, whole, date, moments.add_days)
    found[exp.Sub, date, whole] = date, lambda value, days: moments.add_days(value, -days)
    found[exp.Sub, date, date] = whole, lambda one, other: (one - other).days
    both_ways(exp.Add, date, time, Kind.TIMESTAMP, moments.at_time)
    both_ways(exp.Add, time, span, time, moments.add_to_time)
    found[exp.Sub, time, span] = time, lambda value, delta: moments.add_to_time(value, -delta)
    found[exp.Add, span, span] = span, moments.add_durations
    found[exp.Sub, span, span] = span, lambda one, other: moments.add_durations(one, -other)
    both_ways(exp.Mul, span, whole, span, moments.multiply_duration)
    return found


_OF_MOMENTS: Final = _moment_rules()


def _moved_by_months(node: exp.Expr, scope: NameScope) -> Scalar | None:
    """Return a date or timestamp moved by an interval that is written there, which may have months; or ``None``."""
    sign = -1 if isinstance(node, exp.Sub) else 1
    moment, interval = node.this, _bare(node.expression)
    if not isinstance(interval, exp.Interval) and sign == 1:
        moment, interval = node.expression, _bare(node.this)
    if not isinstance(interval, exp.Interval):
        return None
    value = compile_scalar(moment, scope)
    if value.kind not in MOMENTS:
        return None
    months, delta = _interval_parts(interval, scope)
    kind = Kind.TIMESTAMP if value.kind is Kind.DATE else value.kind
    moved = strict(
        lambda at, count, more: moments.add_interval(at, sign * count, sign * more),
        value.function,
        months.function,
        delta.function,
    )
    return Scalar(kind, value.nullable or months.nullable, moved)


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _interval_parts(node: exp.Expr, scope: NameScope) -> tuple[Scalar, Scalar]:
    """Return the months of an interval, and its duration."""
    only(node, "this", "unit")
    unit = str(node.args.get("unit") or "")
    if isinstance(node.this, exp.Literal):
        try:
            months, delta = moments.interval_of(str(node.this.this), unit)
        except SqlError as error:
            raise refusal(node, str(error)) from None
        return Scalar(Kind.INTEGER, False, lambda row: months), Scalar(Kind.INTERVAL, False, lambda row: delta)
    name = moments.unit_of(unit)
    if name is None:
        raise refusal(node, "an interval has a unit: years to microseconds")
    count = as_kind(compile_scalar(node.this, scope), Kind.INTEGER, node)
    factor, step = moments.UNITS[name]
    return (
        Scalar(Kind.INTEGER, count.nullable, strict(lambda number: number * factor, count.function)),
        Scalar(Kind.INTERVAL, count.nullable, strict(lambda number: moments.duration(number * step), count.function)),
    )


def _interval(node: exp.Expr, scope: NameScope) -> Scalar:
    months, delta = _interval_parts(node, scope)
    unit = moments.unit_of(str(node.args.get("unit") or ""))
    if (unit and moments.UNITS[unit][0]) or (isinstance(node.this, exp.Literal) and months.function(())):
        raise refusal(node, "months have no fixed length: such an interval is only added to a date or timestamp")
    return delta


def _negative(node: exp.Expr, scope: NameScope) -> Scalar:
    inner = compile_scalar(node.this, scope)
    if inner.kind is Kind.INTERVAL:
        return attrs.evolve(inner, function=strict(neg, inner.function))
    if inner.kind not in (*NUMBERS, Kind.NULL) or inner.literal is not None:
        raise refusal(node, f"arithmetic on {inner.kind.value} is not supported")
    negate: Callable[[Any], Any] = scalars.EXACT.minus if inner.kind is Kind.DECIMAL else neg
    if inner.kind is Kind.DOUBLE:
        negate = scalars.negative_float
    return Scalar(inner.kind, inner.nullable, strict(negate, inner.function), scale=inner.scale)


# -- conditions ----------------------------------------------------------------------------------------------------

COMPARISONS: Final[dict[Any, Callable[[Any, Any], Any]]] = {
    exp.EQ: eq,
    exp.NEQ: ne,
    exp.LT: lt,
    exp.LTE: le,
    exp.GT: gt,
    exp.GTE: ge,
}


def _comparison(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "expression")
    left, right = _unified([node.this, node.expression], scope, node)
    compare = COMPARISONS[type(node)]
    if left.kind.nested and type(node) not in (exp.EQ, exp.NEQ):
        plain = compare

        def compare(one: Any, other: Any) -> bool:
            return bool(plain(sortable(one), sortable(other)))

    return Scalar(Kind.BOOLEAN, left.nullable or right.nullable, strict(compare, left.function, right.function))


def _same(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "expression")
    left, right = _unified([node.this, node.expression], scope, node)
    one, other, equal = left.function, right.function, isinstance(node, exp.NullSafeEQ)
    return Scalar(Kind.BOOLEAN, False, lambda row: (one(row) == other(row)) is equal)


def _connective(decisive: bool) -> Callable[[exp.Expr, NameScope], Scalar]:
    """Return what compiles ``AND``, which a false side decides, or ``OR``, which a true side does."""

    def compiled(node: exp.Expr, scope: NameScope) -> Scalar:
        only(node, "this", "expression")
        left, right = (as_kind(compile_scalar(part, scope), Kind.BOOLEAN, part) for part in (node.this, node.expression))
        one, other = left.function, right.function

        def value(row: Row) -> Any:
            first = one(row)
            if first is decisive:
                return decisive
            second = other(row)
            if second is decisive:
                return decisive
            return None if first is None or second is None else not decisive

        return Scalar(Kind.BOOLEAN, left.nullable or right.nullable, value)

    return compiled


def _not(node: exp.Expr, scope: NameScope) -> Scalar:
    inner = as_kind(compile_scalar(node.this, scope), Kind.BOOLEAN, node.this)
    return Scalar(Kind.BOOLEAN, inner.nullable, strict(lambda value: not value, inner.function))


def _is(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "expression")
    one = compile_scalar(node.this, scope).function
    if isinstance(node.expression, exp.Null):
        return Scalar(Kind.BOOLEAN, False, lambda row: one(row) is None)
    if isinstance(node.expression, exp.Boolean):
        one = compile_condition(node.this, scope)
        expected = bool(node.expression.this)
        return Scalar(Kind.BOOLEAN, False, lambda row: one(row) is expected)
    raise refusal(node, "IS is supported with NULL, TRUE and FALSE")


def _between(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "low", "high")
    this, low, high = node.this, node.args["low"], node.args["high"]
    return compile_scalar(exp.And(this=exp.GTE(this=this, expression=low), expression=exp.LTE(this=this, expression=high)), scope)


def _in(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "expressions")
    options = list(node.expressions)
    scalar, *others = _unified([node.this, *options], scope, node)
    value_of, functions = scalar.function, [other.function for other in others]

    def found(row: Row) -> Any:
        value = value_of(row)
        if value is None:
            return None
        unknown = False
        for function in functions:
            option = function(row)
            if option is None:
                unknown = True
            elif option == value:
                return True
        return None if unknown else False

    return Scalar(Kind.BOOLEAN, any(part.nullable for part in (scalar, *others)), found)


def _like(node: exp.Expr, scope: NameScope) -> Scalar:
    escape = ""
    inner = node
    if isinstance(node, exp.Escape):
        only(node, "this", "expression")
        escape = str(node.expression.this) if isinstance(node.expression, exp.Literal) else ""
        inner = node.this
        if len(escape) != 1 or not isinstance(inner, exp.Like | exp.ILike):
            raise refusal(node, "ESCAPE takes one character, after LIKE")
    if isinstance(inner, exp.ILike) and escape.isalpha():
        raise refusal(node, "ILIKE takes no letter as its escape character")
    only(inner, "this", "expression", "negate")
    left, right = (as_kind(compile_scalar(part, scope), Kind.TEXT, part) for part in (inner.this, inner.expression))
    negate = bool(inner.args.get("negate"))
    fold = lower if isinstance(inner, exp.ILike) else str

    def matches(text: str, pattern: str) -> bool:
        return scalars.like(fold(text), fold(pattern), escape) is not negate

    return Scalar(Kind.BOOLEAN, left.nullable or right.nullable, strict(matches, left.function, right.function))


# -- choices -------------------------------------------------------------------------------------------------------


def _case(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "ifs", "default")
    base = node.this
    conditions = []
    for branch in node.args["ifs"]:
        only(branch, "this", "true")
        test = branch.this if base is None else exp.EQ(this=base, expression=branch.this)
        conditions.append(compile_condition(test, scope))
    return _chosen(node, conditions, [branch.args["true"] for branch in node.args["ifs"]], node.args.get("default"), scope)


def _if(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "true", "false")
    return _chosen(node, [compile_condition(node.this, scope)], [node.args["true"]], node.args.get("false"), scope)


def _chosen(
    node: exp.Expr, conditions: list[Function], results: list[exp.Expr], default: exp.Expr | None, scope: NameScope
) -> Scalar:
    found = _unified([*results, default or exp.Null()], scope, node)
    branches = list(zip(conditions, [scalar.function for scalar in found]))
    otherwise = found[-1].function

    def choose(row: Row) -> Any:
        for condition, result in branches:
            if condition(row):
                return result(row)
        return otherwise(row)

    return Scalar(found[0].kind, any(scalar.nullable for scalar in found), choose)


def _coalesce(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "expressions", "is_nvl", "is_null")
    found = _unified([node.this, *node.expressions], scope, node)
    functions = [scalar.function for scalar in found]

    def first(row: Row) -> Any:
        for function in functions:
            value = function(row)
            if value is not None:
                return value
        return None

    return Scalar(found[0].kind, all(scalar.nullable for scalar in found), first)


def _nullif(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "expression")
    original = compile_scalar(node.this, scope)
    left, right = _unified([node.this, node.expression], scope, node)
    kept, one, other = original.function, left.function, right.function

    def unless(row: Row) -> Any:
        second = other(row)
        return None if second is not None and one(row) == second else kept(row)

    return Scalar(original.kind, True, unless)


def _extreme(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "expressions", "ignore_nulls")
    found = _unified([node.this, *node.expressions], scope, node)
    functions = [scalar.function for scalar in found]
    choose: Any = max if isinstance(node, exp.Greatest) else min
    key = sortable if found[0].kind.nested else None

    def extreme(row: Row) -> Any:
        values = [value for function in functions if (value := function(row)) is not None]
        return choose(values, key=key) if values else None

    return Scalar(found[0].kind, all(scalar.nullable for scalar in found), extreme)


# -- casts and functions -------------------------------------------------------------------------------------------


def _cast(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "to", "_type", "safe", "requires_string")
    inner = compile_scalar(node.this, scope)
    target: exp.DataType = node.args["to"]
    kind, narrow, scale = _target(target, node)
    if inner.kind is Kind.DOUBLE and kind is Kind.DECIMAL:
        assert narrow is not None
        found = Scalar(kind, inner.nullable, strict(_decimal_of_double(scale or 0), inner.function))
    elif inner.kind is Kind.DECIMAL and kind is Kind.TEXT:
        if inner.scale is None:
            raise refusal(node, "how many digits this decimal has is not known: cast it to DECIMAL(precision, scale) first")
        found = Scalar(kind, inner.nullable, strict(_text_of_decimal(inner.scale), inner.function))
    else:
        found = _converted(inner, kind, node)
    function = found.function if narrow is None else strict(narrow, found.function)
    return Scalar(kind, found.nullable, function, scale=scale)


def _try_cast(node: exp.Expr, scope: NameScope) -> Scalar:
    inner = compile_scalar(node.this, scope)
    place = exp.column("value", "of try_cast")
    casts = NameScope((Column("value", inner.kind, True, inner.scale),), {place: 0})
    cast = _cast(exp.Cast(this=place, to=node.args["to"]), casts)
    if cast.kind.nested:
        raise refusal(node, "TRY_CAST of lists and structs is not supported")
    value_of, convert = inner.function, cast.function

    def tried(row: Row) -> Any:
        value = value_of(row)  # its own errors stay errors
        try:
            return convert((value,))
        except SqlError:
            return None

    return Scalar(cast.kind, True, tried, scale=cast.scale)


def _decimal_of_double(scale: int) -> Callable[[float], Decimal]:
    def convert(value: float) -> Decimal:
        found = round_float(value * 10.0**scale)
        if found in (float("inf"), float("-inf")):
            raise SqlError(f"{value} does not fit a DECIMAL")
        return Decimal(int(found)).scaleb(-scale)

    return convert


def _text_of_decimal(scale: int) -> Callable[[Decimal], str]:
    return lambda value: f"{value or abs(value):.{scale}f}"  # no minus before zero


Narrow = Callable[[Any], Any]


def _target(target: exp.DataType, node: exp.Expr) -> tuple[Kind, Narrow | None, int | None]:
    """Return the kind of a type, what checks that a value fits it, and its digits behind the point."""
    only(target, "this", "expressions", "nested")
    name = target.this
    parts = target.expressions
    if name == exp.DataType.Type.DECIMAL:
        sizes = [int(str(part.this.this)) for part in parts] or [18, 3]
        scale = sizes[1] if len(sizes) > 1 else 0
        return Kind.DECIMAL, rounded(sizes[0], scale), scale
    if name in (exp.DataType.Type.ARRAY, exp.DataType.Type.LIST) and len(parts) == 1:
        kind, narrow, _ = _target(parts[0], node)
        return list_of(kind), None if narrow is None else _narrow_list(narrow), None
    if name == exp.DataType.Type.STRUCT and parts and all(isinstance(part, exp.ColumnDef) for part in parts):
        fields = [(part.name.lower(), *_target(part.args["kind"], node)) for part in parts]
        return struct_of(tuple((field, kind) for field, kind, _, _ in fields)), _narrow_struct([one[2] for one in fields]), None
    if parts and name not in (exp.DataType.Type.VARCHAR, exp.DataType.Type.TEXT):
        raise refusal(node, "this type has no parameters here")
    if name in exp.DataType.INTEGER_TYPES and name in _BITS:
        return Kind.INTEGER, within(*_BITS[name]), None
    if name in _KINDS:
        return _KINDS[name], None, None
    raise refusal(node, f"the type {target.sql(dialect='duckdb')} is not supported")


def _narrow_list(narrow: Narrow) -> Narrow:
    return lambda values: tuple(None if value is None else narrow(value) for value in values)


def _narrow_struct(narrows: Sequence[Narrow | None]) -> Narrow:
    return lambda values: tuple(
        value if value is None or narrow is None else narrow(value) for value, narrow in zip(values, narrows)
    )


_TYPE = exp.DataType.Type
_BITS: Final = {
    _TYPE.TINYINT: (8, True),
    _TYPE.SMALLINT: (16, True),
    _TYPE.INT: (32, True),
    _TYPE.BIGINT: (64, True),
    _TYPE.INT128: (128, True),
    _TYPE.UTINYINT: (8, False),
    _TYPE.USMALLINT: (16, False),
    _TYPE.UINT: (32, False),
    _TYPE.UBIGINT: (64, False),
}
_KINDS: Final = {
    _TYPE.BOOLEAN: Kind.BOOLEAN,
    _TYPE.DOUBLE: Kind.DOUBLE,
    _TYPE.TEXT: Kind.TEXT,
    _TYPE.VARCHAR: Kind.TEXT,
    _TYPE.DATE: Kind.DATE,
    _TYPE.TIMESTAMP: Kind.TIMESTAMP,
    _TYPE.TIMESTAMPNTZ: Kind.TIMESTAMP,
    _TYPE.TIMESTAMPTZ: Kind.INSTANT,
    _TYPE.TIME: Kind.TIME,
    _TYPE.VARBINARY: Kind.BLOB,
    _TYPE.BINARY: Kind.BLOB,
}


def _trim(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "position", "expression")
    arguments = [node.this, *([] if node.args.get("expression") is None else [node.expression])]
    f = trimmed(str(node.args.get("position") or "").upper())
    return _call(node, [Overload((Kind.TEXT,) * len(arguments), Kind.TEXT, f)], arguments, scope)


def _pad(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "expression", "fill_pattern", "is_left")
    arguments = [node.this, node.expression, node.args.get("fill_pattern") or exp.Literal.string(" ")]
    rule = Overload((Kind.TEXT, Kind.INTEGER, Kind.TEXT), Kind.TEXT, pad(bool(node.args.get("is_left"))))
    return _call(node, [rule], arguments, scope)


def _pipes(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "expression", "safe")
    left, right = compile_scalar(node.this, scope), compile_scalar(node.expression, scope)
    nullable = left.nullable or right.nullable
    if left.kind.element is not None or right.kind.element is not None:
        left, right = unify([node.this, node.expression], [left, right], node)
        return Scalar(left.kind, nullable, strict(add, left.function, right.function))
    texts = []
    for scalar in (left, right):
        convert = as_text(scalar.kind)
        if convert is None or Kind.TEXT not in (left.kind, right.kind):
            raise refusal(node, f"{left.kind.value} || {right.kind.value} is not supported: cast both to VARCHAR")
        texts.append(scalar.function if scalar.kind in (Kind.TEXT, Kind.NULL) else strict(convert, scalar.function))
    return Scalar(Kind.TEXT, nullable, strict(add, *texts))


# -- dates and times -----------------------------------------------------------------------------------------------


def _extract(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "expression")
    return _part(node, str(node.this.name or node.this), node.expression, scope)


def _part(node: exp.Expr, unit: str, argument: exp.Expr, scope: NameScope) -> Scalar:
    inner = compile_scalar(argument, scope)
    found = moments.part(unit.upper(), inner.kind)
    if found is None:
        raise refusal(node, f"the part {unit} of {inner.kind.value} is not supported")
    return _called(found, [inner])


def _date_part(node: exp.Expr, scope: NameScope) -> Scalar:
    if len(node.expressions) != 2 or not isinstance(node.expressions[0], exp.Literal):
        raise refusal(node, "date_part takes a literal part, and a date or timestamp")
    return _part(node, str(node.expressions[0].this), node.expressions[1], scope)


def _truncate(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "unit")
    inner = compile_scalar(node.this, scope)
    name = str(node.args["unit"].name)
    truncate = moments.truncated(moments.unit_of(name) or name.upper())
    if truncate is None or inner.kind not in MOMENTS:
        raise refusal(node, f"date_trunc of {inner.kind.value} to this unit is not supported")
    kind = Kind.TIMESTAMP if inner.kind is Kind.DATE else inner.kind
    return Scalar(kind, inner.nullable, strict(truncate, inner.function))


def _bucket(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "expression", "unit")
    interval = _bare(node.this)
    length = interval_of(interval, 1) if isinstance(interval, exp.Interval) else None
    if length is None:
        raise refusal(node, "time_bucket takes a literal interval")
    try:
        start = moments.bucket(*length)
    except SqlError as error:
        raise refusal(node, str(error)) from None
    arguments = [node.expression, *([] if node.args.get("unit") is None else [node.args["unit"]])]
    return _call(node, [Overload((kind,) * len(arguments), kind, start) for kind in MOMENTS], arguments, scope)


def _date_difference(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "expression", "unit", "date_part_boundary")
    name = str(node.args["unit"].name) if node.args.get("unit") is not None else "DAY"
    count = moments.boundaries(moments.unit_of(name) or name.upper())
    if count is None:
        raise refusal(node, f"date_diff by {name} is not supported")
    arguments = [node.expression, node.this]
    return _call(node, [Overload((kind, kind), Kind.INTEGER, count) for kind in MOMENTS], arguments, scope)


def _date_sum(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "expression")
    return _arithmetic(exp.Add(this=node.this, expression=node.expression), scope)


def _epoch(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "scale")
    inner = compile_scalar(node.this, scope)
    scale = node.args.get("scale")
    found = moments.of_epoch(None if scale is None else int(str(scale.this)), inner.kind)
    return _call(node, [] if found is None else [found], [node.this], scope)


# -- lists and structs ---------------------------------------------------------------------------------------------


def _list(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "expressions", "value_constructor", "bracket_notation")
    found = _unified(node.expressions, scope, node)
    functions = [scalar.function for scalar in found]
    kind = found[0].kind if found else Kind.NULL
    return Scalar(list_of(kind), False, lambda row: tuple([function(row) for function in functions]))


def _sorted_list(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "asc", "nulls_first")
    inner = compile_scalar(node.this, scope)
    if inner.kind.element is None:
        raise refusal(node, f"it takes a list, not {inner.kind.value}")
    descending = node.args.get("asc") == exp.false()
    nulls_first = node.args.get("nulls_first") == exp.true()
    return attrs.evolve(inner, function=strict(lambda values: ordered(values, descending, nulls_first), inner.function))


def _struct(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "expressions")
    names: list[str] = []
    found: list[Scalar] = []
    for part in node.expressions:
        if not isinstance(part, exp.PropertyEQ):
            raise refusal(node, "the fields of a struct have names")
        names.append(part.this.name.lower())
        value = compile_scalar(part.expression, scope)
        found.append(as_kind(value, Kind.TEXT, part) if value.literal is not None else value)
    if len(set(names)) < len(names):
        raise refusal(node, "the struct has a field twice")
    functions = [scalar.function for scalar in found]
    kind = struct_of(tuple((name, scalar.kind) for name, scalar in zip(names, found)))
    return Scalar(kind, False, lambda row: tuple([function(row) for function in functions]))


def _dot(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "expression")
    return _field(node, compile_scalar(node.this, scope), node.expression.name)


def _struct_extract(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "expression")
    if not isinstance(node.expression, exp.Literal) or not node.expression.is_string:
        raise refusal(node, "struct_extract takes the literal name of a field")
    return _field(node, compile_scalar(node.this, scope), str(node.expression.this))


def _field(node: exp.Expr, struct: Scalar, name: str) -> Scalar:
    names = [field for field, _ in struct.kind.fields]
    if name.lower() not in names:
        has = f"{struct.kind.value} has no field {name}" if names else f"{struct.kind.value} has no fields"
        raise refusal(node, has)
    place = names.index(name.lower())
    return Scalar(struct.kind.fields[place][1], True, strict(lambda value: value[place], struct.function))


def _bracket(node: exp.Expr, scope: NameScope) -> Scalar:
    """Return an element, or a part, of a list or a text, or a field of a struct."""
    only(node, "this", "expressions")
    inner = compile_scalar(node.this, scope)
    if len(node.expressions) != 1:
        raise refusal(node, "[] takes one number, name, or range")
    (index,) = node.expressions
    if inner.kind.fields:
        if not isinstance(index, exp.Literal) or not index.is_string:
            raise refusal(node, "a struct takes the literal name of a field")
        return _field(node, inner, str(index.this))
    if inner.kind.element is None and inner.kind is not Kind.TEXT:
        raise refusal(node, f"{inner.kind.value} has no elements")
    if isinstance(index, exp.Slice):
        only(index, "this", "expression")
        ends = [index.args.get("this") or exp.Literal.number(1), index.args.get("expression") or exp.Literal.number(-1)]
        f: Callable[..., Any] = list_part if inner.kind.element is not None else text_part
        kind = inner.kind
    else:
        # the parser has made literal numbers count from 0, as in most dialects
        ends = exp.apply_index_offset(node.this.copy(), [index.copy()], 1, dialect="duckdb")
        f = element if inner.kind.element is not None else lambda text, number: element(tuple(text), number) or ""
        kind = inner.kind.element or Kind.TEXT
    numbers = [as_kind(compile_scalar(end, scope), Kind.INTEGER, end) for end in ends]
    return Scalar(kind, True, strict(f, inner.function, *(number.function for number in numbers)))


_COMPILERS: Final[dict[Any, Callable[[Any, NameScope], Scalar]]] = {
    exp.Literal: _literal,
    exp.Null: _null,
    exp.Boolean: _boolean,
    exp.Paren: _paren,
    exp.Add: _arithmetic,
    exp.Sub: _arithmetic,
    exp.Mul: _arithmetic,
    exp.Div: _arithmetic,
    exp.IntDiv: _arithmetic,
    exp.Mod: _arithmetic,
    exp.Neg: _negative,
    **dict.fromkeys(COMPARISONS, _comparison),
    exp.NullSafeEQ: _same,
    exp.NullSafeNEQ: _same,
    exp.And: _connective(False),
    exp.Or: _connective(True),
    exp.Not: _not,
    exp.Is: _is,
    exp.Between: _between,
    exp.In: _in,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _like,
    exp.Case: _case,
    exp.If: _if,
    exp.Coalesce: _coalesce,
    exp.Nullif: _nullif,
    exp.Greatest: _extreme,
    exp.Least: _extreme,
    exp.Cast: _cast,
    exp.TryCast: _try_cast,
    exp.Pad: _pad,
    exp.Trim: _trim,
    exp.DPipe: _pipes,
    exp.Extract: _extract,
    exp.DateBin: _bucket,
    exp.DateDiff: _date_difference,
    exp.DateAdd: _date_sum,
    exp.UnixToTime: _epoch,
    exp.Interval: _interval,
    exp.Array: _list,
    exp.ArraySort: _sorted_list,
    exp.Struct: _struct,
    exp.Dot: _dot,
    exp.StructExtract: _struct_extract,
    exp.Bracket: _bracket,
    exp.TimestampTrunc: _truncate,
    exp.DateTrunc: _truncate,
}
