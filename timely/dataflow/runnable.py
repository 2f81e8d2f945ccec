"""Which functions do nothing when called: generator functions and ``async`` ones, whose results nobody would iterate or await."""

from __future__ import annotations

import functools
from typing import Any, Final

_KINDS: Final = ((0x20, "a generator function"), (0x80, "an async function"), (0x200, "an async generator function"))
"""``inspect.CO_GENERATOR``, ``CO_COROUTINE`` and ``CO_ASYNC_GENERATOR``; importing ``inspect`` takes long."""


def why_not_run(function: Any) -> str | None:
    """Return the kind of a function that does nothing when called, in words; ``None`` for any other.

    >>> async def later(): pass
    >>> why_not_run(later), why_not_run(len)
    ('an async function', None)
    """
    while isinstance(function, functools.partial):
        function = function.func
    if not hasattr(function, "__code__"):
        function = getattr(type(function), "__call__", None)  # noqa: B004
    flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
    return next((kind for flag, kind in _KINDS if flags & flag), None)
