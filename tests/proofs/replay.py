"""Replays what the model computed on the code: each function raises ``AssertionError`` where the two differ.

White box: nested scopes are driven through ``Subgraph``, as a worker drives them, for their projections to be seen.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, Final

from tests.proofs.cases import VALUES, Case, groups_of, locations, size
from tests.scopes.handmade import HandMade, Parent
from timely import Antichain, Product, ProductSummary, Source, Step, Target
from timely.differential import Collection
from timely.progress import Location, PathSummary, ProgressAggregator, ProgressBatch, ProgressExchange, Tracker, lattice
from timely.scopes import EGRESS, INGRESS, Subgraph, SubgraphBuilder
from timely.testing import GraphSpec, NodeSpec
from timely.testing.differential import run

Frontier = set[tuple[int, int]]


def time_in(case: Case, time: list[int]) -> Any:
    return Product(*time) if case["pairs"] else time[0]


def pair_of(time: Any) -> tuple[int, int]:
    return (time, 0) if isinstance(time, int) else (time[0], time[1])


def summary_in(case: Case, summary: list[Any]) -> PathSummary[Any]:
    outer, inner, limit = summary
    return ProductSummary(Step(outer, limit), Step(inner)) if case["pairs"] else Step(outer, limit)


def graph_in(case: Case) -> GraphSpec:
    """Return the graph of a case as one of the library."""
    nodes = []
    for node in case["nodes"]:
        summaries: dict[tuple[int, int], tuple[Any, ...]] = defaultdict(tuple)
        for i, o, summary in node["summaries"]:
            summaries[i, o] += (summary_in(case, summary),)
        minimal = {ports: tuple(Antichain(result)) for ports, result in summaries.items()}
        nodes.append(NodeSpec(node["inputs"], node["outputs"], minimal, tuple(node["observes"])))
    edges = [(Source(*start), Target(*end), local) for start, end, local in case["edges"]]
    return GraphSpec(Product[int, int] if case["pairs"] else int, tuple(nodes), tuple(edges))


def shown(tracker: Tracker[Any]) -> dict[Target, Frontier]:
    """Return the frontiers that a tracker reports, from where it keeps them."""
    return {target: {pair_of(time) for time in tracker.frontier(target)} for target in tracker.observed}


def expected_at(places: list[Location], frontiers: list[Any]) -> dict[Location, Frontier]:
    return {place: {(x, y) for x, y in times} for place, times in zip(places, frontiers, strict=True)}


def same_frontiers(tracker: Tracker[Any], places: list[Location], frontiers: list[Any]) -> None:
    """Compare the frontiers that a tracker has kept, and those at all locations, with those of the model."""
    expected = expected_at(places, frontiers)
    for target, frontier in shown(tracker).items():
        assert frontier == expected[target], f"at {target}: {frontier}, and the model has {expected[target]}"
    groups = {place: {pair_of(time) for time in times} for place, times in tracker.frontiers().items()}
    assert groups == expected


def replay_frontiers(case: Case, answer: list[Any]) -> None:
    """Change counts in a compiled graph, round by round; compare every frontier, and the changes that were reported."""
    graph = graph_in(case)
    places, tracker = graph.locations(), graph.build()
    reported: dict[Target, Frontier] = defaultdict(set)
    for changes, frontiers in zip(case["rounds"], answer, strict=True):
        for place, time, diff in changes:
            tracker.update(places[place], time_in(case, time), diff)
        for target, time, diff in tracker.propagate():
            (reported[target].add if diff > 0 else reported[target].remove)(pair_of(time))
        same_frontiers(tracker, places, frontiers)
        assert {target: reported[target] for target in tracker.observed} == shown(tracker)


class _Worker:
    """One worker's end of the exchange of a case: what it counts, and what it sends to whom."""

    def __init__(self, index: int, case: Case) -> None:
        graph = graph_in(case)
        self.places = graph.locations()
        self.tracker = graph.build()
        self.groups = groups_of(case["mode"], case["workers"])
        self.exchange: ProgressExchange[tuple[int, Any]] = ProgressExchange(index, case["workers"])
        self.aggregator = ProgressAggregator(index, self.groups)
        for place, location in enumerate(self.places):
            if isinstance(location, Source):
                self.count([((place, 0), case["workers"])])

    def count(self, updates: Any) -> None:
        for (place, time), diff in updates:
            self.tracker.update(self.places[place], time, diff)

    def flush(self) -> dict[int, ProgressBatch[Any]]:
        """Return the batch for each member of a group that gets one."""
        batch = self.exchange.flush()
        if batch is not None:
            self.aggregator.add(0, batch)
        return {member: batch for members, _, batch in self.aggregator.flush() for member in members}

    def receive(self, batch: ProgressBatch[Any]) -> None:
        self.aggregator.receive(batch.sender, 0, batch)
        self.count(self.exchange.receive(batch))


