"""The one who looks on while a simulation runs, and checks after each turn that every invariant holds.

The true books (:mod:`timely.testing.ledger`) are compared with what lies in the inputs' queues and on the network, with every
worker's view, and with the frontiers that it shows; frontiers are taken from counts by definition
(:mod:`timely.testing.flattened`), never from the engine. The invariant: what is checked is right for any program that
``execute`` would run, so that a violation is a fault of the engine or of an operator that goes round it. A caller checks after
each turn, and need not say what happened in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from timely.dataflow import InputPort
from timely.errors import InvariantViolation
from timely.progress import ProgressExchange, Target
from timely.scopes import Subgraph
from timely.testing.flattened import Flattened, Frontiers, Place, ScopeGraph, Stamp
from timely.testing.invariants import violation
from timely.testing.ledger import Fault, Ledger, Site, Sums, add, batches
from timely.testing.network import Network
from timely.worker.worker import DATA, PROGRESS


class Looked(Protocol):
    """What the onlooker asks of a worker."""

    index: int

    @property
    def idle(self) -> bool:
        """Whether none of its dataflows has anything to do."""

    def alive(self) -> frozenset[int]:
        """Return the numbers of the dataflows that are not complete."""

    def early(self, sender: int) -> list[Any]:
        """Return what has come from a peer for dataflows that are not built yet."""


class Onlooker:
    """Keeps the books of every dataflow of a run, and checks all of them after each turn."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._workers: dict[int, Looked] = {}
        self._books: dict[int, Books] = {}
        self._closed: set[int] = set()
        self._fault: InvariantViolation | None = None
        self._blind = False

    def watch(self, worker: Looked) -> None:
        """Take in that there is a worker."""
        self._workers[worker.index] = worker

    def built(
        self,
        worker: int,
        number: int,
        scopes: Sequence[Subgraph[Any, Any]],
        exchange: ProgressExchange[tuple[int, int, Any]] | None,
        labels: Sequence[str],
    ) -> None:
        """Take in that a worker has built a dataflow."""
        if number in self._closed:
            return
        site = Site(worker, scopes, exchange, labels)
        books = self._books.get(number)
        if books is None:
            books = self._books[number] = Books(number, site, self._network, self._note)
        elif site.flat.places != books.flat.places:
            self._close(number)  # the workers find out themselves that their graphs differ
            return
        books.ledger.enter(site)

    def _note(self, invariant: str, found: str) -> None:
        """Take note of the first violation: operators' errors are wrapped, so that it is raised when the turn is over."""
        if self._fault is None:
            self._fault = violation(invariant, found)

    def _close(self, number: int) -> None:
        self._closed.add(number)
        self._books.pop(number, None)

    def dropped(self, number: int) -> None:
        """Take in that a dataflow is dropped somewhere, with what it held: there is nothing to compare any more."""
        self._close(number)

    def give_up(self) -> None:
        """Look away: a worker has failed, so that nothing need hold any more."""
        self._blind = True

    def check(self, turned: int) -> None:
        """Check everything after the turn of a worker; raises the first :class:`~timely.errors.InvariantViolation`."""
        self.raise_fault()
        if not self._blind:
            try:
                for books in self._books.values():
                    books.check(turned, self._workers)
            except InvariantViolation as fault:
                self._fault = fault
                raise

    def raise_fault(self) -> None:
        """Raise the violation that was found, if there was one, whatever has become of it since."""
        if self._fault is not None:
            raise self._fault

    def check_end(self) -> None:
        """Check, after every program has ended well, that nothing is left (Z5)."""
        for books in self._books.values():
            if books.ledger.truth:
                raise violation("Z5", f"there is still {books.show(books.ledger.truth)}")


