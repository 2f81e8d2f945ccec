"""``CountSink``: what takes changes of the counts of pointstamps, a tracker or something in front of one.

Nothing is derived from a change on entry, so several changes are one statement until somebody propagates.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from typing import Generic, SupportsIndex, TypeVar

from timely.errors import ProgressError
from timely.native import mypyc_attr
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)


@mypyc_attr(allow_interpreted_subclasses=True)
class CountSink(ABC, Generic[T]):
    """Takes changes, one by one.

    >>> class Printed(CountSink):
    ...     def update_at(self, index, time, diff):
    ...         print(f"{diff:+} at location {index}, time {time}")
    >>> Printed().update_at(3, 0, -1)
    -1 at location 3, time 0
    """

    __slots__ = ()

    @abstractmethod
    def update_at(self, index: int, time: T, diff: int) -> None:
        """Add ``diff`` to the count of ``time`` at the location with this number, unchecked."""


def whole_number(diff: SupportsIndex) -> int:
    """Return ``diff`` as an ``int``; ``ProgressError`` for what is no whole number. For changes by hand only."""
    try:
        return operator.index(diff)
    except TypeError:
        raise ProgressError(f"a count changes by a whole number, as in +1 and -1, not by {diff!r}").caused_by(None)
