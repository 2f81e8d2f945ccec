"""Limits of what one value may cost: a mistake, or a stranger, gets an error before memory or time is taken."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from timely.errors import SqlError, brief

LONGEST: Final = 1 << 24
"""Letters of the longest text, and elements of the longest list, that a function makes."""

_MOST_STEPS: Final = 1 << 28
"""Letters of a text times those of a pattern: RE2 needs up to 20 ns for each, so a call ends within seconds."""

_SHORT: Final = 500
_REPEATED: Final = re.compile(r"(\)?)\{([0-9]{1,9})(?:,([0-9]{0,9}))?\}")

R = TypeVar("R")


def check_length(count: int, of: str = "text") -> None:
    """Raise ``SqlError`` for a text or list that would be too long, before it is made.

    >>> check_length(1 << 30)
    Traceback (most recent call last):
        ...
    timely.errors.SqlError: a text of 1,073,741,824 letters is too long: at most 16,777,216 are possible
    """
    if count > LONGEST:
        unit = "letters" if of == "text" else "elements"
        raise SqlError(f"a {of} of {count:,} {unit} is too long: at most {LONGEST:,} are possible")


def joined(separator: str, texts: Sequence[str]) -> str:
    """Return texts with a separator between them; ``SqlError`` where that is too long."""
    check_length(sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


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


def remembered(f: Callable[..., R]) -> Callable[..., R]:
    """Return ``f``, which remembers what it returned lately for short texts."""
    memory = functools.lru_cache(maxsize=10_000)(f)

    @functools.wraps(f)
    def call(*arguments: Any) -> R:
        for value in arguments:
            if type(value) is str and len(value) > _SHORT:
                return f(*arguments)
        return memory(*arguments)

    return call
