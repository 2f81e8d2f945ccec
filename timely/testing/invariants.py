"""What must hold of every run, and the one who looks on while a simulation runs and checks that it does.

After each turn the true books (:mod:`timely.testing.ledger`) are compared with what lies in the inputs' queues and on the network,
with every worker's view, and with the frontiers that it shows; frontiers are taken from counts by definition
(:mod:`timely.testing.flattened`), never from the engine. The invariant: what is checked is right for any program that ``execute``
would run, so that a violation is a fault of the engine or of an operator that goes round it. ``docs/invariants.md`` has a
paragraph on each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

import attrs

from timely.errors import InvariantViolation
from timely.progress import ProgressExchange, Target
from timely.scopes import Subgraph
from timely.testing.flattened import Flattened, Frontiers, ScopeGraph, Stamp
from timely.testing.ledger import Ledger, Site, Sums, add, batches
from timely.testing.network import Network
from timely.worker.worker import DATA, PROGRESS


@attrs.frozen
class Invariant:
    """One thing that must hold: its id, the sentence, and where it comes from."""

    id: str
    sentence: str
    source: str


_AMIR: Final = "Abadi, McSherry, Murray and Rodeheffer 2013"
_ITP: Final = "Brun, Decova, Lattuada and Traytel 2021"
_NAIAD: Final = "Murray et al. 2013 (Naiad)"

INVARIANTS: Final[dict[str, Invariant]] = {
    invariant.id: invariant
    for invariant in (
        Invariant("OC2", "a new capability or message needs a capability, or a message read in the same activation", _NAIAD + " 2.2"),
        Invariant("OC3", "every message that was sent is counted until it is read, and none besides", _NAIAD + " 2.3"),
        Invariant("OC4", "nobody gives up a capability that it does not have", _NAIAD + " 2.3"),
        Invariant("X2", "all that is still to come from a worker is supported by what it holds or takes away", _AMIR),
        Invariant("X3", "a worker's view and all that is still to come to it add up to the truth", _AMIR),
        Invariant("X4", "where a worker's view is vacant up to a time, so is the truth", _AMIR),
        Invariant("X6", "where the truth is vacant up to a time, it stays so", _AMIR),
        Invariant("I1", "no true count is negative", _ITP),
        Invariant("I4", "where a worker counts a negative number, it counts a positive one at or before it", _ITP),
        Invariant("I5", "a frontier never goes back", _ITP),
        Invariant("I6", "what is on its way to a worker lies at or beyond what the worker's view allows for", _ITP),
        Invariant("G9", "a frontier is what the counts result in by definition: no earlier, no later", _ITP),
        Invariant("G10", "the changes that an operator is told of add up to its frontier", _ITP),
        Invariant("Z1", "what could still arrive anywhere, every worker's frontier there allows for", _ITP),
        Invariant("Z3", "no message is read that the frontier shown before did not allow for", _ITP),
        Invariant("Z4", "no message waits at an input whose frontier has passed it", _NAIAD + " 2.2"),
        Invariant("Z5", "when all is done, nothing is left anywhere", _NAIAD + " 2.3"),
    )
}
"""The invariants that a simulation checks, by their ids."""


def violation(invariant: str, found: str) -> InvariantViolation:
    """Return the error that names an invariant, says what it is, and what was found instead.

    >>> print(violation("I1", "there are -2 messages"))
    I1: no true count is negative; but there are -2 messages
    """
    return InvariantViolation(invariant, f"{INVARIANTS[invariant].sentence}; but {found}")


class Looked(Protocol):
    """What the onlooker asks of a worker."""

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
        self._books: dict[int, Books] = {}
        self._closed: set[int] = set()
        self._fault: InvariantViolation | None = None
        self._blind = False

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

    def check(self, turned: int, workers: Sequence[Looked]) -> None:
        """Check everything after the turn of a worker; raises the first :class:`~timely.errors.InvariantViolation`."""
        if self._fault is not None:
            raise self._fault
        if not self._blind:
            for books in self._books.values():
                books.check(turned, workers)

    def check_end(self) -> None:
        """Check, after every program has ended well, that nothing is left (Z5)."""
        for books in self._books.values():
            if books.ledger.truth:
                raise violation("Z5", f"there is still {books.show(books.ledger.truth)}")


class Books:
    """One dataflow: its ledger, and what was seen of it after the last turn."""

    def __init__(self, number: int, first: Site, network: Network, note: Any) -> None:
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

    def check(self, turned: int, workers: Sequence[Looked]) -> None:
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
            if index == turned or index not in self._views:
                self._look_at_view(self.ledger.sites[index])
                self._check_trackers(self.ledger.sites[index])
        for index in alive:
            coming = self._coming(index, workers)
            self._check_conservation(index, coming)
            self._check_beyond(index, coming)
            self._check_safety(self.ledger.sites[index])
        if turned in alive:
            self._check_support(turned, workers)
        if not self._under_way(workers) and all(workers[i].idle for i in alive) and len(self.ledger.sites) == len(workers):
            for index in alive:
                self._check_precision(self.ledger.sites[index])

    def _under_way(self, workers: Sequence[Looked]) -> bool:
        return any(message[0] in (DATA, PROGRESS) and message[1] == self.number for _, message in self.network.messages())

    def _messages(self, source: int, target: int, workers: Sequence[Looked]) -> list[Any]:
        """Return all messages from one worker to another that the latter has not acted on, oldest first."""
        return [*workers[target].early(source), *self.network.between(source, target)]

    # -- messages ------------------------------------------------------------------------------------------------------

    def _check_messages(self, workers: Sequence[Looked]) -> None:
        """OC3, Z4: compare the books with what is in queues and on the network."""
        present: Sums = {}
        for index in self._alive:
            site = self.ledger.sites[index]
            for scope, operator in site.operators():
                for port in operator.input_ports:
                    if port.queue:
                        place = self.flat.numbers[scope, Target(operator.index, port.index)]
                        for time, _, records in port.queue:
                            add(present, (place, time), records)
                            if port.observed and not any(element <= time for element in port.elements):
                                raise violation("Z4", f"a message at {time!r} waits at {port.label}, which was shown {port.elements}")
        for source, target in self.network.sent:
            for message in self._messages(source, target, workers):
                if message[0] == DATA and message[1] == self.number:
                    add(present, (self._channel(message[2]), message[3]), len(message[4]))
        counted = {stamp: count for stamp, count in self.ledger.truth.items() if not self.flat.is_output(stamp[0])}
        if counted != present:
            missing = {stamp for stamp in {*counted, *present} if counted.get(stamp) != present.get(stamp)}
            first = min(missing, key=lambda stamp: (stamp[0], str(stamp[1])))
            raise violation(
                "OC3", f"{counted.get(first, 0)} messages are counted {self.flat.show(first)}, and there are {present.get(first, 0)}"
            )

    def _channel(self, channel: int) -> int:
        """Return the place that a channel between workers leads to."""
        if not self._channels:
            site = next(iter(self.ledger.sites.values()))
            named = {
                port.label: self.flat.numbers[scope, Target(operator.index, port.index)]
                for scope, operator in site.operators()
                for port in operator.input_ports
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

    def _coming(self, worker: int, workers: Sequence[Looked]) -> list[Sums]:
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
            first = min({s for s in {*total, *truth} if total.get(s) != truth.get(s)}, key=lambda s: (s[0], str(s[1])))
            raise violation(
                "X3",
                f"for worker {worker} they come to {total.get(first, 0)}, and the truth is {truth.get(first, 0)},"
                f" {self.flat.show(first)}",
            )

    def _check_beyond(self, worker: int, coming: Sequence[Sums]) -> None:
        allowed = self._allowed[worker]
        for changes in coming:
            for place, time in changes:
                if not below(allowed[place], time):
                    raise violation("I6", f"worker {worker}, which is to hear of {self.flat.show((place, time))}, has passed it")
        passed = first_before(allowed, self._true)
        if passed is not None:
            raise violation("X4", f"worker {worker} has passed what may still be {self.flat.show(passed)}")

    def _check_support(self, worker: int, workers: Sequence[Looked]) -> None:
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
                    raise violation(
                        "X2", f"worker {worker} has yet to tell worker {peer} of {self.flat.show(unsupported)}, and of nothing before it"
                    )

    def _unsupported(self, changes: Sums, held: Sums) -> Stamp | None:
        gained = [stamp for stamp, diff in changes.items() if diff > 0 and diff > held.get(stamp, 0)]
        if not gained:
            return None
        support = [stamp for stamp, diff in changes.items() if diff < 0]
        reached = self.flat.frontiers([*support, *held])
        for place, time in gained:
            if not below(reached[place], time):
                return place, time
        return None

    # -- frontiers -----------------------------------------------------------------------------------------------------

    def _check_safety(self, site: Site) -> None:
        """Z1 (Z2, X5, I7): compare every frontier that operators are shown with what may truly come."""
        for scope, operator in site.operators():
            for port in operator.input_ports:
                if port.observed:
                    for time in self._true[self.flat.numbers[scope, Target(operator.index, port.index)]]:
                        if not below(port.elements, time):
                            raise violation(
                                "Z1", f"{time!r} may still come to {port.label}, which worker {site.worker} shows {port.elements}"
                            )

    def _check_precision(self, site: Site) -> None:
        """G9 for the whole nesting: when nothing is under way, what is shown is what the flat graph has, no earlier and no later."""
        for scope, operator in site.operators():
            for port in operator.input_ports:
                if port.observed:
                    true = self._true[self.flat.numbers[scope, Target(operator.index, port.index)]]
                    if set(port.elements) != set(true):
                        raise violation(
                            "G9", f"all has settled, and worker {site.worker} shows {port.elements} at {port.label}, which is at {true}"
                        )

    def _check_trackers(self, site: Site) -> None:
        """G9, G10: compare the trackers of every scope with their counts, and what operators were told with the trackers."""
        for subgraph in site.scopes:
            for tracker in subgraph.trackers:
                if tracker.dirty.find(1) < 0:
                    difference = self._graphs[subgraph.number].difference(tracker, tracker.counts())
                    if difference is not None:
                        raise violation("G9", f"on worker {site.worker} in {subgraph.path}, {difference}")
        for scope, operator in site.operators():
            tracker = site.scopes[scope].trackers[0]
            for port in operator.input_ports:
                if port.observed and tracker.dirty.find(1) < 0:
                    frontier = tracker.frontier(Target(operator.index, port.index))
                    if len(port.elements) != len(frontier) or set(port.elements) != set(frontier):
                        raise violation("G10", f"worker {site.worker} shows {port.elements} at {port.label}, and counts {frontier}")


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
