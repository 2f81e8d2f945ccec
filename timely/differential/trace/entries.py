"""Entries: the updates of one key that a trace keeps, each with a value, a time and a difference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from timely.differential.updates.updates import Counts, Diff
from timely.order import PartialOrder, less_equal
from timely.progress import Lattice

T = TypeVar("T", bound=PartialOrder)

Entry: TypeAlias = tuple[Any, Any, Diff]
"""``(value, time, diff)``."""

SHORT: Final = 8
"""Entries from which on a list is compacted whenever it has doubled."""


def accumulate(entries: Iterable[Entry], time: object) -> Counts:
    """Return the sums of the differences at times at or before ``time``, by value, without those that are zero."""
    sums: Counts = {}
    last: Any = None
    counts = False
    for value, when, diff in entries:
        if when is not last:
            last = when
            counts = less_equal(when, time)
        if counts:
            sums[value] = sums[value] + diff if value in sums else diff
    return {value: count for value, count in sums.items() if count}


def compacted(entries: Iterable[Entry], times: Lattice[T], since: Sequence[T], advanced: dict[T, T]) -> list[Entry]:
    """Return ``entries`` with times advanced by ``since`` and equal ones added up; ``advanced`` remembers the times."""
    if type(entries) is list and len(entries) == 1 and (known := advanced.get(entries[0][1])) is not None:
        return [(value, known, diff) for value, _, diff in entries if diff]  # in a third less time
    sums: Counts = {}
    last: Any = None
    moved: T | None = None
    for value, when, diff in entries:
        if when is not last:
            last = when
            moved = advanced.get(when)
            if moved is None:
                moved = times.advance(when, since)
                moved = advanced[when] = advanced.setdefault(moved, moved)  # equal times are one object
        place = (value, moved)
        sums[place] = sums[place] + diff if place in sums else diff
    return [(value, when, diff) for (value, when), diff in sums.items() if diff]


def size_in_words(updates: int, keys: int, most_updates: bool = False, most_keys: bool = False) -> str:
    """Return a size in words.

    >>> size_in_words(1000, 1), size_in_words(2, 2, False, True)
    ('1,000 updates, 1 key', '2 updates, at most 2 keys')
    """
    counted = (updates, "update", most_updates), (keys, "key", most_keys)
    return ", ".join(f"{'at most ' if most else ''}{count:,} {name}{'' if count == 1 else 's'}" for count, name, most in counted)