def _counts(updates: Any) -> dict[tuple[int, tuple[int, int]], int]:
    return {(place, pair_of(time)): diff for (place, time), diff in updates}


def _modelled(counts: list[Any]) -> dict[tuple[int, tuple[int, int]], int]:
    return {(place, (x, y)): diff for (place, (x, y)), diff in counts}


def replay_exchange(case: Case, answer: list[Any], merge: bool = False) -> None:
    """Take each decision of a run; compare what is sent to whom, and what each worker counts and concludes.

    With ``merge``, of runs in which nothing is forwarded, a batch waits for the next one of its sender, and both arrive as one.
    """
    workers = [_Worker(index, case) for index in range(case["workers"])]
    waits: set[tuple[int, int]] = set()
    queues: dict[tuple[int, int], deque[ProgressBatch[Any] | None]] = defaultdict(deque)
    for (kind, *what), expected in zip(case["decisions"], answer, strict=True):
        if kind == "flush":
            index, members = what
            sent = workers[index].flush()
            assert set(sent) <= set(members)
            for member, content in zip(members, expected, strict=True):
                batch = sent.get(member)
                groups = {} if batch is None else _counts(batch.updates)
                assert groups == _modelled(content), f"worker {index} sends {groups} to {member}"
                queues[index, member].append(batch)
            continue
        if kind == "do":
            index, lost, gained = what
            changes = [
                ((place, time_in(case, time)), diff) for diff, stamps in ((-1, lost), (1, gained)) for place, time in stamps
            ]
            workers[index].exchange.changes.extend(changes)
            workers[index].count(changes)
        else:
            sender, index = what
            queue = queues[sender, index]
            batch = queue.popleft()
            waits.discard((sender, index))
            if merge and batch is not None and queue and queue[0] is not None:
                queue[0] = batch.merged([queue[0]])
                waits.add((sender, index))
                continue
            if batch is not None:
                workers[index].receive(batch)
        if any(receiver == index for _, receiver in waits):
            continue  # it has less than in the model, until the next batch arrives
        counts, frontiers = expected
        worker = workers[index]
        worker.tracker.propagate()
        numbers = {location: place for place, location in enumerate(worker.places)}
        groups = {(numbers[location], pair_of(time)): count for (location, time), count in worker.tracker.counts().items()}
        assert groups == _modelled(counts), f"worker {index} counts {groups}"
        same_frontiers(worker.tracker, worker.places, frontiers)


def _inner_node(case: Case, number: int) -> HandMade:
    node = case["nodes"][number]
    rows: list[list[Antichain[Any]]] = [[Antichain() for _ in range(node["outputs"])] for _ in range(node["inputs"])]
    for i, o, summary in node["summaries"]:
        rows[i][o].insert(summary_in(case, summary))
    return HandMade(rows, node["outputs"], [[] for _ in range(node["outputs"])])


def nested(case: Case, peers: int) -> tuple[Subgraph[Any, Any], Parent, list[HandMade]]:
    """Return the loop of a case as a scope of a parent, with its nodes."""
    sub: SubgraphBuilder[Any, Any] = SubgraphBuilder(
        Subgraph("loop", "/loop", int, Product[int, int], peers=peers, exchange=ProgressExchange(0, peers))
    )
    entries = case["nodes"][0]["outputs"]
    for _ in range(entries):
        sub.new_input()
    nodes = [_inner_node(case, number) for number in range(1, len(case["nodes"]))]
    children = [INGRESS, *(sub.add_child(f"node {number}", node) for number, node in enumerate(nodes))]
    for start, end, _ in case["edges"]:
        sub.add_edge(Source(children[start[0]], start[1]), Target(children[end[0]], end[1]), local=False)
    for number, output in case["leaving"]:
        sub.add_edge(Source(children[number], output), Target(EGRESS, sub.new_output()), local=False)
    parent = Parent(sub)
    return sub.subgraph, parent, nodes


