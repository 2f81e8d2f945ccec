"""``Marks``: which nodes a worker has, where they are whole numbers that lie close together, as one bit for each place.

Where nodes lie so close, their bits are fewer bytes than the nodes are, or their numbers would be. So every worker is sent
every other's, and works out for itself which number each node has, where it would else ask the owners. The invariant: who has
the same marks comes to the same numbers, and these are as if the owners had given them: dense, and those of worker ``w`` are
``w``, ``w + workers`` and so on, in the order of its nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt

from timely.graphs.pairs import Column, marked, span

SPREAD: Final = 2
"""So many times as many places as there are ends of edges are still close together."""

SPARE: Final = 1 << 12
"""Places that may be marked however few ends there are."""


@attrs.frozen
class Marks:
    """Nodes among the whole numbers from ``low`` up, which is a multiple of eight: a bit for each place, and how many ends are
    there."""

    low: int
    bits: npt.NDArray[np.uint8]
    ends: int

    @property
    def high(self) -> int:
        """Return the number after the last place; there are whole bytes of them."""
        return self.low + 8 * len(self.bits)

    def nodes(self) -> Column:
        """Return the nodes, in order.

        >>> marks, _ = mark([np.array([7, 3]), np.array([7])])
        >>> marks.nodes().tolist()
        [3, 7]
        """
        return np.unpackbits(self.bits).view(np.bool_).nonzero()[0] + self.low


def mark(columns: Sequence[Column]) -> tuple[Marks, list[Column]] | None:
    """Return marks of all values, and the columns as places from the first one up; nothing where they do not lie close together.

    >>> marks, places = mark([np.array([5001, 5003])])
    >>> marks.low, marks.nodes().tolist(), places[0].tolist()
    (5000, [5001, 5003], [1, 3])
    >>> mark([np.array([0, 10**9])])
    """
    ends = sum(map(len, columns))
    reach = span(columns)
    if reach is None:
        return None
    low, high = reach[0], reach[1] + 1
    if not _close(high - low, ends):
        return None
    low = 0 if 0 < low <= high - low else low & -8  # from 0 values are places, and nothing has to be subtracted
    places = [column - low for column in columns] if low else list(columns)
    return Marks(low, np.packbits(marked(places, high - low)), ends), places


def union(marks: Sequence[Marks]) -> Marks | None:
    """Return what is marked by any; nothing where all together are not close together, as what one of them has alone must be, so
    that nobody has much more to do than it has ends itself.

    >>> one, two = (mark([np.array(values)])[0] for values in ([12, 13], [4, 5, 12]))
    >>> union([one, two]).nodes().tolist()
    [4, 5, 12, 13]
    """
    low, high, ends = min(one.low for one in marks), max(one.high for one in marks), min(one.ends for one in marks)
    if not _close(high - low, ends):
        return None
    bits = np.zeros((high - low) // 8, np.uint8)
    for one in marks:
        bits[(one.low - low) // 8 :][: len(one.bits)] |= one.bits
    return Marks(low, bits, ends)


def numbered(owners: npt.NDArray[np.integer], workers: int) -> Column:
    """Return the number of each node, given the workers that they belong to, in the order of the nodes.

    >>> numbered(np.array([1, 0, 1, 1]), 2).tolist()
    [1, 0, 3, 5]
    """
    numbers = np.empty(len(owners), np.int64)
    for worker in range(workers):
        mine = owners == worker
        numbers[mine] = np.arange(np.count_nonzero(mine)) * workers + worker
    return numbers


def _close(places: int, ends: int) -> bool:
    return places <= SPREAD * ends + SPARE
