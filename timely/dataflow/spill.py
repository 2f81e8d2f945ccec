"""Queues that spill: what waits at an input beyond so many bytes waits in a file.

A ``SpillQueue`` takes the place of the deque in which the messages for an input wait. The invariant: it holds the same messages
in the same order as the deque would, each with its time and its number of records, so progress does not notice; only containers
go to disk. A message that cannot be written stays in memory, and one that cannot be read back stays in the queue: neither is lost
without an error. The files have no name, and are let go of as soon as all that was written to one has been read or dropped.
"""

from __future__ import annotations

import contextlib
import pickle
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import attrs

from timely.dataflow.pickling import dumps
from timely.errors import ConfigurationError, SpillError, error_text
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)

SEGMENT: Final = 1 << 28
"""Bytes after which a new file is begun, so that what has been read can be freed while other messages wait."""
SAMPLE: Final = 8
"""Records of a list that are measured."""


class SpillPolicy(Protocol):
    """Says when a queue moves what waits in it to disk."""

    def keep(self, resident: int, /) -> int | None:
        """Return ``None`` while ``resident`` bytes may lie in memory, and else how many of the oldest bytes are to stay there.

        It is asked whenever a message has come. The newest message stays in memory in any case.
        """


@attrs.frozen
class Threshold:
    """Spill when more than ``total`` bytes are in memory, and keep the oldest ``head`` bytes there, which are read next.

    ``ConfigurationError`` unless both are whole numbers with ``0 <= head <= total``.

    >>> Threshold(512, 128).keep(512), Threshold(512, 128).keep(576)
    (None, 128)
    """

    total: int
    head: int

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.total, int) or not isinstance(self.head, int) or not 0 <= self.head <= self.total:
            raise ConfigurationError(
                "a queue spills beyond a threshold of so many bytes, of which it keeps a reserve in memory: whole numbers with"
                f" 0 <= reserve <= threshold, not threshold={self.total!r} and reserve={self.head!r}"
            )

    def keep(self, resident: int, /) -> int | None:
        """Return ``head`` beyond ``total``."""
        return self.head if resident > self.total else None


