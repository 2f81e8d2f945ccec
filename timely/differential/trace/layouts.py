"""``Layout``: what a spine has to know of its chunks; ``ColumnLayout`` and ``ObjectLayout`` are such."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, Self, TypeVar

from timely.differential.trace.compaction_frontier import Move
from timely.differential.trace.entries import Entry
from timely.differential.trace.trace_limits import ChunkSizes, TraceLimits


class AnyChunk(Protocol):
    """Entries in order of the numbers of their keys, in memory."""

    times: list[Any]

    def __len__(self) -> int: ...
    def count_keys(self) -> int:
        """Return the number of keys."""

    def all_keys(self) -> Iterator[object]:
        """Return the keys."""

    @property
    def nbytes(self) -> int:
        """About the bytes that it takes in memory."""

    def lookup(self, number: int, key: object, entries: list[Entry]) -> None:
        """Append the entries of one key."""

    def part(self, keys: Iterable[object]) -> Self:
        """Return the entries of some keys."""

    @property
    def first(self) -> int:
        """The least number of a key."""

    @property
    def last(self) -> int:
        """The greatest number of a key."""

    def pieces(self, entries: int) -> Iterator[Self]:
        """Return it in ranges of whole keys with about so many entries each."""

    def split(self, bound: int) -> tuple[Self | None, Self | None]:
        """Return the entries of numbers up to ``bound``, and the others."""

    def at(self, times: list[Any]) -> Self:
        """Return the same entries at other times."""

    def negated(self) -> Self:
        """Return the same entries with differences negated."""

    def work(self, size: int) -> int:
        """Return about how many bytes its entries take in memory while they are read; as a pickle they take ``size``."""


C = TypeVar("C", bound=AnyChunk)


def cancels(times: Sequence[object]) -> bool:
    """Return whether so many of a chunk's times have become equal that its entries may cancel."""
    return bool(times) and 2 * len(set(times)) <= len(times)


class Layout(Protocol[C]):
    """What a spine has to know of its chunks."""

    def sizes(self, limits: TraceLimits) -> ChunkSizes:
        """Return how many entries are merged at once, and how many make a block."""

    @property
    def numbers_keys(self) -> bool:
        """Whether the number of a whole number is the number itself."""

    @property
    def has_rows(self) -> bool:
        """Whether values are Arrow rows."""

    def number(self, key: object) -> int | None:
        """Return the number by which chunks are sorted, or ``None`` where they cannot have the key."""

    def merged(self, chunks: Sequence[C]) -> C:
        """Return the sum of chunks."""

    def concatenated(self, chunks: Sequence[C], moved: Move | None = None) -> C:
        """Return chunks of ascending ranges of numbers as one, at the times that theirs have become."""

    def encoded(self, chunk: C, codes_of: dict[object, int]) -> object:
        """Return a chunk to be pickled, with codes of these times, to which its own are added."""

    def decoded(self, block: Any, times: list[Any]) -> C:
        """Return what was encoded."""
