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
from timely.differential.tables.values.dialect import WINDOWS
from timely.differential.tables.values.kinds import NUMBERS, Column, Kind, canonical_float, fitting, list_of, sortable
from timely.differential.tables.values.refusals import only, refusal
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
    within = False
    while isinstance(inner, WRAPPERS):
        if isinstance(inner, exp.Filter):
            condition = compile_condition(inner.expression.this, scope)
        elif isinstance(inner, exp.WithinGroup):
            order, within = inner.expression, True
        else:
            raise refusal(inner, "IGNORE NULLS and RESPECT NULLS belong to window functions")
        inner = inner.this
    name = inner.name.lower()
    function = AGGREGATES.get(name) if isinstance(inner, exp.AggFunc) else None
    if function is None:
        if name in WINDOWS:
            raise refusal(node, f"{name} is no aggregate: it stands right before OVER")
        raise refusal(node, f"the aggregate {name} is not supported{_ADVICE.get(name, '')}")
    arguments, distinct = list(inner.expressions), False
    if arguments and isinstance(arguments[-1], exp.Order):
        if within and name in _QUANTILES:
            raise refusal(node, "it is ordered twice")
        order = arguments[-1]
        arguments[-1] = order.this
    if arguments and isinstance(arguments[0], exp.Distinct):
        arguments, distinct = arguments[0].expressions, True
    call = _Call(node, name, arguments, order, distinct, within, scope)
    call.check(function)
    made = function.make(call)
    if condition is not None:
        entry, counts = made.entry, condition
        made = attrs.evolve(made, entry=lambda row: entry(row) if counts(row) else None)
    return attrs.evolve(made, distinct=distinct and not isinstance(made.form, First))


@attrs.frozen
class _Call:
    """An aggregate as it is written."""

    node: exp.Expr
    name: str
    arguments: list[exp.Expr]
    order: exp.Order | None
    distinct: bool
    within: bool
    scope: NameScope

    def check(self, function: AggregateFunction) -> None:
        """Refuse what the function does not take."""
        takes = (1,) if self.within else function.takes
        if self.distinct and (len(self.arguments) not in takes or self.is_star):
            raise refusal(self.node, "DISTINCT in an aggregate takes one expression")
        for part, there in (("DISTINCT", self.distinct), ("WITHIN GROUP", self.within), ("ORDER BY", self.order is not None)):
            if there and (part in function.refuses or self.is_star):
                advice = ": write ORDER BY behind its argument" if part == "WITHIN GROUP" else ""
                raise refusal(self.node, f"{self.name} takes no {part}{advice}")
        if len(self.arguments) not in takes:
            raise refusal(self.node, f"{self.name} takes {COUNTS[takes]}")
        self.ordering()

    @property
    def is_star(self) -> bool:
        return bool(self.arguments) and isinstance(self.arguments[0], exp.Star)

    def scalar(self, place: int = 0) -> Scalar:
        """Return an argument."""
        return self.compiled(self.arguments[place])

    def compiled(self, node: exp.Expr) -> Scalar:
        argument = compile_scalar(node, self.scope)
        if argument.kind is Kind.NULL:
            raise refusal(self.node, "NULL has no kind here: cast it")
        return argument

    def number(self, place: int = 0) -> Scalar:
        """Return an argument that is a number."""
        argument = self.scalar(place)
        if argument.kind.base not in NUMBERS:
            raise refusal(self.node, f"{self.name} takes numbers, not {argument.kind.value}")
        return argument

    def condition(self) -> Function:
        return compile_condition(self.arguments[0], self.scope)

    def ordering(self) -> Ordering | None:
        return None if self.order is None else ordering(self.order.expressions, self.scope)

    def made(self, kind: Kind, form: Sums | First | Whole, entry: Function, empty: Any = None) -> Aggregation:
        return Aggregation(self.node, Column(self.name, kind, empty is None), form, entry, empty)


@attrs.frozen
class AggregateFunction:
    """An aggregate of SQL: what makes it of a call, how many arguments it takes, and which parts of a call it does not take.

    What DuckDB decides by an order where values tie takes no order here.
    """

    make: Callable[[_Call], Aggregation]
    takes: tuple[int, ...] = (1,)
    refuses: tuple[str, ...] = ("WITHIN GROUP",)


