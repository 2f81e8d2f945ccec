"""Naiad's scheduler as the paper states it, as an executable specification.

Naiad section 2.3: of every *active* pointstamp (one that has outstanding events) the scheduler keeps an *occurrence count*,
of those events, and a *precursor count*, of the active pointstamps that could result in it. A pointstamp that becomes active
starts with the number of existing active pointstamps that could result in it, and adds one to the precursor count of each that
it could result in itself; one whose occurrence count falls to zero leaves, and takes that one back. Those with a precursor
count of zero are the *frontier*, and only they may be notified of. The invariant is that the counts are those just said.
It is slow, flat and for one process, and meant to be read. A caller may compare anything with it.
"""

from __future__ import annotations

from typing import Any

from timely.errors import ProgressError
from timely.progress import Antichain, Location, Source, Target
from timely.testing import GraphSpec, Oracle, Pointstamp


class NaiadScheduler:
    """The counts of section 2.3 over a graph: ``occurrences`` and ``precursors`` of each active pointstamp.

    A message waits at an input, and a request to be notified (or a capability) is held at an output. An operator may go on from a
    time as long as its pointstamp is active, which it is until the event is over.

    >>> from timely.progress import Step
    >>> from timely.testing import NodeSpec
    >>> feed, relay = NodeSpec(0, 1, {}, ()), NodeSpec(1, 1, {(0, 0): (Step(0),)}, (0,))
    >>> scheduler = NaiadScheduler(GraphSpec(int, (feed, relay), ((Source(0, 0), Target(1, 0), False),)))
    >>> scheduler.notify_at(Source(0, 0), 0)             # the input is at epoch 0,
    >>> scheduler.send_by(Target(1, 0), 0)               # sends a message
    >>> scheduler.notify_at(Source(0, 0), 1)             # and goes on to epoch 1
    >>> scheduler.on_notify(Source(0, 0), 0)
    >>> scheduler.notify_at(Source(1, 0), 0)             # the receiver asks to be notified
    >>> (Source(1, 0), 0) in scheduler.frontier()        # not yet: its message could still result in more
    False
    >>> scheduler.on_recv(Target(1, 0), 0)
    >>> scheduler.frontier() == {(Source(1, 0), 0), (Source(0, 0), 1)}
    True
    >>> scheduler.on_notify(Source(1, 0), 0)
    """

    def __init__(self, graph: GraphSpec) -> None:
        self._oracle = Oracle(graph)
        self.occurrences: dict[Pointstamp, int] = {}
        self.precursors: dict[Pointstamp, int] = {}

    def send_by(self, target: Target, time: Any) -> None:
        """A message is on its way to an input: its occurrence count goes up."""
        self._up((target, time))

    def on_recv(self, target: Target, time: Any) -> None:
        """A message has been dealt with: its occurrence count goes down."""
        self._down((target, time))

    def notify_at(self, source: Source, time: Any) -> None:
        """Somebody at an output wants to be notified, or means to send, at a time: its occurrence count goes up."""
        self._up((source, time))

    def on_notify(self, source: Source, time: Any) -> None:
        """A notification has been dealt with, or nothing will be sent any more: its occurrence count goes down."""
        self._down((source, time))

    def update(self, location: Location, time: Any, diff: int) -> None:
        """Do as many of the four above as ``diff`` says: up if it is positive, down if negative.

        >>> scheduler = NaiadScheduler(GraphSpec(int, (), ()))
        >>> scheduler.update(Source(0, 0), 3, 0)
        >>> scheduler.occurrences
        {}
        """
        for _ in range(abs(diff)):
            if diff > 0:
                self._up((location, time))
            else:
                self._down((location, time))

    def frontier(self) -> set[Pointstamp]:
        """Return the active pointstamps that no other could result in: those of which one may be notified."""
        return {pointstamp for pointstamp, count in self.precursors.items() if count == 0}

    def frontier_at(self, location: Location) -> Antichain[Any]:
        """Return the minimal times that may still appear at a location: what the frontier's pointstamps result in there.

        >>> from timely.progress import Step
        >>> from timely.testing import NodeSpec
        >>> scheduler = NaiadScheduler(GraphSpec(int, (NodeSpec(1, 1, {(0, 0): (Step(5),)}, ()),), ()))
        >>> scheduler.send_by(Target(0, 0), 1)
        >>> scheduler.frontier_at(Source(0, 0))
        Antichain([6])
        """
        result: Antichain[Any] = Antichain()
        for start, time in self.frontier():
            for summary in self._oracle.summaries[start].get(location, ()):
                arrival = summary.results_in(time)
                if arrival is not None:
                    result.insert(arrival)
        return result

    def _up(self, pointstamp: Pointstamp) -> None:
        if pointstamp not in self.occurrences:
            self._activate(pointstamp)
        self.occurrences[pointstamp] += 1

    def _down(self, pointstamp: Pointstamp) -> None:
        if pointstamp not in self.occurrences:
            raise ProgressError(f"nothing is outstanding at {pointstamp}: say what was sent before what was received")
        self.occurrences[pointstamp] -= 1
        if not self.occurrences[pointstamp]:
            self._deactivate(pointstamp)

    def _activate(self, pointstamp: Pointstamp) -> None:
        leads = self._oracle.leads
        self.precursors[pointstamp] = sum(leads(other, pointstamp) for other in self.occurrences)
        for other in self.occurrences:
            self.precursors[other] += leads(pointstamp, other)
        self.occurrences[pointstamp] = 0

    def _deactivate(self, pointstamp: Pointstamp) -> None:
        del self.occurrences[pointstamp], self.precursors[pointstamp]
        for other in self.occurrences:
            self.precursors[other] -= self._oracle.leads(pointstamp, other)
