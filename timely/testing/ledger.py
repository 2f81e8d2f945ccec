"""The true books of a simulated dataflow: what every worker's operators hold, and every message that nobody has read yet.

They are kept apart from the engine's own accounts, and from the start: each change is noted the moment an operator makes it,
before any scope, tracker or batch has heard of it. The invariant: the books are right whatever the engine makes of the changes,
so that whoever compares the two may trust the books. What a single change must satisfy is checked as it is made: the operator
contract (OC2, OC4), no count below zero (I1), no message where a worker's view (S0) or the frontier shown (G4) has passed, none
read after that (Z3), and no notification that is early (Z4).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from timely.dataflow import InputPort, Operator
from timely.progress import ChangeBatch, Location, Source, Target
from timely.scopes import EGRESS, ForwardingScope, Subgraph, ValidatingScope, output_port
from timely.testing.flattened import Frontiers, Place, Sums, add, below
from timely.testing.site import Site

Count: TypeAlias = Callable[[int, Any, int], None]

Fault: TypeAlias = Callable[[str, str], None]
"""Takes note of a violation: ``fault(invariant, what was found)``."""

class Ledger:
    """The books of one dataflow: ``truth`` are all pointstamps of all workers, ``held[w]`` the capabilities on worker ``w``.

    ``acted`` are the workers whose capabilities have changed since it was last cleared: a program may move its inputs between
    turns. ``concluded[w]`` is what the view of worker ``w`` allowed for when it was last looked at.
    """

    def __init__(self, first: Site, workers: int, fault: Fault) -> None:
        self.flat = first.flat
        self.truth: Sums = {}
        self.held: list[dict[Place, dict[Any, int]]] = [{} for _ in range(workers)]
        self.sites: dict[int, Site] = {}
        self.acted: set[int] = set()
        self.concluded: dict[int, Frontiers] = {}
        self.fault = fault
        self.at_start: Sums = {}
        for (scope, child), leaf in self.flat.leaves.items():
            for output, counts in enumerate(leaf.initial):
                for time, count in counts.items():
                    self.at_start[self.flat.numbers[scope, Source(child, output)], time] = count
        for (place, time), count in self.at_start.items():
            self.truth[place, time] = workers * count
            for held in self.held:
                held.setdefault(place, {})[time] = count

    def enter(self, site: Site) -> None:
        """Take in that a worker has built the dataflow, and what its operators did meanwhile; from now on note what they do."""
        self.sites[site.worker] = site
        for (place, time), diff in (self._since_start(site) if site.exchange is None else site.unsaid()).items():
            self._hold(site.worker, place, time, diff)
        for subgraph in site.scopes:
            subgraph.intercept(functools.partial(Watch, self, site, subgraph))
            for child in subgraph.children:
                if isinstance(child.scope, ValidatingScope):
                    child.scope = Overheard(self, site, subgraph.number, child.index, child.scope)
        for scope, operator in site.operators:
            operator.notified = functools.partial(self.notify, site, scope, operator)

    def _since_start(self, site: Site) -> Sums:
        """Return what a worker without peers did while it built the dataflow."""
        found = site.view()
        for stamp, count in self.at_start.items():
            add(found, stamp, -count)
        return found

    def _hold(self, worker: int, place: Place, time: Any, diff: int) -> int:
        self.acted.add(worker)
        held = self.held[worker].setdefault(place, {})
        count = held.get(time, 0) + diff
        if count:
            held[time] = count
        else:
            held.pop(time, None)
        add(self.truth, (place, time), diff)
        return count

    def hold(self, worker: int, place: Place, time: Any, diff: int) -> None:
        """Note that a worker has more or fewer capabilities. G4: none where its own view has passed."""
        allowed = self.concluded.get(worker) if diff > 0 else None
        if allowed is not None and not below(allowed[place], time):
            self.fault("G4", f"worker {worker} counts a capability {self.flat.show((place, time))}, and had passed it")
        if self._hold(worker, place, time, diff) < 0:
            self.fault("OC4", f"worker {worker} gave up a capability that it did not have, {self.flat.show((place, time))}")

    def send(self, site: Site, scope: int, location: Location, time: Any, diff: int) -> None:
        """Note that so many messages were sent to whatever is at a location.

        S0: no worker's view may have passed them; G4: nor may a frontier that is shown there on the worker that sends them.
        """
        for place, arrival in self.flat.spread(scope, location, time):
            add(self.truth, (place, arrival), diff)
            for worker, allowed in self.concluded.items():
                if not below(allowed[place], arrival):
                    found = f"worker {site.worker} sent a message for {self.flat.show((place, arrival))}"
                    self.fault("S0", f"{found}, which worker {worker} had taken for passed")
            port = site.shown.get(place)
            if port is not None and not below(port.elements, arrival):
                found = f"worker {site.worker} counts a message at {arrival!r} for {port.label}"
                self.fault("G4", f"{found}, where it shows {port.elements}")

    def notify(self, site: Site, scope: int, operator: Operator[Any], time: Any, inputs: Sequence[InputPort[Any, Any]]) -> None:
        """Note that an operator is told that a time is complete; Z4: nothing at or before it may come to these inputs."""
        true = self.flat.frontiers(self.truth)
        for port in inputs:
            if below(true[self.flat.numbers[scope, Target(operator.index, port.index)]], time):
                told = f"{operator.path} on worker {site.worker} is notified of {time!r}"
                self.fault("Z4", f"{told}, and {port.label} is not done with it")

    def read(self, worker: int, place: Place, time: Any, diff: int) -> None:
        """Note that a worker has read so many messages."""
        if add(self.truth, (place, time), -diff) < 0:
            self.fault("I1", f"worker {worker} read more messages than were sent, {self.flat.show((place, time))}")

    def held_by(self, worker: int) -> Sums:
        """Return the capabilities that a worker has."""
        return {(place, time): count for place, times in self.held[worker].items() for time, count in times.items()}


class Watch:
    """What stands between one operator and the accounts of its scope: it notes and checks each change, and passes it on."""

    def __init__(
        self, ledger: Ledger, site: Site, subgraph: Subgraph[Any, Any], child: int, hold: Count, note: Count
    ) -> None:
        self._ledger = ledger
        self._site = site
        self._scope = subgraph.number
        self._operator: Operator[Any] = subgraph.children[child].scope  # type: ignore[assignment]  # no other is attached
        self._locations = site.locations[subgraph.number]
        self._edges = {edge.target: edge.source.port for edge in subgraph.edges if edge.source.node == child}
        self._hold = hold
        self._note = note
        self._call = -1
        self._consumed: list[tuple[int, Any]] = []
        self._dropped: list[tuple[int, Any]] = []

    def __iter__(self) -> Iterator[Count]:
        """Yield what the operator is to count with: capabilities, and messages."""
        return iter((self.hold, self.note))

    def hold(self, number: int, time: Any, diff: int) -> None:
        """Note a change of capabilities."""
        location = self._locations[number]
        if diff > 0:
            self._check_support(location.port, time, "got a capability")
        elif self._operator.running:
            self._begin()
            self._dropped.append((location.port, time))
        if diff not in (1, -1):
            self._ledger.fault("OC4", f"{self._operator.path} changed a count of capabilities by {diff}")
        self._ledger.hold(self._site.worker, self._site.flat.numbers[self._scope, location], time, diff)
        self._hold(number, time, diff)

    def note(self, number: int, time: Any, diff: int) -> None:
        """Note that messages were sent, or read."""
        location = self._locations[number] if number >= 0 else Target(EGRESS, output_port(number))
        if diff > 0:
            self._ledger.send(self._site, self._scope, location, time, diff)
            self._check_support(self._edges[location], time, "sent a message")  # type: ignore[index]  # it is a target
        else:
            self._read(location.port, time, -diff)
        self._note(number, time, diff)

    def _begin(self) -> None:
        """Forget what an earlier activation read and gave up."""
        if self._call != self._operator.call:
            self._call = self._operator.call
            self._consumed.clear()
            self._dropped.clear()

    def _read(self, port: int, time: Any, count: int) -> None:
        self._begin()
        self._consumed.append((port, time))
        input = self._operator.input_ports[port]
        if input.observed and not below(input.elements, time):
            self._ledger.fault("Z3", f"{input.label} reads a message at {time!r}, and was shown {input.elements} before")
        place = self._site.flat.numbers[self._scope, Target(self._operator.index, port)]
        self._ledger.read(self._site.worker, place, time, count)

    def _check_support(self, output: int, time: Any, deed: str) -> None:
        """Check that a capability that was held at the output in this activation, or a message read in it, allows the time.

        What a session was given may leave it when the capability that it was opened for has been given up already.
        """
        operator = self._operator
        place = self._site.flat.numbers[self._scope, Source(operator.index, output)]
        held: Mapping[Any, int] = self._ledger.held[self._site.worker].get(place, {})
        if any(count > 0 and have <= time for have, count in held.items()):
            return
        if operator.running and self._call == operator.call:
            if any(port == output and had <= time for port, had in self._dropped):
                return
            for port, arrived in self._consumed:
                for summary in operator.input_ports[port].summaries[output]:
                    result = summary.results_in(arrived)
                    if result is not None and result <= time:
                        return
        self._ledger.fault("OC2", f"{operator.path} on worker {self._site.worker} {deed} at {time!r} that nothing supports")


class Overheard(ForwardingScope[Any]):
    """A scope of somebody else's as its parent sees it; what it says is noted as it is said, and was checked before."""

    def __init__(self, ledger: Ledger, site: Site, number: int, child: int, scope: ValidatingScope[Any]) -> None:
        super().__init__(scope)
        self._ledger = ledger
        self._site = site
        self._number = number
        self._child = child

    def pull_internal_progress(
        self,
        internal: Sequence[ChangeBatch[Any]],
        consumed: Sequence[ChangeBatch[Any]],
        produced: Sequence[ChangeBatch[Any]],
    ) -> bool:
        """Pull the scope, and note what it says."""
        busy = super().pull_internal_progress(internal, consumed, produced)
        numbers, worker = self._site.flat.numbers, self._site.worker
        for port, changes in enumerate(consumed):
            for time, count in changes:
                self._ledger.read(worker, numbers[self._number, Target(self._child, port)], time, count)
        for port, changes in enumerate(produced):
            for time, count in changes:
                self._ledger.send(self._site, self._number, Source(self._child, port), time, count)
        for port, changes in enumerate(internal):
            for time, diff in changes:
                self._ledger.hold(worker, numbers[self._number, Source(self._child, port)], time, diff)
        return busy
