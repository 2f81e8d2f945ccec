"""``Lists``: whole numbers of each of some places, one list after another in one array."""

from __future__ import annotations

import attrs
import numpy as np

from timely.graphs.structures.arrays import Column, ranges, sorted_distinct


@attrs.frozen(eq=False)
class Lists:
    """``starts`` has where the ``values`` of each place begin, and the end of the last.

    >>> lists = Lists.of_distinct(np.array([2, 0, 2, 2]), np.array([7, 5, 6, 7]), 4)
    >>> counts, values = lists.chosen(np.array([2, 1, 0]))
    >>> counts.tolist(), values.tolist()
    ([2, 0, 1], [6, 7, 5])
    """

    starts: Column
    values: Column

    @classmethod
    def of_distinct(cls, places: Column, values: Column, count: int) -> Lists:
        """Return the values at each of ``count`` places, in order, each value once."""
        places, values = distinct_pairs(places, values)
        return cls(np.searchsorted(places, np.arange(count + 1)), values)

    def lengths(self, places: Column) -> Column:
        """Return how many values there are at ``places``."""
        return self.starts[places + 1] - self.starts[places]

    def chosen(self, places: Column) -> tuple[Column, Column]:
        """Return the lengths and the values of the lists at ``places``."""
        counts = self.lengths(places)
        return counts, self.values[ranges(self.starts[places], counts)]


def distinct_pairs(first: Column, second: Column) -> tuple[Column, Column]:
    """Return each pair once, in order."""
    width = int(second.max(initial=0)) + 1
    pairs = sorted_distinct(first * width + second)
    return pairs // width, pairs % width
