"""Changes of counts, added up: what every statement of progress is made of.

A change batch maps things (times, or pointstamps) to the sum of the changes made to their counts. The invariant is that
it is always consolidated: each thing once, and none whose changes cancel. A caller may therefore take an empty batch to
mean that nothing changed at all, and may add the same changes in any order and get an equal batch.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class ChangeBatch(Generic[K]):
    """A consolidated collection of ``(thing, change)`` (progress updates are combined before they are sent: Naiad 3.3).

    Counts and changes are integers of either sign. Iteration is in the order in which things came up.

    >>> batch = ChangeBatch([(17, 1), (14, -1), (17, -1)])
    >>> batch, len(batch), ChangeBatch([(17, 0)]).is_empty()
    (ChangeBatch([(14, -1)]), 1, True)
    """

    __slots__ = ("_counts",)

    def __init__(self, updates: Iterable[tuple[K, int]] = ()) -> None:
        self._counts: dict[K, int] = {}
        for key, diff in updates:
            self.update(key, diff)

    def update(self, key: K, diff: int) -> None:
        """Add ``diff`` to what is known of ``key``, in constant time.

        >>> batch = ChangeBatch([(17, 1)])
        >>> batch.update(17, -1)
        >>> batch.is_empty()
        True
        """
        counts = self._counts
        count = counts.get(key, 0) + diff
        if count:
            counts[key] = count
        else:
            counts.pop(key, None)

    def extend(self, updates: Iterable[tuple[K, int]]) -> None:
        """Add each of ``updates``, which may be another batch.

        >>> batch = ChangeBatch([(17, 1)])
        >>> batch.extend([(17, -1), (3, 2)])
        >>> batch
        ChangeBatch([(3, 2)])
        """
        for key, diff in updates:
            self.update(key, diff)

    def drain(self) -> list[tuple[K, int]]:
        """Return all changes and leave the batch empty.

        >>> batch = ChangeBatch([(17, 1)])
        >>> batch.drain(), batch.drain()
        ([(17, 1)], [])
        """
        drained = list(self._counts.items())
        self._counts.clear()
        return drained

    def drain_into(self, other: ChangeBatch[K]) -> None:
        """Move all changes into ``other`` and leave this batch empty: by a swap where ``other`` has none.

        >>> first, second = ChangeBatch([(17, 1)]), ChangeBatch()
        >>> first.drain_into(second)
        >>> first, second
        (ChangeBatch([]), ChangeBatch([(17, 1)]))
        """
        if not other._counts:
            self._counts, other._counts = other._counts, self._counts
        elif other is not self:
            other.extend(self._counts.items())
            self._counts.clear()

    def is_empty(self) -> bool:
        """Return whether nothing changed.

        >>> ChangeBatch().is_empty()
        True
        """
        return not self._counts

    def clear(self) -> None:
        """Forget all changes.

        >>> batch = ChangeBatch([(17, 1)])
        >>> batch.clear()
        >>> len(batch)
        0
        """
        self._counts.clear()

    def __eq__(self, other: object, /) -> bool:
        if not isinstance(other, ChangeBatch):
            return NotImplemented
        return self._counts == other._counts

    def __len__(self) -> int:
        return len(self._counts)

    def __iter__(self) -> Iterator[tuple[K, int]]:
        return iter(self._counts.items())

    def __repr__(self) -> str:
        return f"ChangeBatch({list(self._counts.items())!r})"
