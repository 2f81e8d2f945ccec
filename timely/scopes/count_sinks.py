"""The accounts that a ``Subgraph`` keeps, and has its operators count in, beside its tracker.

``DeferredCounts`` puts off what is sent and read until a pass is over, because most of what is sent in a pass is read in the
same one.
``Broadcast`` has the peers hear of a change as well. ``Projection`` works out what the work inside amounts to at the scope's
outputs, which is what the parent is told. ``TracedSink`` has a function between an operator and its account, for whoever looks
on. The invariant of them all: every change reaches the tracker once, at the latest when the pass is over.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

from timely.order import PartialOrder
from timely.progress import ChangeBatch, CountSink, ProgressExchange, Tracker

T = TypeVar("T", bound=PartialOrder)
TO = TypeVar("TO", bound=PartialOrder)
TI = TypeVar("TI", bound=PartialOrder)

Recorder: TypeAlias = Callable[[int, T, int], None]
"""What counts changes, as a function: ``(location, time, diff)``."""

Exits: TypeAlias = tuple[tuple[int, Callable[[TI], TO | None]], ...]
"""The outputs that a place inside leads to, and what becomes of a time on each way there."""


class DeferredCounts(CountSink[T], Generic[T]):
    """Keeps one time and its change for each location, and passes on what is left with ``settle``.

    A change at another time passes on the one before. What has a negative number is on its way out of the scope: it goes to
    ``leave`` at once.
    """

    __slots__ = ("_account", "_counts", "_leave", "_times", "touched")

    def __init__(self, size: int, account: CountSink[T], leave: Recorder[T]) -> None:
        self.touched: list[int] = []
        self._account = account
        self._leave = leave
        self._times: list[Any] = [None] * size
        self._counts = [0] * size

    def update_at(self, index: int, time: T, diff: int) -> None:
        if index < 0:
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
            self._account.update_at(index, self._times[index], count)
            self._times[index] = time
            counts[index] = diff

    def settle(self) -> None:
        """Pass on what is left."""
        counts = self._counts
        for index in self.touched:
            count = counts[index]
            if count:
                counts[index] = 0
                self._account.update_at(index, self._times[index], count)
        self.touched.clear()


class Broadcast(CountSink[T], Generic[T]):
    """Enters a change that this worker's children made here now, and has the peers told of it with the next batch."""

    __slots__ = ("_account", "_exchange", "_scope")

    def __init__(self, scope: int, exchange: ProgressExchange[tuple[int, int, Any]], account: CountSink[T]) -> None:
        self._scope = scope
        self._exchange = exchange
        self._account = account

    def update_at(self, index: int, time: T, diff: int) -> None:
        self._exchange.update((self._scope, index, time), diff)
        self._account.update_at(index, time, diff)


class Projection(CountSink[TI], Generic[TO, TI]):
    """Enters a change, and works out what it means at the outputs; ``changes`` are those since the parent was last told."""

    __slots__ = ("_tracker", "changes")

    def __init__(self, tracker: Tracker[TI], outputs: int) -> None:
        self._tracker = tracker
        self.changes: list[ChangeBatch[TO]] = [ChangeBatch() for _ in range(outputs)]

    @abstractmethod
    def settle(self) -> None:
        """Bring ``changes`` up to date."""


class CountProjection(Projection[TO, TI], Generic[TO, TI]):
    """Moves each count along its ways out, as a number: for counts that are never negative between two statements."""

    __slots__ = ("_exits",)

    def __init__(self, tracker: Tracker[TI], outputs: int, exits: list[Exits[TI, TO]]) -> None:
        super().__init__(tracker, outputs)
        self._exits = exits

    def update_at(self, index: int, time: TI, diff: int) -> None:
        self._tracker.update_at(index, time, diff)
        for port, way_out in self._exits[index]:
            outer = way_out(time)
            if outer is not None:
                counts = self.changes[port].counts
                count = counts.get(outer, 0) + diff
                if count:
                    counts[outer] = count
                else:
                    counts.pop(outer, None)

    def settle(self) -> None:
        """Do nothing: each change has been moved as it came."""


class FrontierProjection(Projection[TO, TI], Generic[TO, TI]):
    """Derives frontiers at the outputs, with a tracker of its own, ``outward``, and reports how these change.

    ``numbers`` translates the numbers of locations to those that they have there.
    """

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
        """Derive the frontiers anew."""
        outward = self.outward
        if outward.dirty:
            for observer, time, diff in outward.propagate_observed():
                self.changes[outward.observed[observer].port].update(self._to_outer(time), diff)


class TracedSink(CountSink[T], Generic[T]):
    """Calls a function for each change, which sees to it that it is entered."""

    __slots__ = ("_recorder",)

    def __init__(self, recorder: Recorder[T]) -> None:
        self._recorder = recorder

    def update_at(self, index: int, time: T, diff: int) -> None:
        self._recorder(index, time, diff)
