"""``Spool``: containers one after another, in memory while the budget allows, and in one temporary file beyond it."""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import attrs

from timely.memory.budget import MemoryBudget, readable_back
from timely.memory.paged_file import Page, PagedFile

_COUNTED: Final = "nbytes"
"""What has this attribute can go to disk."""


class _Stored(NamedTuple):
    """A container in the file: a pickle, and where its buffers are."""

    pickle: bytes
    buffers: Page


@attrs.define(eq=False)
class _Held:
    """What a spool occupies: bytes in memory, and a file."""

    budget: MemoryBudget
    in_memory: int = 0
    file: PagedFile | None = None

    def release(self) -> None:
        self.budget.give_back(self.in_memory)
        self.in_memory = 0
        if self.file is not None:
            self.file.close()
            self.file = None


class Spool:
    """Containers in the order in which they were appended; each is read anew from disk when it is iterated over.

    NumPy arrays and Arrow batches, and all else that has ``nbytes`` and can be pickled, go to disk; other objects stay in memory.
    The file ends with the spool. ``SpillError`` if the disk is full; what was appended before stays.

    >>> import numpy as np
    >>> spool = Spool(MemoryBudget(1000))
    >>> for number in range(3):
    ...     spool.append(np.full(100, number))
    >>> len(spool), [int(array[0]) for array in spool], spool.on_disk
    (3, [0, 1, 2], 1600)
    >>> [int(array[0]) for array in spool.drain()], len(spool), spool.on_disk
    ([0, 1, 2], 0, 0)
    """

    def __init__(self, budget: MemoryBudget | None = None) -> None:
        self._budget = budget or MemoryBudget.current()
        self._items: list[Any] = []
        self._held = _Held(self._budget)
        weakref.finalize(self, self._held.release).atexit = False

    def __len__(self) -> int:
        return len(self._items)

    @property
    def on_disk(self) -> int:
        """Bytes in the file."""
        return 0 if self._held.file is None else self._held.file.size

    def append(self, container: Any) -> None:
        """Add a container, which must not change any more."""
        size = getattr(container, _COUNTED, None)
        arrow = type(container).__module__.startswith("pyarrow")
        if (
            size is None
            or getattr(getattr(container, "dtype", None), "hasobject", False)
            or (arrow and not readable_back(container))
        ):
            self._items.append(container)
        elif self._budget.take(size):
            self._held.in_memory += size
            self._items.append(container)
        else:
            self._items.append(self._store(container))

    def __reduce__(self) -> Any:
        """A checkpoint has the containers one by one; restored, they are held by the budget that is current then."""
        return Spool, (), None, iter(self)

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self._items)))

    def __getitem__(self, index: int) -> Any:
        item = self._items[index]
        return self._load(item) if isinstance(item, _Stored) else item

    def drain(self) -> Iterator[Any]:
        """Yield each container, and let go of it when the next one is asked for. The file ends after the last."""
        items, self._items = self._items, []
        items.reverse()
        while items:
            item = items.pop()
            if isinstance(item, _Stored):
                yield self._load(item)
                continue
            size = getattr(item, _COUNTED, 0)
            yield item
            del item
            if self._held.in_memory >= size:
                self._held.in_memory -= size
                self._budget.give_back(size)
        if not self._items:
            self.clear()

    def clear(self) -> None:
        """Let go of all containers."""
        self._items = []
        self._held.release()

    def _store(self, container: Any) -> _Stored:
        if self._held.file is None:
            self._held.file = PagedFile(self._budget)
        buffers: list[pickle.PickleBuffer] = []
        head = pickle.dumps(_compact(container), protocol=5, buffer_callback=buffers.append)
        return _Stored(head, self._held.file.append(buffer.raw() for buffer in buffers))

    def _load(self, stored: _Stored) -> Any:
        assert self._held.file is not None
        return pickle.loads(stored.pickle, buffers=self._held.file.read(stored.buffers))


def _compact(container: Any) -> Any:
    """Return a container without the rows that a slice of it does not show: Arrow pickles whole buffers."""
    return _OwnRows(container) if type(container).__module__.startswith("pyarrow") else container


class _OwnRows:
    """A record batch or array of Arrow, pickled as bytes of Arrow IPC, which have the rows of a slice only."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __reduce_ex__(self, _: Any) -> Any:
        import pyarrow as pa

        is_batch = isinstance(self.rows, pa.RecordBatch)
        batch = self.rows if is_batch else pa.record_batch({"": self.rows})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return _read_rows, (pickle.PickleBuffer(sink.getvalue()), is_batch)


def _read_rows(data: Any, is_batch: bool) -> Any:
    import pyarrow as pa

    batch = pa.ipc.open_stream(pa.py_buffer(data)).read_next_batch()
    return batch if is_batch else batch.column(0)
