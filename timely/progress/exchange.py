"""The exchange of progress between workers: the protocol, without a transport.

Each worker has a *view*: the counts of all pointstamps in the whole computation. It begins with one capability at the minimum for
every output and every worker: nobody may conclude that a time has passed before each worker has said so. From then on views
change by *statements*: what one activation of an operator consumed, produced and holds.

- A batch is made of whole statements and is **atomic**. If a consumption came without its productions, nothing would stand for
  that work in between.
- Batches of one sender arrive in order (**FIFO**), since a capability may be dropped in a later batch than what was sent with it.
- Batches of different senders interleave freely, so counts are **negative in transit**. Only positive counts stand for possible
  work.

The invariant (Naiad section 3.3; Abadi, McSherry, Murray, Rodeheffer): the true counts are a view plus all that is still to
arrive. If no positive count of a view could lead to a time at a place, no message of that time will arrive there, anywhere. It
holds if every batch reaches every other worker once, a worker counts its own statements itself, and operators produce only what a
held capability or a consumed message permits.
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

    >>> ProgressBatch(sender=0, sequence=0, updates=((("input", 0), -1), (("input", 1), 1)))
    ProgressBatch(sender=0, sequence=0, updates=((('input', 0), -1), (('input', 1), 1)))
    """

    sender: int
    sequence: int
    updates: tuple[tuple[K, int], ...]
    count: int = attrs.field(default=1, repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle few bytes: most messages between workers are batches."""
        content = self.sender, self.sequence, self.updates
        return ProgressBatch, content if self.count == 1 else (*content, self.count)

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

    ``index`` is this worker's number among ``peers``; pointstamps are hashable, such as ``(scope, location, time)``.

    >>> here, there = ProgressExchange(0, 2), ProgressExchange(1, 2)
    >>> here.extend([(("input", 0), -1), (("input", 5), 1)])  # a capability is downgraded ...
    >>> here.extend([(("input", 5), -1), (("input", 9), 1)])  # ... twice
    >>> there.receive(here.flush())
    ((('input', 0), -1), (('input', 9), 1))
    >>> here.flush() is None
    True
    """

    __slots__ = ("_expected", "_index", "_pending", "_sequence")

    def __init__(self, index: int, peers: int) -> None:
        if not 0 <= index < peers:
            raise ConfigurationError(f"there is no worker {index} among {peers}: give an index of 0 to peers - 1")
        self._index = index
        self._sequence = 0
        self._expected = [0] * peers
        self._pending: ChangeBatch[K] = ChangeBatch()

    @property
    def index(self) -> int:
        """This worker's number."""
        return self._index

    @property
    def peers(self) -> int:
        """The number of workers, this one included."""
        return len(self._expected)

    def update(self, pointstamp: K, diff: int) -> None:
        """Add a change of this worker. All changes of a statement come before the next :meth:`flush`."""
        self._pending.update(pointstamp, diff)

    def extend(self, updates: Iterable[tuple[K, int]]) -> None:
        """Add all the changes of one statement."""
        self._pending.extend(updates)

    def flush(self) -> ProgressBatch[K] | None:
        """Return the changes since the last flush as one batch for every other worker, or None if they cancel."""
        if self._pending.is_empty():
            return None
        batch = ProgressBatch(self._index, self._sequence, tuple(self._pending.drain()))
        self._sequence += 1
        return batch

    def pending(self) -> tuple[tuple[K, int], ...]:
        """Return the changes since the last flush, and keep them."""
        return tuple(self._pending)

    def receive(self, batch: ProgressBatch[K]) -> tuple[tuple[K, int], ...]:
        """Return the updates of another worker's batch, to be counted all at once.

        ``ProgressError`` if it is not the next batch of another worker of this run; the right one may still come.

        >>> ProgressExchange(1, 2).receive(ProgressBatch(0, 7, ()))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        timely.errors.ProgressError: worker 1 expected progress batch 0 of worker 0 but got 7: ...
        """
        sender = batch.sender
        if not 0 <= sender < len(self._expected):
            raise ProgressError(
                f"worker {self._index} got a progress batch of worker {sender}, but the run's workers are 0 to "
                f"{len(self._expected) - 1}: start all workers with the same number of peers"
            )
        if sender == self._index:
            raise ProgressError(
                f"worker {sender} got its own progress batch {batch.sequence}: a worker counts its own statements "
                f"itself; deliver batches to the other workers only"
            )
        expected = self._expected[sender]
        if batch.sequence != expected:
            fault = "it was delivered before" if batch.sequence < expected else "batches were lost or overtaken"
            raise ProgressError(
                f"worker {self._index} expected progress batch {expected} of worker {sender} but got "
                f"{batch.sequence}: {fault}; deliver those of each sender in the order in which they were flushed"
            )
        self._expected[sender] = expected + batch.count
        return batch.updates
