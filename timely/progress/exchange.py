"""The exchange of progress between workers: the protocol, without a transport.

Each worker has a *view*: the counts of the pointstamps of all workers. It begins with a capability at the minimum for each output
and worker. A batch is made of whole *statements*: what one activation of an operator consumed, produced and holds. It is atomic,
since work would be uncounted between a consumption and its productions. Batches of one sender arrive in order. Those of different
senders interleave freely, so counts may be negative in transit. The invariant: if no positive count of a view could lead to a
time at a place, no message of that time will arrive there (Naiad section 3.3; Abadi, McSherry, Murray, Rodeheffer).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

import attrs

from timely.errors import ConfigurationError, ProgressError
from timely.progress.change_batch import ChangeBatch

K = TypeVar("K", bound=Hashable)


@attrs.frozen
class ProgressBatch(Generic[K]):
    """An atomic batch: the changes of worker ``sender``, as its ``sequence``-th batch, from 0 on.

    It may be the sum of ``count`` batches in a row; ``sequence`` is that of the first.
    """

    sender: int
    sequence: int
    updates: tuple[tuple[K, int], ...]
    count: int = attrs.field(default=1, repr=False)

    def merged(self, later: Iterable[ProgressBatch[K]]) -> ProgressBatch[K]:
        """Return one atomic batch for this one and its successors, to be sent in place of the last.

        To send later and at once is always safe. ``ProgressError`` for batches that do not follow each other.

        >>> first = ProgressBatch(0, 3, (("a", 1), ("b", -1)))
        >>> both = first.merged([ProgressBatch(0, 4, (("b", 1), ("c", 1)))])
        >>> both.sequence, both.count, both.updates
        (3, 2, (('a', 1), ('c', 1)))
        """
        changes: ChangeBatch[K] = ChangeBatch(self.updates)
        end = self.sequence + self.count
        for batch in later:
            if batch.sender != self.sender or batch.sequence != end:
                raise ProgressError(
                    f"batch {batch.sequence} of worker {batch.sender} does not come after batch {end - 1} of worker "
                    f"{self.sender}: merge batches of one sender only, in the order in which they were flushed"
                )
            changes.extend(batch.updates)
            end += batch.count
        return ProgressBatch(self.sender, self.sequence, tuple(changes.drain()), end - self.sequence)


class ProgressExchange(Generic[K]):
    """One worker's end of the protocol (Naiad section 3.3): collects its changes, batches them, and checks the batches of others.

    ``index`` is this worker's number among ``peers``; pointstamps are hashable, such as ``(scope, location, time)``. ``changes``
    are those of this worker since the last ``flush``; all of a statement are added before the next one.

    >>> here, there = ProgressExchange(0, 2), ProgressExchange(1, 2)
    >>> here.changes.extend([(("input", 0), -1), (("input", 5), 1)])  # a capability is downgraded ...
    >>> here.changes.extend([(("input", 5), -1), (("input", 9), 1)])  # ... twice
    >>> there.receive(here.flush())
    ((('input', 0), -1), (('input', 9), 1))
    >>> here.flush() is None
    True
    """

    __slots__ = ("_expected", "_sequence", "changes", "index")

    def __init__(self, index: int, peers: int) -> None:
        if not 0 <= index < peers:
            raise ConfigurationError(f"there is no worker {index} among {peers}: give an index of 0 to peers - 1")
        self.index = index
        self._sequence = 0
        self._expected = [0] * peers
        self.changes: ChangeBatch[K] = ChangeBatch()

    @property
    def peers(self) -> int:
        """The number of workers, this one included."""
        return len(self._expected)

    def flush(self) -> ProgressBatch[K] | None:
        """Return the changes since the last flush as one batch for every other worker, or None if they cancel."""
        if not self.changes.counts:
            return None
        batch = ProgressBatch(self.index, self._sequence, tuple(self.changes.drain()))
        self._sequence += 1
        return batch

    def receive(self, batch: ProgressBatch[K]) -> tuple[tuple[K, int], ...]:
        """Return the updates of another worker's batch, to be counted all at once.

        ``ProgressError`` if it is not the next batch of another worker of this run; the right one may still come.
        """
        sender = batch.sender
        if not 0 <= sender < len(self._expected):
            raise ProgressError(
                f"worker {self.index} got a progress batch of worker {sender}, but the run's workers are 0 to "
                f"{len(self._expected) - 1}: start all workers with the same number of peers"
            )
        if sender == self.index:
            raise ProgressError(
                f"worker {sender} got its own progress batch {batch.sequence}: a worker counts its own statements "
                f"itself; deliver batches to the other workers only"
            )
        expected = self._expected[sender]
        if batch.sequence != expected:
            fault = "it was delivered before" if batch.sequence < expected else "batches were lost or overtaken"
            raise ProgressError(
                f"worker {self.index} expected progress batch {expected} of worker {sender} but got "
                f"{batch.sequence}: {fault}; deliver those of each sender in the order in which they were flushed"
            )
        self._expected[sender] = expected + batch.count
        return batch.updates
