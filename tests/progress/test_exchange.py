"""The exchange of progress: simulated workers, any interleaving, and every invariant checked after each step.

The simulation knows the truth (which messages and capabilities there are), and lets its workers do anything an operator
may do: hold, delay and drop capabilities, send, receive. What they do is told only through ``ProgressExchange``. The
checker knows nothing of the protocol: it compares views with the truth, by path summaries found by brute force. At the
end stand the rules broken on purpose, at which it must object.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely.errors import ConfigurationError, ProgressError
from timely.progress import (
    Antichain,
    Location,
    Product,
    ProductSummary,
    ProgressBatch,
    ProgressExchange,
    Source,
    Step,
    Target,
    time_domain,
)

Pointstamp: TypeAlias = tuple[Location, Any]
Counts: TypeAlias = Counter[Pointstamp]
Updates: TypeAlias = list[tuple[Pointstamp, int]]


@attrs.frozen(eq=False)
class Graph:
    """Nodes with one output each: ``inputs[n]`` names the nodes that feed node ``n``, ``summaries[n]`` is its own.

    ``paths`` maps two locations to the minimal summaries of the paths between them.
    """

    spec: Any
    inputs: Sequence[Sequence[int]]
    summaries: Sequence[Any]
    paths: dict[tuple[Location, Location], Antichain[Any]]

    def readers(self, node: int) -> list[Target]:
        return [
            Target(reader, port)
            for reader, feeds in enumerate(self.inputs)
            for port, feed in enumerate(feeds)
            if feed == node
        ]

    def leads(self, start: Pointstamp, end: Pointstamp) -> bool:
        """Could ``start`` result in ``end``?"""
        for path in self.paths.get((start[0], end[0]), ()):
            time = path.results_in(start[1])
            if time is not None and time <= end[1]:
                return True
        return False

    def covered(self, counts: Counts, place: Pointstamp) -> bool:
        """Is there a positive count that could result in ``place``?"""
        return any(count > 0 and self.leads(start, place) for start, count in counts.items())

    def frontier(self, counts: Counts, location: Location) -> Antichain[Any]:
        arrivals = [
            path.results_in(time)
            for (start, time), count in counts.items()
            if count > 0
            for path in self.paths.get((start, location), ())
        ]
        return Antichain([time for time in arrivals if time is not None])


def make_graph(spec: Any, inputs: Sequence[Sequence[int]], summaries: Sequence[Any]) -> Graph:
    """Find all path summaries: extend known paths by one edge until nothing improves."""
    steps: list[tuple[Location, Location, Any]] = []
    identity: Any = time_domain(spec).identity
    for node, feeds in enumerate(inputs):
        for port, feed in enumerate(feeds):
            steps.append((Source(feed, 0), Target(node, port), identity))
            steps.append((Target(node, port), Source(node, 0), summaries[node]))
    locations: set[Location] = {Source(node, 0) for node in range(len(inputs))}
    locations.update(place for step in steps for place in step[:2])
    paths = {(place, place): Antichain([identity]) for place in locations}
    changed = True
    while changed:
        changed = False
        for middle, end, step in steps:
            for start in locations:
                for path in paths.get((start, middle), Antichain()).elements:
                    whole = path.followed_by(step)
                    changed |= whole is not None and paths.setdefault((start, end), Antichain()).insert(whole)
    return Graph(spec, inputs, summaries, paths)


class Simulation:
    """The truth, and workers that hear of it through the exchange only."""

    def __init__(self, graph: Graph, peers: int) -> None:
        self.graph, self.peers = graph, peers
        minimum = time_domain(graph.spec).minimum
        initial: list[Pointstamp] = [(Source(node, 0), minimum) for node in range(len(graph.inputs))]
        self.truth: Counts = Counter(dict.fromkeys(initial, peers))
        self.views: list[Counts] = [Counter(dict.fromkeys(initial, self.initially())) for _ in range(peers)]
        self.unsent: list[Counts] = [Counter() for _ in range(peers)]
        self.exchanges: list[ProgressExchange[Pointstamp]] = [ProgressExchange(p, peers) for p in range(peers)]
        self.queues: dict[tuple[int, int], deque[ProgressBatch[Pointstamp]]] = {
            (p, q): deque() for p in range(peers) for q in range(peers) if p != q
        }
        self.held: list[Counts] = [Counter(dict.fromkeys(initial, 1)) for _ in range(peers)]
        self.inbox: list[list[Pointstamp]] = [[] for _ in range(peers)]
        self.shown = [self.frontiers(q) for q in range(peers)]

    def initially(self) -> int:
        """How often every view counts the minimum at an output to begin with."""
        return self.peers

    def frontiers(self, q: int) -> dict[Location, Antichain[Any]]:
        places = {start for start, _ in self.graph.paths}
        return {place: self.graph.frontier(self.views[q], place) for place in places}

    # What a worker may do. Each action takes numbers that say which of the possibilities, and is one statement.

    def state(self, p: int, updates: Updates) -> None:
        """Worker ``p`` did all this in one activation."""
        self.exchanges[p].extend(updates)
        for pointstamp, diff in updates:
            self.truth[pointstamp] += diff
            self.unsent[p][pointstamp] += diff
            if isinstance(pointstamp[0], Source):
                self.held[p][pointstamp] += diff

    def later(self, time: Any, by: int) -> Any:
        if self.graph.spec is int:
            return time + by % 3
        return Product(time.outer + by % 2, time.inner + by // 2 % 2)

    def capability(self, p: int, which: int) -> Pointstamp | None:
        held = sorted((one for one in self.held[p].elements()), key=lambda one: (repr(one[0]), tuple_of(one[1])))
        return held[which % len(held)] if held else None

    def hold(self, p: int, which: int, by: int, _: int) -> None:
        """Make another, perhaps later, capability from one that is held."""
        if (one := self.capability(p, which)) is not None:
            self.state(p, [((one[0], self.later(one[1], by)), 1)])

    def downgrade(self, p: int, which: int, by: int, _: int) -> None:
        if (one := self.capability(p, which)) is not None:
            self.state(p, [((one[0], self.later(one[1], by)), 1), (one, -1)])

    def drop(self, p: int, which: int, _: int, __: int) -> None:
        if (one := self.capability(p, which)) is not None:
            self.state(p, [(one, -1)])

    def send(self, p: int, which: int, by: int, to: int) -> None:
        """Send with a capability to every reader, each at some worker, perhaps at a later time."""
        if (one := self.capability(p, which)) is not None:
            self.state(p, self.deliver_data(one[0], self.later(one[1], by), to))

    def deliver_data(self, source: Location, time: Any, to: int) -> Updates:
        updates: Updates = []
        for port, target in enumerate(self.graph.readers(source.node)):
            self.inbox[(to + port) % self.peers].append((target, time))
            updates.append(((target, time), 1))
        return updates

    def consume(self, p: int, which: int, what: int, to: int) -> None:
        """Receive a message, and keep a capability or send on at once, or neither."""
        if not self.inbox[p]:
            return
        message = self.inbox[p].pop(which % len(self.inbox[p]))
        updates: Updates = [(message, -1)]
        node = message[0].node
        time = self.graph.summaries[node].results_in(message[1])
        if time is not None and what % 3 == 1:
            updates.append(((Source(node, 0), self.later(time, what)), 1))
        elif time is not None and what % 3 == 2:
            updates += self.deliver_data(Source(node, 0), self.later(time, what), to)
        self.state(p, updates)

    def flush(self, p: int, _: int = 0, __: int = 0, ___: int = 0) -> None:
        batch = self.exchanges[p].flush()
        changed = {pointstamp: count for pointstamp, count in self.unsent[p].items() if count}
        assert dict(batch.updates if batch is not None else ()) == changed
        self.unsent[p] = Counter()
        if batch is not None:
            self.count(p, batch.updates)
            self.tell(p, batch)

    def tell(self, p: int, batch: ProgressBatch[Pointstamp]) -> None:
        for q in range(self.peers):
            if q != p:
                self.queues[p, q].append(batch)

    def hear(self, q: int, which: int, _: int = 0, __: int = 0) -> None:
        senders = [p for p in range(self.peers) if p != q and self.queues[p, q]]
        if not senders:
            return
        queue = self.queues[senders[which % len(senders)], q]
        self.count(q, self.exchanges[q].receive(queue.popleft()))

    def count(self, q: int, updates: Iterable[tuple[Pointstamp, int]]) -> None:
        for pointstamp, diff in updates:
            self.views[q][pointstamp] += diff

    def act(self, action: int, p: int, which: int, by: int, to: int) -> None:
        actions = (self.hold, self.downgrade, self.drop, self.send, self.consume, self.flush, self.hear)
        actions[action % len(actions)](p % self.peers, which, by, to)

    def settle(self) -> None:
        """Let everyone say and hear everything."""
        for p in range(self.peers):
            self.flush(p)
        for q in range(self.peers):
            while any(self.queues[p, q] for p in range(self.peers) if p != q):
                self.hear(q, 0)

    def finish(self) -> None:
        """Let everyone consume all messages and drop all capabilities, and say so."""
        for p in range(self.peers):
            while self.inbox[p]:
                self.consume(p, 0, 0, 0)
            while self.capability(p, 0) is not None:
                self.drop(p, 0, 0, 0)
        self.settle()

    # What must hold after each step.

    def check(self) -> None:
        assert min(self.truth.values(), default=0) >= 0, "I1: records"
        assert all(min(held.values(), default=0) >= 0 for held in self.held), "I1: capabilities"
        for q in range(self.peers):
            self.check_conservation(q)
            self.check_safety(q)
        for p in range(self.peers):
            self.check_justified(p)

    def check_conservation(self, q: int) -> None:
        total: Counts = Counter(self.views[q])
        for p in range(self.peers):
            self.add(total, self.unsent[p].items())
            for batch in self.queues.get((p, q), ()):
                self.add(total, batch.updates)
        assert plain(total) == plain(self.truth), f"X3: worker {q} has heard, and will hear, something else"

    def check_safety(self, q: int) -> None:
        """S0: all that is there, and all that is told, lies beyond the view; and the view never takes anything back."""
        view, there = self.views[q], plain(self.truth)
        for pointstamp in there:
            assert self.graph.covered(view, pointstamp), f"S0, X4: worker {q} takes {pointstamp} for gone"
        for p in range(self.peers):
            for batch in self.queues.get((p, q), ()):
                for pointstamp, _ in batch.updates:
                    assert self.graph.covered(view, pointstamp), f"I6: {pointstamp} is on its way to worker {q}"
        before, self.shown[q] = self.shown[q], self.frontiers(q)
        for place, frontier in before.items():
            assert frontier <= self.shown[q][place], f"I5, X5, X6: worker {q}'s frontier at {place} went back"

    def check_justified(self, p: int) -> None:
        """I3: what is unsaid, and every end of what was said but not heard, is justified by what ``p`` holds."""
        for q in range(self.peers):
            coming: Counts = Counter(self.unsent[p])
            ends = [plain(coming)]
            for batch in reversed(self.queues.get((p, q), ())):
                self.add(coming, batch.updates)
                ends.append(plain(coming))
            for end in ends:
                for place, count in end.items():
                    fine = count < max(1, self.held[p][place]) or self.justified(p, end, place)
                    assert fine, f"I3: worker {p} has no right to {place}"

    def justified(self, p: int, end: dict[Pointstamp, int], place: Pointstamp) -> bool:
        below = [start for start, count in end.items() if count < 0] + list(plain(self.held[p]))
        return any(start != place and self.graph.leads(start, place) for start in below)

    @staticmethod
    def add(counts: Counts, updates: Iterable[tuple[Pointstamp, int]]) -> None:
        for pointstamp, diff in updates:
            counts[pointstamp] += diff


def plain(counts: Counts) -> dict[Pointstamp, int]:
    return {pointstamp: count for pointstamp, count in counts.items() if count}


def tuple_of(time: Any) -> tuple[int, ...]:
    return tuple(time) if isinstance(time, Product) else (time,)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """One to three nodes, chains, joins and loops; a node that feeds itself or one before it advances time."""
    spec = draw(st.sampled_from([int, Product[int, int]]))
    size = draw(st.integers(1, 3))
    feeds = st.lists(st.integers(0, size - 1), max_size=2)
    inputs = [draw(feeds) for _ in range(size)]
    summaries: list[Any] = []
    for node in range(size):
        leads_back = any(node in inputs[reader] for reader in range(node + 1))
        limit = draw(st.none() | st.integers(2, 4))
        step = Step(draw(st.integers(int(leads_back), 2)), limit)
        swap = draw(st.booleans())
        summaries.append(step if spec is int else ProductSummary(*((Step(0), step) if swap else (step, Step(0)))))
    return make_graph(spec, inputs, summaries)


DOINGS = st.tuples(st.integers(0, 6), st.integers(0, 2), st.integers(0, 3), st.integers(0, 5), st.integers(0, 2))


@given(graph=graphs(), peers=st.integers(1, 3), doings=st.lists(DOINGS, max_size=100))
def test_T6_any_interleaving(graph: Graph, peers: int, doings: list[tuple[int, int, int, int, int]]) -> None:
    simulation = Simulation(graph, peers)
    simulation.check()
    for doing in doings:
        simulation.act(*doing)
        simulation.check()
    simulation.settle()
    simulation.check()
    assert all(plain(view) == plain(simulation.truth) for view in simulation.views)
    simulation.finish()
    simulation.check()
    assert not any(plain(view) for view in simulation.views)


LINE = make_graph(int, [[], [0]], [Step(0), Step(0)])
LOOP = make_graph(int, [[1], [0]], [Step(0), Step(1)])


class Splitting(Simulation):
    """Breaks batches up, and tells of what went before what came."""

    def tell(self, p: int, batch: ProgressBatch[Pointstamp]) -> None:
        for update in sorted(batch.updates, key=lambda update: update[1]):
            self.told[p] += 1
            super().tell(p, ProgressBatch(p, self.told[p] - 1, (update,)))

    def __init__(self, graph: Graph, peers: int) -> None:
        super().__init__(graph, peers)
        self.told = [0] * peers


class Overtaking(Simulation):
    """Delivers the last batch of a pair first, past the check that would refuse it."""

    def hear(self, q: int, which: int, _: int = 0, __: int = 0) -> None:
        senders = [p for p in range(self.peers) if p != q and self.queues[p, q]]
        if senders:
            self.count(q, self.queues[senders[which % len(senders)], q].pop().updates)


class OneForAll(Simulation):
    """Begins with one capability in all, not one for each worker."""

    def initially(self) -> int:
        return 1


class Forging(Simulation):
    """Lets workers send without a capability."""

    def send(self, p: int, which: int, by: int, to: int) -> None:
        self.state(p, self.deliver_data(Source(0, 0), by % 3, to))


def first_violation(kind: type[Simulation], graph: Graph) -> str | None:
    """Run at random until a view is found that is not safe; None if there is none in 300 runs."""
    for seed in range(300):
        choices = random.Random(seed)
        simulation = kind(graph, 2)
        try:
            for _ in range(60):
                simulation.act(choices.randrange(7), *(choices.randrange(6) for _ in range(4)))
                for q in range(2):
                    simulation.check_safety(q)
        except AssertionError as violation:
            return str(violation)
    return None


@pytest.mark.parametrize("graph", [LINE, LOOP], ids=["line", "loop"])
@pytest.mark.parametrize("kind", [Splitting, Overtaking, OneForAll, Forging])
def test_T9_the_checker_objects(kind: type[Simulation], graph: Graph) -> None:
    assert first_violation(kind, graph) is not None


@pytest.mark.parametrize("graph", [LINE, LOOP], ids=["line", "loop"])
def test_T9_and_not_without_cause(graph: Graph) -> None:
    assert first_violation(Simulation, graph) is None


def one_message() -> tuple[Simulation, Pointstamp]:
    """Of all work there is left one message, for worker 0 at node 1; and everyone has heard that."""
    simulation = Simulation(LINE, 2)
    simulation.drop(0, 1, 0, 0)
    simulation.send(0, 0, 0, 0)
    simulation.drop(0, 0, 0, 0)
    simulation.drop(1, 0, 0, 0)
    simulation.drop(1, 0, 0, 0)
    simulation.settle()
    simulation.check()
    message = (Target(1, 0), 0)
    assert plain(simulation.views[1]) == {message: 1}
    return simulation, message


def test_S0_consumption_and_production_apart() -> None:
    simulation, message = one_message()
    simulation.consume(0, 0, 4, 0)
    batch = simulation.exchanges[0].flush()
    assert batch is not None
    assert dict(batch.updates) == {message: -1, (Source(1, 0), 1): 1}
    simulation.count(1, [update for update in batch.updates if update[1] < 0])
    with pytest.raises(AssertionError, match="S0, X4: worker 1 takes"):
        simulation.check_safety(1)


def test_S0_in_one_batch_it_is_safe() -> None:
    simulation, _ = one_message()
    simulation.consume(0, 0, 4, 0)
    simulation.check()
    simulation.settle()
    simulation.check()
    assert plain(simulation.views[1]) == {(Source(1, 0), 1): 1}


def test_S0_batches_that_overtake() -> None:
    simulation = Simulation(LINE, 2)
    simulation.drop(1, 0, 0, 0)
    simulation.drop(1, 0, 0, 0)
    simulation.drop(0, 1, 0, 0)
    simulation.settle()
    simulation.send(0, 0, 0, 0)
    simulation.flush(0)
    simulation.drop(0, 0, 0, 0)
    simulation.flush(0)
    last = simulation.queues[0, 1][-1]
    with pytest.raises(ProgressError, match="worker 1 expected progress batch 1 of worker 0 but got 2"):
        simulation.exchanges[1].receive(last)
    simulation.check()
    simulation.count(1, last.updates)
    with pytest.raises(AssertionError, match="S0, X4: worker 1 takes"):
        simulation.check_safety(1)


def test_a_consumption_may_be_heard_before_the_production() -> None:
    simulation = Simulation(LINE, 3)
    simulation.send(0, 0, 0, 1)
    simulation.flush(0)
    simulation.consume(1, 0, 0, 0)
    simulation.flush(1)
    simulation.hear(2, 1)
    assert simulation.views[2][Target(1, 0), 0] == -1
    simulation.check()
    simulation.settle()
    assert simulation.views[2][Target(1, 0), 0] == 0


def test_the_initial_count_is_the_number_of_workers() -> None:
    simulation = Simulation(LINE, 3)
    for p in (0, 1):
        simulation.drop(p, 0, 0, 0)
        simulation.flush(p)
        simulation.hear(2, 0)
        assert simulation.graph.frontier(simulation.views[2], Target(1, 0)) == Antichain([0])
    simulation.drop(2, 0, 0, 0)
    simulation.flush(2)
    assert simulation.graph.frontier(simulation.views[2], Target(1, 0)) == Antichain()


def test_flush_says_nothing_when_all_cancels() -> None:
    exchange: ProgressExchange[str] = ProgressExchange(0, 2)
    assert exchange.flush() is None
    exchange.extend([("a", 1), ("b", 1), ("a", -1)])
    exchange.update("b", -1)
    assert exchange.flush() is None
    exchange.update("a", 2)
    assert exchange.flush() == ProgressBatch(0, 0, (("a", 2),))
    exchange.update("b", -1)
    assert exchange.flush() == ProgressBatch(0, 1, (("b", -1),))


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        (ProgressBatch(0, 0, ()), "worker 1 expected progress batch 1 of worker 0 but got 0: it was delivered before"),
        (ProgressBatch(0, 2, ()), "worker 1 expected progress batch 1 of worker 0 but got 2: batches were lost"),
        (ProgressBatch(1, 0, ()), "worker 1 got its own progress batch 0: a worker counts its own"),
        (ProgressBatch(3, 0, ()), "worker 1 got a progress batch of worker 3, but the run's workers are 0 to 2"),
        (ProgressBatch(-1, 0, ()), "worker 1 got a progress batch of worker -1"),
    ],
)
def test_batches_out_of_place_are_refused(batch: ProgressBatch[str], says: str) -> None:
    exchange: ProgressExchange[str] = ProgressExchange(1, 3)
    assert exchange.receive(ProgressBatch(0, 0, (("a", 1),))) == (("a", 1),)
    with pytest.raises(ProgressError, match=says):
        exchange.receive(batch)
    assert exchange.receive(ProgressBatch(0, 1, (("a", -1),))) == (("a", -1),)
    assert exchange.receive(ProgressBatch(2, 0, (("b", 1),))) == (("b", 1),)


@pytest.mark.parametrize(("index", "peers"), [(0, 0), (2, 2), (-1, 2)])
def test_a_worker_is_one_of_its_peers(index: int, peers: int) -> None:
    with pytest.raises(ConfigurationError, match="there is no worker"):
        ProgressExchange(index, peers)
    assert (ProgressExchange(1, 2).index, ProgressExchange(1, 2).peers) == (1, 2)
