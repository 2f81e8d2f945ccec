"""Whole numbers given to operators: numbers of outputs, and bounds of what is in flight."""

from __future__ import annotations

from operator import index
from typing import Any

from timely.errors import ConfigurationError, brief


def whole(given: Any) -> int | None:
    """Return a whole number of any type as an unbounded ``int``, or ``None`` for anything else."""
    try:
        return index(given)
    except TypeError:
        return None


def check_bound(where: str, name: str, bound: object) -> int:
    """Return a bound as an ``int``; ``ConfigurationError`` for one that is no whole number of at least 1."""
    number = None if isinstance(bound, bool) else whole(bound)
    if number is None or number < 1:
        raise ConfigurationError(f"{where}: {name}={brief(bound)} lets nothing through: give a whole number of at least 1")
    return number
