"""Arithmetic and ``LIKE`` on Python values, as DuckDB defines them, and what one value may cost; nothing here sees ``None``.

A mistake, or a stranger, gets an error before memory or time is taken.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from decimal import Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow
from fractions import Fraction
from typing import Any, Final

import attrs

from timely.differential.tables.values.kinds import canonical_float
from timely.differential.tables.values.parsing import remembered
from timely.errors import SqlError, brief

_MOST_STEPS: Final = 1 << 28
"""Letters of a text times those of a pattern: RE2 needs up to 20 ns for each, so a call ends within seconds."""

_REPEATED: Final = re.compile(r"(\)?)\{([0-9]{1,9})(?:,([0-9]{0,9}))?\}")


def check_steps(text: str, pattern: str) -> None:
    """Raise ``SqlError`` where a text and a regular expression are too long for each other."""
    if len(text) * len(pattern) * 1000 > _MOST_STEPS:  # only then are the repetitions counted
        check_product(len(text), _written_out(pattern), pattern)


def check_product(letters: int, size: int, pattern: str) -> None:
    """Raise ``SqlError`` where each letter of a text is compared with a pattern of too many."""
    if letters * size > _MOST_STEPS:
        raise SqlError(f"the pattern {brief(pattern)} is too long for a text of {letters:,} letters")


def _written_out(pattern: str) -> int:
    """Return about how long a regular expression is without counted repetitions; RE2 takes those up to 1,000."""
    size, groups = len(pattern), 1
    for group, least, most in _REPEATED.findall(pattern):
        times = max(int(least), int(most or 0), 1)
        if group:
            groups = min(groups * times, 1000)
        else:
            size += min(times, 1000)
    return size * groups


EXACT: Final = Context(prec=200, traps=[Inexact, InvalidOperation, DivisionByZero, Overflow])
"""Decimals beyond 200 digits are an error, where Python's own context would round at 28."""


def divide(one: float, other: float) -> float:
    """Return the quotient of floats; that by zero is infinite."""
    if other == 0:
        return canonical_float(math.nan if one == 0 or math.isnan(one) else math.copysign(math.inf, one))
    return canonical_float(one / other)


def quotient(one: int, other: int) -> int:
    """Return the quotient of whole numbers, towards zero."""
    if other == 0:
        raise SqlError(f"{one} // 0: division by zero")
    whole = abs(one) // abs(other)
    return whole if (one < 0) == (other < 0) else -whole


def remainder(one: Any, other: Any) -> Any:
    """Return what division leaves, with the sign of the first number."""
    if other == 0:
        raise SqlError(f"{one} % 0: division by zero")
    if isinstance(one, float):
        return canonical_float(math.fmod(one, other)) if math.isfinite(one) else canonical_float(math.nan)
    if isinstance(one, Decimal):
        return EXACT.remainder(one, other)
    left = abs(one) % abs(other)
    return -left if one < 0 else left


def multiply_whole(one: int, other: int) -> int:
    """Return the product of whole numbers; those of HUGEINT are the widest."""
    product = one * other
    if product.bit_length() > 127:
        raise SqlError(f"{one} * {other} does not fit HUGEINT")
    return product


def decimal_of(value: Fraction | int) -> Decimal:
    """Return the decimal that a sum of decimals is."""
    return EXACT.divide(Decimal(value.numerator), Decimal(value.denominator))


EXACT_ROUNDING: Final = Context(prec=200)


@attrs.frozen(slots=False)
class _Segment:
    """What stands between two ``%`` of a pattern: letters, and ``None`` for any letter."""

    letters: tuple[str | None, ...]

    @functools.cached_property
    def plain(self) -> str | None:
        """The letters as a text, if none of them is any letter."""
        return None if None in self.letters else "".join(letter or "" for letter in self.letters)

    @functools.cached_property
    def regular(self) -> str:
        """The same as a regular expression."""
        return "".join("." if letter is None else re.escape(letter) for letter in self.letters)

    @functools.cached_property
    def compiled(self) -> re.Pattern[str]:
        return re.compile(self.regular, re.DOTALL)

    def place(self, text: str, start: int, end: int) -> int:
        """Return where the segment begins in part of a text, or -1."""
        if self.plain is not None:
            return text.find(self.plain, start, end)
        check_product(end - start, len(self.letters), self.regular)
        match = self.compiled.search(text, start, end)
        return -1 if match is None else match.start()


@remembered
def like_segments(pattern: str, escape: str) -> tuple[_Segment, ...]:
    """Return the segments of a pattern of ``LIKE``; ``%`` stands between them."""
    segments: list[list[str | None]] = [[]]
    letters = iter(pattern)
    for letter in letters:
        if escape and letter == escape:
            escaped = next(letters, None)
            if escaped is None:
                raise SqlError(f"LIKE pattern {brief(pattern)} ends in its escape character")
            segments[-1].append(escaped)
        elif letter == "%":
            segments.append([])
        else:
            segments[-1].append(None if letter == "_" else letter)
    return tuple(_Segment(tuple(letters)) for letters in segments)


def has_segments(text: str, segments: Sequence[_Segment]) -> bool:
    """Return whether a text is like a pattern of segments. Each is taken where it comes first, so no letter is seen again."""
    first, *others = segments
    end = len(text)
    if not others:
        return end == len(first.letters) and first.place(text, 0, end) == 0
    *middle, last = others
    start, end = len(first.letters), end - len(last.letters)
    if start > end or first.place(text, 0, start) != 0 or last.place(text, end, len(text)) != end:
        return False
    for segment in middle:
        place = segment.place(text, start, end)
        if place < 0:
            return False
        start = place + len(segment.letters)
    return True
