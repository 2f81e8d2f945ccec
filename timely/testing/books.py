"""The books of one simulated dataflow: what is true of it, what its workers make of that, and whether the two go together.

The true accounts (:mod:`timely.testing.ledger`) are compared with what lies in the inputs' queues and on the network, with every
worker's view, and with the frontiers that it shows; frontiers are taken from counts by definition
(:mod:`timely.testing.flattened`), never from the engine. The invariant: looking changes nothing. A caller checks after each
turn of a worker, and gets the violation that is nearest to the cause: what is plainly wrong first, and what can only be seen
from several workers last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from timely.dataflow import InputPort
from timely.progress import ProgressBatch
from timely.testing.flattened import Flattened, Frontiers, Place, Sums, add, below, differing, first_before
from timely.testing.ledger import Fault, Ledger
from timely.testing.network import Network
from timely.testing.passage import Passage
from timely.testing.site import Site
from timely.testing.statements import Statements, in_parts, total
from timely.testing.structure import Found, Laws, check_cells, check_cycles, check_summaries, ways_of
from timely.testing.trackers import TrackerChecks
from timely.worker.messages import DataMessage, ProgressMessage


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


class Books:
    """One dataflow: its ledger, and what was seen of it after the last turn.

    What is checked yields what was found wrong: the id of an invariant, and what there is instead.
    """

    def __init__(self, number: int, first: Site, network: Network, note: Fault, passage: Passage | None = None) -> None:
        self.number = number
        self.network = network
        self.passage = passage
        self.ledger = Ledger(first, network.peers, note)
        self.flat: Flattened = first.flat
        self._first = first
        self._ways = [ways_of(subgraph, self.flat) for subgraph in first.scopes]
        self._laws = [Laws(subgraph, ways) for subgraph, ways in zip(first.scopes, self._ways, strict=True)]
        self._trackers = [TrackerChecks(ways, laws.identity) for ways, laws in zip(self._ways, self._laws, strict=True)]
        self._statements = Statements(self.flat)
        self._shared = any(child.shared and child.nested is None for subgraph in first.scopes for child in subgraph.children)
        self._true: Frontiers = self.flat.frontiers(self.ledger.truth)
        self._views: dict[int, Sums] = {worker: dict(self.ledger.truth) for worker in range(network.peers)}
        self._contents: dict[int, tuple[Any, Sums]] = {}
        self._on_their_way: dict[tuple[int, int], int] = {}
        self._left: set[int] = set()
        self._alive: set[int] = set()
        self._ended: set[int] = set()

    # -- once ----------------------------------------------------------------------------------------------------------

    def check_graph(self) -> Found:
        """G1, G2, G3, G5: check the graph, before anything has happened in it."""
        for subgraph, laws in zip(self._first.scopes, self._laws, strict=True):
            yield from self._check_laws(laws, subgraph.path, subgraph.domain.minimum)
        yield from check_cycles(self.flat)
        for subgraph, ways in zip(self._first.scopes, self._ways, strict=True):
            yield from check_summaries(subgraph.trackers[0], ways, subgraph.domain.identity)
            for tracker in subgraph.trackers:
                yield from check_cells(tracker)

    def check_end(self) -> Found:
        """Z5: check, after every program has ended well, that nothing is left."""
        if self.ledger.truth:
            yield "Z5", f"there is still {self.flat.describe(self.ledger.truth)}"

    def flushed(self, worker: int) -> None:
        """Take in that a worker has said what it had to say, and whether it has left something out."""
        exchange = self.ledger.sites[worker].exchange
        if exchange is not None and exchange.unsaid():
            self._left.add(worker)
        else:
            self._left.discard(worker)

    # -- one turn ------------------------------------------------------------------------------------------------------

    def check(self, turned: int, workers: Mapping[int, Looked]) -> Found:
        """Check all that concerns the dataflow, after the turn of a worker."""
        sites = self.ledger.sites
        if turned not in sites or turned in self._ended:
            return
        yield from self._check_activations()
        if self._shared:
            yield from self._check_trackers(sites[turned])
            return
        self._alive = {index for index in sites if self.number in workers[index].alive()}
        yield from self._check_messages(workers)
        if turned not in self._alive:
            yield from self._check_ended(turned)
        yield from self._follow_truth()
        for index in self._alive:
            if index == turned or index not in self.ledger.concluded or index in self.ledger.acted:
                yield from self._look_at_view(sites[index])
                yield from self._check_trackers(sites[index])
        self.ledger.acted.clear()
        coming = {index: self._coming(index, workers) for index in workers if index not in self._ended}
        for index in coming:
            yield from self._check_conservation(index, coming[index])
            if index in self._alive:
                yield from self._check_beyond(index, coming[index])
                yield from self._check_safety(sites[index])
        if turned in self._alive:
            yield from self._check_statements(turned, workers)
        for index in coming:
            yield from self._check_together(index, coming[index])
        yield from self._check_rest(turned, workers)
        for source, target in self.network.sent:
            self._on_their_way[source, target] = len(self._batches(source, target, workers))

    def _messages(self, source: int, target: int, workers: Mapping[int, Looked]) -> list[Any]:
        """Return all messages from one worker to another that the latter has not acted on, oldest first."""
        return [*workers[target].early(source), *self.network.between(source, target)]

    def _batches(self, source: int, target: int, workers: Mapping[int, Looked]) -> list[Sums]:
        """Return the content of each batch of progress from one worker to another that the latter has not acted on."""
        if self.passage is not None:
            said = self.passage.batches(
                self.network, self.number, source, target, lambda worker, peer: workers[worker].early(peer)
            )
            return [self._content(batch) for batch in said]
        return [
            self._content(message.batch)
            for message in self._messages(source, target, workers)
            if isinstance(message, ProgressMessage) and message.dataflow == self.number
        ]

    def _content(self, batch: ProgressBatch[tuple[int, int, Any]]) -> Sums:
        known = self._contents.get(id(batch))
        if known is None:
            known = self._contents[id(batch)] = batch, self._first.said(batch.updates)
        return known[1]

    # -- activations and messages --------------------------------------------------------------------------------------

    def _check_activations(self) -> Found:
        """OC5: between turns nobody is in the middle of anything."""
        for site in self.ledger.sites.values():
            for _, operator in site.operators:
                if operator.running:
                    yield "OC5", f"a turn is over on worker {site.worker} in the middle of {operator.path}"

    def _check_messages(self, workers: Mapping[int, Looked]) -> Found:
        """I7, OC3: compare what is in queues and on the network with what workers have concluded, and with the accounts."""
        present: Sums = {}
        for index in self._alive:
            for place, port in self.ledger.sites[index].inputs:
                if port.queue:
                    yield from self._count_queue(place, port, present)
            for place, inlet in self.ledger.sites[index].inlets:
                waiting = [(time, records) for time, _, records in inlet.queue]
                for time, records in (*waiting, *inlet.read.items()):  # what was read counts until it is reported
                    add(present, (place, time), records)
        for source, target in self.network.sent:
            for message in self._messages(source, target, workers):
                if isinstance(message, DataMessage) and message.dataflow == self.number:
                    add(present, (self._first.channel(message.channel), message.time), len(message.batch))
        for worker, allowed in self.ledger.concluded.items():
            for place, time in present:
                if not below(allowed[place], time):
                    yield "I7", f"worker {worker} has passed a message {self.flat.show((place, time))}, which is there"
        counted = {stamp: count for stamp, count in self.ledger.truth.items() if not self.flat.is_output(stamp[0])}
        if counted != present:
            found = differing(counted, present)
            numbers = f"{counted.get(found, 0)} messages are counted, and there are {present.get(found, 0)}"
            yield "OC3", f"{numbers}, {self.flat.show(found)}"

    def _count_queue(self, place: Place, port: InputPort[Any, Any], present: Sums) -> Found:
        """Count the messages that wait at an input; Z4: none that its frontier has passed."""
        for time, _, records in port.queue:
            add(present, (place, time), records)
            if port.observed and not below(port.elements, time):
                yield "Z4", f"a message at {time!r} waits at {port.label}, which was shown {port.elements}"

    # -- truth and views -----------------------------------------------------------------------------------------------

    def _check_ended(self, worker: int) -> Found:
        """X4 where all of a dataflow is concluded; from now on nothing of it may come back."""
        if self.ledger.truth:
            there = self.flat.describe(self.ledger.truth)
            yield "X4", f"the dataflow is complete on worker {worker}, and there is {there}"
        self._ended.add(worker)
        self.ledger.concluded[worker] = [[] for _ in self.flat.places]

    def _follow_truth(self) -> Found:
        """I1, G1, X5, X6: derive the true frontiers anew; compare them with those before, and with what workers concluded."""
        for (place, time), count in self.ledger.truth.items():
            if count < 0:
                yield "I1", f"there are {count} {self.flat.show((place, time))}"
            scope = self.flat.places[place][0]
            if not self._laws[scope].full:
                yield from self._check_laws(self._laws[scope], self.flat.scopes[scope].path, time)
        before, self._true = self._true, self.flat.frontiers(self.ledger.truth)
        if before is self._true:
            return
        for worker, allowed in self.ledger.concluded.items():
            yield from self._check_stays(worker, allowed)
        regressed = first_before(before, self._true)
        if regressed is not None:
            yield "X6", f"there may be something {self.flat.show(regressed)} again"

    def _check_stays(self, worker: int, allowed: Frontiers) -> Found:
        back = first_before(allowed, self._true)
        if back is not None:
            yield "X5", f"worker {worker} had passed what may be {self.flat.show(back)} again"

    def _check_laws(self, laws: Laws, path: str, time: Any) -> Found:
        """G1: check the laws of times on one more of them."""
        broken = laws.see(time)
        if broken is not None:
            yield "G1", f"in {path}, {broken}"

    def _look_at_view(self, site: Site) -> Found:
        """I4, I5: derive what a worker's view allows for, and compare it with what it did before."""
        view = self._views[site.worker] = site.view()
        allowed = self.flat.frontiers(stamp for stamp, count in view.items() if count > 0)
        for (place, time), count in view.items():
            if count < 0 and not below(allowed[place], time):
                yield "I4", f"worker {site.worker} counts {count} {self.flat.show((place, time))}"
        before = self.ledger.concluded.get(site.worker, allowed)
        self.ledger.concluded[site.worker] = allowed
        regressed = first_before(before, allowed)
        if regressed is not None:
            yield "I5", f"worker {site.worker} allows for something {self.flat.show(regressed)} again"

    def _coming(self, worker: int, workers: Mapping[int, Looked]) -> list[Sums]:
        """Return all that is still to come to a worker: each batch on its way, and what its peers have not said yet."""
        found = []
        for peer, site in self.ledger.sites.items():
            if peer != worker:
                found += [*self._batches(peer, worker, workers), site.unsaid()]
        return found

    def _check_conservation(self, worker: int, coming: Sequence[Sums]) -> Found:
        """X3 (I2)."""
        found, truth = total([self._views[worker], *coming]), self.ledger.truth
        if found != truth:
            first = differing(found, truth)
            come = f"for worker {worker} they come to {found.get(first, 0)}, and the truth is {truth.get(first, 0)}"
            yield "X3", f"{come}, {self.flat.show(first)}"

    def _check_beyond(self, worker: int, coming: Sequence[Sums]) -> Found:
        """X4, I6: compare what a worker's view allows for with the truth, and with what is still to come to it."""
        allowed = self.ledger.concluded[worker]
        passed = first_before(allowed, self._true)
        if passed is not None:
            yield "X4", f"worker {worker} has passed what may still be {self.flat.show(passed)}"
        for changes in coming:
            for place, time in changes:
                if not below(allowed[place], time):
                    yield "I6", f"worker {worker}, which is to hear of {self.flat.show((place, time))}, has passed it"

    # -- what workers say ----------------------------------------------------------------------------------------------

    def _check_statements(self, worker: int, workers: Mapping[int, Looked]) -> Found:
        """X1, X2, I3, OC1: check what each peer has still to hear of a worker."""
        unsaid, held = self.ledger.sites[worker].unsaid(), self.ledger.held_by(worker)
        for peer in workers.keys() - self._ended - {worker}:
            batches = self._batches(worker, peer, workers)
            for invariant, found in self._statements.check_ends(unsaid, batches, held):
                yield invariant, f"worker {worker} has yet to tell worker {peer} of {found}"
            parts = in_parts(len(batches) - self._on_their_way.get((worker, peer), 0), worker in self._left)
            if parts is not None:
                yield "OC1", f"worker {worker} told worker {peer} {parts} of what it did in one turn"

    def _check_together(self, worker: int, coming: Sequence[Sums]) -> Found:
        """I3 for all peers of a worker together, where there are several."""
        peers = [peer for peer in self.ledger.sites if peer != worker]
        if len(peers) > 1:
            changes, held = total(coming), total([self.ledger.held_by(peer) for peer in peers])
            for invariant, found in self._statements.check_together(changes, held):
                yield invariant, f"the peers of worker {worker} together have yet to tell it of {found}"

    # -- frontiers -----------------------------------------------------------------------------------------------------

    def _check_safety(self, site: Site) -> Found:
        """Z1, Z2: compare every frontier that operators are shown with what may truly come."""
        for place, port in site.shown.items():
            for time in self._true[place]:
                if not below(port.elements, time):
                    found = f"worker {site.worker} shows {port.elements} at {port.label}, where {time!r} may still come"
                    yield self._because_of(place, time, found)

    def _because_of(self, place: Place, time: Any, found: str) -> tuple[str, str]:
        """Return which invariant is broken: Z2 if somebody holds a capability that could lead there, else Z1."""
        for worker in self.ledger.sites:
            if below(self.flat.frontiers(self.ledger.held_by(worker))[place], time):
                return "Z2", f"{found}, by a capability of worker {worker}"
        return "Z1", found

    def _check_trackers(self, site: Site) -> Found:
        """G6 to G10: check the trackers of every scope, and what operators were told with the trackers."""
        for subgraph, checks in zip(site.scopes, self._trackers, strict=True):
            for tracker in subgraph.trackers:
                if not tracker.dirty:
                    for invariant, found in checks.check(tracker):
                        yield invariant, f"on worker {site.worker} in {subgraph.path}, {found}"
        for place, port in site.shown.items():
            scope, target = self.flat.places[place]
            tracker = site.scopes[scope].trackers[0]
            if not tracker.dirty:
                frontier = tracker.frontier(target)
                if len(port.elements) != len(frontier) or set(port.elements) != set(frontier):
                    found = f"worker {site.worker} shows {port.elements} at {port.label}"
                    yield "G10", f"{found}, and counts {frontier}"

    def _check_rest(self, turned: int, workers: Mapping[int, Looked]) -> Found:
        """G11: a worker that has nothing to do has nothing left to propagate; G9: and at rest all is as in the flat graph."""
        sites = self.ledger.sites
        if workers[turned].idle:
            for subgraph in sites[turned].scopes:
                if any(tracker.dirty for tracker in subgraph.trackers):
                    yield "G11", f"worker {turned} has come to rest, and {subgraph.path} has not"
        if len(sites) == len(workers) and all(workers[i].idle for i in self._alive) and not self._under_way(workers):
            for index in self._alive:
                yield from self._check_precision(sites[index])

    def _under_way(self, workers: Mapping[int, Looked]) -> bool:
        return any(
            isinstance(message, DataMessage | ProgressMessage) and message.dataflow == self.number
            for _, message in self.network.messages()
        )

    def _check_precision(self, site: Site) -> Found:
        """G9 for the whole nesting: when nothing is under way, what is shown is what the flat graph has."""
        for place, port in site.shown.items():
            if set(port.elements) != set(self._true[place]):
                found = f"all has settled, and worker {site.worker} shows {port.elements} at {port.label}"
                yield "G9", f"{found}, which is at {self._true[place]}"

