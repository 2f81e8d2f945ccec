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

from timely.differential.tables import scalars
from timely.differential.tables.kinds import NUMBERS, Column, Kind, common, conversion, rounded, within
from timely.differential.tables.refusals import only, refusal
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
    if scalar.literal is not None and kind in (Kind.DATE, Kind.TIMESTAMP, Kind.INTEGER, Kind.DOUBLE, Kind.DECIMAL):
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
    if text.isdigit():
        kind, value = Kind.INTEGER, int(text)
    elif "e" in text.lower():
        kind, value = Kind.DOUBLE, float(text)
    else:
        kind, value = Kind.DECIMAL, Decimal(text)
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
    if isinstance(node, exp.Add | exp.Sub) and isinstance(node.expression, exp.Interval):
        return _moved(node, compile_scalar(node.this, scope), node.expression, scope)
    if isinstance(node, exp.Add) and isinstance(node.this, exp.Interval):
        return _moved(node, compile_scalar(node.expression, scope), node.this, scope)
    left, right = compile_scalar(node.this, scope), compile_scalar(node.expression, scope)
    dates = _date_arithmetic(node, left, right)
    if dates is not None:
        return dates
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


def _date_arithmetic(node: exp.Expr, left: Scalar, right: Scalar) -> Scalar | None:
    nullable = left.nullable or right.nullable
    kinds = (left.kind, right.kind)
    if kinds == (Kind.DATE, Kind.INTEGER) and isinstance(node, exp.Add | exp.Sub):
        sign = 1 if isinstance(node, exp.Add) else -1
        moved = strict(lambda date, days: scalars.add_days(date, sign * days), left.function, right.function)
        return Scalar(Kind.DATE, nullable, moved)
    if kinds == (Kind.DATE, Kind.DATE) and isinstance(node, exp.Sub):
        return Scalar(Kind.INTEGER, nullable, strict(lambda one, other: (one - other).days, left.function, right.function))
    return None


def interval_of(interval: exp.Expr, sign: int) -> tuple[int, datetime.timedelta] | None:
    """Return the months and the duration of a literal interval, times ``sign``; ``None`` for others."""
    only(interval, "this", "unit")
    unit = str(interval.args.get("unit") or "").upper().rstrip("S")
    amount = str(interval.this.this) if isinstance(interval.this, exp.Literal) else ""
    if not amount.lstrip("-").isdigit() or unit not in _INTERVALS:
        return None
    months, seconds = _INTERVALS[unit]
    return sign * months * int(amount), datetime.timedelta(seconds=sign * seconds * int(amount))


def _moved(node: exp.Expr, moment: Scalar, interval: exp.Expr, scope: NameScope) -> Scalar:
    found = interval_of(interval, -1 if isinstance(node, exp.Sub) else 1)
    if moment.kind not in (Kind.DATE, Kind.TIMESTAMP) or found is None:
        raise refusal(node, "intervals are whole numbers of years to seconds, and move a date or a timestamp")
    months, delta = found
    moved = strict(lambda value: scalars.add_interval(value, months, delta), moment.function)
    return Scalar(Kind.TIMESTAMP, moment.nullable, moved)


_INTERVALS: Final = {
    "YEAR": (12, 0),
    "QUARTER": (3, 0),
    "MONTH": (1, 0),
    "WEEK": (0, 7 * 86400),
    "DAY": (0, 86400),
    "HOUR": (0, 3600),
    "MINUTE": (0, 60),
    "SECOND": (0, 1),
}


def _negative(node: exp.Expr, scope: NameScope) -> Scalar:
    inner = compile_scalar(node.this, scope)
    if inner.kind not in (*NUMBERS, Kind.NULL) or inner.literal is not None:
        raise refusal(node, f"arithmetic on {inner.kind.value} is not supported")
    negate = scalars.EXACT.minus if inner.kind is Kind.DECIMAL else neg
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
    return Scalar(Kind.BOOLEAN, left.nullable or right.nullable, strict(COMPARISONS[type(node)], left.function, right.function))


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
    fold = scalars.lower if isinstance(inner, exp.ILike) else str

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

    def extreme(row: Row) -> Any:
        values = [value for function in functions if (value := function(row)) is not None]
        return choose(values) if values else None

    return Scalar(found[0].kind, all(scalar.nullable for scalar in found), extreme)


