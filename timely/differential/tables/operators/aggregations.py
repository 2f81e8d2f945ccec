"""Aggregates: each is a sum, the first of its values in an order, or a function of all of them.

Sums move into the differences, so a change costs the same in a group of any size. The first value costs the logarithm of the
group. A function of all values costs the size of the group.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Final

import attrs
from sqlglot import exp

from timely.differential.operators.aggregates import Descending
from timely.differential.tables.expressions.scalar_compiler import (
    Function,
    NameScope,
    Row,
    Scalar,
    as_kind,
    compile_condition,
    compile_scalar,
)
from timely.differential.tables.operators.sorting import Ordering, ordering, turned
from timely.differential.tables.values.kinds import NUMBERS, Column, Kind, canonical_float, fitting, list_of, sortable
from timely.differential.tables.values.refusals import name_of, only, refusal
from timely.differential.tables.values.scalars import decimal_of
from timely.differential.tables.values.sizes import joined
from timely.operators.keyed.numbers import NAN, float_of_parts, float_parts


@attrs.frozen
class Sums:
    """An aggregate that is computed from ``size`` sums over its entries."""

    size: int
    summands: Callable[[Any], tuple[Any, ...]]
    result: Callable[[Sequence[Any]], Any]


@attrs.frozen
class First:
    """An aggregate that is part of the first of its entries in an order."""

    order: Callable[[Any], Any]
    result: Callable[[Any], Any]


@attrs.frozen
class Whole:
    """An aggregate that is computed from all its entries in an order; without one, in that of the window that they are in."""

    order: Callable[[Any], Any] | None
    result: Callable[[list[Any]], Any]


@attrs.frozen
class Aggregation:
    """One aggregate of a query. ``entry`` is what of a row goes in: ``None`` where the row does not count."""

    node: exp.Expr
    column: Column
    form: Sums | First | Whole
    entry: Function
    empty: Any = None
    distinct: bool = False


WRAPPERS: Final = (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)
"""What stands around an aggregate."""


def aggregation(node: exp.Expr, scope: NameScope) -> Aggregation:
    """Return an aggregate of the rows of ``scope``; ``SqlError`` for those that are not supported."""
    inner = node
    condition: Function | None = None
    order: exp.Order | None = None
    nulls: list[exp.Expr] = []
    within = False
    while isinstance(inner, WRAPPERS):
        if isinstance(inner, exp.Filter):
            condition = compile_condition(inner.expression.this, scope)
        elif isinstance(inner, exp.WithinGroup):
            order, within = inner.expression, True
        else:
            nulls.append(inner)
        inner = inner.this
    if len(nulls) > isinstance(inner, exp.AnyValue):  # the parser gives that one
        raise refusal(nulls[0], "IGNORE NULLS and RESPECT NULLS belong to window functions")
    make = _MAKERS.get(type(inner))
    if make is None:
        raise refusal(node, f"the aggregate {name_of(inner)} is not supported{_ADVICE.get(type(inner), '')}")
    if within and not isinstance(inner, exp.PercentileCont | exp.PercentileDisc | exp.Quantile):
        raise refusal(node, f"{name_of(inner)} takes no WITHIN GROUP: write ORDER BY behind its argument")
    argument, distinct = inner.this, False
    if isinstance(argument, exp.Order):
        if within:
            raise refusal(node, "it is ordered twice")
        order, argument = argument, argument.this
    if isinstance(argument, exp.Distinct):
        if len(argument.expressions) != 1 or argument.expressions[0].is_star:
            raise refusal(node, "DISTINCT in an aggregate takes one expression")
        argument, distinct = argument.expressions[0], True
    found = make(_Call(node, inner, argument, order, distinct, within, scope))
    if condition is not None:
        entry, counts = found.entry, condition
        found = attrs.evolve(found, entry=lambda row: entry(row) if counts(row) else None)
    return attrs.evolve(found, distinct=distinct and not isinstance(found.form, First))


@attrs.frozen
class _Call:
    """An aggregate as it is written."""

    node: exp.Expr
    inner: Any
    argument: Any
    order: exp.Order | None
    distinct: bool
    within: bool
    scope: NameScope

    def scalar(self, node: exp.Expr | None = None) -> Scalar:
        """Return the argument, or another expression."""
        given = self.argument if node is None else node
        if given is None:
            raise refusal(self.node, "it takes an argument")
        found = compile_scalar(given, self.scope)
        if found.kind is Kind.NULL:
            raise refusal(self.node, "NULL has no kind here: cast it")
        return found

    def number(self, node: exp.Expr | None = None) -> Scalar:
        """Return an argument that is a number."""
        found = self.scalar(node)
        if found.kind.base not in NUMBERS:
            raise refusal(self.node, f"{self.name} takes numbers, not {found.kind.value}")
        return found

    @property
    def name(self) -> str:
        return name_of(self.inner)

    def only(self, *allowed: str) -> None:
        """Refuse other parts of the call, and check the order, which changes nothing here."""
        only(self.inner, "this", *allowed)
        self.ordering()

    def ordering(self) -> Ordering | None:
        return None if self.order is None else ordering(self.order.expressions, self.scope)

    def unordered(self) -> None:
        """Refuse an order, by which DuckDB decides between values that tie."""
        if self.order is not None:
            raise refusal(self.node, f"{self.name} takes no ORDER BY")

    def made(self, kind: Kind, form: Sums | First | Whole, entry: Function, empty: Any = None) -> Aggregation:
        return Aggregation(self.node, Column(self.name, kind, empty is None), form, entry, empty)


# -- sums ----------------------------------------------------------------------------------------------------------


def _exact(value: Any) -> Any:
    """Return a number whose sums are exact."""
    if type(value) is int:
        return value
    return int(value) if type(value) is bool else Fraction(value)


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _one(entry: Any) -> tuple[Any, ...]:
    return (1,)


def _summand(entry: Any) -> tuple[Any, ...]:
    return 1, _exact(entry)


def _summand_of_double(entry: Any) -> tuple[Any, ...]:
    return 1, *float_parts(entry)


def _sum_of_doubles(sums: Sequence[Any]) -> float:
    return float_of_parts(sums[1], sums[2])


def _first_of(sums: Sequence[Any]) -> Any:
    return sums[0]


_OF_SUM: Final[dict[Kind, Callable[[Any], Any]]] = {Kind.INTEGER: int, Kind.DECIMAL: decimal_of}


def _count(call: _Call) -> Aggregation:
    call.only("big_int")
    if isinstance(call.argument, exp.Star):
        only(call.argument)
        call.unordered()
    if call.argument is None or isinstance(call.argument, exp.Star):
        return call.made(Kind.INTEGER, Sums(1, _one, _first_of), lambda row: True, 0)
    return call.made(Kind.INTEGER, Sums(1, _one, _first_of), call.scalar().function, 0)


def _count_if(call: _Call) -> Aggregation:
    call.only()
    if call.distinct:
        raise refusal(call.node, "count_if takes no DISTINCT")
    condition = compile_condition(call.argument, call.scope)
    return call.made(Kind.INTEGER, Sums(2, _summand, lambda sums: sums[1] if sums[0] else None), condition)


def _sum(call: _Call) -> Aggregation:
    call.only()
    argument = call.scalar()
    if argument.kind is Kind.BOOLEAN:
        argument = attrs.evolve(argument, kind=Kind.INTEGER)
    if argument.kind.base not in NUMBERS:
        raise refusal(call.node, f"sum takes numbers, not {argument.kind.value}")
    if argument.kind is Kind.DOUBLE:
        of_doubles = Sums(3, _summand_of_double, lambda sums: _sum_of_doubles(sums) if sums[0] else None)
        return call.made(argument.kind, of_doubles, argument.function)
    convert = _OF_SUM[argument.kind.base]
    fit: Callable[[Any], Any] = _same if argument.kind.scale is None else fitting(38, argument.kind.scale)
    return call.made(argument.kind, Sums(2, _summand, lambda sums: fit(convert(sums[1])) if sums[0] else None), argument.function)


def _avg(call: _Call) -> Aggregation:
    call.only()
    argument = call.number()
    form = Sums(2, _summand, lambda sums: _float(sums[1]) / sums[0] if sums[0] else None)
    if argument.kind is Kind.DOUBLE:
        form = Sums(3, _summand_of_double, lambda sums: canonical_float(_sum_of_doubles(sums) / sums[0]) if sums[0] else None)
    return call.made(Kind.DOUBLE, form, argument.function)


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _squares(entry: Any) -> tuple[Any, ...]:
    if not _is_finite(entry):
        return 1, 0, 0, 1
    value = _exact(entry)
    return 1, value, value * value, 0


def _spread(call: _Call) -> Aggregation:
    call.only()
    sample = 0 if isinstance(call.inner, exp.VariancePop | exp.StddevPop) else 1
    root = isinstance(call.inner, exp.Stddev | exp.StddevPop | exp.StddevSamp)

    def result(sums: Sequence[Any]) -> Any:
        n = sums[0]
        if n <= sample:
            return None
        if sums[3]:
            return NAN
        found = _float(Fraction(sums[2] - Fraction(sums[1] * sums[1]) / n) / (n - sample))
        return math.sqrt(found) if root else found

    return call.made(Kind.DOUBLE, Sums(4, _squares, result), call.number().function)


def _products(entry: Any) -> tuple[Any, ...]:
    if not (_is_finite(entry[0]) and _is_finite(entry[1])):
        return 1, 0, 0, 0, 1
    y, x = _exact(entry[0]), _exact(entry[1])
    return 1, y, x, y * x, 0


def _covariance(call: _Call) -> Aggregation:
    call.only("expression")
    if call.distinct:
        raise refusal(call.node, f"{call.name} takes no DISTINCT")
    y, x = call.number().function, call.number(call.inner.expression).function
    sample = 1 if isinstance(call.inner, exp.CovarSamp) else 0

    def result(sums: Sequence[Any]) -> Any:
        n = sums[0]
        if n <= sample:
            return None
        return NAN if sums[4] else _float((Fraction(sums[3]) - Fraction(sums[1] * sums[2]) / n) / (n - sample))

    def entry(row: Row) -> Any:
        found = y(row), x(row)
        return None if None in found else found

    return call.made(Kind.DOUBLE, Sums(5, _products, result), entry)


def _quantifier(call: _Call) -> Aggregation:
    call.only()
    every = isinstance(call.inner, exp.LogicalAnd)

    def result(sums: Sequence[Any]) -> Any:
        return None if not sums[0] else sums[1] == sums[0] if every else sums[1] > 0

    return call.made(Kind.BOOLEAN, Sums(2, _summand, result), compile_condition(call.argument, call.scope))


# -- the first in an order -----------------------------------------------------------------------------------------


def _same(entry: Any) -> Any:
    return entry


def _order(kind: Kind, descending: bool = False) -> Callable[[Any], Any]:
    """Return the key that values of a kind are sorted by."""
    return turned(kind, descending) or _same


def _extreme(call: _Call) -> Aggregation:
    call.only("expressions")
    if call.inner.expressions:
        raise refusal(call.node, f"{call.name} of several values in a list is not supported")
    argument = call.scalar()
    order = _order(argument.kind, isinstance(call.inner, exp.Max))
    return call.made(argument.kind, First(order, _same), argument.function)


def _extreme_by(call: _Call) -> Aggregation:
    only(call.inner, "this", "expression")
    call.unordered()
    if call.distinct:
        raise refusal(call.node, f"{call.name} takes no DISTINCT")
    if call.inner.args.get("expression") is None:
        raise refusal(call.node, f"{call.name} takes two arguments")
    value, by = call.scalar(), call.scalar(call.inner.expression)
    wrap, of_value = _order(by.kind, isinstance(call.inner, exp.ArgMax)), _order(value.kind)

    def entry(row: Row) -> Any:
        found = value.function(row), by.function(row)
        return None if None in found else found

    return call.made(value.kind, First(lambda entry: (wrap(entry[1]), of_value(entry[0])), lambda entry: entry[0]), entry)


def _ordered_first(call: _Call) -> Aggregation:
    only(call.inner, "this")
    order = call.ordering()
    if order is None:
        raise refusal(call.node, f"{call.name} needs ORDER BY inside: which value it takes is unspecified")
    value = call.scalar()
    skips = isinstance(call.inner, exp.AnyValue)
    last = isinstance(call.inner, exp.Last)

    def entry(row: Row) -> Any:
        found = value.function(row)
        return None if skips and found is None else (found, *order.values(row))

    def key(entry: Any) -> Any:
        found = order.key(entry[1:]), sortable(entry[0])
        return Descending(found) if last else found

    return call.made(value.kind, First(key, lambda entry: entry[0]), entry)


# -- all values ----------------------------------------------------------------------------------------------------


def _mode(call: _Call) -> Aggregation:
    call.only()
    call.unordered()
    argument = call.scalar()

    def result(entries: list[Any]) -> Any:
        counts = Counter(entries)  # in ascending order, so that of equally frequent values the least is found first
        return max(counts, key=counts.__getitem__)

    return call.made(argument.kind, Whole(_order(argument.kind), result), argument.function)


def _position(call: _Call, node: exp.Expr | None) -> Fraction:
    if not isinstance(node, exp.Literal) or node.is_string or not 0 <= Fraction(str(node.this)) <= 1:
        raise refusal(call.node, "the quantile is a literal number from 0 to 1")
    return Fraction(str(node.this))


def _quantile(call: _Call) -> Aggregation:
    """Return a quantile: ``(value, position)``, or ``(position)`` with the value in ``WITHIN GROUP``."""
    discrete = isinstance(call.inner, exp.PercentileDisc | exp.Quantile)
    descending = False
    if isinstance(call.inner, exp.Median):
        only(call.inner, "this")
        position, value = Fraction(1, 2), call.argument
    elif call.within:
        only(call.inner, "this")
        position = _position(call, call.inner.this)
        if call.order is None or len(call.order.expressions) != 1:
            raise refusal(call.node, "WITHIN GROUP orders by one expression here")
        ordered = call.order.expressions[0]
        value, descending = ordered.this, bool(ordered.args.get("desc"))
    else:
        only(call.inner, "this", "expression", "quantile")
        call.ordering()
        position = _position(call, call.inner.args.get("expression") or call.inner.args.get("quantile"))
        value = call.argument
    argument = call.scalar(value)
    order = _order(argument.kind, descending)
    if discrete:

        def pick(entries: list[Any]) -> Any:
            return entries[max(math.ceil(position * len(entries)) - 1, 0)]

        return call.made(argument.kind, Whole(order, pick), argument.function)
    if argument.kind not in (Kind.INTEGER, Kind.DOUBLE):
        raise refusal(
            call.node, f"{call.name} of {argument.kind.value} is not supported: cast it to DOUBLE, or use quantile_disc"
        )
    argument = as_kind(argument, Kind.DOUBLE, call.node)

    def between(entries: list[Any]) -> Any:
        place = position * (len(entries) - 1)
        low, high = entries[math.floor(place)], entries[math.ceil(place)]
        return low if low == high else canonical_float(low + (high - low) * float(place - math.floor(place)))

    return call.made(Kind.DOUBLE, Whole(order, between), argument.function)


def _check_distinct_order(call: _Call) -> None:
    if call.order is not None and call.distinct and [part.this for part in call.order.expressions] != [call.argument]:
        raise refusal(call.node, "with DISTINCT it is ordered by its argument")


def _by(order: Ordering | None) -> Callable[[Any], Any] | None:
    """Return the key of entries that are a value and the values that it is ordered by; ties go by the value."""
    return None if order is None else lambda entry: (order.key(entry[1:]), sortable(entry[0]))


def _text(call: _Call) -> Aggregation:
    only(call.inner, "this", "separator")
    separator = call.inner.args.get("separator")
    if separator is not None and not (isinstance(separator, exp.Literal) and separator.is_string):
        raise refusal(call.node, "the separator is a literal text")
    between = "," if separator is None else str(separator.this)
    text = as_kind(call.scalar(), Kind.TEXT, call.node).function
    order = call.ordering()
    _check_distinct_order(call)

    def entry(row: Row) -> Any:
        found = text(row)
        return None if found is None else (found, *(() if order is None else order.values(row)))

    return call.made(Kind.TEXT, Whole(_by(order), lambda entries: joined(between, [entry[0] for entry in entries])), entry)


def _list(call: _Call) -> Aggregation:
    only(call.inner, "this")
    argument, order = call.scalar(), call.ordering()
    _check_distinct_order(call)

    def entry(row: Row) -> Any:
        return argument.function(row), *(() if order is None else order.values(row))

    return call.made(list_of(argument.kind), Whole(_by(order), lambda entries: tuple(entry[0] for entry in entries)), entry)


_MAKERS: Final[dict[Any, Callable[[_Call], Aggregation]]] = {
    exp.Count: _count,
    exp.CountIf: _count_if,
    exp.Sum: _sum,
    exp.Avg: _avg,
    exp.Min: _extreme,
    exp.Max: _extreme,
    **dict.fromkeys((exp.Variance, exp.VariancePop, exp.Stddev, exp.StddevPop, exp.StddevSamp), _spread),
    **dict.fromkeys((exp.CovarPop, exp.CovarSamp), _covariance),
    exp.LogicalAnd: _quantifier,
    exp.LogicalOr: _quantifier,
    exp.ArgMax: _extreme_by,
    exp.ArgMin: _extreme_by,
    exp.First: _ordered_first,
    exp.Last: _ordered_first,
    exp.AnyValue: _ordered_first,
    exp.Mode: _mode,
    exp.Median: _quantile,
    exp.Quantile: _quantile,
    exp.PercentileCont: _quantile,
    exp.PercentileDisc: _quantile,
    exp.GroupConcat: _text,
    exp.ArrayAgg: _list,
}

_ADVICE: Final[dict[Any, str]] = {
    exp.Corr: ": divide covar_pop(y, x) by nullif(stddev_pop(y) * stddev_pop(x), 0)",
    exp.ApproxDistinct: ": count(DISTINCT ...) is exact, and costs little here",
}
