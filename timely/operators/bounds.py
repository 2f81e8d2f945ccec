"""Whole numbers that are given to operators: counts of outputs, and bounds of what is under way."""

from __future__ import annotations

from operator import index
from typing import Any

from timely.errors import ConfigurationError, brief


def whole(given: Any) -> int | None:
    """Return a whole number of whatever type as an ``int``, which counts beyond what that type holds; nothing for what is none.

    >>> whole(3), whole(3.0), whole(int)
    (3, None, None)
    """
    try:
        return index(given)
    except TypeError:
        return None


def check_bound(where: str, name: str, bound: object) -> int:
    """Return a bound as an ``int``; ``ConfigurationError`` for one that is no whole number, or lets nothing through."""
    number = None if isinstance(bound, bool) else whole(bound)
    if number is None or number < 1:
        raise ConfigurationError(f"{where}: {name}={brief(bound)} lets nothing through: give a whole number of at least 1")
    return number