COUNTS: Final = {
    (0,): "no argument",
    (0, 1): "one argument, or none",
    (1,): "one argument",
    (1, 2): "one or two arguments",
    (1, 2, 3): "one to three arguments",
    (2,): "two arguments",
}

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
    if call.is_star:
        only(call.arguments[0])
    if call.is_star or not call.arguments:
        return call.made(Kind.INTEGER, Sums(1, _one, _first_of), lambda row: True, 0)
    return call.made(Kind.INTEGER, Sums(1, _one, _first_of), call.scalar().function, 0)


def _count_if(call: _Call) -> Aggregation:
    return call.made(Kind.INTEGER, Sums(2, _summand, lambda sums: sums[1] if sums[0] else None), call.condition())


def _sum(call: _Call) -> Aggregation:
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
    sample, root = 0 if call.name.endswith("_pop") else 1, call.name.startswith("stddev")

    def result(sums: Sequence[Any]) -> Any:
        n = sums[0]
        if n <= sample:
            return None
        if sums[3]:
            return NAN
        variance = _float(Fraction(sums[2] - Fraction(sums[1] * sums[1]) / n) / (n - sample))
        return math.sqrt(variance) if root else variance

    return call.made(Kind.DOUBLE, Sums(4, _squares, result), call.number().function)


def _products(entry: Any) -> tuple[Any, ...]:
    if not (_is_finite(entry[0]) and _is_finite(entry[1])):
        return 1, 0, 0, 0, 1
    y, x = _exact(entry[0]), _exact(entry[1])
    return 1, y, x, y * x, 0


def _pair(one: Function, other: Function) -> Function:
    def pair(row: Row) -> Any:
        values = one(row), other(row)
        return None if None in values else values

    return pair


def _covariance(call: _Call) -> Aggregation:
    y, x = call.number().function, call.number(1).function
    sample = 1 if call.name == "covar_samp" else 0

    def result(sums: Sequence[Any]) -> Any:
        n = sums[0]
        if n <= sample:
            return None
        return NAN if sums[4] else _float((Fraction(sums[3]) - Fraction(sums[1] * sums[2]) / n) / (n - sample))

    return call.made(Kind.DOUBLE, Sums(5, _products, result), _pair(y, x))


def _quantifier(call: _Call) -> Aggregation:
    every = call.name == "bool_and"

    def result(sums: Sequence[Any]) -> Any:
        return None if not sums[0] else sums[1] == sums[0] if every else sums[1] > 0

    return call.made(Kind.BOOLEAN, Sums(2, _summand, result), call.condition())


# -- the first in an order -----------------------------------------------------------------------------------------


def _same(entry: Any) -> Any:
    return entry


def _order(kind: Kind, descending: bool = False) -> Callable[[Any], Any]:
    """Return the key that values of a kind are sorted by."""
    return turned(kind, descending) or _same


def _extreme(call: _Call) -> Aggregation:
    argument = call.scalar()
    order = _order(argument.kind, call.name == "max")
    return call.made(argument.kind, First(order, _same), argument.function)


def _extreme_by(call: _Call) -> Aggregation:
    value, by = call.scalar(), call.scalar(1)
    wrap, of_value = _order(by.kind, "max" in call.name), _order(value.kind)

    form = First(lambda entry: (wrap(entry[1]), of_value(entry[0])), lambda entry: entry[0])
    return call.made(value.kind, form, _pair(value.function, by.function))


def _ordered_first(call: _Call) -> Aggregation:
    order = call.ordering()
    if order is None:
        raise refusal(call.node, f"{call.name} needs ORDER BY inside: which value it takes is unspecified")
    value = call.scalar()
    skips, last = call.name == "any_value", call.name == "last"

    def entry(row: Row) -> Any:
        own = value.function(row)
        return None if skips and own is None else (own, *order.values(row))

    def key(entry: Any) -> Any:
        place = order.key(entry[1:]), sortable(entry[0])
        return Descending(place) if last else place

    return call.made(value.kind, First(key, lambda entry: entry[0]), entry)


# -- all values ----------------------------------------------------------------------------------------------------


def _mode(call: _Call) -> Aggregation:
    argument = call.scalar()

    def result(entries: list[Any]) -> Any:
        counts = Counter(entries)  # in ascending order, so that of equally frequent values the least is found first
        return max(counts, key=counts.__getitem__)

    return call.made(argument.kind, Whole(_order(argument.kind), result), argument.function)


