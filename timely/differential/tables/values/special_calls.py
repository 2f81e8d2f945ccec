"""Calls whose arguments or overloads depend on what is written in them: a unit, the name of a field, an interval."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from sqlglot import exp

from timely.differential.tables.values import moment_functions as moments
from timely.differential.tables.values.kinds import MOMENTS, Kind, common, lower_case, struct_of
from timely.differential.tables.values.list_functions import concatenated, element, ordered, part, text_part
from timely.differential.tables.values.number_functions import round_to_whole, rounding
from timely.differential.tables.values.overloads import NO_CHECKS, Checks, Overload, Rule, overload
from timely.differential.tables.values.refusals import only, refusal
from timely.differential.tables.values.text_functions import as_text, concatenate, pad, trimmed
from timely.errors import SqlError


class Call(NamedTuple):
    """The arguments of a call, its overloads, and what texts that are written as arguments are checked by."""

    arguments: list[exp.Expr]
    rules: Sequence[Rule]
    checks: Checks = NO_CHECKS


def _given(*nodes: exp.Expr | None) -> list[exp.Expr]:
    return [node for node in nodes if node is not None]


# -- numbers -------------------------------------------------------------------------------------------------------


def _round(node: exp.Expr) -> Call:
    only(node, "this", "decimals")
    digits = node.args.get("decimals")
    if digits is None:
        return Call([node.this], round_to_whole())
    return Call([node.this, digits], rounding(_whole_number(digits)))


def _whole_number(node: exp.Expr) -> int | None:
    """Return a whole number that is written there."""
    inner, sign = bare(node), 1
    while isinstance(inner, exp.Neg):
        inner, sign = bare(inner.this), -sign
    text = str(inner.this) if isinstance(inner, exp.Literal) and not inner.is_string else ""
    return sign * int(text) if text.isdecimal() and len(text) < 20 else None


# -- text ----------------------------------------------------------------------------------------------------------


def _trim(node: exp.Expr) -> Call:
    only(node, "this", "position", "expression")
    arguments = _given(node.this, node.args.get("expression"))
    f = trimmed(str(node.args.get("position") or "").upper())
    return Call(arguments, [Overload((Kind.TEXT,) * len(arguments), Kind.TEXT, f)])


def _pad(node: exp.Expr) -> Call:
    only(node, "this", "expression", "fill_pattern", "is_left")
    fill = node.args.get("fill_pattern") or exp.Literal.string(" ")
    f = pad(bool(node.args.get("is_left")))
    return Call([node.this, node.expression, fill], [overload(f, Kind.TEXT, Kind.TEXT, Kind.INTEGER, Kind.TEXT)])


def _pipes(node: exp.Expr) -> Call:
    only(node, "this", "expression", "safe")

    def joined(kinds: Sequence[Kind]) -> Overload | None:
        one, other = kinds
        both = common(one, other)
        if both is not None and both.element is not None:
            return overload(concatenated, both, both, both)
        first, second = as_text(one), as_text(other)
        if first is None or second is None or Kind.TEXT not in kinds:
            raise refusal(node, f"{one.value} || {other.value} is not supported: cast both to VARCHAR")
        return overload(lambda value, more: concatenate(first(value), second(more)), Kind.TEXT, one, other)

    return Call([node.this, node.expression], [joined])


# -- dates and times -----------------------------------------------------------------------------------------------


def _part_of(node: exp.Expr, name: str, argument: exp.Expr) -> Call:
    def rule(kinds: Sequence[Kind]) -> Overload:
        found = moments.part(name.upper(), kinds[0])
        if found is None:
            raise refusal(node, f"the part {name} of {kinds[0].value} is not supported")
        return found

    return Call([argument], [rule])


def _extract(node: exp.Expr) -> Call:
    only(node, "this", "expression")
    return _part_of(node, str(node.this.name or node.this), node.expression)


def _date_part(node: exp.Expr) -> Call:
    if len(node.expressions) != 2 or not isinstance(node.expressions[0], exp.Literal):
        raise refusal(node, "date_part takes a literal part, and a date or timestamp")
    return _part_of(node, str(node.expressions[0].this), node.expressions[1])


def _by_unit(node: exp.Expr, of_unit: Callable[[str], Callable[..., Any]], result: Callable[[Kind], Kind]) -> Call:
    """Return the call of the function that belongs to a unit, which is written there or a value of each row."""
    unit, *others = node.expressions
    kinds = [(kind,) * len(others) for kind in MOMENTS]
    if not isinstance(unit, exp.Literal) or not unit.is_string:
        return Call(
            node.expressions,
            [overload(lambda name, *moment: of_unit(name)(*moment), result(kind[0]), Kind.TEXT, *kind) for kind in kinds],
        )
    try:
        f = of_unit(str(unit.this))
    except SqlError as error:
        raise refusal(unit, str(error)) from None
    return Call(others, [overload(f, result(kind[0]), *kind) for kind in kinds])


def _truncate(node: exp.Expr) -> Call:
    if len(node.expressions) != 2:
        raise refusal(node, "date_trunc takes a unit, and a date or timestamp")
    return _by_unit(node, moments.truncated, lambda kind: Kind.TIMESTAMP if kind is Kind.DATE else kind)


def _bucket(node: exp.Expr) -> Call:
    only(node, "this", "expression", "unit")
    interval = bare(node.this)
    length = interval_of(interval, 1) if isinstance(interval, exp.Interval) else None
    if length is None:
        raise refusal(node, "time_bucket takes a literal interval")
    try:
        f = moments.bucket(*length)
    except SqlError as error:
        raise refusal(node, str(error)) from None
    arguments = _given(node.expression, node.args.get("unit"))
    return Call(arguments, [Overload((kind,) * len(arguments), kind, f) for kind in MOMENTS])


def _date_difference(node: exp.Expr) -> Call:
    if len(node.expressions) != 3:
        raise refusal(node, "date_diff takes a unit, and two dates or timestamps")
    return _by_unit(node, moments.boundaries, lambda kind: Kind.INTEGER)


def _epoch(scale: int) -> Callable[[exp.Expr], Call]:
    return lambda node: Call(node.expressions, [lambda kinds: moments.of_epoch(scale, kinds[0]) if len(kinds) == 1 else None])


def _to_timestamp(node: exp.Expr) -> Call:
    only(node, "this")
    return Call([node.this], [lambda kinds: moments.of_epoch(None, kinds[0])])


def bare(node: exp.Expr) -> exp.Expr:
    """Return an expression without the parentheses around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def interval_of(interval: exp.Expr, sign: int) -> tuple[int, datetime.timedelta] | None:
    """Return the months and the duration of a literal interval, times ``sign``; ``None`` for others."""
    only(interval, "this", "unit")
    if not isinstance(interval.this, exp.Literal):
        return None
    try:
        months, delta = moments.interval_of(str(interval.this.this), str(interval.args.get("unit") or ""))
    except SqlError as error:
        raise refusal(interval, str(error)) from None
    return sign * months, sign * delta


