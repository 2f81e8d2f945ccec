"""``check_counts``: finds the record, and the time, at which a source takes away what it never gave."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from timely.differential.collections import Collection
from timely.differential.updates.updates import Container, Diff, Update
from timely.errors import DifferenceError, GraphError, brief
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)


def check_counts(collection: Collection[T, Any], lower: Diff = 0, *, name: str = "check_counts") -> None:
    """Raise ``CollectionMismatch`` at the first complete time at which a record's count is not zero and below ``lower``.

    The error has ``time``, ``record``, and the count as ``diff``. It keeps each record and its count. ``DifferenceError`` for
    differences that are no numbers.

    >>> import timely
    >>> from timely import differential as dd
    >>> with timely.Worker() as worker:
    ...     with worker.dataflow(int) as scope:
    ...         words, collection = dd.new_collection(scope)
    ...         dd.check_counts(collection)
    ...     words.remove("never given")
    ...     words.close()
    ...     try:
    ...         worker.run()
    ...     except dd.CollectionMismatch as error:
    ...         found = error.time, error.record, error.diff
    >>> found
    (0, 'never given', -1)
    """
    if not isinstance(collection, Collection):
        raise GraphError(f"{name} takes a collection, not {brief(collection)}")
    if collection.ring.native not in (int, float):
        raise DifferenceError(f"{name} compares counts with {brief(lower)}, so that differences must be numbers")

    def below(batch: Container) -> Iterable[Update]:
        """Return the counts that a delta brings: the first that is seen of a record is its sum at the time."""
        if not isinstance(batch, list) and not (batch.values < lower).any():
            return ()
        return (counted for counted, diff in batch if diff > 0 and counted[1] < lower)

    def says(record: object, count: Diff) -> str:
        return f"{brief(record)} is there {brief(count)} times, below {brief(lower)},"

    collection.count(name=name)._mismatch(below, says, name)