def _quantile(call: _Call) -> Aggregation:
    """Return a quantile: ``(value, position)``, or ``(position)`` with the value in ``WITHIN GROUP``."""
    position, value, descending = Fraction(1, 2), call.arguments[0], False
    if call.name != "median":
        written = call.arguments[-1]
        position = Fraction(str(written.this)) if isinstance(written, exp.Literal) and not written.is_string else Fraction(-1)
        if not 0 <= position <= 1:
            raise refusal(call.node, "the quantile is a literal number from 0 to 1")
    if call.within and call.order is not None:
        if len(call.order.expressions) != 1:
            raise refusal(call.node, "WITHIN GROUP orders by one expression here")
        ordered = call.order.expressions[0]
        value, descending = ordered.this, bool(ordered.args.get("desc"))
    argument = call.compiled(value)
    order = _order(argument.kind, descending)
    if call.name in ("quantile", "quantile_disc", "percentile_disc"):

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
    if call.order is not None and call.distinct and [part.this for part in call.order.expressions] != call.arguments[:1]:
        raise refusal(call.node, "with DISTINCT it is ordered by its argument")


def _by(order: Ordering | None) -> Callable[[Any], Any] | None:
    """Return the key of entries that are a value and the values that it is ordered by; ties go by the value."""
    return None if order is None else lambda entry: (order.key(entry[1:]), sortable(entry[0]))


def _text(call: _Call) -> Aggregation:
    between = ","
    if len(call.arguments) > 1:
        separator = call.arguments[1]
        if not isinstance(separator, exp.Literal) or not separator.is_string:
            raise refusal(call.node, "the separator is a literal text")
        between = str(separator.this)
    text = as_kind(call.scalar(), Kind.TEXT, call.node).function
    order = call.ordering()
    _check_distinct_order(call)

    def entry(row: Row) -> Any:
        own = text(row)
        return None if own is None else (own, *(() if order is None else order.values(row)))

    return call.made(Kind.TEXT, Whole(_by(order), lambda entries: joined(between, [entry[0] for entry in entries])), entry)


def _list(call: _Call) -> Aggregation:
    argument, order = call.scalar(), call.ordering()
    _check_distinct_order(call)

    def entry(row: Row) -> Any:
        return argument.function(row), *(() if order is None else order.values(row))

    return call.made(list_of(argument.kind), Whole(_by(order), lambda entries: tuple(entry[0] for entry in entries)), entry)


_QUANTILES: Final = ("quantile", "quantile_cont", "quantile_disc", "percentile_cont", "percentile_disc")
_QUANTILE: Final = AggregateFunction(_quantile, (2,), ())
_SPREAD: Final = AggregateFunction(_spread)
_COVARIANCE: Final = AggregateFunction(_covariance, (2,), ("WITHIN GROUP", "DISTINCT"))
_EXTREME_BY: Final = AggregateFunction(_extreme_by, (2,), ("WITHIN GROUP", "DISTINCT", "ORDER BY"))
_TEXT: Final = AggregateFunction(_text, (1, 2))

AGGREGATES: Final[dict[str, AggregateFunction]] = {
    "count": AggregateFunction(_count, (0, 1)),
    **dict.fromkeys(("count_if", "countif"), AggregateFunction(_count_if, refuses=("WITHIN GROUP", "DISTINCT"))),
    "sum": AggregateFunction(_sum),
    "avg": AggregateFunction(_avg),
    **dict.fromkeys(("min", "max"), AggregateFunction(_extreme)),
    **dict.fromkeys(("variance", "var_samp", "var_pop", "stddev", "stddev_samp", "stddev_pop"), _SPREAD),
    **dict.fromkeys(("covar_pop", "covar_samp"), _COVARIANCE),
    **dict.fromkeys(("bool_and", "bool_or"), AggregateFunction(_quantifier)),
    **dict.fromkeys(("arg_max", "argmax", "max_by", "arg_min", "argmin", "min_by"), _EXTREME_BY),
    **dict.fromkeys(("first", "last", "any_value"), AggregateFunction(_ordered_first)),
    "mode": AggregateFunction(_mode, refuses=("WITHIN GROUP", "ORDER BY")),
    "median": AggregateFunction(_quantile),
    **dict.fromkeys(_QUANTILES, _QUANTILE),
    **dict.fromkeys(("string_agg", "group_concat", "listagg"), _TEXT),
    **dict.fromkeys(("list", "array_agg"), AggregateFunction(_list)),
}
"""The aggregates, by their names as written."""

_ADVICE: Final = {
    "corr": ": divide covar_pop(y, x) by nullif(stddev_pop(y) * stddev_pop(x), 0)",
    "approx_count_distinct": ": count(DISTINCT ...) is exact, and costs little here",
}