def replay_nesting(case: Case, answer: list[Any]) -> None:
    """Count in a loop what peers report; compare what it projects to its outputs, and the frontiers inside."""
    entries = case["nodes"][0]["outputs"]
    external = [[(time, 1) for time in times] for _, times in sorted(case["entering"])]
    scope, parent, nodes = nested(case, 2)
    parent.set(external=external)
    parent.pull()
    inputs, outputs = locations(case["nodes"])
    places: dict[int, Location] = {}
    for number in range(1, len(case["nodes"])):
        places |= {place: Target(number - 1, port) for port, place in enumerate(inputs[number])}
        places |= {place: Source(number - 1, port) for port, place in enumerate(outputs[number])}
    beyond = size(case["nodes"])
    tracker = scope.trackers[0]
    for changes, outward, inward in zip(case["rounds"], *answer, strict=True):
        for place, time, diff in changes:
            scope.receive(tracker.index(places[place]), Product(*time), diff)
        parent.pull()
        for port, held in enumerate(parent.held):
            assert all(count > 0 for count in held.values())
            minimal = {(x, y) for x, y in outward[beyond + port]}
            groups = {pair_of(time) for time in Antichain(held)}
            assert groups == minimal, f"output {port} has {groups}, and the model has {minimal}"
        for place, location in places.items():
            if isinstance(location, Target):
                frontier = {pair_of(time) for time in tracker.frontier(location)}
                assert frontier == {(x, y) for x, y in inward[place]}, f"inside at {location}: {frontier}"
    assert entries == scope.inputs
    assert len(nodes) == len(scope.children)


def replay_compaction(case: list[Any], answer: list[Any]) -> None:
    """Advance times by frontiers."""
    times = lattice(Product[int, int])
    for (time, frontier), expected in zip(case, answer, strict=True):
        result = times.advance(Product(*time), [Product(*element) for element in frontier])
        assert list(result) == expected, f"{time} advances to {result} by {frontier}"


def _most(key: int, values: list[tuple[int, int]]) -> list[tuple[int, int]]:
    present = [value for value, count in values if count > 0]
    return [(max(present), 1)] if present else []


def _number(key: int, values: list[tuple[int, int]]) -> list[tuple[int, int]]:
    present = [value for value, count in values if count > 0]
    return [(len(present), 1)] if present else []


def replay_reduction(case: Case, answer: list[Any]) -> None:
    """Reduce the changes of a key by a function, and by the aggregate that does the same; compare every change of the output.

    In several orders, compacted and not, on one worker and on two.
    """
    changes = [((0, value), Product(*time), diff) for batch in case["batches"] for time, value, diff in batch]
    expected = {((x, y), value): diff for (x, y), value, diff in answer}
    ways: list[Callable[[Collection[Any, Any]], Any]] = (
        [lambda pairs: pairs.reduce(_most), lambda pairs: pairs.max_by_key()]
        if case["most"]
        else [lambda pairs: pairs.reduce(_number), lambda pairs: pairs.distinct().count_by_key()]
    )
    for build in ways:
        for conditions in _CONDITIONS:
            outputs = run(build, changes, time=Product[int, int], one_by_one=True, **conditions)
            assert {(pair_of(time), value): diff for (_, value), time, diff in outputs} == expected


def replay_join(case: Case, answer: list[Any]) -> None:
    """Join the changes of two sides, and compare every change of the output."""
    sides = [[((key, value), Product(*time), diff) for key, value, time, diff in case[side]] for side in ("left", "right")]
    expected = {((x, y), (key, value)): diff for (x, y), key, value, diff in answer}
    for conditions in _CONDITIONS:
        outputs = run(_joined, *sides, time=Product[int, int], one_by_one=True, **conditions)
        assert {(pair_of(time), row): diff for row, time, diff in outputs} == expected


def _joined(left: Collection[Any, Any], right: Collection[Any, Any]) -> Collection[Any, Any]:
    return left.join_map(right, lambda key, value, other: (key, value * VALUES + other))


_CONDITIONS: Final[list[dict[str, Any]]] = [
    {},
    {"compact": True},
    {"compact": True, "seed": 1},
    {"compact": True, "seed": 2, "workers": 2},
]

REPLAYS: Final[dict[str, Callable[[Any, Any], None]]] = {
    "frontiers": replay_frontiers,
    "exchanges": replay_exchange,
    "nestings": replay_nesting,
    "compactions": replay_compaction,
    "reductions": replay_reduction,
    "joins": replay_join,
}
