"""Which functions do nothing when they are called: those with a ``yield`` in them, and ``async`` ones.

What a call of such a function returns has to be iterated over or awaited before anything happens. Who calls it for what it does,
as an operator's logic is called, would never notice. The invariant: a function that runs when it is called is never taken for one
that does not.
"""

from __future__ import annotations

import functools
from typing import Any, Final

_KINDS: Final = ((0x20, "a generator function"), (0x80, "an async function"), (0x200, "an async generator function"))
"""Flags of code objects (``inspect.CO_GENERATOR``, ``CO_COROUTINE`` and ``CO_ASYNC_GENERATOR``), and what has them."""


def why_not_run(function: Any) -> str | None:
    """Return what a function is, in words, that does nothing when it is called; None for any other.

    >>> async def later(): pass
    >>> why_not_run(later), why_not_run(len)
    ('an async function', None)
    """
    while isinstance(function, functools.partial):
        function = function.func
    if not hasattr(function, "__code__"):
        function = getattr(type(function), "__call__", None)  # noqa: B004 - it is looked at, not asked for
    flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
    return next((kind for flag, kind in _KINDS if flags & flag), None)