def unit_of(interval: exp.Expr) -> tuple[int, int]:
    """Return the months and microseconds of the unit of an interval of a computed length."""
    name = moments.unit_of(str(interval.args.get("unit") or ""))
    if name is None:
        raise refusal(interval, "an interval has a unit: years to microseconds")
    return moments.UNITS[name]


def _interval(node: exp.Expr) -> Call:
    literal = interval_of(node, 1)
    months, step = unit_of(node) if literal is None else (literal[0], 0)
    if months:
        raise refusal(node, "months have no fixed length: such an interval is only added to a date or timestamp")
    if literal is not None:
        _, delta = literal
        return Call([], [Overload((), Kind.INTERVAL, lambda: delta)])
    return Call([node.this], [overload(lambda count: moments.duration(count * step), Kind.INTERVAL, Kind.INTEGER)])


# -- lists and structs ---------------------------------------------------------------------------------------------


def _sorted_list(node: exp.Expr) -> Call:
    only(node, "this", "asc", "nulls_first")
    descending = node.args.get("asc") == exp.false()
    nulls_first = node.args.get("nulls_first") == exp.true()

    def rule(kinds: Sequence[Kind]) -> Overload | None:
        (kind,) = kinds
        return None if kind.element is None else overload(lambda values: ordered(values, descending, nulls_first), kind, kind)

    return Call([node.this], [rule])


