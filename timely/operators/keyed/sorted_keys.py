"""Pairs of rows with equal keys, of two sides whose rows are sorted by a whole number: a sort-merge join on columns.

It imports NumPy, so it is imported only where there are columns. Rows of key ``keys[i]`` are ``offsets[i]`` to
``offsets[i + 1]``; keys are ascending, each once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]

_RADIX: Final = 16
"""Bits of a digit: NumPy sorts such short numbers by counting."""

_PASSES: Final = 3
"""Digits up to which a radix sort is faster than NumPy's own: a million numbers of two digits 27 ms, of three 56, and 80."""


class SortedKeys(NamedTuple):
    """The keys of sorted rows, and where the rows of each begin."""

    keys: Array
    offsets: Array


def sorted_keys(numbers: Array, runs: bool = False) -> tuple[SortedKeys, Array]:
    """Return the keys of rows with these numbers, and the row numbers in the order of the keys; equal ones keep their order.

    With ``runs`` the numbers are sorted runs one after the other, which a stable sort merges in linear time.
    """
    rows = len(numbers)
    if not rows:
        return SortedKeys(numbers, np.zeros(1, np.int64)), np.zeros(0, np.int64)
    low = int(numbers.min())
    bits = (int(numbers.max()) - low).bit_length()
    if runs or bits > _RADIX * _PASSES:
        order = numbers.argsort(kind="stable")
    else:
        order = (numbers - low).astype(np.uint16).argsort(kind="stable")
        for shift in range(_RADIX, bits, _RADIX):
            digits = ((numbers - low) >> shift).astype(np.uint16)
            order = order[digits[order].argsort(kind="stable")]
    ordered = numbers[order]
    starts = group_starts(ordered)
    return SortedKeys(ordered[starts], np.concatenate((starts, np.array([rows])))), order


def group_starts(*columns: Array) -> Array:
    """Return where each group of equal rows of sorted columns begins."""
    begins = np.zeros(len(columns[0]), bool)
    begins[:1] = True
    for column in columns:
        begins[1:] |= column[1:] != column[:-1]
    return begins.nonzero()[0]


def spread(numbers: Array, starts: Array, lengths: Array) -> tuple[Array, Array]:
    """Return, for ranges of rows, the number of the range and the row of each."""
    ends = lengths.cumsum()
    total = int(ends[-1]) if len(ends) else 0
    if total == len(lengths) and (lengths == 1).all():
        return numbers, starts
    return numbers.repeat(lengths), np.arange(total) + (starts - (ends - lengths)).repeat(lengths)


def pairs(one: SortedKeys, other: SortedKeys, limit: int) -> Iterator[tuple[Array, Array, Array]]:
    """Yield keys, rows of ``one`` and rows of ``other``: all pairs with equal keys, about ``limit`` at a time."""
    first, second = equal_keys(one.keys, other.keys)
    if not len(first):
        return
    lengths, more = np.diff(one.offsets)[first], np.diff(other.offsets)[second]
    numbers, rows = spread(np.arange(len(first)), one.offsets[first], lengths)
    starts, counts = other.offsets[second][numbers], more[numbers]
    keys, ends, at = one.keys[first][numbers], counts.cumsum(), 0
    while at < len(rows):
        done = int(ends[at - 1]) if at else 0
        stop = max(at + 1, int(ends.searchsorted(done + limit, side="right")))
        places, right = spread(np.arange(at, stop), starts[at:stop], counts[at:stop])
        yield keys[places], rows[places], right
        at = stop


def equal_keys(one: Array, other: Array) -> tuple[Array, Array]:
    """Return the places of the numbers that two arrays have both, each ascending and of different numbers."""
    if len(one) > len(other):
        second, first = equal_keys(other, one)
        return first, second
    places = other.searchsorted(one)
    inside = (places < len(other)).nonzero()[0]
    chosen = inside[other[places[inside]] == one[inside]]
    return chosen, places[chosen]
