"""What a reduction does with the keys of one time: key by key, or with columns where a kernel does the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from timely.differential.operators.aggregates import Counted, counts_at
from timely.differential.trace.cursors import Cursor
from timely.differential.trace.deltas import Keys
from timely.differential.trace.trace import Trace
from timely.differential.updates.containers import as_columns
from timely.differential.updates.updates import Update
from timely.order import PartialOrder

if TYPE_CHECKING:
    from timely.differential.operators.column_operators import ReduceKernel
    from timely.differential.trace.chunk import Gathered
    from timely.differential.updates.int_columns import Array, Updates

T = TypeVar("T", bound=PartialOrder)

Wait: TypeAlias = Callable[[T, Iterable[Any]], object]
"""Called with the keys that have to be looked at again, and when."""


class ReadInput(Protocol[T]):
    pairs: bool

    @property
    def trace(self) -> Trace[T]:
        """The trace that it reads."""

    def result(self, key: object, time: T, later: set[T]) -> Iterable[Counted]:
        """Return the values and counts of the output of ``key`` at ``time``, collecting further times in ``later``."""

    def gather(self, keys: Array) -> Gathered | None:
        """Return the entries of keys as columns."""

    def large(self, keys: Array) -> list[Any]:
        """Return those of ``keys`` that ``gather`` does not have."""


class ReduceTactic(Protocol[T]):
    """How the output of some keys is found."""

    def changes(self, time: T, keys: Sequence[Keys], wait: Wait[T]) -> list[Update] | Updates:
        """Return the consolidated updates that turn what was sent for keys into what is to be at ``time``."""


class RowReduce(Generic[T]):
    """Reads the history of each key."""

    def __init__(self, input: ReadInput[T], sent: Cursor[T]) -> None:
        self.input = input
        self.sent = sent
        self._trace = sent.trace

    def changes(self, time: T, keys: Sequence[Keys], wait: Wait[T]) -> list[Update]:
        """Return the updates that turn what was sent for keys into what is to be at ``time``."""
        changes: list[Update] = []
        input, history, trace = self.input, self.sent.history, self._trace
        result, lub, pairs = input.result, trace.lattice.lub, trace.pairs
        each = keys[0]
        if len(keys) > 1 or not isinstance(each, dict):
            each = dict.fromkeys(chain.from_iterable(part if isinstance(part, dict) else part.tolist() for part in keys))
        for key in sorted(each, key=hash) if input.trace.reads_disk or trace.reads_disk else each:
            later: set[T] = set()
            left = counts_at(history(key), time, lub, later)
            for value, count in result(key, time, later):
                left[value] = left[value] - count if value in left else -count
            for value, count in left.items():
                if count:
                    changes.append(((key, value) if pairs else key, -count))
            for bound in later:
                wait(bound, (key,))
        return changes


class ColumnReduce(Generic[T]):
    """Does many keys that are whole numbers with a kernel, or keys of many updates, and leaves the others to rows."""

    def __init__(self, kernel: ReduceKernel, rows: RowReduce[T]) -> None:
        self._kernel = kernel
        self._rows = rows

    def changes(self, time: T, keys: Sequence[Keys], wait: Wait[T]) -> list[Update] | Updates:
        """Return the updates that turn what was sent for keys into what is to be at ``time``."""
        input, sent, by_row = self._rows.input, self._rows.sent, self._rows.changes
        many = sent.many
        if sum(map(len, keys)) < many and all(isinstance(part, dict) for part in keys):
            return by_row(time, keys, wait)
        from timely.differential.operators.column_operators import reduced_columns

        pairs = sent.trace.pairs
        columns, rest = reduced_columns(self._kernel, pairs, input, sent, sent.lattice.lub, time, keys, wait)
        rows = by_row(time, [dict.fromkeys(rest)], wait) if rest else []
        if columns is None:
            return rows
        together = as_columns([columns, rows], pairs, many)
        return [*rows, *columns] if together is None else together.consolidated()
