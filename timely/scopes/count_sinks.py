"""The count sinks between the children of a ``Subgraph`` and its tracker.

The invariant of each: every change reaches the tracker once, at the latest when the pass is over.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

from timely.order import PartialOrder
from timely.progress import ChangeBatch, CountSink, Tracker
from timely.scopes.scope import FIRST_INSIDE

T = TypeVar("T", bound=PartialOrder)
TO = TypeVar("TO", bound=PartialOrder)
TI = TypeVar("TI", bound=PartialOrder)

Recorder: TypeAlias = Callable[[int, T, int], None]
"""A count sink as a function: ``(location, time, diff)``."""

Exits: TypeAlias = tuple[tuple[int, Callable[[TI], TO | None]], ...]
"""The outputs that a location leads to, and what each path there makes of a time."""


class DeferredCounts(CountSink[T], Generic[T]):
    """Defers changes until ``settle``, because most messages of a pass are read in the same pass: their counts are zero then.

    Each location has a current time; counts of others are in ``_others``. What leaves the scope goes to ``leave`` at once.
    """

    __slots__ = ("_counts", "_leave", "_others", "_sink", "_times", "touched")

    def __init__(self, size: int, sink: CountSink[T], leave: Recorder[T]) -> None:
        self.touched: list[int] = []
        self._sink = sink
        self._leave = leave
        self._times: list[Any] = [None] * size
        self._counts = [0] * size
        self._others: dict[int, dict[Any, int]] = {}

    def update_at(self, index: int, time: T, diff: int) -> None:
        if index < FIRST_INSIDE:
            self._leave(index, time, diff)
            return
        counts = self._counts
        count = counts[index]
        if count == 0:
            self.touched.append(index)
            self._times[index] = time
            counts[index] = diff
        elif self._times[index] == time:
            counts[index] = count + diff
        else:
            others = self._others.get(index)
            if others is None:
                others = self._others[index] = {}
            others[time] = others.get(time, 0) + diff

    def settle(self) -> None:
        """Pass on what is left."""
        counts = self._counts
        if self._others:
            for index, others in self._others.items():
                current = self._times[index]  # which others may have too, from before it was the current one
                counts[index] += others.pop(current, 0)
                for time, count in ((current, counts[index]), *others.items()):
                    if count:
                        self._sink.update_at(index, time, count)
                counts[index] = 0
            self._others.clear()
        for index in self.touched:
            count = counts[index]
            if count:
                counts[index] = 0
                self._sink.update_at(index, self._times[index], count)
        self.touched.clear()


class Broadcast(CountSink[T], Generic[T]):
    """Enters a change of this worker's children, and sends it to the peers with the next batch."""

    __slots__ = ("_changes", "_scope", "_sink")

    def __init__(self, scope: int, changes: ChangeBatch[tuple[int, int, Any]], sink: CountSink[T]) -> None:
        self._scope = scope
        self._changes = changes
        self._sink = sink

    def update_at(self, index: int, time: T, diff: int) -> None:
        self._changes.update((self._scope, index, time), diff)
        self._sink.update_at(index, time, diff)


class Projection(CountSink[TI], Generic[TO, TI]):
    """Enters a change and projects it to the scope's outputs; ``changes`` are those since the last report to the parent."""

    __slots__ = ("_tracker", "changes")

    def __init__(self, tracker: Tracker[TI], outputs: int) -> None:
        self._tracker = tracker
        self.changes: list[ChangeBatch[TO]] = [ChangeBatch() for _ in range(outputs)]

    @abstractmethod
    def settle(self) -> None:
        """Bring ``changes`` up to date."""


class CountProjection(Projection[TO, TI], Generic[TO, TI]):
    """Projects counts as they are, which is right only where no count is negative between two statements."""

    __slots__ = ("_exits",)

    def __init__(self, tracker: Tracker[TI], outputs: int, exits: list[Exits[TI, TO]]) -> None:
        super().__init__(tracker, outputs)
        self._exits = exits

    def update_at(self, index: int, time: TI, diff: int) -> None:
        self._tracker.update_at(index, time, diff)
        for port, exit in self._exits[index]:
            outer = exit(time)
            if outer is not None:
                self.changes[port].update(outer, diff)

    def settle(self) -> None:
        """Do nothing: ``update_at`` projects at once."""


class FrontierProjection(Projection[TO, TI], Generic[TO, TI]):
    """Projects frontiers, which the tracker ``outward`` derives; ``numbers`` translates locations to those of ``outward``."""

    __slots__ = ("_numbers", "_to_outer", "outward")

    def __init__(
        self, tracker: Tracker[TI], outputs: int, outward: Tracker[TI], numbers: list[int], to_outer: Callable[[TI], TO]
    ) -> None:
        super().__init__(tracker, outputs)
        self.outward = outward
        self._numbers = numbers
        self._to_outer = to_outer

    def update_at(self, index: int, time: TI, diff: int) -> None:
        self._tracker.update_at(index, time, diff)
        self.outward.update_at(self._numbers[index], time, diff)

    def settle(self) -> None:
        outward = self.outward
        if outward.dirty:
            for observer, time, diff in outward.propagate_observed():
                self.changes[outward.observed[observer].port].update(self._to_outer(time), diff)


class TracedSink(CountSink[T], Generic[T]):
    """Counts through a function, for a tracer."""

    __slots__ = ("_recorder",)

    def __init__(self, recorder: Recorder[T]) -> None:
        self._recorder = recorder

    def update_at(self, index: int, time: T, diff: int) -> None:
        self._recorder(index, time, diff)
