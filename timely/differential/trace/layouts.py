"""``Layout``: what a spine has to know of its chunks, which are columns (``chunk``) or objects (``object_chunk``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import attrs

from timely.differential.trace.trace_limits import ChunkSizes, TraceLimits

C = TypeVar("C")


@attrs.frozen
class Layout(Generic[C]):
    """What is done to chunks of one ``kind``, which can be added up; layouts are equal where their kinds are."""

    kind: object
    """For Arrow rows, the types of their columns."""

    number: Callable[[object], int | None] = attrs.field(eq=False)
    """Returns the number by which chunks are sorted, or ``None`` where they cannot have the key."""

    merged: Callable[[Sequence[C]], C] = attrs.field(eq=False)
    """Returns the sum of chunks."""

    concatenated: Callable[[Sequence[C]], C] = attrs.field(eq=False)
    """Returns chunks of ascending ranges of numbers as one."""

    encoded: Callable[[C, dict[Any, int]], object] = attrs.field(eq=False)
    """Returns a chunk to be pickled, with codes of these times, to which its own are added."""

    decoded: Callable[[Any, list[Any]], C] = attrs.field(eq=False)
    """Returns what was encoded."""

    sizes: Callable[[TraceLimits], ChunkSizes] = attrs.field(eq=False)

    numbers_keys: bool = attrs.field(default=True, eq=False)
    """Whether the number of a whole number is the number itself."""

    @property
    def has_rows(self) -> bool:
        """Whether values are Arrow rows."""
        return isinstance(self.kind, tuple)


def cancels(times: Sequence[object]) -> bool:
    """Return whether so many of a chunk's times have become equal that its entries may cancel."""
    return bool(times) and 2 * len(set(times)) <= len(times)