class Books:
    """One dataflow: its ledger, and what was seen of it after the last turn."""

    def __init__(self, number: int, first: Site, network: Network, note: Fault) -> None:
        self.number = number
        self.network = network
        self.ledger = Ledger(first, network.peers, note)
        self.flat: Flattened = first.flat
        self._graphs = {subgraph.number: ScopeGraph(subgraph, self.flat) for subgraph in first.scopes}
        self._shared = any(child.shared and not child.nested for subgraph in first.scopes for child in subgraph.children)
        self._true: Frontiers = self.flat.frontiers(self.ledger.truth)
        self._views: dict[int, Sums] = {}
        self._allowed: dict[int, Frontiers] = {}
        self._said: dict[int, tuple[Any, Sums]] = {}
        self._channels: list[int] = []
        self._alive: set[int] = set()

    def show(self, sums: Sums | Iterable[Stamp]) -> str:
        """Return pointstamps in words: the first few of them."""
        named = [
            f"{f'{sums[stamp]} × ' if isinstance(sums, dict) else ''}{self.flat.show(stamp)}" for stamp in list(sums)[:4]
        ]
        return "; ".join(named) or "nothing"

    # -- one turn ------------------------------------------------------------------------------------------------------

    def check(self, turned: int, workers: Mapping[int, Looked]) -> None:
        """Check all that concerns a dataflow, from what is plainly wrong to what can only be seen from several workers."""
        site = self.ledger.sites.get(turned)
        alive = {index for index in self.ledger.sites if self.number in workers[index].alive()}
        if site is None or (turned not in alive and turned not in self._alive):
            return
        if self._shared:
            self._check_trackers(site)
            return
        ended = self._alive - alive
        self._alive = alive
        self._check_messages(workers)
        if turned in ended:
            self._check_ended(turned)
            self._views.pop(turned, None)
        self._follow_truth()
        for index in alive:
            if index == turned or index not in self._views or index in self.ledger.acted:
                self._look_at_view(self.ledger.sites[index])
                self._check_trackers(self.ledger.sites[index])
        self.ledger.acted.clear()
        for index in alive:
            coming = self._coming(index, workers)
            self._check_conservation(index, coming)
            self._check_beyond(index, coming)
            self._check_safety(self.ledger.sites[index])
        if turned in alive:
            self._check_support(turned, workers)
        if not self._under_way(workers) and len(self.ledger.sites) == len(workers) and all(workers[i].idle for i in alive):
            for index in alive:
                self._check_precision(self.ledger.sites[index])

    def _under_way(self, workers: Mapping[int, Looked]) -> bool:
        return any(message[0] in (DATA, PROGRESS) and message[1] == self.number for _, message in self.network.messages())

    def _messages(self, source: int, target: int, workers: Mapping[int, Looked]) -> list[Any]:
        """Return all messages from one worker to another that the latter has not acted on, oldest first."""
        return [*workers[target].early(source), *self.network.between(source, target)]

    # -- messages ------------------------------------------------------------------------------------------------------

    def _check_messages(self, workers: Mapping[int, Looked]) -> None:
        """OC3: compare the books with what is in queues and on the network."""
        present: Sums = {}
        for index in self._alive:
            for place, port in self._inputs(self.ledger.sites[index]):
                if port.queue:
                    self._count_queue(place, port, present)
        for source, target in self.network.sent:
            for message in self._messages(source, target, workers):
                if message[0] == DATA and message[1] == self.number:
                    add(present, (self._channel(message[2]), message[3]), len(message[4]))
        counted = {stamp: count for stamp, count in self.ledger.truth.items() if not self.flat.is_output(stamp[0])}
        if counted != present:
            found = differing(counted, present)
            numbers = f"{counted.get(found, 0)} messages are counted, and there are {present.get(found, 0)}"
            raise violation("OC3", f"{numbers}, {self.flat.show(found)}")

    def _count_queue(self, place: Place, port: InputPort[Any, Any], present: Sums) -> None:
        """Count the messages that wait at an input; Z4: none that its frontier has passed."""
        for time, _, records in port.queue:
            add(present, (place, time), records)
            if port.observed and not below(port.elements, time):
                raise violation("Z4", f"a message at {time!r} waits at {port.label}, which was shown {port.elements}")

    def _inputs(self, site: Site) -> Iterator[tuple[Place, InputPort[Any, Any]]]:
        """Yield every input of an operator of ours on one worker, and its place."""
        for scope, operator in site.operators():
            for port in operator.input_ports:
                yield self.flat.numbers[scope, Target(operator.index, port.index)], port

    def _channel(self, channel: int) -> int:
        """Return the place that a channel between workers leads to."""
        if not self._channels:
            site = next(iter(self.ledger.sites.values()))
            named = {
                port.label: place for place, port in self._inputs(site)
            }
            self._channels = [named[label] for label in site.labels]
        return self._channels[channel]

    # -- truth and views -----------------------------------------------------------------------------------------------

    def _check_ended(self, worker: int) -> None:
        if self.ledger.truth:
            raise violation("X4", f"the dataflow is complete on worker {worker}, and there is {self.show(self.ledger.truth)}")

    def _follow_truth(self) -> None:
        """I1, X6: derive the true frontiers anew, and compare them with those before."""
        for stamp, count in self.ledger.truth.items():
            if count < 0:
                raise violation("I1", f"there are {count} {self.flat.show(stamp)}")
        before, self._true = self._true, self.flat.frontiers(self.ledger.truth)
        regressed = first_before(before, self._true)
        if regressed is not None:
            raise violation("X6", f"there may be something {self.flat.show(regressed)} again")

    def _look_at_view(self, site: Site) -> None:
        """I4, I5: derive what a worker's view allows for, and compare it with what it did before."""
        view = self._views[site.worker] = site.view()
        allowed = self.flat.frontiers(stamp for stamp, count in view.items() if count > 0)
        for (place, time), count in view.items():
            if count < 0 and not below(allowed[place], time):
                raise violation("I4", f"worker {site.worker} counts {count} {self.flat.show((place, time))}")
        before = self._allowed.get(site.worker)
        self._allowed[site.worker] = allowed
        regressed = first_before(before, allowed) if before is not None else None
        if regressed is not None:
            raise violation("I5", f"worker {site.worker} allows for something {self.flat.show(regressed)} again")

    def _coming(self, worker: int, workers: Mapping[int, Looked]) -> list[Sums]:
        """Return all that is still to come to a worker: each batch on its way, and what its peers have not said yet."""
        found = []
        for peer, site in self.ledger.sites.items():
            if peer != worker:
                found += [self._content(batch) for batch in batches(self._messages(peer, worker, workers), PROGRESS, self.number)]
                found.append(site.unsaid())
        return found

    def _content(self, batch: Any) -> Sums:
        known = self._said.get(id(batch))
        if known is None:
            site = next(iter(self.ledger.sites.values()))
            known = self._said[id(batch)] = batch, site.said(batch.updates)
        return known[1]

    def _check_conservation(self, worker: int, coming: Sequence[Sums]) -> None:
        total = dict(self._views[worker])
        for changes in coming:
            for stamp, diff in changes.items():
                add(total, stamp, diff)
        truth = self.ledger.truth
        if total != truth:
            first = differing(total, truth)
            come = f"for worker {worker} they come to {total.get(first, 0)}, and the truth is {truth.get(first, 0)}"
            raise violation("X3", f"{come}, {self.flat.show(first)}")

    def _check_beyond(self, worker: int, coming: Sequence[Sums]) -> None:
        allowed = self._allowed[worker]
        for changes in coming:
            for place, time in changes:
                if not below(allowed[place], time):
                    raise violation("I6", f"worker {worker}, which is to hear of {self.flat.show((place, time))}, has passed it")
        passed = first_before(allowed, self._true)
        if passed is not None:
            raise violation("X4", f"worker {worker} has passed what may still be {self.flat.show(passed)}")

    def _check_support(self, worker: int, workers: Mapping[int, Looked]) -> None:
        """X2 (X1, I3): check every end of what a worker's peers have still to hear of it."""
        site = self.ledger.sites[worker]
        held = self.ledger.held_by(worker)
        for peer in self._alive - {worker}:
            rest = site.unsaid()
            ends = [dict(rest)]
            for batch in reversed(list(batches(self._messages(worker, peer, workers), PROGRESS, self.number))):
                for stamp, diff in self._content(batch).items():
                    add(rest, stamp, diff)
                ends.append(dict(rest))
            for end in ends:
                unsupported = self._unsupported(end, held)
                if unsupported is not None:
                    found = f"worker {worker} has yet to tell worker {peer} of {self.flat.show(unsupported)}"
                    raise violation("X2", f"{found}, and of nothing before it")

    def _unsupported(self, changes: Sums, held: Sums) -> Stamp | None:
        """Return what is gained, and is neither one more of what the worker holds besides, nor supported by anything else."""
        lost = [stamp for stamp, diff in changes.items() if diff < 0]
        for stamp, diff in changes.items():
            if diff > 0 and diff >= held.get(stamp, 0):
                reached = self.flat.frontiers([*lost, *(other for other in held if other != stamp)])
                if not below(reached[stamp[0]], stamp[1]):
                    return stamp
        return None

    # -- frontiers -----------------------------------------------------------------------------------------------------

    def _check_safety(self, site: Site) -> None:
        """Z1 (Z2, X5, I7): compare every frontier that operators are shown with what may truly come."""
        for place, port in self._inputs(site):
            for time in self._true[place] if port.observed else ():
                if not below(port.elements, time):
                    found = f"worker {site.worker} shows {port.elements} at {port.label}, where {time!r} may still come"
                    raise violation("Z1", found)

    def _check_precision(self, site: Site) -> None:
        """G9 for the whole nesting: when nothing is under way, what is shown is what the flat graph has."""
        for place, port in self._inputs(site):
            if port.observed and set(port.elements) != set(self._true[place]):
                found = f"all has settled, and worker {site.worker} shows {port.elements} at {port.label}"
                raise violation("G9", f"{found}, which is at {self._true[place]}")

    def _check_trackers(self, site: Site) -> None:
        """G9, G10: compare the trackers of every scope with their counts, and what operators were told with the trackers."""
        for subgraph in site.scopes:
            for tracker in subgraph.trackers:
                if tracker.dirty.find(1) < 0:
                    difference = self._graphs[subgraph.number].difference(tracker, tracker.counts())
                    if difference is not None:
                        raise violation("G9", f"on worker {site.worker} in {subgraph.path}, {difference}")
        for place, port in self._inputs(site):
            scope, target = self.flat.places[place]
            tracker = site.scopes[scope].trackers[0]
            if port.observed and tracker.dirty.find(1) < 0:
                frontier = tracker.frontier(target)
                if len(port.elements) != len(frontier) or set(port.elements) != set(frontier):
                    found = f"worker {site.worker} shows {port.elements} at {port.label}"
                    raise violation("G10", f"{found}, and counts {frontier}")


def differing(one: Sums, other: Sums) -> Stamp:
    """Return the first pointstamp that two counts differ in."""
    return min((s for s in {*one, *other} if one.get(s) != other.get(s)), key=lambda stamp: (stamp[0], str(stamp[1])))


def below(frontier: Iterable[Any], time: Any) -> bool:
    """Return whether an element of a frontier is at or before a time."""
    for element in frontier:
        if element <= time:
            return True
    return False


def first_before(one: Frontiers, other: Frontiers) -> Stamp | None:
    """Return a pointstamp that the second frontiers allow for and the first do not, if there is one."""
    for place, times in enumerate(other):
        known = one[place]
        if known != times:
            for time in times:
                if not below(known, time):
                    return place, time
    return None
