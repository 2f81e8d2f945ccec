"""Expressions of sqlglot, compiled to Python functions of a row.

Conditions have three values: true, false, and ``None`` for unknown. What is not compiled here is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import add, eq, ge, gt, le, lt, ne, neg, sub
from typing import Any, Final

import attrs
from sqlglot import exp

from timely.differential.tables.values import moment_functions as moments
from timely.differential.tables.values import parsing, scalars
from timely.differential.tables.values.casts import cast_of, tried
from timely.differential.tables.values.functions import FUNCTIONS, NAMED_FUNCTIONS
from timely.differential.tables.values.kinds import (
    MOMENTS,
    NUMBERS,
    Column,
    Kind,
    common,
    conversion,
    decimal,
    fitting,
    list_of,
    sortable,
)
from timely.differential.tables.values.overloads import Overload
from timely.differential.tables.values.refusals import only, refusal
from timely.differential.tables.values.special_calls import CALLS, NAMED_CALLS, Call, bare, interval_of, unit_of
from timely.differential.tables.values.text_functions import lower
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
    function = FUNCTIONS.get(type(node))
    if compiler is None and function is not None:
        only(node, *function.arguments, *function.ignored)
        for argument in map(node.args.get, function.ignored):
            if isinstance(argument, exp.Expr):
                raise refusal(argument, "this is one too many here")
        found = [node.args.get(name) for name in function.arguments]
        arguments = [more for value in found if value is not None for more in (value if isinstance(value, list) else [value])]
        return _call(node, Call(arguments, function.rules, function.checks), scope)
    name = str(node.this).lower() if isinstance(node, exp.Anonymous) else ""
    call = CALLS.get(type(node)) or NAMED_CALLS.get(name)
    if call is not None:
        return _call(node, call(node), scope)
    if name in NAMED_FUNCTIONS:
        return _call(node, Call(node.expressions, NAMED_FUNCTIONS[name]), scope)
    if compiler is None:
        raise refusal(node, f"this is not supported here{_advice(node)}")
    return compiler(node, scope)


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


def _call(node: exp.Expr, call: Call, scope: NameScope) -> Scalar:
    """Return a call of the first overload that has the kinds of the arguments, or else of the first that they can become."""
    given = [compile_scalar(argument, scope) for argument in call.arguments]
    kinds = [scalar.kind for scalar in given]
    for place, check in call.checks.items():
        literal = given[place].literal if place < len(given) else None
        if literal is not None:
            _checked(check, literal, call.arguments[place])
    overloads: list[Overload] = []
    for rule in call.rules:
        found = rule if isinstance(rule, Overload) else rule(kinds) if kinds else None
        if found is not None and len(found.kinds) == len(kinds):
            overloads.append(found)
    for fits in (_is_exactly, _can_become):
        for overload in overloads:
            if all(map(fits, given, overload.kinds)):
                return _called(overload, [as_kind(*argument) for argument in zip(given, overload.kinds, call.arguments)])
    shown = ", ".join(kind.value for kind in kinds)
    raise refusal(node, f"it does not take ({shown}): cast its arguments, or it is not supported for these")


def _checked(f: Callable[[str], Any], text: str, node: exp.Expr) -> Any:
    """Return ``f`` of a text that is written there; ``SqlError`` with its place."""
    try:
        return f(text)
    except SqlError as error:
        raise refusal(node, str(error)) from None


def _is_exactly(scalar: Scalar, kind: Kind) -> bool:
    return scalar.kind is kind or scalar.kind is Kind.NULL


def _can_become(scalar: Scalar, kind: Kind) -> bool:
    if _is_exactly(scalar, kind):
        return True
    return kind.base in _OF_LITERALS if scalar.literal is not None else common(scalar.kind, kind) is kind


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


# -- arithmetic ----------------------------------------------------------------------------------------------------

_ARITHMETIC: Final[dict[Any, dict[Kind, Callable[[Any, Any], Any]]]] = {
    exp.Add: {Kind.INTEGER: add, Kind.DECIMAL: scalars.EXACT.add, Kind.DOUBLE: scalars.add_floats},
    exp.Sub: {Kind.INTEGER: sub, Kind.DECIMAL: scalars.EXACT.subtract, Kind.DOUBLE: scalars.subtract_floats},
    exp.Mul: {Kind.INTEGER: scalars.multiply_whole, Kind.DECIMAL: scalars.EXACT.multiply, Kind.DOUBLE: scalars.multiply_floats},
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
    written = left.kind, right.kind
    if Kind.TEXT in written:  # a decimal and a text make a double, as in DuckDB
        left, right = (as_kind(one, Kind.DOUBLE, node) if one.kind.scale is not None else one for one in (left, right))
    left, right = unify([node.this, node.expression], [left, right], node)
    kind = left.kind
    nullable = left.nullable or right.nullable
    if kind is Kind.NULL:
        return left
    if kind.base not in NUMBERS:
        raise refusal(node, f"arithmetic on {kind.value} is not supported")
    if isinstance(node, exp.Div):
        left, right = as_kind(left, Kind.DOUBLE, node), as_kind(right, Kind.DOUBLE, node)
        return Scalar(Kind.DOUBLE, nullable, strict(scalars.divide, left.function, right.function))
    if isinstance(node, exp.IntDiv):
        if kind is not Kind.INTEGER:
            raise refusal(node, "// is supported for whole numbers")
        return Scalar(kind, nullable, strict(scalars.quotient, left.function, right.function))
    if kind.scale is not None:
        return _decimal_arithmetic(node, left, right, written)
    return Scalar(kind, nullable, strict(_ARITHMETIC[type(node)][kind], left.function, right.function))


def _decimal_arithmetic(node: exp.Expr, left: Scalar, right: Scalar, written: tuple[Kind, Kind]) -> Scalar:
    """Return arithmetic on decimals: a product has the digits behind the point of both numbers, as they are ``written``."""
    scale = left.kind.scale or 0
    if isinstance(node, exp.Mul):
        scale = sum(kind.scale or 0 for kind in written)
    if scale > 38:
        raise refusal(node, f"it has {scale} digits behind the point, and DECIMAL has 38: cast one to fewer, or to DOUBLE")
    calculate, fit = _ARITHMETIC[type(node)][Kind.DECIMAL], fitting(38, scale)
    function = strict(lambda one, other: fit(calculate(one, other)), left.function, right.function)
    return Scalar(decimal(scale), left.nullable or right.nullable, function)


def _moment_arithmetic(node: exp.Expr, left: Scalar, right: Scalar) -> Scalar | None:
    """Return arithmetic on dates, times and intervals, or ``None`` where there is none."""
    found = _OF_MOMENTS.get((type(node), left.kind, right.kind))
    if found is None:
        return None
    kind, f = found
    return Scalar(kind, left.nullable or right.nullable, strict(f, left.function, right.function))


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
    moment, interval = node.this, bare(node.expression)
    if not isinstance(interval, exp.Interval) and sign == 1:
        moment, interval = node.expression, bare(node.this)
    if not isinstance(interval, exp.Interval):
        return None
    value = compile_scalar(moment, scope)
    if value.kind not in MOMENTS:
        return None
    kind = Kind.TIMESTAMP if value.kind is Kind.DATE else value.kind
    literal = interval_of(interval, sign)
    if literal is not None:
        months, delta = literal
        return Scalar(kind, value.nullable, strict(lambda at: moments.add_interval(at, months, delta), value.function))
    factor, step = unit_of(interval)
    count = as_kind(compile_scalar(interval.this, scope), Kind.INTEGER, interval)

    def moved(at: Any, number: int) -> Any:
        return moments.add_interval(at, sign * number * factor, moments.duration(sign * number * step))

    return Scalar(kind, value.nullable or count.nullable, strict(moved, value.function, count.function))


def _negative(node: exp.Expr, scope: NameScope) -> Scalar:
    inner = compile_scalar(node.this, scope)
    if inner.kind is Kind.INTERVAL:
        return attrs.evolve(inner, function=strict(neg, inner.function))
    if inner.kind.base not in (*NUMBERS, Kind.NULL) or inner.literal is not None:
        raise refusal(node, f"arithmetic on {inner.kind.value} is not supported")
    negate: Callable[[Any], Any] = neg if inner.kind.scale is None else scalars.EXACT.minus
    if inner.kind is Kind.DOUBLE:
        negate = scalars.negative_float
    return Scalar(inner.kind, inner.nullable, strict(negate, inner.function))


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
    written = compile_scalar(inner.expression, scope).literal
    left, right = (as_kind(compile_scalar(part, scope), Kind.TEXT, part) for part in (inner.this, inner.expression))
    negate = bool(inner.args.get("negate"))
    fold = lower if isinstance(inner, exp.ILike) else str

    if written is not None:
        segments = _checked(lambda pattern: scalars.like_segments(fold(pattern), escape), written, inner.expression)
        function = strict(lambda text: scalars.has_segments(fold(text), segments) is not negate, left.function)
        return Scalar(Kind.BOOLEAN, left.nullable, function)

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
    cast = cast_of(inner.kind, node.args["to"], node)
    if isinstance(node, exp.TryCast):
        return _called(tried(cast, node), [inner])
    if inner.literal is not None:
        value = _checked(cast.f, inner.literal, node)
        return Scalar(cast.result, False, lambda row: value)
    return _called(cast, [inner])


def _date_sum(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "expression")
    return _arithmetic(exp.Add(this=node.this, expression=node.expression), scope)


def _list(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "expressions", "value_constructor", "bracket_notation")
    found = _unified(node.expressions, scope, node)
    functions = [scalar.function for scalar in found]
    kind = found[0].kind if found else Kind.NULL
    return Scalar(list_of(kind), False, lambda row: tuple([function(row) for function in functions]))


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
    exp.TryCast: _cast,
    exp.DateAdd: _date_sum,
    exp.Array: _list,
}
