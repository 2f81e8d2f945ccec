"""``enter`` and ``leave``: a stream inside a nested scope, and in the scope around its own.

They move no records and take no operator: the times are translated on the way. The methods of ``Stream`` do it, since a stream
knows what it is connected to; these are for those who write programs as functions.
"""

from __future__ import annotations

from typing import Any, TypeVar

from timely.dataflow import ScopeBuilder, Stream, scope_of
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)
T2 = TypeVar("T2", bound=PartialOrder)
D = TypeVar("D")


def enter(stream: Stream[T, D], scope: ScopeBuilder[T2]) -> Stream[T2, D]:
    """Return ``stream`` inside ``scope``, which is nested directly in the stream's own; ``ScopeError`` otherwise.

    >>> import timely
    >>> from timely.operators import enter, leave
    >>> def build(scope):
    ...     with scope.iterative() as loop:
    ...         return leave(enter(scope.to_stream([1, 2]), loop))
    >>> timely.example(build)
    [(0, [1, 2])]
    """
    scope_of(stream, "enter")
    return stream.enter(scope)


def leave(stream: Stream[Any, D]) -> Stream[Any, D]:
    """Return ``stream`` in the scope around its own; ``ScopeError`` at the outermost one.

    >>> import timely
    >>> from timely.operators import enter, leave
    >>> def build(scope):
    ...     with scope.region() as inner:
    ...         return leave(enter(scope.to_stream([1, 2]), inner).map(lambda x: -x))
    >>> timely.example(build)
    [(0, [-2, -1])]
    """
    scope_of(stream, "leave")
    return stream.leave()
