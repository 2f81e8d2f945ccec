"""Scalar functions on Python values, as DuckDB defines them; none of them sees ``None``, unless it says so."""

from __future__ import annotations

import calendar
import datetime
import functools
import math
import re
from collections.abc import Callable
from decimal import (
    ROUND_CEILING,
    ROUND_FLOOR,
    ROUND_HALF_UP,
    Context,
    Decimal,
    DivisionByZero,
    Inexact,
    InvalidOperation,
    Overflow,
)
from fractions import Fraction
from typing import Any, Final

from timely.differential.tables.kinds import finite, start_of_day
from timely.errors import SqlError

EXACT: Final = Context(prec=200, traps=[Inexact, InvalidOperation, DivisionByZero, Overflow])
"""Decimals beyond 200 digits are an error, where Python's own context would round at 28."""


def divide(one: float, other: float) -> float:
    """Return the quotient of floats; that by zero is infinite."""
    if other == 0:
        return finite(math.nan if one == 0 or one != one else math.copysign(math.inf, one) * math.copysign(1, other))
    return finite(one / other)


def quotient(one: int, other: int) -> int:
    """Return the quotient of whole numbers, towards zero.

    >>> quotient(-7, 2), remainder(-7, 2)
    (-3, -1)
    """
    if other == 0:
        raise SqlError(f"{one} // 0: division by zero")
    found = abs(one) // abs(other)
    return found if (one < 0) == (other < 0) else -found


def remainder(one: Any, other: Any) -> Any:
    """Return what division leaves, with the sign of the first number."""
    if other == 0:
        raise SqlError(f"{one} % 0: division by zero")
    if isinstance(one, float):
        return finite(math.fmod(one, other)) if math.isfinite(one) else finite(math.nan)
    if isinstance(one, Decimal):
        return EXACT.remainder(one, other)
    found = abs(one) % abs(other)
    return -found if one < 0 else found


def add_floats(one: float, other: float) -> float:
    """Return the sum of floats."""
    return finite(one + other)


def subtract_floats(one: float, other: float) -> float:
    """Return the difference of floats."""
    return finite(one - other)


def multiply_floats(one: float, other: float) -> float:
    """Return the product of floats."""
    return finite(one * other)


def decimal_of(value: Fraction | int) -> Decimal:
    """Return the decimal that a sum of decimals is.

    >>> decimal_of(Fraction(5, 4))
    Decimal('1.25')
    """
    return EXACT.divide(Decimal(value.numerator), Decimal(value.denominator))


def round_decimal(value: Decimal, digits: int) -> Decimal:
    """Return a decimal rounded half away from zero."""
    return value.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, EXACT_ROUNDING)


EXACT_ROUNDING: Final = Context(prec=200)


def round_float(value: float) -> float:
    """Return a float rounded to a whole number, half away from zero.

    >>> round_float(-2.5)
    -3.0
    """
    if not math.isfinite(value):
        return value
    whole = math.floor(abs(value))
    found = whole + (abs(value) - whole >= 0.5)
    return math.copysign(float(found), value)


def floor_float(value: float) -> float:
    """Return the greatest whole number that is not greater."""
    return float(math.floor(value)) if math.isfinite(value) else value


def ceiling_float(value: float) -> float:
    """Return the least whole number that is not less."""
    return float(math.ceil(value)) if math.isfinite(value) else value


def floor_decimal(value: Decimal) -> Decimal:
    """Return the greatest whole number that is not greater."""
    return value.to_integral_value(ROUND_FLOOR)


def ceiling_decimal(value: Decimal) -> Decimal:
    """Return the least whole number that is not less."""
    return value.to_integral_value(ROUND_CEILING)


def upper(text: str) -> str:
    """Return a text in upper case, letter by letter.

    >>> upper("grün"), lower("GRÜN")
    ('GRÜN', 'grün')
    """
    if text.isascii():
        return text.upper()
    return "".join("ẞ" if letter == "ß" else changed if len(changed := letter.upper()) == 1 else letter for letter in text)


def lower(text: str) -> str:
    """Return a text in lower case, letter by letter."""
    if text.isascii():
        return text.lower()
    return "".join(changed if len(changed := letter.lower()) == 1 else letter for letter in text)


