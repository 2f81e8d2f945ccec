"""``Contents``: what one table or view holds at the latest complete time, and what changed in the epochs before."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from operator import eq, ge, gt, le, lt
from typing import Any, Final, NamedTuple

import attrs
from sortedcontainers import SortedDict

from timely.differential.tables.values.kinds import Column, comparable, sortable
from timely.errors import ConfigurationError, SchemaError, brief

Row = tuple[Any, ...]
Change = tuple[Row, int]

COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {"eq": eq, "lt": lt, "lte": le, "gt": gt, "gte": ge}


_INDEXES: Final = 4
"""Indexes of one table or view: each takes as much memory as its rows, and clients ask for them."""


@attrs.frozen
class RowCondition:
    """A comparison of the column at ``place`` with a value; ``NULL`` is equal to ``None`` alone, and in no order."""

    place: int
    comparison: str
    value: Any

    def __attrs_post_init__(self) -> None:
        if self.comparison not in COMPARISONS or (self.value is None and self.comparison != "eq"):
            raise ConfigurationError(f"a condition is one of {', '.join(COMPARISONS)}, and NULL is in no order: {self!r}")

    def holds(self, row: Row) -> bool:
        """Return whether a row fulfils it."""
        value = row[self.place]
        if value is None or self.value is None:
            return value is self.value
        return COMPARISONS[self.comparison](_ordered(value), _ordered(self.value))

    def check(self, columns: Sequence[Column]) -> None:
        """Raise ``ConfigurationError`` for a place beyond ``columns``, ``SchemaError`` for a value that no row can have there."""
        if not 0 <= self.place < len(columns):
            raise ConfigurationError(f"there is no column at place {self.place}: there are {len(columns)}, and the first is 0")
        column = columns[self.place]
        if self.value is not None and not comparable(column.kind, self.value):
            raise SchemaError(
                f"column {column.name!r} is {column.kind.value}, and a condition compares it with the"
                f" {type(self.value).__name__} {brief(self.value)}: give a value of the column's type"
            )


def _ordered(value: Any) -> Any:
    """Return what a value is compared by: lists and structs, which are tuples, may have ``None`` inside."""
    return sortable(value) if type(value) is tuple else value


class EpochChanges(NamedTuple):
    """What one epoch changed: rows with what their counts grew by."""

    time: int
    changes: list[Change]


class _ColumnIndex:
    """The rows by the value of one column: by a tuple of it, which is empty for ``NULL``."""

    def __init__(self, place: int, rows: Iterable[Row]) -> None:
        self._place = place
        self._rows: Any = SortedDict()
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        self._rows.setdefault(_index_key(row[self._place]), {})[row] = None

    def remove(self, row: Row) -> None:
        key = _index_key(row[self._place])
        rows = self._rows[key]
        del rows[row]
        if not rows:
            del self._rows[key]

    def equal(self, value: Any) -> Mapping[Row, None]:
        rows: Mapping[Row, None] = self._rows.get(_index_key(value), {})
        return rows

    def between(self, conditions: Sequence[RowCondition]) -> Iterator[Row]:
        """Return the rows for which all conditions, of order, hold."""
        lower = [_index_key(each.value) for each in conditions if each.comparison in ("gt", "gte")]
        upper = [_index_key(each.value) for each in conditions if each.comparison in ("lt", "lte")]
        for key in self._rows.irange(max(lower, default=()), min(upper, default=None)):
            if key and all(COMPARISONS[each.comparison](key, _index_key(each.value)) for each in conditions):
                yield from self._rows[key]


def _index_key(value: Any) -> tuple[Any, ...]:
    return () if value is None else (_ordered(value),)


class Contents:
    """The rows of a table or view with their counts, at one time; an index is built for each of the last columns asked for.

    ``changes_since`` remembers at most ``epochs`` epochs and about ``changes`` changes, so memory is bounded by what is held.

    >>> from timely.differential.tables.values.kinds import Kind
    >>> contents = Contents((Column("n", Kind.INTEGER),), time=0)
    >>> contents.apply(1, [((7,), 1), ((8,), 1)])
    >>> contents.find([RowCondition(0, "gte", 8)]), contents.changes_since(0)
    ([((8,), 1)], [EpochChanges(time=1, changes=[((7,), 1), ((8,), 1)])])
    """

    def __init__(self, columns: tuple[Column, ...], time: int, epochs: int = 1000, changes: int = 100_000) -> None:
        self.columns = columns
        self.rows: dict[Row, int] = {}
        self.size = 0
        """Rows, each as often as it is there."""
        self._indexes: dict[int, _ColumnIndex] = {}
        self._epochs: deque[EpochChanges] = deque()
        self._remembered = 0
        self._start = time  # changes of later epochs are remembered
        self._limits = (epochs, changes)

    def apply(self, time: int, changes: list[Change]) -> None:
        """Apply the changes of an epoch; ``changes`` names each row once."""
        if not changes:
            return
        rows = self.rows
        for row, diff in changes:
            before = rows.get(row, 0)
            after = before + diff
            self.size += diff
            if after:
                rows[row] = after
            else:
                del rows[row]
            if not before or not after:
                for index in self._indexes.values():
                    (index.remove if before else index.add)(row)
        self._epochs.append(EpochChanges(time, changes))
        self._remembered += len(changes)
        epochs, most = self._limits
        while len(self._epochs) > 1 and (len(self._epochs) > epochs or self._remembered > most):
            self._forget()

    def _forget(self) -> None:
        oldest = self._epochs.popleft()
        self._remembered -= len(oldest.changes)
        self._start = oldest.time

    def start_at(self, time: int, rows: list[Change]) -> None:
        """Begin the contents at ``time`` with ``rows``, which have no readers yet."""
        self.rows.update(rows)
        self.size += sum([count for _, count in rows])
        self._indexes.clear()
        self.remember(time, [])

    def copy(self) -> Contents:
        """Return contents with the same rows, which remember nothing."""
        contents = Contents(self.columns, self._start, *self._limits)
        contents.rows, contents.size = dict(self.rows), self.size
        return contents

    def remembered(self) -> tuple[int, list[EpochChanges]]:
        """Return the time after which changes are remembered, and these."""
        return self._start, list(self._epochs)

    def remember(self, start: int, epochs: Iterable[EpochChanges]) -> None:
        """Take over the changes after ``start``, which have led to what it holds."""
        self._start = start
        self._epochs = deque(epochs)
        self._remembered = sum(len(epoch.changes) for epoch in self._epochs)

    def difference(self, rows: Iterable[Change]) -> list[Change]:
        """Return the changes that lead to ``rows``."""
        target = dict(rows)
        gone = [(row, -count) for row, count in self.rows.items() if row not in target]
        return gone + [(row, n - self.rows.get(row, 0)) for row, n in target.items() if n != self.rows.get(row, 0)]

    @property
    def last_change(self) -> int:
        """The epoch that changed it last, or the one in which it began."""
        return self._epochs[-1].time if self._epochs else self._start

    def changes_since(self, time: int) -> list[EpochChanges] | None:
        """Return the changes of the epochs after ``time``, or ``None`` if they are not remembered."""
        if time < self._start:
            return None
        return list(takewhile(lambda epoch: epoch.time > time, reversed(self._epochs)))[::-1]

    def find(self, conditions: Sequence[RowCondition] = (), limit: int | None = None) -> list[tuple[Row, int]]:
        """Return rows that fulfil all conditions, with their counts, which add up to ``limit`` at most."""
        rows: list[tuple[Row, int]] = []
        left = self.size if limit is None else limit
        for row in self._candidates(conditions):
            if left <= 0:
                break
            if all(condition.holds(row) for condition in conditions):
                count = min(self.rows[row], left)
                rows.append((row, count))
                left -= count
        return rows

    def _candidates(self, conditions: Sequence[RowCondition]) -> Iterable[Row]:
        equal = [condition for condition in conditions if condition.comparison == "eq"]
        if equal:
            buckets = [self._index(condition.place).equal(condition.value) for condition in equal]
            return min(buckets, key=len)
        if conditions:
            place = conditions[0].place
            return self._index(place).between([condition for condition in conditions if condition.place == place])
        return self.rows

    def _index(self, place: int) -> _ColumnIndex:
        index = self._indexes.pop(place, None) or _ColumnIndex(place, self.rows)
        while len(self._indexes) >= _INDEXES:
            del self._indexes[next(iter(self._indexes))]  # that was asked for the longest ago
        self._indexes[place] = index
        return index