def size_of(batch: Any) -> int:
    """Return about how many bytes the records of a container are.

    Arrow batches, arrays of numbers, and containers with an attribute ``nbytes`` say so themselves. A list counts as the pickles
    of a few of its records, spread evenly over it, suggest; any other container as its own pickle. What Python needs in memory
    for records that are objects of their own is several times their pickle.

    >>> 20_000 < size_of([bytes([letter]) * 1000 for letter in range(20)]) < 21_000
    True
    """
    told = getattr(batch, "nbytes", None)
    if isinstance(told, int) and not getattr(getattr(batch, "dtype", None), "hasobject", False):
        return told
    if not isinstance(batch, list) or len(batch) <= SAMPLE:
        return len(dumps(batch))
    sample = batch[:: -(-len(batch) // SAMPLE)]
    return len(dumps(sample)) * len(batch) // len(sample)


class Segment:
    """One unnamed file: pieces are written at its end, and read from anywhere. ``left`` is how many messages in it still wait."""

    def __init__(self) -> None:
        import tempfile

        # A buffer would keep what could not be written, and try again later.
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        self.size = 0
        self.left = 0

    def write(self, pieces: list[bytes | memoryview]) -> int:
        """Write pieces one after another, and return where they begin; what fails half-way is written over next time."""
        at = self._file.seek(self.size)
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                rest = rest[self._file.write(rest) :]
        self.size = self._file.tell()
        return at

    def read(self, at: int, sizes: list[int]) -> list[bytearray]:
        """Return the pieces of these sizes that begin at ``at``; ``OSError`` if the file has become shorter."""
        self._file.seek(at)
        pieces = [bytearray(size) for size in sizes]
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                got = self._file.readinto(rest)
                if not got:
                    raise OSError("the file ends too early")
                rest = rest[got:]
        return pieces

    def close(self) -> None:
        """Give the file back to the system."""
        self._file.close()


@attrs.frozen
class Resident(Generic[T]):
    """A message in memory, and the size of its container."""

    time: T
    batch: Any
    records: int
    size: int


@attrs.frozen
class Paged(Generic[T]):
    """A message whose container is in a file: a pickle and its buffers, of these sizes."""

    time: T
    records: int
    segment: Segment
    at: int
    sizes: list[int]


class SpillQueue(Generic[T]):
    """The messages ``(time, container, records)`` of an input, oldest first; those that ``policy`` does not keep are on disk.

    Oldest to newest they are ``head`` in memory, then those on disk, then ``tail`` in memory. ``label`` is how errors call the
    input.

    >>> queue = SpillQueue(Threshold(total=100, head=0), "an input")
    >>> for time in range(4):
    ...     queue.append((time, [b"x" * 80], 1))
    >>> len(queue), queue.paged
    (4, 3)
    >>> [queue.popleft() == (time, [b"x" * 80], 1) for time in range(4)]
    [True, True, True, True]
    """

    def __init__(self, policy: SpillPolicy, label: str) -> None:
        import tempfile  # noqa: F401  it takes much to load: here, where few need it, and before there is no memory to spare

        self._policy = policy
        self._label = label
        self._head: deque[Resident[T]] = deque()
        self._disk: deque[Paged[T]] = deque()
        self._tail: deque[Resident[T]] = deque()
        self._reserved = 0
        self._segment: Segment | None = None
        self.resident = 0

    @property
    def paged(self) -> int:
        """How many messages are on disk."""
        return len(self._disk)

    def __len__(self) -> int:
        return len(self._head) + len(self._disk) + len(self._tail)

    def __iter__(self) -> Iterator[tuple[T, Any, int]]:
        for message in self._head:
            yield message.time, message.batch, message.records
        for paged in self._disk:
            yield paged.time, self._fetched(paged), paged.records
        for message in self._tail:
            yield message.time, message.batch, message.records

    def numbers(self) -> list[tuple[T, int]]:
        """Return the time and the number of records of each message, oldest first; nothing is read for it.

        Any thread may ask; what is moved meanwhile may be told twice.
        """
        parts = tuple(self._head), tuple(self._disk), tuple(self._tail)
        return [(message.time, message.records) for part in parts for message in part]

    def append(self, message: tuple[T, Any, int]) -> None:
        """Add a message, and move to disk what the policy does not keep.

        ``SpillError`` where that cannot be done: then what is not on disk is in memory, and nothing is lost.
        """
        time, batch, records = message
        self._tail.append(Resident(time, batch, records, 0))  # before anything can go wrong
        with self._blamed("be measured", "send records that can be pickled"):
            size = size_of(batch)
        self._tail[-1] = Resident(time, batch, records, size)
        self.resident += size
        keep = self._policy.keep(self.resident)
        if keep is not None:
            self._spill(keep)

    def _spill(self, keep: int) -> None:
        tail = self._tail
        while not self._disk and len(tail) > 1 and self._reserved + tail[0].size <= keep:
            self._reserved += tail[0].size
            self._head.append(tail.popleft())
        while len(tail) > 1:
            self._disk.append(self._written(tail[0]))
            self.resident -= tail.popleft().size

    def popleft(self) -> tuple[T, Any, int]:
        """Remove the oldest message and return it; ``IndexError`` if there is none, ``SpillError`` if it cannot be read."""
        if self._disk and not self._head:
            paged = self._disk[0]
            batch = self._fetched(paged)
            self._disk.popleft()
            self._release(paged.segment)
            return paged.time, batch, paged.records
        if self._head:
            message = self._head.popleft()
            self._reserved -= message.size
        else:
            message = self._tail.popleft()
        self.resident -= message.size
        return message.time, message.batch, message.records

    def clear(self) -> None:
        """Drop all messages, and give all files back."""
        self._head.clear()
        self._tail.clear()
        self._reserved = self.resident = 0
        while self._disk:
            self._release(self._disk.popleft().segment)
        if self._segment is not None:  # one that nothing could be written to
            self._segment.close()
            self._segment = None

    def _written(self, message: Resident[T]) -> Paged[T]:
        """Write a container to the newest file."""
        loose: list[pickle.PickleBuffer] = []
        keep: Callable[[pickle.PickleBuffer], object] = loose.append
        with self._blamed("be pickled", "send records that can be pickled"):
            pieces: list[bytes | memoryview] = [dumps(message.batch, keep)]
            pieces.extend(buffer.raw() for buffer in loose)
        with self._blamed("be written", "make room where temporary files go (TMPDIR), or give a larger threshold"):
            if self._segment is None or self._segment.size >= SEGMENT:
                self._segment = Segment()
            at = self._segment.write(pieces)
        self._segment.left += 1
        return Paged(message.time, message.records, self._segment, at, [len(piece) for piece in pieces])

    def _fetched(self, paged: Paged[T]) -> Any:
        """Read a container back."""
        with self._blamed("be read back", "let nothing touch the temporary files of a run, and have records unpickle anywhere"):
            main, *loose = paged.segment.read(paged.at, paged.sizes)
            return pickle.loads(main, buffers=loose)

    def _release(self, segment: Segment) -> None:
        """Count a message in a file as gone, and the file with the last one."""
        segment.left -= 1
        if not segment.left:
            segment.close()
            if segment is self._segment:
                self._segment = None

    @contextlib.contextmanager
    def _blamed(self, deed: str, advice: str) -> Iterator[None]:
        """Say for whom it was, of whatever comes of the disk and of the records' own pickling."""
        try:
            yield
        except Exception as error:
            raise SpillError(
                f"{self._label}: what waits there cannot {deed} in order to spill to disk, {error_text(error)}."
                f" It is kept as it was; {advice}, or use the pact without timely.Spill"
            ) from error


Queue: TypeAlias = deque[tuple[T, Any, int]] | SpillQueue[T]
"""What messages wait in: ``(time, container, records)``, oldest first."""


def waiting(queue: Queue[T]) -> list[tuple[T, int]]:
    """Return the time and the number of records of each message that waits, oldest first, without reading any from disk.

    >>> waiting(deque([(0, ["a", "b"], 2)]))
    [(0, 2)]
    """
    return queue.numbers() if isinstance(queue, SpillQueue) else [(time, records) for time, _, records in tuple(queue)]
