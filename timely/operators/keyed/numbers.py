"""Numbers: how they add up, which are equal, and in which order they are; for rows, columns and SQL.

A sum is exact, whatever its numbers are, so that each can leave again: infinities and NaN are counted beside what is finite.
Values have a total order: NaN is one value and the greatest number, and -0.0 is 0.0.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from fractions import Fraction
from itertools import chain
from numbers import Number, Rational
from typing import Any, Final

from typing_extensions import override

from timely.errors import SchemaError, brief


class NotANumber(float):
    """NaN as a value: equal to itself and greater than every other number. Its negative is less than every other.

    >>> NAN == NAN, NAN > math.inf, sorted([NAN, 1.0, -NAN])
    (True, True, [nan, 1.0, nan])
    """

    __slots__ = ()

    @override
    def __eq__(self, other: object) -> bool:
        return self is other

    @override
    def __ne__(self, other: object) -> bool:
        return self is not other

    @override
    def __lt__(self, other: Any) -> Any:
        return self is not NAN and self is not other if isinstance(other, Number) else NotImplemented

    @override
    def __gt__(self, other: Any) -> Any:
        return self is NAN and self is not other if isinstance(other, Number) else NotImplemented

    @override
    def __le__(self, other: Any) -> Any:
        return self is not NAN or self is other if isinstance(other, Number) else NotImplemented

    @override
    def __ge__(self, other: Any) -> Any:
        return self is NAN or self is other if isinstance(other, Number) else NotImplemented

    @override
    def __hash__(self) -> int:
        return 0

    @override
    def __neg__(self) -> NotANumber:
        return _NEGATIVE_NAN if self is NAN else NAN

    @override
    def __reduce__(self) -> str:  # so that it stays itself in another process
        return "NAN" if self is NAN else "_NEGATIVE_NAN"


NAN: Final = NotANumber("nan")
_NEGATIVE_NAN: Final = NotANumber("nan")

CANONICAL: Final = frozenset({int, bool, str, bytes, type(None), datetime.date, datetime.datetime, NotANumber})
"""Types whose values stand for themselves."""


def canonical(value: Any) -> Any:
    """Return the value that stands for all that are equal to it: one NaN, one zero, and Python's numbers for those of NumPy."""
    kind = type(value)
    if kind in CANONICAL:
        return value
    if kind is float:
        return value + 0.0 if value == value else NAN
    if kind is tuple:
        return value if CANONICAL.issuperset(map(type, value)) else tuple(map(canonical, value))
    if kind is Decimal:
        return NAN if value.is_nan() else value
    if kind.__module__ == "numpy" and getattr(getattr(value, "dtype", None), "kind", "") in "biufc":
        plain = value.item()
        return canonical(plain) if type(plain) is not kind else NAN if value != value else value  # a long double stays one
    return value


def row_value(value: Any) -> Any:
    """Return what Arrow gives for a value as rows have it: lists and structs are tuples.

    >>> row_value([1, {"a": [None, float("nan")]}])
    (1, ((None, nan),))
    """
    parts = value.values() if isinstance(value, dict) else value
    return canonical(value) if parts is value and not isinstance(value, list) else tuple(map(row_value, parts))


def are_canonical(values: Iterable[Any]) -> bool:
    """Return whether ``canonical`` would return equal values; sooner than to call it for each.

    >>> are_canonical([1, 2.5, ("a", None)]), are_canonical([("a", float("nan"))])
    (True, False)
    """
    listed = list(values)
    kinds = set(map(type, listed)) - CANONICAL
    if not kinds <= {float, tuple} or (float in kinds and any(value != value for value in listed)):
        return False
    return tuple not in kinds or are_canonical(chain.from_iterable(value for value in listed if type(value) is tuple))


class _Last:
    """NaN among decimals, which Python does not compare with it."""

    def __lt__(self, other: Any) -> bool:
        return False

    def __gt__(self, other: Any) -> bool:
        return other is not self


_LAST: Final = _Last()
_COMPARED: Final = CANONICAL - {NotANumber} | {float, Decimal}


def order_key(value: Any) -> Any:
    """Return what canonical values are sorted by where decimals and NaN may meet."""
    kind = type(value)
    if kind in _COMPARED:
        return value
    if kind is tuple:
        return value if _COMPARED.issuperset(map(type, value)) else tuple(map(order_key, value))
    return _LAST if value is NAN else value


# -- sums ----------------------------------------------------------------------------------------------------------

_BITS: Final = 1074
UNIT: Final = 1 << _BITS
"""Every float is a whole number of ``1 / UNIT``."""

_DIGITS: Final = 100_000
"""The exponent up to which decimals are added: the sum of such a one and 1 has so many digits."""

_UNROUNDED: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)

_INFINITE, _NEGATIVE, _UNDEFINED = 1, 1 << 64, 1 << 128
"""What infinity, its negative and NaN add to the count of what is not finite, which has 64 bits for each."""


def float_parts(value: float) -> tuple[int, int]:
    """Return a float as two whole numbers that add up: its units, and the count of what is not finite.

    >>> float_of_parts(*map(sum, zip(float_parts(0.5), float_parts(0.25))))
    0.75
    """
    try:
        number, other = value.as_integer_ratio()
    except OverflowError:
        return 0, _INFINITE if value > 0 else _NEGATIVE
    except ValueError:
        return 0, _UNDEFINED
    return number << (_BITS + 1 - other.bit_length()), 0


def float_of_parts(units: Any, beside: int = 0) -> float:
    """Return the float that the sums of such parts are, rounded once: infinite where it is too large."""
    if beside:
        return _not_finite(beside)
    try:
        return units / UNIT if type(units) is int else float(units / UNIT)
    except OverflowError:
        return math.inf if units > 0 else -math.inf