def _struct(node: exp.Expr) -> Call:
    only(node, "expressions")
    if not all(isinstance(field, exp.PropertyEQ) for field in node.expressions):
        raise refusal(node, "the fields of a struct have names")
    names = [lower_case(field.this.name) for field in node.expressions]
    if len(set(names)) < len(names):
        raise refusal(node, "the struct has a field twice")

    def rule(kinds: Sequence[Kind]) -> Overload:
        return Overload(tuple(kinds), struct_of(tuple(zip(names, kinds))), lambda *values: values, sees_null=True)

    return Call([field.expression for field in node.expressions], [rule])


def _field(node: exp.Expr, name: str) -> Call:
    def rule(kinds: Sequence[Kind]) -> Overload:
        (struct,) = kinds
        names = [field for field, _ in struct.fields]
        if lower_case(name) not in names:
            raise refusal(node, f"{struct.value} has no field {name}" if names else f"{struct.value} has no fields")
        place = names.index(lower_case(name))
        return overload(lambda value: value[place], struct.fields[place][1], struct, optional=True)

    return Call([node.this], [rule])


def _dot(node: exp.Expr) -> Call:
    only(node, "this", "expression")
    return _field(node, node.expression.name)


def _struct_extract(node: exp.Expr) -> Call:
    only(node, "this", "expression")
    if not isinstance(node.expression, exp.Literal) or not node.expression.is_string:
        raise refusal(node, "struct_extract takes the literal name of a field")
    return _field(node, str(node.expression.this))


def _bracket(node: exp.Expr) -> Call:
    """Return the call of an element, or a part, of a list or a text, or of a field of a struct."""
    only(node, "this", "expressions")
    if len(node.expressions) != 1:
        raise refusal(node, "[] takes one number, name, or range")
    (index,) = node.expressions
    if isinstance(index, exp.Literal) and index.is_string:
        return _field(node, str(index.this))
    if isinstance(index, exp.Slice):
        only(index, "this", "expression")
        ends = [index.args.get("this") or exp.Literal.number(1), index.args.get("expression") or exp.Literal.number(-1)]
    else:
        # the parser has made literal numbers count from 0, as in most dialects
        ends = exp.apply_index_offset(node.this.copy(), [index.copy()], 1, dialect="duckdb")
    numbers = (Kind.INTEGER,) * len(ends)

    def rule(kinds: Sequence[Kind]) -> Overload:
        kind, inner = kinds[0], kinds[0].element
        if inner is None and kind is not Kind.TEXT:
            raise refusal(node, f"{kind.value} has no elements")
        if len(ends) == 2:
            return overload(text_part if inner is None else part, kind, kind, *numbers)
        if inner is None:
            return overload(lambda text, number: element(tuple(text), number) or "", kind, kind, *numbers)
        return overload(element, inner, kind, *numbers, optional=True)

    return Call([node.this, *ends], [rule])


CALLS: Final[dict[Any, Callable[[exp.Expr], Call]]] = {
    exp.Round: _round,
    exp.Trim: _trim,
    exp.Pad: _pad,
    exp.DPipe: _pipes,
    exp.Extract: _extract,
    exp.DateBin: _bucket,
    exp.UnixToTime: _to_timestamp,
    exp.Interval: _interval,
    exp.ArraySort: _sorted_list,
    exp.Struct: _struct,
    exp.Dot: _dot,
    exp.StructExtract: _struct_extract,
    exp.Bracket: _bracket,
}
"""The calls, by their nodes of sqlglot."""

NAMED_CALLS: Final[dict[str, Callable[[exp.Expr], Call]]] = {
    "date_part": _date_part,
    "datepart": _date_part,
    "date_trunc": _truncate,
    "datetrunc": _truncate,
    "date_diff": _date_difference,
    "datediff": _date_difference,
    "epoch_ms": _epoch(3),
    "make_timestamp": _epoch(6),
}
"""Those without a node of their own, by name."""
