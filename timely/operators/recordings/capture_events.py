"""Events, of which a recorded stream is made, and the rules that they keep, which ``StreamState`` checks.

A stream opens with a ``Progress`` that counts times up. From then on a time is counted up, or has records, only at or after a
time with a positive count; no count becomes negative; the stream is over when no count is left. Source: the capture of timely
dataflow.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeAlias

import attrs

from timely.errors import CaptureError, brief
from timely.operators.type_variables import T
from timely.order import reaches
from timely.progress import Antichain


def _pairs(changes: Iterable[tuple[T, int]]) -> tuple[tuple[T, int], ...]:
    try:
        return tuple([(time, operator.index(diff)) for time, diff in changes])
    except (TypeError, ValueError) as error:
        raise CaptureError(f"changes of progress are pairs of a time and a whole number, not {brief(changes)}") from error


@attrs.frozen
class Messages(Generic[T]):
    """A container of records came at ``time``."""

    time: T
    batch: Any


@attrs.frozen
class Progress(Generic[T]):
    """The counts of times change by these pairs ``(time, difference)``, at once; ``CaptureError`` for anything else.

    >>> Progress([(0, -1), (1, +1)])  # later records are at 1 or later
    Progress(changes=((0, -1), (1, 1)))
    """

    changes: tuple[tuple[T, int], ...] = attrs.field(converter=_pairs)


Event: TypeAlias = Messages[T] | Progress[T]


class EventSink(Protocol):
    """What a stream can be captured into, such as a list."""

    def append(self, event: Any, /) -> object:
        """Append the next event."""


class EventSource(Generic[T]):
    """What a stream can be replayed from: derive from it for a source of your own."""

    __slots__ = ()

    def take(self) -> Event[T] | None:
        """Return the next event, ``None`` if it has not come yet; ``EOFError`` if there are no more.

        It is not called after the event with which the stream is over.
        """
        raise NotImplementedError

    def notify(self, wake: Callable[[], None]) -> bool:
        """Call ``wake()``, on any thread, when there is an event; called after ``take`` has returned ``None``.

        ``False``, the default, if the source cannot: then it is polled.
        """
        return False

    @property
    def checked_state(self) -> StreamState[T] | None:
        """The state of the stream after the event that ``take`` returned last, if the source keeps it: events were checked then.

        ``None``, the default, for a source whose events ``replay`` is to check.

        >>> print(EventSource().checked_state)
        None
        """
        return None

    @property
    def outside(self) -> bool:
        """Whether another thread may call ``wake()``, so that a worker that waits for it has not stalled."""
        return False


@attrs.define(eq=False, repr=False)
class StreamState(Generic[T]):
    """The state of one stream of events; ``apply`` refuses an event that breaks the rules.

    >>> state = StreamState()
    >>> for event in Progress([(0, 1)]), Messages(2, ["a"]), Progress([(0, -1), (3, 1)]):
    ...     state.apply(event)
    >>> state.frontier, state.over, state.events
    (Antichain([3]), False, 3)
    """

    events: int = attrs.field(default=0, init=False)
    _counts: dict[T, int] = attrs.field(factory=dict, init=False)
    """The times with a positive count: few, since a recording counts the times of a frontier."""
    _total: int = attrs.field(default=0, init=False)
    _open: bool = attrs.field(default=False, init=False)

    @property
    def frontier(self) -> Antichain[T]:
        """The minimal times at which records may still come; empty before the stream opens and when it is over."""
        return Antichain(self._counts)

    @property
    def over(self) -> bool:
        """Whether the stream has ended."""
        return self._open and self._total == 0

    def apply(self, event: Event[T]) -> None:
        """Follow the event; ``CaptureError``, without a change, if it breaks the rules."""
        try:
            if isinstance(event, Messages):
                if not reaches([*self._counts], event.time):
                    raise self.broken(f"event {self.events} has records at {brief(event.time)}, which cannot come any more")
            elif isinstance(event, Progress):
                self._count(self._net(event.changes))
                self._open = True
            else:
                raise self.broken(
                    f"event {self.events} is to be Messages(time, batch) or Progress(changes), and is {brief(event)}"
                )
        except (TypeError, ValueError) as error:
            if isinstance(error, CaptureError):
                raise
            raise self.broken(f"event {self.events} has a time that does not go with those before: {error}") from error
        self.events += 1

    def revert(self, event: Event[T]) -> None:
        """Remove the last event, which could not be written."""
        self.events -= 1
        self._open = self.events > 0
        if isinstance(event, Progress):
            self._count((time, -diff) for time, diff in event.changes)

    def _net(self, changes: Iterable[tuple[T, int]]) -> Iterable[tuple[T, int]]:
        """Return the changes by time; ``CaptureError`` if they break the rules, ``TypeError`` for times that do not compare."""
        net: dict[T, int] = {}
        for time, diff in changes:
            net[time] = net.get(time, 0) + diff
        counts = self._counts
        if not self._open:
            Antichain(net)  # compares them
        elif not counts:
            raise self.broken(f"event {self.events} comes after the stream was over")
        for time, diff in net.items():
            if diff > 0:
                if self._open and not reaches([*counts], time):
                    raise self.broken(
                        f"event {self.events} counts {brief(time)} up, which is not at or after a time still counted"
                    )
            elif counts.get(time, 0) + diff < 0:
                raise self.broken(f"event {self.events} counts {brief(time)} down below zero")
        return net.items()

    def _count(self, changes: Iterable[tuple[T, int]]) -> None:
        counts = self._counts
        for time, diff in changes:
            count = counts[time] = counts.get(time, 0) + diff
            self._total += diff
            if not count:
                del counts[time]

    def broken(self, what: str, position: int | None = None) -> CaptureError:
        """Return the error that says what is wrong, and how many events are good."""
        times = self.frontier.elements
        if not self._open:
            still = "the stream has not opened yet, with a Progress that counts times up"
        else:
            still = f"after these, records may still come at or after {', '.join(map(brief, times))}" if times else "it was over"
        where = "" if position is None else f", the first {position} bytes"
        return CaptureError(f"{what}; {self.events} events are good{where}: {still}", self.events, times, position)
