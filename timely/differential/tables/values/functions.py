"""The table of functions: all scalar functions and operators of SQL, by their names as written; and ``CAST``."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from operator import add, eq, ge, gt, le, lt, mul, ne, neg, sub
from typing import Any, Final

from timely.differential.tables.values import moment_functions as moments
from timely.differential.tables.values import scalars
from timely.differential.tables.values.json_functions import JSON_FUNCTIONS
from timely.differential.tables.values.kinds import (
    DOUBLES,
    MOMENTS,
    NUMBERS,
    Conversion,
    Kind,
    canonical_float,
    common,
    conversion,
    decimal,
    fitting,
    list_of,
    single,
    sortable,
    then,
)
from timely.differential.tables.values.list_functions import LIST_FUNCTIONS, concatenated
from timely.differential.tables.values.moment_functions import MOMENT_FUNCTIONS
from timely.differential.tables.values.number_functions import NUMBER_FUNCTIONS, round_float
from timely.differential.tables.values.overloads import (
    NO_LENGTH,
    Arguments,
    Overload,
    Rule,
    SqlFunction,
    WrongArgumentError,
    always,
    named,
    overload,
    seeing_nulls,
    taking,
)
from timely.differential.tables.values.parsing import OutOfYears
from timely.differential.tables.values.text_functions import FORMAT_FUNCTIONS, TEXT_FUNCTIONS, as_text, concatenate, lower
from timely.errors import SqlError

Row = tuple[Any, ...]
Function = Callable[[Row], Any]

_I, _B, _T, _F = Kind.INTEGER, Kind.BOOLEAN, Kind.TEXT, Kind.DOUBLE
_DATE, _TIME, _SPAN, _MONTHS = Kind.DATE, Kind.TIME, Kind.INTERVAL, Kind.MONTHS


# -- arithmetic ----------------------------------------------------------------------------------------------------


def _arithmetic(name: str, whole: Callable[..., Any], exact: Callable[..., Any], double: Callable[..., Any]) -> Rule:
    def rule(kinds: Arguments) -> Overload | None:
        of_moments = _OF_MOMENTS.get((name, *kinds))
        if of_moments is not None:
            return of_moments
        kind = _number(kinds)
        if kind in DOUBLES:
            fit_float = single if kind is Kind.REAL else canonical_float
            return _of_one_kind(lambda one, other: fit_float(double(one, other)), kind)
        if kind.scale is None:
            return _of_one_kind(whole, kind)
        # a product has the digits behind the point of both numbers
        scale = sum(own.scale or 0 for own in kinds) if name == "*" else kind.scale
        if scale > 38:
            raise SqlError(f"it has {scale} digits behind the point, and DECIMAL has 38: cast one to fewer, or to DOUBLE")
        fit = fitting(38, scale)
        return Overload((kind, kind), decimal(scale), lambda one, other: fit(exact(one, other)))

    return taking(2, rule)


def _number(kinds: Arguments) -> Kind:
    """Return the kind of number that the operands of arithmetic become."""
    if Kind.TEXT in kinds:  # a decimal and a text make a double, as in DuckDB
        kinds = Arguments([_F if kind.scale is not None else kind for kind in kinds], kinds.written)
    kind = kinds.together()
    if kind.base not in (*NUMBERS, Kind.NULL):
        raise SqlError(f"arithmetic on {kind.value} is not supported")
    return kind


def _of_one_kind(f: Callable[..., Any], kind: Kind) -> Overload:
    return overload(f, kind, kind, kind)


def _divided(kinds: Arguments) -> Overload:
    kind = _number(kinds)
    if kind is Kind.REAL:
        return _of_one_kind(lambda one, other: single(scalars.divide(one, other)), kind)
    return _of_one_kind(scalars.divide, kind if kind is Kind.NULL else _F)


def _divided_whole(kinds: Arguments) -> Overload:
    kind = _number(kinds)
    if kind not in (_I, Kind.NULL):
        raise SqlError("// is supported for whole numbers")
    return _of_one_kind(scalars.quotient, kind)


def _negative(kinds: Arguments) -> Overload:
    (kind,) = kinds
    if kind is _MONTHS:
        raise SqlError(NO_LENGTH)
    if kind.base not in (*NUMBERS, _SPAN, Kind.NULL):
        raise SqlError(f"arithmetic on {kind.value} is not supported")
    if kind in DOUBLES:
        return overload(lambda value: canonical_float(0.0 - value), kind, kind)  # there is one zero
    return overload(neg if kind.scale is None else scalars.EXACT.minus, kind, kind)


def _rules_of_moments() -> dict[tuple[Any, ...], Overload]:
    rules: dict[tuple[Any, ...], Overload] = {}

    def both_ways(operator: str, one: Kind, other: Kind, kind: Kind, f: Callable[[Any, Any], Any]) -> None:
        rules[operator, one, other] = overload(f, kind, one, other)
        rules[operator, other, one] = overload(lambda value, more: f(more, value), kind, other, one)

    def less(one: Kind, other: Kind, kind: Kind, f: Callable[[Any, Any], Any]) -> None:
        rules["-", one, other] = overload(f, kind, one, other)

    for moment in MOMENTS:
        moved = Kind.TIMESTAMP if moment is _DATE else moment
        both_ways("+", moment, _SPAN, moved, lambda value, delta: moments.add_interval(value, 0, delta))
        both_ways("+", moment, _MONTHS, moved, lambda value, length: moments.add_interval(value, *length))
        less(moment, _SPAN, moved, lambda value, delta: moments.add_interval(value, 0, -delta))
        less(moment, _MONTHS, moved, lambda value, length: moments.add_interval(value, -length[0], -length[1]))
        for other in MOMENTS:
            less(moment, other, _SPAN, lambda value, more: moments.naive(value) - moments.naive(more))
    both_ways("+", _DATE, _I, _DATE, moments.add_days)
    less(_DATE, _I, _DATE, lambda value, days: moments.add_days(value, -days))
    less(_DATE, _DATE, _I, lambda one, other: (one - other).days)
    both_ways("+", _DATE, _TIME, Kind.TIMESTAMP, datetime.datetime.combine)
    both_ways("+", _TIME, _SPAN, _TIME, moments.add_to_time)
    less(_TIME, _SPAN, _TIME, lambda value, delta: moments.add_to_time(value, -delta))
    rules["+", _SPAN, _SPAN] = _of_one_kind(moments.add_durations, _SPAN)
    less(_SPAN, _SPAN, _SPAN, lambda one, other: moments.add_durations(one, -other))
    both_ways("*", _SPAN, _I, _SPAN, moments.multiply_duration)
    return rules


_OF_MOMENTS: Final = _rules_of_moments()


# -- texts and lists -----------------------------------------------------------------------------------------------


def _pipes(kinds: Arguments) -> Overload:
    one, other = kinds
    both = common(one, other)
    if both is not None and both.element is not None:
        return _of_one_kind(concatenated, both)
    first, second = as_text(one), as_text(other)
    if first is None or second is None or _T not in kinds:
        raise SqlError(f"{one.value} || {other.value} is not supported: cast both to VARCHAR")
    return overload(lambda value, more: concatenate(first(value), second(more)), _T, one, other)


def _like(names: str, fold: Callable[[str], str], expected: bool) -> dict[str, SqlFunction]:
    def segments(pattern: str, escape: str = "") -> Any:
        return scalars.like_segments(fold(pattern), escape)

    def matches(text: str, pattern: Any) -> bool:
        return scalars.has_segments(fold(text), pattern) is expected

    def escaped(kinds: Arguments) -> Overload:
        _, pattern, escape = kinds.written
        if not isinstance(escape, str) or len(escape) != 1:
            raise SqlError("ESCAPE takes one character, after LIKE")
        if fold is lower and escape.isalpha():
            raise SqlError("ILIKE takes no letter as its escape character")
        if isinstance(pattern, str):
            try:
                segments(pattern, escape)
            except SqlError as error:
                raise WrongArgumentError(str(error), 1) from None
        return Overload((_T, _T, None), _B, lambda text, pattern: matches(text, segments(pattern, escape)))

    return {
        **named(names, overload(matches, _B, _T, _T), prepared={1: segments}),
        **named(f"{names} escape", taking(3, escaped)),
    }


# -- conditions ----------------------------------------------------------------------------------------------------


def _comparison(compare: Callable[[Any, Any], Any]) -> Rule:
    def rule(kinds: Arguments) -> Overload:
        kind = kinds.together()
        if not kind.nested or compare in (eq, ne):
            return overload(compare, _B, kind, kind)
        return overload(lambda one, other: compare(sortable(one), sortable(other)), _B, kind, kind)

    return taking(2, rule)


def _same(equal: bool) -> Rule:
    def rule(kinds: Arguments) -> Overload:
        return seeing_nulls(lambda one, other: (one == other) is equal, _B, [kinds.together()] * 2, optional=False)

    return taking(2, rule)


def _lazy(
    f: Callable[[Sequence[Function]], Function], result: Kind, kinds: Sequence[Kind], nullable: Callable[..., bool] = any
) -> Overload:
    return Overload(tuple(kinds), result, lambda *functions: f(functions), nullable, "functions")


def _connective(decisive: bool) -> Overload:
    """Return ``AND``, which a false side decides, or ``OR``, which a true side does."""

    def connected(sides: Sequence[Function]) -> Function:
        one, other = sides

        def value(row: Row) -> Any:
            first = one(row)
            if first is decisive:
                return decisive
            second = other(row)
            if second is decisive:
                return decisive
            return None if first is None or second is None else not decisive

        return value

    return _lazy(connected, _B, (_B, _B))


def _in(kinds: Arguments) -> Overload:
    def contained(functions: Sequence[Function]) -> Function:
        value_of, *options = functions

        def contains(row: Row) -> Any:
            value = value_of(row)
            if value is None:
                return None
            unknown = False
            for option_of in options:
                option = option_of(row)
                if option is None:
                    unknown = True
                elif option == value:
                    return True
            return None if unknown else False

        return contains

    return _lazy(contained, _B, [kinds.together()] * len(kinds))


def _quantified(compare: Callable[[Any, Any], Any], decisive: bool) -> Rule:
    """Return the comparison with ``ANY`` element of a list, which a true one decides, or with ``ALL``, which a false one does."""

    def rule(kinds: Arguments) -> Overload:
        if kinds[1].element is None and kinds[1] is not Kind.NULL:
            raise WrongArgumentError("ANY and ALL take a subquery or a list", 1)
        kind = Arguments((kinds[0], kinds[1].element or Kind.NULL), (kinds.written[0], None)).together()

        def quantified(value: Any, values: Sequence[Any] | None) -> Any:
            unknown = False
            for element in values or ():
                if value is None or element is None:
                    unknown = True
                elif compare(sortable(value), sortable(element)) is decisive:
                    return decisive
            return None if unknown else not decisive

        return seeing_nulls(quantified, _B, (kind, list_of(kind)))

    return taking(2, rule)


# -- choices -------------------------------------------------------------------------------------------------------


def _case(kinds: Arguments) -> Overload:
    """Return the choice of ``CASE``, whose arguments are conditions, each with its result, and what there is otherwise."""
    conditions, results = range(0, len(kinds) - 1, 2), (*range(1, len(kinds), 2), len(kinds) - 1)
    kind = Arguments([kinds[place] for place in results], [kinds.written[place] for place in results]).together()

    def choice(functions: Sequence[Function]) -> Function:
        branches = [(functions[place], functions[place + 1]) for place in conditions]
        otherwise = functions[-1]

        def choose(row: Row) -> Any:
            for condition, result in branches:
                if condition(row):
                    return result(row)
            return otherwise(row)

        return choose

    expected = [_B if place in conditions else kind for place in range(len(kinds))]
    return _lazy(choice, kind, expected, lambda nullables: any(list(nullables)[place] for place in results))


def _coalesce(kinds: Arguments) -> Overload:
    def present(functions: Sequence[Function]) -> Function:
        def first(row: Row) -> Any:
            for function in functions:
                value = function(row)
                if value is not None:
                    return value
            return None

        return first

    kind = kinds.together()
    return _lazy(present, kind, [kind] * len(kinds), all)


def _null_if(kinds: Arguments) -> Overload:
    original, both = kinds[0], kinds.together()
    convert = None if original in (both, Kind.NULL) else conversion(original, both)

    def unless(value: Any, other: Any) -> Any:
        if value is None or other is None:
            return value
        return None if (value if convert is None else convert(value)) == other else value

    return seeing_nulls(unless, original, (original, both))


def _extreme(choose: Any) -> Rule:
    def rule(kinds: Arguments) -> Overload:
        kind = kinds.together()
        key = sortable if kind.nested else None

        def extreme(*values: Any) -> Any:
            present = [value for value in values if value is not None]
            return choose(present, key=key) if present else None

        return Overload((kind,) * len(kinds), kind, extreme, all, "nulls")

    return rule


_COMPARISONS: Final = {"=": eq, "<>": ne, "<": lt, "<=": le, ">": gt, ">=": ge}

OPERATORS: Final = {
    **named("+, add, date_add", _arithmetic("+", add, scalars.EXACT.add, add)),
    **named(
        "-, subtract",
        _arithmetic("-", sub, scalars.EXACT.subtract, sub),
        taking(1, _negative),
    ),
    **named("*, multiply", _arithmetic("*", scalars.multiply_whole, scalars.EXACT.multiply, mul)),
    **named("%, mod", _arithmetic("%", scalars.remainder, scalars.remainder, scalars.remainder)),
    **named("/", taking(2, _divided)),
    **named("//", taking(2, _divided_whole)),
    **named("&", overload(lambda one, other: one & other, _I, _I, _I)),
    **named("|", overload(lambda one, other: one | other, _I, _I, _I)),
    **named("xor", overload(lambda one, other: one ^ other, _I, _I, _I)),
    **named("~", overload(lambda value: ~value, _I, _I)),
    **named("||", taking(2, _pipes)),
    **_like("like", str, True),
    **_like("ilike", lower, True),
    **_like("not like", str, False),
    **_like("not ilike", lower, False),
    **{name: SqlFunction((_comparison(f),)) for name, f in _COMPARISONS.items()},
    **{f"{name} any": SqlFunction((_quantified(f, True),)) for name, f in _COMPARISONS.items()},
    **{f"{name} all": SqlFunction((_quantified(f, False),)) for name, f in _COMPARISONS.items()},
    **named("is not distinct from", _same(True)),
    **named("is distinct from", _same(False)),
    **named("and", _connective(False)),
    **named("or", _connective(True)),
    **named("not", overload(lambda value: not value, _B, _B)),
    **named("in", _in),
    **named("is null", taking(1, lambda kinds: seeing_nulls(lambda value: value is None, _B, kinds, optional=False))),
    **named("is true", seeing_nulls(lambda value: value is True, _B, (_B,), optional=False)),
    **named("is false", seeing_nulls(lambda value: value is False, _B, (_B,), optional=False)),
    **named("case", _case),
    **named("coalesce", _coalesce),
    **named("ifnull", taking(2, _coalesce)),
    **named("nullif", taking(2, _null_if)),
    **named("greatest", _extreme(max)),
    **named("least", _extreme(min)),
}


# -- casts ---------------------------------------------------------------------------------------------------------


def cast_of(kind: Kind, result: Kind, narrow: Conversion | None) -> Overload:
    """Return the cast of values of ``kind`` to another, which ``narrow`` checks to fit a type."""
    convert = conversion(kind, result)
    if kind in DOUBLES and result.scale is not None:
        convert = _decimal_of_double(result.scale)
    if convert is None:
        raise SqlError(f"a cast of {kind.value} to {result.value} is not supported")
    if kind is Kind.JSON:  # in which null is a value
        return Overload((kind,), result, lambda value: _narrowed(convert(value), narrow), always)
    return Overload((kind,), result, convert if narrow is None else then(convert, narrow))


def _narrowed(value: Any, narrow: Conversion | None) -> Any:
    return value if value is None or narrow is None else narrow(value)


def tried(cast: Overload) -> Overload:
    """Return a cast that gives ``None`` for what does not fit."""
    if cast.result.nested:
        raise SqlError("TRY_CAST of lists and structs is not supported")
    convert = cast.f

    def attempt(value: Any) -> Any:
        try:
            return convert(value)
        except OutOfYears:
            raise
        except SqlError:
            return None

    return Overload(cast.kinds, cast.result, attempt, always)


def _decimal_of_double(scale: int) -> Callable[[float], Decimal]:
    def convert(value: float) -> Decimal:
        units = round_float(value * 10.0**scale)
        if not math.isfinite(units):
            raise SqlError(f"{value} does not fit a DECIMAL")
        return Decimal(f"{int(units)}e-{scale}")  # with all digits, where arithmetic would round

    return convert


FUNCTIONS: Final[dict[str, SqlFunction]] = {
    **OPERATORS,
    **TEXT_FUNCTIONS,
    **NUMBER_FUNCTIONS,
    **MOMENT_FUNCTIONS,
    **LIST_FUNCTIONS,
    **JSON_FUNCTIONS,
    **FORMAT_FUNCTIONS,
}
