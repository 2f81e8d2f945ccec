"""Queues that spill: what waits at an input beyond a threshold waits in a file.

A ``SpillQueue`` replaces the deque of an input, with the same messages in the same order; only containers go to disk. A message
that cannot be written stays in memory, and one that cannot be read stays in the queue. A file is deleted once all in it was read.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, Generic, TypeAlias, TypeVar

import attrs

from timely.dataflow.containers.pickling import dumps, pickled
from timely.errors import SpillError, error_text
from timely.memory.paged_file import Page, PagedFile, PageQueue
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)

SAMPLE: Final = 8
"""Records of a list that are measured."""


def size_of(batch: Any) -> int:
    """Return about how many bytes the records of a container are: ``nbytes`` where it has that, and else its pickle's size.

    Of a list a few records are pickled, spread evenly over it. Python's objects take several times their pickle in memory.
    """
    size = getattr(batch, "nbytes", None)
    if isinstance(size, int) and not getattr(getattr(batch, "dtype", None), "hasobject", False):
        return size
    if not isinstance(batch, list) or len(batch) <= SAMPLE:
        return len(dumps(batch))
    sample = batch[:: -(-len(batch) // SAMPLE)]
    return len(dumps(sample)) * len(batch) // len(sample)


@attrs.frozen
class Resident(Generic[T]):
    time: T
    batch: Any
    records: int
    size: int


@attrs.frozen
class Paged(Generic[T]):
    """A message whose container is in a file."""

    time: T
    records: int
    file: PagedFile
    page: Page


class SpillQueue(Generic[T]):
    """The messages ``(time, container, records)`` of an input, oldest first, on disk beyond ``threshold`` bytes.

    The oldest ``reserve`` bytes are in memory, then come those on disk, then the newest in memory.
    """

    def __init__(self, threshold: int, reserve: int, label: str) -> None:
        import tempfile  # noqa: F401  takes long to load, and memory may be short later

        self._threshold = threshold
        self._reserve = reserve
        self._label = label
        self._head: deque[Resident[T]] = deque()
        self._disk: deque[Paged[T]] = deque()
        self._tail: deque[Resident[T]] = deque()
        self._reserved = 0
        self._files = PageQueue()
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
        """Return the time and the number of records of each message, oldest first, without reading the disk.

        Any thread may call it; a message that moves meanwhile may occur twice.
        """
        parts = tuple(self._head), tuple(self._disk), tuple(self._tail)
        return [(message.time, message.records) for part in parts for message in part]

    def in_memory(self) -> list[tuple[T, Any]]:
        """Return the time and the container of each message that is not on disk. Any thread may call it."""
        return [(message.time, message.batch) for part in (tuple(self._head), tuple(self._tail)) for message in part]

    def append(self, message: tuple[T, Any, int]) -> None:
        """Add a message, and spill beyond the threshold. A ``SpillError`` loses nothing: what is not on disk is in memory."""
        time, batch, records = message
        self._tail.append(Resident(time, batch, records, 0))  # before anything can fail
        with self._blamed("be measured", "send records that can be pickled"):
            size = size_of(batch)
        self._tail[-1] = Resident(time, batch, records, size)
        self.resident += size
        if self.resident > self._threshold:
            self._spill()

    def _spill(self) -> None:
        tail = self._tail
        while not self._disk and len(tail) > 1 and self._reserved + tail[0].size <= self._reserve:
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
            self._files.release(paged.file)
            return paged.time, batch, paged.records
        if self._head:
            message = self._head.popleft()
            self._reserved -= message.size
        else:
            message = self._tail.popleft()
        self.resident -= message.size
        return message.time, message.batch, message.records

    def clear(self) -> None:
        self._head.clear()
        self._tail.clear()
        self._reserved = self.resident = 0
        self._disk.clear()
        self._files.clear()

    def _written(self, message: Resident[T]) -> Paged[T]:
        with self._blamed("be pickled", "send records that can be pickled"):
            pieces = pickled(message.batch)
        with self._blamed("be written", "make room where temporary files go (TMPDIR), or give a larger threshold"):
            file, page = self._files.append(pieces)
        return Paged(message.time, message.records, file, page)

    def _fetched(self, paged: Paged[T]) -> Any:
        with self._blamed("be read back", "let nothing touch the temporary files of a run, and have records unpickle anywhere"):
            return paged.file.load(paged.page)

    @contextlib.contextmanager
    def _blamed(self, deed: str, advice: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise SpillError(
                f"{self._label}: what waits there cannot {deed} to spill to disk, {error_text(error)}."
                f" It stays as it was; {advice}, or use the pact without timely.Spill"
            ) from error


Queue: TypeAlias = deque[tuple[T, Any, int]] | SpillQueue[T]
"""Waiting messages ``(time, container, records)``, oldest first."""


def waiting(queue: Queue[T]) -> list[tuple[T, int]]:
    """Return the time and the number of records of each waiting message, oldest first, without reading the disk."""
    return queue.numbers() if isinstance(queue, SpillQueue) else [(time, records) for time, _, records in tuple(queue)]
