"""How workers tell each other about progress: the protocol alone, without any transport.

Each worker keeps a *view*: for every pointstamp (a place and a time) how many messages and capabilities there are in
the whole computation. It begins with what all know, one capability at the minimum for every output and every worker,
so that the initial count is the **number of workers**: nobody may conclude that a time has passed before each worker
has said so itself. From then on a view changes by *statements* only. What one activation of an operator consumed,
produced and holds is one statement, and a batch is made of whole statements: it is **atomic**, to be counted at once
or not at all, for if a consumption were seen before the production that it led to, nothing would stand for that work
in between. Batches of one sender arrive in the order they were sent (**FIFO** for each pair of workers), for the same
reason: a capability may be dropped in a later batch than that which says what was sent with it. Between different
senders any interleaving is right. One worker may thus hear that a message was consumed before it hears that it was
produced: counts are **negative in transit**, and only the positive ones stand for possible work.

The invariant is then (Naiad section 3.3 and its formal analysis by Abadi, McSherry, Murray and Rodeheffer; the book's
chapter on progress tracking): the true counts are, for every worker, its view plus all that is still to
come to it, and if no positive count of its view could lead to a time at a place, then no message with that time will
ever arrive there, anywhere. A caller may rely on it as long as it delivers every batch once to every other worker,
counts its own statements itself (one by one or by the batch, never in parts), and lets an operator produce only what
a capability that it holds or a message that it consumes permits.
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
    """One atomic batch of statements: the changes that worker ``sender`` made, as its ``sequence``-th batch, from 0 on.

    It may stand for ``count`` of them in a row, of which it is the sum; ``sequence`` is then that of the first.

    >>> ProgressBatch(sender=0, sequence=0, updates=((("input", 0), -1), (("input", 1), 1)))
    ProgressBatch(sender=0, sequence=0, updates=((('input', 0), -1), (('input', 1), 1)))
    """

    sender: int
    sequence: int
    updates: tuple[tuple[K, int], ...]
    count: int = attrs.field(default=1, repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as few bytes as will do: most of what workers send each other are batches."""
        content = self.sender, self.sequence, self.updates
        return ProgressBatch, content if self.count == 1 else (*content, self.count)

    def merged(self, later: Iterable[ProgressBatch[K]]) -> ProgressBatch[K]:
        """Return one batch for this one and those that come after it without a gap, atomic as a whole.

        To be sent in the place of the last of them: it never hurts to say later what one has done, and all at once.
        :class:`~timely.errors.ProgressError` where they do not follow each other.

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
    """One worker's end of the protocol: gathers what it did, hands it out in batches, and checks the batches of others.

    ``index`` is this worker's number among ``peers``; pointstamps are hashable, such as ``(scope, location, time)``.
    The protocol is that of Naiad section 3.3 with broadcast to everyone and combining before sending.

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
        """Note that this worker changed the count of ``pointstamp`` by ``diff``; not to be sent before :meth:`flush`.

        The updates of one statement must all come before the next flush.

        >>> exchange = ProgressExchange(0, 1)
        >>> exchange.update(("input", 0), 1)
        >>> exchange.update(("input", 0), -1)
        >>> exchange.flush() is None
        True
        """
        self._pending.update(pointstamp, diff)

    def extend(self, updates: Iterable[tuple[K, int]]) -> None:
        """Note all the changes of one statement.

        >>> exchange = ProgressExchange(0, 1)
        >>> exchange.extend([("a", 1), ("b", -1)])
        >>> exchange.flush().updates
        (('a', 1), ('b', -1))
        """
        self._pending.extend(updates)

    def flush(self) -> ProgressBatch[K] | None:
        """Return everything since the last flush as one batch, for every other worker, or None if it comes to nothing.

        Statements that cancel take no sequence number, so that a worker that only went round in circles says nothing.

        >>> exchange = ProgressExchange(0, 1)
        >>> exchange.update("a", 1)
        >>> exchange.flush()
        ProgressBatch(sender=0, sequence=0, updates=(('a', 1),))
        """
        if self._pending.is_empty():
            return None
        batch = ProgressBatch(self._index, self._sequence, tuple(self._pending.drain()))
        self._sequence += 1
        return batch

    def unsaid(self) -> tuple[tuple[K, int], ...]:
        """Return everything since the last flush, without taking it.

        >>> exchange = ProgressExchange(0, 1)
        >>> exchange.update("a", 1)
        >>> exchange.unsaid() == exchange.flush().updates
        True
        """
        return tuple(self._pending)

    def receive(self, batch: ProgressBatch[K]) -> tuple[tuple[K, int], ...]:
        """Return the updates of another worker's batch, to be counted all at once.

        A :class:`~timely.errors.ProgressError` if it is not the next batch of another worker of this run; the batch is
        then not taken, and the right one may still come.

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
