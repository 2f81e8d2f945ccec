"""Functions of numbers, as DuckDB defines them. What has no value, such as ``sqrt(-1)``, is an error; infinity is a value."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from fractions import Fraction
from typing import Any, Final

from timely.differential.tables.values import scalars
from timely.differential.tables.values.kinds import Kind, canonical_float, decimal, single
from timely.differential.tables.values.overloads import Arguments, Overload, Rule, SqlFunction, named, overload
from timely.errors import SqlError
from timely.operators.keyed.numbers import NAN

_I, _R, _F = Kind.INTEGER, Kind.REAL, Kind.DOUBLE


def real(f: Callable[..., float], infinite: Callable[..., float] | None = None) -> Callable[..., float]:
    """Return ``f`` with infinity for what is too large, and ``SqlError`` for what has no value."""

    def value(*numbers: float) -> float:
        try:
            return canonical_float(f(*numbers))
        except OverflowError:
            return math.copysign(math.inf, *numbers) if f in (math.sinh, math.gamma) else math.inf
        except (ValueError, ZeroDivisionError):
            if infinite is not None:
                return canonical_float(infinite(*numbers))
            raise SqlError(f"the result for {', '.join(map(str, numbers))} does not exist") from None

    return value


def _power(base: float, exponent: float) -> float:
    try:
        return math.pow(base, exponent)
    except OverflowError:
        odd = exponent % 2 == 1
        return -math.inf if base < 0 and odd else math.inf


def _log(base: float, number: float) -> float:
    if base == 1:
        raise SqlError("the logarithm to the base 1 does not exist")
    return canonical_float(_LOG10(number) / _LOG10(base))


def _logarithm(f: Callable[[float], float]) -> Callable[[float], float]:
    def logarithm(number: float) -> float:
        if number <= 0:
            raise SqlError(f"the logarithm of {number} does not exist")
        return canonical_float(f(number))

    return logarithm


def round_float(value: float, digits: int = 0) -> float:
    """Return a float rounded half away from zero, to digits behind the point, or before it where they are negative."""
    if not math.isfinite(value) or digits > 308:
        return value
    if digits == 0:
        return _round_half_up(value)
    power = 10.0 ** min(abs(digits), 308)  # beyond that, no digit is left
    if digits < 0:
        return _round_half_up(value / power) * power
    product = value * power
    if not math.isfinite(product):
        return value
    if abs(product) - math.floor(abs(product)) == 0.5 and abs(Fraction(value) * 10**digits) < abs(Fraction(product)):
        return math.copysign(math.floor(abs(product)) / power, value) + 0.0  # less than half, before the product was rounded
    return _round_half_up(product) / power


def _round_half_up(value: float) -> float:
    whole = math.floor(abs(value))
    return math.copysign(float(whole + (abs(value) - whole >= 0.5)), value) + 0.0


def round_decimal(value: Decimal, digits: int = 0, rounding: str = ROUND_HALF_UP) -> Decimal:
    """Return a decimal rounded half away from zero, or by another rule."""
    if -digits <= value.as_tuple().exponent:  # type: ignore[operator]  # decimals of a table are numbers
        return value
    if digits < -38:
        return Decimal(0)
    return value.quantize(Decimal(1).scaleb(-digits), rounding, scalars.EXACT_ROUNDING)


def round_whole(value: int, digits: int = 0) -> int:
    """Return a whole number rounded half away from zero to digits before the point, where they are negative."""
    if digits >= 0:
        return value
    unit = 10 ** min(-digits, 50)
    rounded: int = (abs(value) + unit // 2) // unit * unit
    return -rounded if value < 0 else rounded


def _whole_float(to_whole: Callable[[float], int]) -> Callable[[float], float]:
    """Return what makes a float a whole number; there is one zero."""
    return lambda value: float(to_whole(value)) + 0.0 if math.isfinite(value) else value


floor_float: Final = _whole_float(math.floor)
ceiling_float: Final = _whole_float(math.ceil)


def _to_whole(rounding: str) -> Callable[[Decimal], Decimal]:
    return lambda value: value.to_integral_value(rounding)


def _factorial(value: int) -> int:
    if not 0 <= value <= 33:
        raise SqlError(f"the factorial of {value} is none of HUGEINT: 0 to 33 have one")
    return math.factorial(value)


def _bits(value: int) -> int:
    return 64 if -(1 << 63) <= value < 1 << 63 else 128


def _shifted_left(value: int, count: int) -> int:
    if value < 0 or count < 0 or (value and value.bit_length() + count > 63):
        raise SqlError(f"{value} << {count} is out of range")
    return value << count if value else 0


def _inverse_hyperbolic_tangent(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) == 1 else math.atanh(value)


def _cut(value: float, digits: int) -> float:
    """Return a float without the digits behind a place."""
    power = 10.0 ** min(abs(digits), 308)
    moved = value * power if digits >= 0 else value / power
    if abs(digits) > 308 or not math.isfinite(moved):
        return value
    return (math.trunc(moved) / power if digits >= 0 else math.trunc(moved) * power) + 0.0


def _cut_whole(value: int, digits: int) -> int:
    unit: int = 10 ** min(max(-digits, 0), 50)
    return scalars.quotient(value, unit) * unit


def _sign(value: Any) -> int:
    return 0 if value is NAN else int(value > 0) - int(value < 0)


def _numbers(whole: Callable[..., Any], of_decimal: Callable[..., Any], double: Callable[..., Any]) -> list[Rule]:
    """Return the overloads of a function whose result is a number like the argument."""
    return [overload(whole, _I, _I), _of_decimal(of_decimal, None), overload(double, _R, _R), overload(double, _F, _F)]


def _of_decimal(f: Callable[..., Any], result: Kind | None) -> Rule:
    """Return the rule of a function of a decimal; without a ``result``, that is a decimal with as many digits."""

    def rule(kinds: Arguments) -> Overload | None:
        return None if len(kinds) != 1 or kinds[0].scale is None else overload(f, result or kinds[0], kinds[0])

    return rule


def _rounded_decimal(rounding: str) -> Rule:
    """Return the rule of a decimal with as many digits behind the point as it is rounded to, where that is written."""

    def rule(kinds: Arguments) -> Overload | None:
        if len(kinds) != 2 or kinds[0].scale is None:
            return None
        kind, digits = kinds[0], kinds.written[1]
        result = decimal(min(max(digits, 0), kinds[0].scale)) if isinstance(digits, int) else kind
        return overload(lambda value, digits: round_decimal(value, digits, rounding), result, kind, _I)

    return rule


def _wholes(of_decimal: Callable[..., Any], whole: Rule, double: Callable[..., Any]) -> list[Rule]:
    """Return the overloads of a function that leaves no digits behind the point."""
    return [whole, _of_decimal(of_decimal, decimal(0)), overload(double, _R, _R), overload(double, _F, _F)]


def _of_doubles(names: str, f: Callable[..., float], count: int = 1) -> dict[str, SqlFunction]:
    return named(names, overload(f, _F, *([_F] * count)))


_OF_MATH: Final = (
    *("acos", "asin", "asinh", "atan", "cbrt", "cos", "cosh", "degrees", "exp", "radians", "sin", "sinh", "sqrt", "tan", "tanh"),
)
_LOG10: Final = _logarithm(math.log10)

NUMBER_FUNCTIONS: Final = {
    **named("abs", *_numbers(abs, scalars.EXACT.abs, lambda value: canonical_float(abs(value)))),
    **named("sign", overload(_sign, _I, _I), _of_decimal(_sign, _I), overload(_sign, _I, _F)),
    **named("floor", *_wholes(_to_whole(ROUND_FLOOR), overload(float, _F, _I), floor_float)),
    **named("ceil, ceiling", *_wholes(_to_whole(ROUND_CEILING), overload(float, _F, _I), ceiling_float)),
    **named(
        "trunc",
        *_wholes(_to_whole(ROUND_DOWN), overload(int, _I, _I), _whole_float(math.trunc)),
        overload(_cut_whole, _I, _I, _I),
        _rounded_decimal(ROUND_DOWN),
        overload(lambda value, digits: single(_cut(value, digits)), _R, _R, _I),
        overload(_cut, _F, _F, _I),
    ),
    **named(
        "round",
        *_wholes(round_decimal, overload(int, _I, _I), round_float),
        overload(round_whole, _I, _I, _I),
        _rounded_decimal(ROUND_HALF_UP),
        overload(lambda value, digits: single(round_float(value, digits)), _R, _R, _I),
        overload(round_float, _F, _F, _I),
    ),
    **{name: SqlFunction((overload(real(getattr(math, name)), _F, _F),)) for name in _OF_MATH},
    **_of_doubles("ln", _logarithm(math.log)),
    **_of_doubles("log10", _LOG10),
    **_of_doubles("log2", _logarithm(math.log2)),
    **named("log", overload(_LOG10, _F, _F), overload(_log, _F, _F, _F)),
    **_of_doubles("pow, power", real(_power, lambda base, exponent: math.inf if base == 0 else math.nan), 2),
    **named("pi", Overload((), _F, lambda: math.pi)),
    **_of_doubles("acosh", real(math.acosh, lambda value: math.nan)),
    **_of_doubles("atan2", real(math.atan2), 2),
    **_of_doubles("atanh", real(_inverse_hyperbolic_tangent, lambda value: math.nan)),
    **_of_doubles("gamma", real(math.gamma, lambda value: math.nan if value else math.inf)),
    **_of_doubles("lgamma", real(math.lgamma, lambda value: math.inf)),
    **named("factorial", overload(_factorial, _I, _I)),
    **named("<<", overload(_shifted_left, _I, _I, _I)),
    **named(">>", overload(lambda value, count: value >> count if 0 <= count < _bits(value) else 0, _I, _I, _I)),
    **named("isfinite", overload(math.isfinite, Kind.BOOLEAN, _F)),
    **named("isinf", overload(math.isinf, Kind.BOOLEAN, _F)),
    **named("isnan", overload(math.isnan, Kind.BOOLEAN, _F)),
    **named("gcd, greatest_common_divisor", overload(math.gcd, _I, _I, _I)),
    **named("lcm, least_common_multiple", overload(math.lcm, _I, _I, _I)),
}