# -- casts and functions -------------------------------------------------------------------------------------------


def _cast(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "to", "_type")
    inner = compile_scalar(node.this, scope)
    target: exp.DataType = node.args["to"]
    only(target, "this", "expressions", "nested")
    kind, narrow = _target(target, node)
    if kind is not Kind.DECIMAL and target.expressions and kind is not Kind.TEXT:
        raise refusal(node, "this type has no parameters here")
    if inner.kind is Kind.DOUBLE and kind is Kind.DECIMAL:
        raise refusal(node, "a cast of DOUBLE to DECIMAL is not supported")
    found = _converted(inner, kind, node)
    function = found.function if narrow is None else strict(narrow, found.function)
    return Scalar(kind, found.nullable, function)


def _target(target: exp.DataType, node: exp.Expr) -> tuple[Kind, Callable[[Any], Any] | None]:
    name = target.this
    if name in exp.DataType.INTEGER_TYPES and name in _BITS:
        return Kind.INTEGER, within(*_BITS[name])
    if name == exp.DataType.Type.DECIMAL:
        sizes = [int(str(part.this.this)) for part in target.expressions] or [18, 3]
        return Kind.DECIMAL, rounded(sizes[0], sizes[1] if len(sizes) > 1 else 0)
    if name in _KINDS:
        return _KINDS[name], None
    raise refusal(node, f"the type {target.sql(dialect='duckdb')} is not supported")


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
}


def _texts(node: exp.Expr, nodes: Sequence[exp.Expr], scope: NameScope) -> list[Scalar]:
    return [as_kind(compile_scalar(part, scope), Kind.TEXT, part) for part in nodes]


def _of_text(f: Callable[..., Any], kind: Kind, *names: str) -> Callable[[exp.Expr, NameScope], Scalar]:
    """Return the compiler of a function whose arguments, called ``names`` in the tree, are all texts."""

    def compiler(node: exp.Expr, scope: NameScope) -> Scalar:
        only(node, *names)
        found = _texts(node, [node.args[name] for name in names if node.args.get(name) is not None], scope)
        return Scalar(kind, any(scalar.nullable for scalar in found), strict(f, *(scalar.function for scalar in found)))

    return compiler


def _substring(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "start", "length")
    (text,) = _texts(node, [node.this], scope)
    numbers = [node.args[name] for name in ("start", "length") if node.args.get(name) is not None]
    found = [text, *(as_kind(compile_scalar(part, scope), Kind.INTEGER, part) for part in numbers)]
    function = strict(scalars.substring, *(scalar.function for scalar in found))
    return Scalar(Kind.TEXT, any(scalar.nullable for scalar in found), function)


def _trim(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "position")
    (text,) = _texts(node, [node.this], scope)
    strip: Callable[[str], str] = {
        "": lambda value: value.strip(" "),
        "BOTH": lambda value: value.strip(" "),
        "LEADING": lambda value: value.lstrip(" "),
        "TRAILING": lambda value: value.rstrip(" "),
    }[str(node.args.get("position") or "").upper()]
    return Scalar(Kind.TEXT, text.nullable, strict(strip, text.function))


def _pipes(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "expression", "safe")
    left, right = _texts(node, [node.this, node.expression], scope)
    return Scalar(Kind.TEXT, left.nullable or right.nullable, strict(add, left.function, right.function))


def _concat(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "expressions", "safe", "coalesce")
    functions = [scalar.function for scalar in _texts(node, node.expressions, scope)]
    return Scalar(Kind.TEXT, False, lambda row: "".join(text for function in functions if (text := function(row)) is not None))


