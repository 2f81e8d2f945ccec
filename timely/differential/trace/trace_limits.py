"""``TraceLimits``: the sizes from which on traces and their readers work in another way, and by which policy runs merge."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Self

import attrs

from timely.operators.keyed.merge_policy import GEOMETRIC, MergePolicy


@attrs.frozen
class ChunkSizes:
    """Entries that are merged at once, entries of a block on disk, and those of a block in memory, which are copied at once."""

    portion: int
    block: int
    resident: int


@attrs.frozen
class TraceLimits:
    """What traces and their readers are built with. Results do not depend on any of it, as tests show with small ones.

    In a ``with`` block it is the current one of the thread, and of the threads of a run that begins there.

    >>> with TraceLimits(patience=0) as limits:
    ...     TraceLimits.current() is limits
    True
    """

    policy: MergePolicy = GEOMETRIC
    """By which runs merge."""

    patience: int = 64
    """Activations, or touched keys or times, between two rounds of compaction, each of which computes ``since``, at 5 µs.

    Zero has everything compacted whenever something may be.
    """

    columns: int = 128
    """Updates from which on columns are faster: a call of NumPy costs about 1 µs, a row in Python too."""

    folded: int = 4096
    """Rows over columns that stay rows."""

    int_chunks: ChunkSizes = ChunkSizes(32_768, 4096, 1 << 20)
    """Merged in 2 to 4 ms; read in 20 to 30 µs from the page cache, of which 32,768 entries take 100; copied in about 20 ms."""

    row_chunks: ChunkSizes = ChunkSizes(32_768, 4096, 1 << 19)
    """A row takes several times the bytes of a number."""

    object_chunks: ChunkSizes = ChunkSizes(4096, 256, 1 << 15)
    """Merged in about 10 ms; unpickled in about 100 µs; copied in about 10 ms."""

    group: int = 64
    """Entries up to which a group is a list, which takes some 5 µs to read."""

    joined: int = 100_000
    """Records after which a join lets other operators run."""

    logged: int = 4096
    """Updates of a log that are never compacted, and keys of a checkpoint that are loaded at once where memory is limited."""

    saved: int = 1 << 19
    """Entries of one item of a checkpoint."""

    counted: int = 1024
    """Updates after which the memory of a trace is counted again, in some 20 µs."""

    delta: int = 1 << 16
    """Updates of a delta, and of one time that wait for it to be complete, where memory is limited; more are appended at once."""

    reduced: int = 1 << 15
    """Entries that are reduced at a time, and changes after which other operators run, where memory is limited."""

    @classmethod
    def current(cls) -> TraceLimits:
        """Return those of the innermost ``with`` block, or the usual ones."""
        return stack[-1] if (stack := _stack.get()) else _USUAL

    def __enter__(self) -> Self:
        _stack.set((*_stack.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        _stack.set(_stack.get()[:-1])


_stack: ContextVar[tuple[TraceLimits, ...]] = ContextVar("timely_trace_limits", default=())

_USUAL = TraceLimits()
