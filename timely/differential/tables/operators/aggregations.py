"""Aggregates: each is a sum, the first of its values in an order, or a function of all of them.

Sums move into the differences, so a change costs the same in a group of any size. The first value costs the logarithm of the
group. A function of all values costs the size of the group.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa

from timely.differential.operators.aggregates import Descending
from timely.differential.tables.expressions.bound import Call, Expr, Literal, SortKey, ids_in
from timely.differential.tables.expressions.calls import as_kind
from timely.differential.tables.expressions.scalar_compiler import Function, Row, RowScope, compile_scalar
from timely.differential.tables.operators.sorting import Ordering, turned
from timely.differential.tables.values.kinds import (
    DOUBLES,
    NUMBERS,
    Kind,
    canonical_float,
    fitting,
    list_of,
    map_of,
    single,
    sortable,
)
from timely.differential.tables.values.parsing import joined
from timely.differential.tables.values.scalars import decimal_of
from timely.differential.updates.row_columns import Fixed
from timely.errors import SqlError
from timely.operators.keyed.numbers import NAN, float_of_parts, float_parts


@attrs.frozen
class Sums:
    """An aggregate that is computed from ``size`` sums over its entries.

    ``columns`` does what ``result`` does for arrays of 64 bits, faster, and may return ``None``. In these, a sum of decimals is a
    whole number, with as many digits behind the point as ``decimals`` says. Of a column of values, what is added up are its
    ``numbers``, if there are such.
    """

    size: int
    summands: Callable[[Any], tuple[Any, ...]]
    result: Callable[[Sequence[Any]], Any]
    columns: Callable[[Sequence[Any]], Any] | None = None
    decimals: int = 0
    numbers: Callable[[Any], Any] | None = None

    @property
    def scales(self) -> tuple[int, ...]:
        """The digits behind the point of each sum."""
        return (*(0,) * (self.size - 1), self.decimals)


@attrs.frozen
class First:
    """An aggregate that is part of the first of its entries in an order; ``kernel`` does the same where entries are numbers."""

    order: Callable[[Any], Any]
    result: Callable[[Any], Any]
    kernel: str | None = None


@attrs.frozen
class Whole:
    """An aggregate that is computed from all its entries in an order; without one, in that of the window that they are in."""

    order: Callable[[Any], Any] | None
    result: Callable[[list[Any]], Any]


@attrs.frozen
class AggregateCall(Expr):
    """An aggregate of a query, of ``inputs``; ``parameters`` are what else it is called with.

    ``entry`` makes of the inputs, as functions of a row, what of a row goes in: ``None`` where the row does not count.
    """

    name: str
    inputs: tuple[Expr, ...]
    parameters: tuple[Any, ...]
    distinct: bool
    condition: Expr | None
    form: Sums | First | Whole = attrs.field(eq=False, repr=False)
    entry: Callable[..., Function] = attrs.field(eq=False, repr=False)
    empty: Any = attrs.field(eq=False, repr=False)

    _made_of = ("inputs", "condition")

    @property
    def sums(self) -> Sums:
        """Its form, where that is sums."""
        assert isinstance(self.form, Sums)
        return self.form

    def summands(self, entry: Function) -> Callable[[Any], tuple[Any, ...]]:
        """Return what a row adds to its sums."""
        zeros, of = (0,) * self.sums.size, self.sums.summands

        def added(row: Any) -> tuple[Any, ...]:
            value = entry(row)
            return zeros if value is None else of(value)

        return added

    def of_rows(self, scope: RowScope) -> Function:
        """Return what of a row goes in."""
        return self.of_functions([compile_scalar(part, scope).function for part in self.parts])

    def of_functions(self, functions: Sequence[Function]) -> Function:
        """Return the same where its parts are compiled."""
        count = len(self.inputs)
        entry, conditions = self.entry(*functions[:count]), functions[count:]
        if not conditions:
            return entry
        (counts,) = conditions
        return lambda row: entry(row) if counts(row) else None


@attrs.frozen
class Written:
    """An aggregate as it is written: ``star`` for ``count(*)``, and an order that is that of ``WITHIN GROUP``, or not."""

    name: str
    arguments: tuple[Expr, ...]
    star: bool = False
    order: tuple[SortKey, ...] | None = None
    within: bool = False
    distinct: bool = False
    condition: Expr | None = None
    at: Any = None

    def check(self, function: AggregateFunction) -> None:
        """Refuse what the function does not take."""
        takes, count = (1,) if self.within else function.takes, len(self.arguments) + self.star
        if self.distinct and (count not in takes or self.star):
            raise SqlError("DISTINCT in an aggregate takes one expression")
        for part, there in (("DISTINCT", self.distinct), ("WITHIN GROUP", self.within), ("ORDER BY", self.order is not None)):
            if there and (part in function.refuses or self.star):
                advice = ": write ORDER BY behind its argument" if part == "WITHIN GROUP" else ""
                raise SqlError(f"{self.name} takes no {part}{advice}")
        if count not in takes or (self.star and self.name != "count"):
            raise SqlError(f"{self.name} takes {COUNTS[takes]}")

    def value(self, place: int = 0) -> Expr:
        """Return an argument."""
        return self.known(self.arguments[place])

    def known(self, argument: Expr) -> Expr:
        if argument.kind is Kind.NULL:
            raise SqlError("NULL has no kind here: cast it")
        return argument

    def number(self, place: int = 0) -> Expr:
        """Return an argument that is a number."""
        argument = self.value(place)
        if argument.kind.base not in NUMBERS:
            raise SqlError(f"{self.name} takes numbers, not {argument.kind.value}: cast it, as in {self.name}(value::double)")
        return argument

    def condition_value(self) -> Expr:
        """Return an argument that is a condition."""
        return as_kind(self.arguments[0], Kind.BOOLEAN)

    @property
    def ordered_by(self) -> tuple[Expr, ...]:
        return tuple(key.value for key in self.order or ())

    def ordering(self) -> Ordering | None:
        return None if self.order is None else Ordering.of_keys(self.order)

    def made(
        self,
        kind: Kind,
        form: Sums | First | Whole,
        inputs: Sequence[Expr],
        empty: Any = None,
        entry: Callable[..., Function] | None = None,
        parameters: tuple[Any, ...] = (),
    ) -> AggregateCall:
        """Return the aggregate: of its one input, if there is no other ``entry``."""
        distinct = self.distinct and not isinstance(form, First)
        flags = tuple((key.descending, key.nulls_first) for key in self.order or ())
        parameters = (*parameters, flags)
        entry = entry or _only
        return AggregateCall(kind, self.name, tuple(inputs), parameters, distinct, self.condition, form, entry, empty, at=self.at)


def _only(function: Function) -> Function:
    return function


def aggregate(call: Written) -> AggregateCall:
    """Return an aggregate; ``SqlError`` for those that are not supported."""
    function = AGGREGATES.get(call.name)
    if function is None:
        raise SqlError(f"{call.name} is no aggregate")
    if call.within and call.order is not None and len(call.order) > 1 and call.name in QUANTILES:
        raise SqlError("WITHIN GROUP orders by one expression here")
    call.check(function)
    return function.make(call)


@attrs.frozen
class AggregateFunction:
    """An aggregate of SQL: what makes it of a call, how many arguments it takes, and which parts of a call it does not take.

    What DuckDB decides by an order where values tie takes no order here.
    """

    make: Callable[[Written], AggregateCall]
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


def _average_of_doubles(sums: Sequence[Any]) -> Any:
    return canonical_float(_sum_of_doubles(sums) / sums[0]) if sums[0] else None


def _first_of(sums: Sequence[Any]) -> Any:
    return sums[0]


_OF_SUM: Final[dict[Kind, Callable[[Any], Any]]] = {Kind.INTEGER: int, Kind.DECIMAL: decimal_of}


def _numbers(sums: Sequence[Any]) -> Any:
    """Return sums as a column, where there is no value missing ones."""
    return pa.array(sums[-1], mask=None if len(sums) == 1 else sums[0] == 0)


def _averages(scale: int) -> Callable[[Sequence[Any]], Any]:
    """Return what makes a column of averages, where doubles hold the sums."""

    def averages(sums: Sequence[Any]) -> Any:
        counts, totals = sums
        if scale > 22 or not (np.abs(totals) <= 1 << 53).all():
            return None
        return pa.array(totals / float(10**scale) / np.where(counts == 0, 1, counts), mask=counts == 0)

    return averages


def _count(call: Written) -> AggregateCall:
    form = Sums(1, _one, _first_of, _numbers)
    if call.star or not call.arguments:
        return call.made(Kind.INTEGER, form, (), 0, lambda: lambda row: True)
    return call.made(Kind.INTEGER, form, [call.value()], 0)


def _count_if(call: Written) -> AggregateCall:
    form = Sums(2, _summand, lambda sums: sums[1] if sums[0] else None, _numbers)
    return call.made(Kind.INTEGER, form, [call.condition_value()])


def _sum(call: Written) -> AggregateCall:
    argument = call.value()
    kind = Kind.INTEGER if argument.kind is Kind.BOOLEAN else argument.kind
    if kind.base not in NUMBERS:
        raise SqlError(f"sum takes numbers, not {kind.value}: cast it, as in sum(value::double)")
    if kind in DOUBLES:
        of_doubles = Sums(3, _summand_of_double, lambda sums: _sum_of_doubles(sums) if sums[0] else None)
        return call.made(Kind.DOUBLE, of_doubles, [argument])
    convert = _OF_SUM[kind.base]
    fit: Callable[[Any], Any] = _same if kind.scale is None else fitting(38, kind.scale)
    scale = kind.scale or 0
    columns = (lambda sums: Fixed(_numbers(sums), scale)) if kind.base is Kind.DECIMAL else _numbers
    form = Sums(2, _summand, lambda sums: fit(convert(sums[1])) if sums[0] else None, columns, scale)
    return call.made(kind, form, [argument])


def _avg(call: Written) -> AggregateCall:
    argument = call.number()
    scale = argument.kind.scale or 0
    form = Sums(2, _summand, lambda sums: _float(sums[1]) / sums[0] if sums[0] else None, _averages(scale), scale)
    if argument.kind in DOUBLES:
        form = Sums(3, _summand_of_double, _average_of_doubles)
    return call.made(Kind.DOUBLE, form, [argument])


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _squares(entry: Any) -> tuple[Any, ...]:
    if not _is_finite(entry):
        return 1, 0, 0, 1
    value = _exact(entry)
    return 1, value, value * value, 0


def _squared_distances(sums: Sequence[Any]) -> Any:
    """Return the sum of squares of the distances from the average; 0 of one number, as DuckDB has it."""
    n = sums[0]
    if n <= 1:
        return 0.0 if n else None
    return NAN if sums[3] else _float(Fraction(sums[2]) - Fraction(sums[1] * sums[1]) / n)


def _spread(call: Written) -> AggregateCall:
    sample, root = 0 if call.name.endswith("_pop") else 1, call.name.startswith("stddev")

    def result(sums: Sequence[Any]) -> Any:
        n = sums[0]
        if n <= sample:
            return None
        if sums[3]:
            return NAN
        variance = _float(Fraction(sums[2] - Fraction(sums[1] * sums[1]) / n) / (n - sample))
        return math.sqrt(variance) if root else variance

    return call.made(Kind.DOUBLE, Sums(4, _squares, result), [call.number()])


def _products(entry: Any) -> tuple[Any, ...]:
    odd_y, odd_x = (not _is_finite(value) for value in entry)
    y, x = 0 if odd_y else _exact(entry[0]), 0 if odd_x else _exact(entry[1])
    return 1, y, x, y * x, x * x, y * y, int(odd_y), int(odd_x)


def _pair(one: Function, other: Function) -> Function:
    def pair(row: Row) -> Any:
        values = one(row), other(row)
        return None if None in values else values

    return pair


@attrs.frozen
class _Pairs:
    """Pairs of numbers ``(y, x)``: how many, their means, and sums of products of the distances from these."""

    n: int
    y: Fraction
    x: Fraction
    yx: Fraction
    xx: Fraction
    yy: Fraction

    @classmethod
    def of(cls, sums: Sequence[Any]) -> _Pairs:
        n, (y, x, yx, xx, yy) = sums[0], map(Fraction, sums[1:6])
        return cls(n, y / n, x / n, yx - y * x / n, xx - x * x / n, yy - y * y / n)


def _ratio(one: Fraction, other: Fraction) -> float:
    return _float(one / other) if other else NAN


_OF_PAIRS: Final[dict[str, Callable[[_Pairs], Any]]] = {
    "covar_pop": lambda pairs: _float(pairs.yx / pairs.n),
    "covar_samp": lambda pairs: _float(pairs.yx / (pairs.n - 1)) if pairs.n > 1 else None,
    "corr": lambda pairs: canonical_float(math.copysign(_ratio(pairs.yx**2, pairs.xx * pairs.yy) ** 0.5, _float(pairs.yx))),
    "regr_sxy": lambda pairs: _float(pairs.yx),
    "regr_slope": lambda pairs: _ratio(pairs.yx, pairs.xx),
    "regr_intercept": lambda pairs: _float(pairs.y - pairs.yx / pairs.xx * pairs.x) if pairs.xx else None,
    "regr_r2": lambda pairs: None if not pairs.xx else _float(pairs.yx**2 / (pairs.xx * pairs.yy)) if pairs.yy else 1.0,
}
"""What aggregates of pairs of numbers are."""


def _of_pairs(call: Written) -> AggregateCall:
    y, x = call.number(), call.number(1)
    result_of = _OF_PAIRS[call.name]

    def result(sums: Sequence[Any]) -> Any:
        if sums[6] or sums[7]:
            return _of_odd_pairs(call.name, sums)
        return result_of(_Pairs.of(sums)) if sums[0] else None

    return call.made(Kind.DOUBLE, Sums(8, _products, result), (y, x), entry=_pair)


def _of_odd_pairs(name: str, sums: Sequence[Any]) -> float | None:
    """Return what DuckDB has of pairs of which some are infinite, or no numbers."""
    pairs = _Pairs.of(sums)
    if name == "regr_intercept" or (name == "covar_samp" and pairs.n == 1):
        return None
    if name == "regr_r2" and (pairs.n == 1 or not (sums[7] or pairs.xx)):
        return None
    return 1.0 if name == "regr_r2" and not (sums[6] or pairs.yy) else NAN


def _of_side(call: Written) -> AggregateCall:
    """Return the average, or the sum of squares of distances from it, of one number of each pair without ``NULL``."""
    place = "yx".index(call.name[-1])
    form = Sums(4, _squares, _squared_distances)
    if "avg" in call.name:
        form = Sums(3, _summand_of_double, _average_of_doubles)

    def entry(one: Function, other: Function) -> Function:
        pair = _pair(one, other)
        return lambda row: None if (values := pair(row)) is None else values[place]

    inputs = [as_kind(call.number(number), Kind.DOUBLE) for number in (0, 1)]
    return call.made(Kind.DOUBLE, form, inputs, entry=entry)


def _pair_count(call: Written) -> AggregateCall:
    return call.made(Kind.INTEGER, Sums(1, _one, _first_of), (call.number(), call.number(1)), 0, entry=_pair)


def _quantifier(call: Written) -> AggregateCall:
    every = call.name == "bool_and"

    def result(sums: Sequence[Any]) -> Any:
        return None if not sums[0] else sums[1] == sums[0] if every else sums[1] > 0

    return call.made(Kind.BOOLEAN, Sums(2, _summand, result), [call.condition_value()])


# -- the first in an order -----------------------------------------------------------------------------------------


def _same(entry: Any) -> Any:
    return entry


def _order(kind: Kind, descending: bool = False) -> Callable[[Any], Any]:
    """Return the key that values of a kind are sorted by."""
    return turned(kind, descending) or _same


def _extreme(call: Written) -> AggregateCall:
    argument = call.value()
    order = _order(argument.kind, call.name == "max")
    return call.made(argument.kind, First(order, _same, "greatest" if call.name == "max" else "least"), [argument])


def _extreme_by(call: Written) -> AggregateCall:
    value, by = call.value(), call.value(1)
    wrap, of_value = _order(by.kind, "max" in call.name), _order(value.kind)

    form = First(lambda entry: (wrap(entry[1]), of_value(entry[0])), lambda entry: entry[0])
    return call.made(value.kind, form, (value, by), entry=_pair)


def _with_order(skips: bool) -> Callable[..., Function]:
    """Return the entry of a value and of what it is ordered by; ``skips`` leaves out values that are ``None``."""

    def entry(value: Function, *orders: Function) -> Function:
        def entries(row: Row) -> Any:
            own = value(row)
            return None if skips and own is None else (own, *[order(row) for order in orders])

        return entries

    return entry


def _ordered_first(call: Written) -> AggregateCall:
    order = call.ordering()
    if order is None:
        raise SqlError(f"{call.name} needs ORDER BY inside, as in {call.name}(value ORDER BY column)")
    value, last = call.value(), call.name == "last"

    def key(entry: Any) -> Any:
        place = order.key(entry[1:]), sortable(entry[0])
        return Descending(place) if last else place

    form = First(key, lambda entry: entry[0])
    return call.made(value.kind, form, (value, *call.ordered_by), entry=_with_order(call.name == "any_value"))


# -- all values ----------------------------------------------------------------------------------------------------


def _mode(call: Written) -> AggregateCall:
    argument = call.value()

    def result(entries: list[Any]) -> Any:
        counts = Counter(entries)  # in ascending order, so that of equally frequent values the least is found first
        return max(counts, key=counts.__getitem__)

    return call.made(argument.kind, Whole(_order(argument.kind), result), [argument])


def _histogram(call: Written) -> AggregateCall:
    argument = call.value()
    form = Whole(_order(argument.kind), lambda entries: tuple(Counter(entries).items()))  # in ascending order
    return call.made(map_of(argument.kind, Kind.INTEGER), form, [argument])


_MOST_QUANTILES: Final = 1_000
"""Quantiles that a call has at most: a short query can write a list of millions."""


def _quantile(call: Written) -> AggregateCall:
    """Return quantiles: ``(value, positions)``, or ``(positions)`` with the value in ``WITHIN GROUP``."""
    written, value, descending = call.arguments[-1], call.arguments[0], False
    constant: Any = Decimal("0.5") if call.name == "median" else None
    if constant is None and isinstance(written, Literal | Call) and not ids_in(written):
        constant = compile_scalar(written, RowScope((), {})).function(())
    several = isinstance(constant, tuple)
    listed = constant if several else (constant,)
    numbers = [each for each in listed[:_MOST_QUANTILES] if type(each) in (int, float, Decimal) and 0 <= each <= 1]
    positions = [Fraction(str(each)) for each in numbers]
    if len(positions) < len(listed):
        raise SqlError(f"the quantile is a literal number from 0 to 1, or a list of up to {_MOST_QUANTILES:,} such")
    if call.within and call.order is not None:
        value, descending = call.order[0].value, call.order[0].descending
    elif call.order is not None and (call.ordered_by != (value,) or call.order[0].descending):
        raise SqlError("its order stands in WITHIN GROUP: percentile_cont(0.5) WITHIN GROUP (ORDER BY x DESC)")
    argument = call.known(value)
    order = _order(argument.kind, descending)
    if call.name in ("quantile", "quantile_disc", "percentile_disc"):
        kind = argument.kind

        def quantile(entries: list[Any], position: Fraction) -> Any:
            return entries[max(math.ceil(position * len(entries)) - 1, 0)]

    elif argument.kind in (Kind.INTEGER, *DOUBLES):
        kind, fit = (Kind.REAL, single) if argument.kind is Kind.REAL else (Kind.DOUBLE, canonical_float)

        def quantile(entries: list[Any], position: Fraction) -> Any:
            place = position * (len(entries) - 1)
            low, high = entries[math.floor(place)], entries[math.ceil(place)]
            return low if low == high else fit(low + (high - low) * float(place - math.floor(place)))

    else:
        raise SqlError(f"{call.name} of {argument.kind.value} is not supported: cast it to DOUBLE, or use quantile_disc")

    def result(entries: list[Any]) -> Any:
        quantiles = tuple([quantile(entries, position) for position in positions])
        return quantiles if several else quantiles[0]

    inputs = [as_kind(argument, kind)]
    return call.made(list_of(kind) if several else kind, Whole(order, result), inputs, parameters=tuple(positions))


def _check_distinct_order(call: Written) -> None:
    if call.order is not None and call.distinct and call.ordered_by != call.arguments[:1]:
        raise SqlError("with DISTINCT it is ordered by its argument")


def _by(order: Ordering | None) -> Callable[[Any], Any] | None:
    """Return the key of entries that are a value and the values that it is ordered by; ties go by the value."""
    return None if order is None else lambda entry: (order.key(entry[1:]), sortable(entry[0]))


def _text(call: Written) -> AggregateCall:
    between = ","
    if len(call.arguments) > 1:
        separator = call.arguments[1]
        if not isinstance(separator, Literal) or separator.text is None:
            raise SqlError("the separator is a literal text")
        between = separator.text
    _check_distinct_order(call)
    form = Whole(_by(call.ordering()), lambda entries: joined(between, [entry[0] for entry in entries]))
    inputs = (as_kind(call.value(), Kind.TEXT), *call.ordered_by)
    return call.made(Kind.TEXT, form, inputs, entry=_with_order(True), parameters=(between,))


def _list(call: Written) -> AggregateCall:
    argument = call.value()
    _check_distinct_order(call)
    form = Whole(_by(call.ordering()), lambda entries: tuple(entry[0] for entry in entries))
    return call.made(list_of(argument.kind), form, (argument, *call.ordered_by), entry=_with_order(False))


QUANTILES: Final = ("quantile", "quantile_cont", "quantile_disc", "percentile_cont", "percentile_disc")
_QUANTILE: Final = AggregateFunction(_quantile, (2,), ())
_SPREAD: Final = AggregateFunction(_spread)
_PAIRS: Final = AggregateFunction(_of_pairs, (2,), ("WITHIN GROUP", "DISTINCT"))
_EXTREME_BY: Final = AggregateFunction(_extreme_by, (2,), ("WITHIN GROUP", "DISTINCT", "ORDER BY"))
_TEXT: Final = AggregateFunction(_text, (1, 2))

AGGREGATES: Final[dict[str, AggregateFunction]] = {
    "count": AggregateFunction(_count, (0, 1)),
    **dict.fromkeys(("count_if", "countif"), AggregateFunction(_count_if, refuses=("WITHIN GROUP", "DISTINCT"))),
    "sum": AggregateFunction(_sum),
    "avg": AggregateFunction(_avg),
    **dict.fromkeys(("min", "max"), AggregateFunction(_extreme)),
    **dict.fromkeys(("variance", "var_samp", "var_pop", "stddev", "stddev_samp", "stddev_pop"), _SPREAD),
    **dict.fromkeys(_OF_PAIRS, _PAIRS),
    **dict.fromkeys(("regr_avgx", "regr_avgy", "regr_sxx", "regr_syy"), attrs.evolve(_PAIRS, make=_of_side)),
    "regr_count": attrs.evolve(_PAIRS, make=_pair_count),
    **dict.fromkeys(("bool_and", "bool_or"), AggregateFunction(_quantifier)),
    **dict.fromkeys(("arg_max", "argmax", "max_by", "arg_min", "argmin", "min_by"), _EXTREME_BY),
    **dict.fromkeys(("first", "last", "any_value"), AggregateFunction(_ordered_first)),
    "mode": AggregateFunction(_mode, refuses=("WITHIN GROUP", "ORDER BY")),
    "histogram": AggregateFunction(_histogram, refuses=("WITHIN GROUP", "DISTINCT", "ORDER BY")),
    "median": AggregateFunction(_quantile),
    **dict.fromkeys(QUANTILES, _QUANTILE),
    **dict.fromkeys(("string_agg", "group_concat", "listagg"), _TEXT),
    **dict.fromkeys(("list", "array_agg"), AggregateFunction(_list)),
}
"""The aggregates, by their names as written."""