def _absolute(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this")
    return _number(node, scope, abs, scalars.EXACT.abs, abs)


def _number(
    node: exp.Expr, scope: NameScope, whole: Callable[[Any], Any], decimal: Callable[[Any], Any], double: Callable[[Any], Any]
) -> Scalar:
    inner = compile_scalar(node.this, scope)
    functions = {Kind.INTEGER: whole, Kind.DECIMAL: decimal, Kind.DOUBLE: double}
    if inner.kind not in functions:
        raise refusal(node, f"it takes a number, not {inner.kind.value}")
    return Scalar(inner.kind, inner.nullable, strict(functions[inner.kind], inner.function))


def _round(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "decimals")
    digits = node.args.get("decimals")
    if digits is None:
        return _number(node, scope, int, lambda value: scalars.round_decimal(value, 0), scalars.round_float)
    if not isinstance(digits, exp.Literal) or not str(digits.this).isdigit():
        raise refusal(node, "round takes a literal number of digits")
    count = int(str(digits.this))
    found = _number(node, scope, int, lambda value: scalars.round_decimal(value, count), scalars.round_float)
    if found.kind is Kind.DOUBLE and count:
        raise refusal(node, "a DOUBLE is rounded to whole numbers only: cast to DECIMAL columns for digits")
    return found


def _floor(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this")
    floor = isinstance(node, exp.Floor)
    inner = compile_scalar(node.this, scope)
    if inner.kind is Kind.INTEGER:
        inner = as_kind(inner, Kind.DOUBLE, node)
        return inner
    if floor:
        return _number(node, scope, float, scalars.floor_decimal, scalars.floor_float)
    return _number(node, scope, float, scalars.ceiling_decimal, scalars.ceiling_float)


def _part(node: exp.Expr, scope: NameScope) -> Scalar:
    if isinstance(node, exp.Extract):
        only(node, "this", "expression")
        unit, argument = str(node.this).upper(), node.expression
    else:
        only(node, "this")
        unit, argument = node.key.upper(), node.this
    inner = compile_scalar(argument, scope)
    part = scalars.PARTS.get(unit)
    if part is None or inner.kind not in (Kind.DATE, Kind.TIMESTAMP):
        raise refusal(node, f"the part {unit} of {inner.kind.value} is not supported")
    return Scalar(Kind.INTEGER, inner.nullable, strict(part, inner.function))


def _truncate(node: exp.Expr, scope: NameScope) -> Scalar:
    only(node, "this", "unit")
    inner = compile_scalar(node.this, scope)
    truncate = scalars.truncated(str(node.args["unit"]).upper().strip("'"))
    if truncate is None or inner.kind not in (Kind.DATE, Kind.TIMESTAMP):
        raise refusal(node, f"date_trunc of {inner.kind.value} to this unit is not supported")
    return Scalar(Kind.TIMESTAMP, inner.nullable, strict(truncate, inner.function))


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
    exp.Upper: _of_text(scalars.upper, Kind.TEXT, "this"),
    exp.Lower: _of_text(scalars.lower, Kind.TEXT, "this"),
    exp.Length: _of_text(len, Kind.INTEGER, "this"),
    exp.Replace: _of_text(scalars.replace, Kind.TEXT, "this", "expression", "replacement"),
    exp.StartsWith: _of_text(str.startswith, Kind.BOOLEAN, "this", "expression"),
    exp.Substring: _substring,
    exp.Trim: _trim,
    exp.DPipe: _pipes,
    exp.Concat: _concat,
    exp.Abs: _absolute,
    exp.Round: _round,
    exp.Floor: _floor,
    exp.Ceil: _floor,
    exp.Extract: _part,
    exp.Year: _part,
    exp.Month: _part,
    exp.Day: _part,
    exp.TimestampTrunc: _truncate,
    exp.DateTrunc: _truncate,
}
