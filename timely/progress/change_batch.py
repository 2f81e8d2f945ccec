"""Changes of the counts of times or pointstamps: a batch sums them up, a sink takes them one by one."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, SupportsIndex, TypeVar

from timely.errors import ProgressError
from timely.native import mypyc_attr
from timely.order import PartialOrder

K = TypeVar("K", bound=Hashable)


class ChangeBatch(Generic[K]):
    """A collection of ``(key, change)`` (Naiad section 3.3), in the order in which the keys came.

    It is always consolidated: each key once, none with the change 0.

    ``counts`` has the changes by key. Engines read and drain it in place, since a method call costs as much as the
    change; its writers keep it free of zeros.

    >>> batch = ChangeBatch([(17, 1), (14, -1), (17, -1)])
    >>> batch.update(3, 2)
    >>> batch
    ChangeBatch([(14, -1), (3, 2)])
    >>> len(batch), batch.drain(), batch.is_empty()
    (2, [(14, -1), (3, 2)], True)
    """

    __slots__ = ("counts",)

    def __init__(self, updates: Iterable[tuple[K, int]] = ()) -> None:
        self.counts: dict[K, int] = {}
        for key, diff in updates:
            self.update(key, diff)

    def update(self, key: K, diff: int) -> None:
        """Add ``diff`` to the change of ``key``, in constant time."""
        counts = self.counts
        count = counts.get(key, 0) + diff
        if count:
            counts[key] = count
        else:
            counts.pop(key, None)

    def extend(self, updates: Iterable[tuple[K, int]]) -> None:
        """Add each of ``updates``, which may be another batch."""
        for key, diff in updates:
            self.update(key, diff)

    def drain(self) -> list[tuple[K, int]]:
        """Return all changes and empty the batch."""
        drained = list(self.counts.items())
        self.counts.clear()
        return drained

    def drain_into(self, other: ChangeBatch[K]) -> None:
        """Move all changes into ``other``: by a swap if ``other`` is empty.

        >>> first, second = ChangeBatch([(17, 1)]), ChangeBatch()
        >>> first.drain_into(second)
        >>> first, second
        (ChangeBatch([]), ChangeBatch([(17, 1)]))
        """
        if not other.counts:
            self.counts, other.counts = other.counts, self.counts
        elif other is not self:
            other.extend(self.counts.items())
            self.counts.clear()

    def is_empty(self) -> bool:
        """Return whether there are no changes."""
        return not self.counts

    def clear(self) -> None:
        """Remove all changes."""
        self.counts.clear()

    def __eq__(self, other: object, /) -> bool:
        if not isinstance(other, ChangeBatch):
            return NotImplemented
        return self.counts == other.counts

    def __len__(self) -> int:
        return len(self.counts)

    def __iter__(self) -> Iterator[tuple[K, int]]:
        return iter(self.counts.items())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self.counts.items())!r})"


T = TypeVar("T", bound=PartialOrder)


@mypyc_attr(allow_interpreted_subclasses=True)
class CountSink(ABC, Generic[T]):
    """Takes changes of the counts of pointstamps, one by one: a tracker, or something in front of one.

    Nothing is derived from a change on entry, so several changes are one statement until somebody propagates.

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
