"""Arithmetic and ``LIKE`` on Python values, as DuckDB defines them; nothing here sees ``None``."""

from __future__ import annotations

import functools
import math
import re
from decimal import (
    Context,
    Decimal,
    DivisionByZero,
    Inexact,
    InvalidOperation,
    Overflow,
)
from fractions import Fraction
from typing import Any, Final

from timely.differential.tables.kinds import finite
from timely.errors import SqlError

EXACT: Final = Context(prec=200, traps=[Inexact, InvalidOperation, DivisionByZero, Overflow])
"""Decimals beyond 200 digits are an error, where Python's own context would round at 28."""


def divide(one: float, other: float) -> float:
    """Return the quotient of floats; that by zero is infinite."""
    if other == 0:
        return finite(math.nan if one == 0 or one != one else math.copysign(math.inf, one))
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


def negative_float(value: float) -> float:
    """Return a float with the other sign; there is one zero."""
    return 0.0 - value


def decimal_of(value: Fraction | int) -> Decimal:
    """Return the decimal that a sum of decimals is.

    >>> decimal_of(Fraction(5, 4))
    Decimal('1.25')
    """
    return EXACT.divide(Decimal(value.numerator), Decimal(value.denominator))


EXACT_ROUNDING: Final = Context(prec=200)


def summand(value: Any) -> Fraction:
    """Return a number whose sums are exact; ``SqlError`` for infinity."""
    try:
        return Fraction(value)
    except (OverflowError, ValueError):
        raise SqlError(f"the sum of {value} and other numbers is not exact") from None


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