def substring(text: str, start: int, length: int | None = None) -> str:
    """Return part of a text; the first letter is number 1, and the last is number -1.

    >>> substring("hello", 2, 3), substring("hello", -3, 2), substring("hello", 0, 2)
    ('ell', 'll', 'h')
    """
    begin = start - 1 if start >= 0 else len(text) + start
    if length is not None and length < 0:
        raise SqlError(f"substring of the negative length {length}")
    end = len(text) if length is None else begin + length
    return text[max(begin, 0) : max(end, 0)]


@functools.lru_cache(maxsize=1000)
def like_pattern(pattern: str, escape: str) -> re.Pattern[str]:
    """Return the regular expression of a pattern of ``LIKE``.

    >>> bool(like_pattern("a%_c", "").fullmatch("abbc"))
    True
    """
    parts, index = [], 0
    while index < len(pattern):
        letter = pattern[index]
        if escape and letter == escape:
            index += 1
            if index == len(pattern):
                raise SqlError(f"LIKE pattern {pattern!r} ends in its escape character")
            parts.append(re.escape(pattern[index]))
        else:
            parts.append({"%": ".*", "_": "."}.get(letter) or re.escape(letter))
        index += 1
    return re.compile("".join(parts), re.DOTALL)


def like(text: str, pattern: str, escape: str = "") -> bool:
    """Return whether a text is like a pattern."""
    return like_pattern(pattern, escape).fullmatch(text) is not None


def add_interval(value: datetime.date, months: int, delta: datetime.timedelta) -> datetime.datetime:
    """Return a date or timestamp moved by months, which keep the day where they have it, and by a duration.

    >>> add_interval(datetime.date(2020, 1, 31), 1, datetime.timedelta())
    datetime.datetime(2020, 2, 29, 0, 0)
    """
    moment = value if isinstance(value, datetime.datetime) else start_of_day(value)
    try:
        if months:
            year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
            day = min(moment.day, calendar.monthrange(year, month + 1)[1])
            moment = moment.replace(year=year, month=month + 1, day=day)
        return moment + delta
    except (OverflowError, ValueError) as error:
        raise SqlError(f"{value} and an interval: {error}") from None


def add_days(value: datetime.date, days: int) -> datetime.date:
    """Return a date some days later."""
    try:
        return value + datetime.timedelta(days=days)
    except OverflowError as error:
        raise SqlError(f"{value} + {days} days: {error}") from None


def truncated(unit: str) -> Callable[[datetime.date], datetime.datetime] | None:
    """Return what gives the beginning of the ``unit`` of a date or timestamp, or ``None``."""

    def truncate(value: datetime.date) -> datetime.datetime:
        moment = value if isinstance(value, datetime.datetime) else start_of_day(value)
        if unit == "WEEK":
            return start_of_day(moment.date() - datetime.timedelta(days=moment.weekday()))
        if unit == "QUARTER":
            return datetime.datetime(moment.year, moment.month - (moment.month - 1) % 3, 1)
        kept = _UNITS.index(unit) + 1
        parts = [moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second][:kept]
        year, month, day, hour, minute, second = [*parts, *(1, 1, 1, 0, 0, 0)[kept:]]
        return datetime.datetime(year, month, day, hour, minute, second)

    return truncate if unit in (*_UNITS, "WEEK", "QUARTER") else None


_UNITS: Final = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")

PARTS: Final[dict[str, Callable[[Any], int]]] = {
    "YEAR": lambda value: value.year,
    "MONTH": lambda value: value.month,
    "DAY": lambda value: value.day,
    "QUARTER": lambda value: (value.month - 1) // 3 + 1,
    "WEEK": lambda value: value.isocalendar()[1],
    "DOW": lambda value: value.isoweekday() % 7,
    "ISODOW": lambda value: value.isoweekday(),
    "DOY": lambda value: value.timetuple().tm_yday,
    "HOUR": lambda value: value.hour if isinstance(value, datetime.datetime) else 0,
    "MINUTE": lambda value: value.minute if isinstance(value, datetime.datetime) else 0,
    "SECOND": lambda value: value.second if isinstance(value, datetime.datetime) else 0,
}
"""Parts of a date or timestamp."""


def replace(text: str, old: str, new: str) -> str:
    """Return a text with a part replaced wherever it stands; the empty part stands nowhere."""
    return text.replace(old, new) if old else text