def _not_finite(beside: int) -> float:
    counts = []
    for _ in range(3):
        counts.append(((beside + (_NEGATIVE >> 1)) & (_NEGATIVE - 1)) - (_NEGATIVE >> 1))  # may be below zero
        beside = (beside - counts[-1]) >> 64
    infinite, negative, undefined = counts
    signs = {count > 0 for count in (infinite, -negative) if count}
    return NAN if undefined or len(signs) > 1 else math.inf if True in signs else -math.inf


class ExactSum:
    """An exact sum of numbers of any types, of which each may be added any number of times, also below zero.

    It is a float where there are floats, and else a decimal or fraction where there are such. NumPy's scalars are Python's.
    """

    __slots__ = ("_beside", "_imaginary", "_parts", "_whole")

    def __init__(self) -> None:
        self._whole: Any = 0
        self._beside = 0
        self._parts: dict[Any, tuple[Any, Any]] = {}  # counts and sums of other numbers by type, of decimals by exponent
        self._imaginary: ExactSum | None = None

    @classmethod
    def of(cls, counted: Iterable[tuple[Any, Any]]) -> ExactSum:
        """Return the sum of numbers, each as often as its count says."""
        total = cls()
        for value, count in counted:
            total.add(value, count)
        return total

    @classmethod
    def merged(cls, totals: Iterable[ExactSum]) -> ExactSum:
        total_of_all, imaginary = cls(), []
        for total in totals:
            total_of_all._whole += total._whole
            total_of_all._beside += total._beside
            for part, (count, amount) in total._parts.items():
                total_of_all._add_part(part, count, amount)
            if total._imaginary is not None:
                imaginary.append(total._imaginary)
        total_of_all._imaginary = cls.merged(imaginary) if imaginary else None
        return total_of_all

    def add(self, value: Any, count: Any) -> None:
        """Add a number ``count`` times; ``SchemaError`` for a decimal with an exponent beyond 100,000."""
        kind = type(value)
        if type(count) is not int:
            self._add_weighted(value, count)
        elif kind is int:
            self._whole += value * count
        elif kind is float:
            units, beside = float_parts(value)
            self._beside += beside * count
            self._add_part(float, count, units * count)
        else:
            self._add_other(canonical(value), count)

    def _add_part(self, part: Any, count: Any, amount: Any) -> None:
        if part in self._parts:
            before = self._parts[part]
            count, amount = before[0] + count, before[1] + amount
        if count or amount:
            self._parts[part] = count, amount
        else:
            self._parts.pop(part, None)

    def _add_weighted(self, value: Any, count: Any) -> None:
        """Add a number as often as a difference of another ring says."""
        if type(count) is float:
            self.add(value * abs(count), 1 if count > 0 else -1)
        else:
            product = value * count
            self._add_part(type(product), 0, product)

    def _add_other(self, value: Any, count: int) -> None:
        if isinstance(value, int):
            self._whole += int(value) * count
        elif isinstance(value, float):
            self.add(float(value), count)
        elif isinstance(value, Decimal):
            self._add_decimal(value, count)
        elif isinstance(value, complex):
            self.add(value.real, count)
            self._imaginary = self._imaginary or ExactSum()
            self._imaginary.add(value.imag, count)
        elif isinstance(value, Rational):
            self._add_part(Fraction, count, Fraction(value) * count)
        elif not hasattr(value, "as_integer_ratio"):
            self._add_part(type(value), count, value * count)
        elif value - value == 0:  # a finite number, such as a long double
            self._add_part(float, count, Fraction(*value.as_integer_ratio()) * UNIT * count)
        else:
            self.add(float(value), count)

    def _add_decimal(self, value: Decimal, count: int) -> None:
        if value.is_infinite():
            self._beside += (_INFINITE if value > 0 else _NEGATIVE) * count
            self._add_part(0, count, 0)
            return
        exponent: Any = value.as_tuple().exponent
        if abs(exponent) > _DIGITS:
            raise SchemaError(f"the exponent of {brief(value)} is too large for an exact sum: round it, or make it a float")
        self._add_part(exponent, count, int(value.scaleb(-exponent, _UNROUNDED)) * count)

    def result(self) -> Any:
        if self._imaginary is not None and self._imaginary._has_parts:
            return complex(self._real(), self._imaginary._real())
        return self._real()

    @property
    def _has_parts(self) -> bool:
        return bool(self._parts or self._beside)

    def _real(self) -> Any:
        parts = dict(self._parts)
        exponents = [part for part in parts if type(part) is int]
        _, units = parts.get(float, (0, 0))
        _, fraction = parts.get(Fraction, (0, 0))
        exact: Any = self._whole + fraction
        if exponents and not self._beside:
            amounts = [(exponent, parts[exponent][1]) for exponent in exponents] + ([(0, self._whole)] if self._whole else [])
            least = min(exponent for exponent, _ in amounts)
            digits = sum(amount * 10 ** (exponent - least) for exponent, amount in amounts)
            if float in parts or Fraction in parts:
                exact = fraction + digits * Fraction(10) ** least
            else:
                exact = Decimal(digits).scaleb(least, _UNROUNDED)
        if float in parts or (self._beside and not exponents):
            exact = float_of_parts(units + (0 if self._beside else exact * UNIT), self._beside)
        elif self._beside:
            exact = _not_finite(self._beside)
            exact = exact if exact is NAN else Decimal(exact)
        others = [amount for part, (_, amount) in parts.items() if type(part) is not int and part not in (float, Fraction)]
        return sum(others, exact)
