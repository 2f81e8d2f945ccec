"""Brute force for what the compiled engine computes, and random graphs and updates to compare the two on.

The oracle knows nothing of cells: it follows every path of the graph as it was described, and takes the minimal
elements of all that positive counts result in (G9 of the invariants). ``GraphSpec`` describes a graph independently of
any builder; ``graphs`` makes random ones on whose every cycle time strictly advances, ``updates`` random changes of
counts that keep the promises of local edges.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
from hypothesis import strategies as st

from timely.progress.antichain import Antichain
from timely.progress.graph import GraphBuilder
from timely.progress.location import Location, Source, Target
from timely.progress.timestamp import time_domain
from timely.progress.tracker import Tracker

Counts = Mapping[tuple[Location, Any], int]


@attrs.frozen
class NodeSpec:
    inputs: int
    outputs: int
    summaries: Mapping[tuple[int, int], tuple[Any, ...]]
    observes: tuple[int, ...]


@attrs.frozen
class GraphSpec:
    """A graph, as data: ``edges`` are (source, target, whether it is local)."""

    time: Any
    nodes: tuple[NodeSpec, ...]
    edges: tuple[tuple[Source, Target, bool], ...]

    def builder(self) -> GraphBuilder[Any]:
        builder: GraphBuilder[Any] = GraphBuilder(self.time)
        for number, node in enumerate(self.nodes):
            rows: dict[int, dict[int, Antichain[Any]]] = {}
            for (i, o), summaries in node.summaries.items():
                rows.setdefault(i, {})[o] = Antichain(summaries)
            builder.add_node(number, node.inputs, node.outputs, rows, observes=node.observes)
        for source, target, local in self.edges:
            builder.add_edge(source, target, local=local)
        return builder

    def build(self) -> Tracker[Any]:
        return self.builder().build()

    def locations(self) -> list[Location]:
        found: list[Location] = []
        for number, node in enumerate(self.nodes):
            found += [Target(number, port) for port in range(node.inputs)]
            found += [Source(number, port) for port in range(node.outputs)]
        return found

    def observed(self) -> list[Target]:
        return [Target(number, port) for number, node in enumerate(self.nodes) for port in node.observes]

    def never_negative(self) -> set[Location]:
        """The locations whose counts are promised never to be negative."""
        return {end for source, target, local in self.edges if local for end in (source, target)}

    def steps(self) -> dict[Location, list[tuple[Location, Any]]]:
        """Return where one step leads from each location, with its summary."""
        identity = time_domain(self.time).identity
        found: dict[Location, list[tuple[Location, Any]]] = {location: [] for location in self.locations()}
        for number, node in enumerate(self.nodes):
            for (i, o), summaries in node.summaries.items():
                found[Target(number, i)] += [(Source(number, o), summary) for summary in summaries]
        for source, target, _ in self.edges:
            found[source].append((target, identity))
        return found


def path_summaries(spec: GraphSpec, start: Location) -> dict[Location, list[Any]]:
    """Return the minimal summaries of all paths from ``start``, by following them one step at a time."""
    steps = spec.steps()
    found: dict[Location, list[Any]] = {start: [time_domain(spec.time).identity]}
    queue: deque[tuple[Location, Any]] = deque([(start, found[start][0])])
    while queue:
        location, summary = queue.popleft()
        for following, step in steps[location]:
            extended = summary.followed_by(step)
            known = found.setdefault(following, [])
            if extended is not None and not any(other <= extended for other in known):
                known[:] = [other for other in known if not extended <= other] + [extended]
                queue.append((following, extended))
    return {location: summaries for location, summaries in found.items() if summaries}


def minimal(times: Iterable[Any]) -> set[Any]:
    """Return the minimal elements, by comparing each with each."""
    distinct = list(dict.fromkeys(times))
    return {time for time in distinct if not any(other <= time and other != time for other in distinct)}


class Oracle:
    """The frontiers of a graph by definition: what each positive count results in along every path."""

    def __init__(self, spec: GraphSpec) -> None:
        self.locations = spec.locations()
        self._summaries = {location: path_summaries(spec, location) for location in self.locations}

    def frontiers(self, counts: Counts) -> dict[Location, set[Any]]:
        arrivals: dict[Location, list[Any]] = {location: [] for location in self.locations}
        for (location, time), count in counts.items():
            if count > 0:
                for end, summaries in self._summaries[location].items():
                    arrivals[end] += [t for t in (s.results_in(time) for s in summaries) if t is not None]
        return {location: minimal(times) for location, times in arrivals.items()}


@attrs.frozen
class TimeKit:
    """What random graphs over some times are made of: ``advancing`` summaries strictly advance, ``others`` need not."""

    spec: Any
    times: st.SearchStrategy[Any]
    advancing: st.SearchStrategy[Any]
    others: st.SearchStrategy[Any]


PORTS = (st.sampled_from([0, 1, 1, 2, 2, 3]), st.sampled_from([2, 3]))
SUMMARIES = (st.sampled_from([0, 1, 1, 1, 2, 3]), st.sampled_from([1, 1, 1, 1, 2, 0]))


@st.composite
def graphs(draw: st.DrawFn, kit: TimeKit, max_nodes: int = 6) -> GraphSpec:
    """Random graphs of nodes with up to three ports a side; a summary advances wherever a cycle could otherwise close.

    An edge to a node of a higher number is free. One that leads back goes to an input whose every summary advances, so
    that every cycle has such an input on it. Half of the graphs are tangles, in which almost everything is connected.
    """
    tangled = draw(st.booleans())
    nodes: list[NodeSpec] = []
    looping: list[Target] = []
    for number in range(draw(st.integers(min(3, max_nodes) if tangled else 1, max_nodes))):
        inputs, outputs = draw(PORTS[tangled]), draw(PORTS[tangled])
        loops = [draw(st.booleans()) for _ in range(inputs)]
        looping += [Target(number, i) for i, loop in enumerate(loops) if loop]
        summaries: dict[tuple[int, int], tuple[Any, ...]] = {}
        for i, loop in enumerate(loops):
            for o in range(outputs):
                size = draw(SUMMARIES[tangled])
                chosen = draw(st.lists(kit.advancing if loop else kit.others, min_size=size, max_size=size))
                if chosen:
                    summaries[i, o] = tuple(Antichain(chosen))
        observes = tuple(i for i in range(inputs) if draw(st.booleans()))
        nodes.append(NodeSpec(inputs, outputs, summaries, observes))
    return GraphSpec(kit.spec, tuple(nodes), tuple(draw(_edges(nodes, looping))))


@st.composite
def _edges(draw: st.DrawFn, nodes: list[NodeSpec], looping: list[Target]) -> list[tuple[Source, Target, bool]]:
    """Random edges that lead back only to the inputs in ``looping``; few inputs are left without one."""
    edges: list[tuple[Source, Target, bool]] = []
    for number, node in enumerate(nodes):
        for target in (Target(number, port) for port in range(node.inputs)):
            sources = [
                Source(other, port)
                for other, from_node in enumerate(nodes)
                if (other >= number if target in looping else other < number)
                for port in range(from_node.outputs)
            ]
            if sources and draw(st.integers(0, 5)) < 5:
                edges.append((draw(st.sampled_from(sources)), target, draw(st.booleans())))
    return edges


@st.composite
def ladders(draw: st.DrawFn, kit: TimeKit) -> GraphSpec:
    """Random graphs of nodes in a line, joined both ways to their neighbours and here and there to others.

    No single location cuts all of their cycles. Input 0 is reached from the node before, the others from behind.
    """
    length = draw(st.integers(4, 7))
    nodes: list[NodeSpec] = []
    edges: list[tuple[Source, Target, bool]] = []
    for number in range(length):
        pairs = {(i, o): (draw(kit.advancing if i else kit.others),) for i in range(3) for o in range(2)}
        nodes.append(NodeSpec(3, 2, pairs, tuple(i for i in range(3) if draw(st.booleans()))))
        local = draw(st.booleans())
        if number > 0:
            edges.append((Source(number - 1, 0), Target(number, 0), local))
        if number < length - 1:
            edges.append((Source(number + 1, 1), Target(number, 1), local))
        if draw(st.booleans()):
            end = draw(st.integers(number, length - 1))
            edges.append((Source(end, draw(st.integers(0, 1))), Target(number, 2), local))
    return GraphSpec(kit.spec, tuple(nodes), tuple(edges))


Change = tuple[Location, Any, int]


@st.composite
def changes(draw: st.DrawFn, kit: TimeKit, spec: GraphSpec, max_rounds: int = 6) -> list[list[Change]]:
    """Random rounds of changes of counts, in each of which no count that is promised not to be negative ever is."""
    locations = spec.locations()
    if not locations:
        return [[]]
    safe = spec.never_negative()
    counts: dict[tuple[Location, Any], int] = {}
    rounds: list[list[Change]] = []
    for _ in range(draw(st.integers(1, max_rounds))):
        made: list[Change] = []
        for _ in range(draw(st.integers(0, 6))):
            present = [key for key, count in counts.items() if count]
            again = draw(st.booleans())
            if present and again:
                location, time = draw(st.sampled_from(present))
                diff = -counts[location, time]
            else:
                location, time = draw(st.sampled_from(locations)), draw(kit.times)
                diff = draw(st.integers(-2, 2))
            count = counts.get((location, time), 0)
            if location in safe:
                diff = max(diff, -count)
            counts[location, time] = count + diff
            made.append((location, time, diff))
        rounds.append(made)
    return rounds


def scenarios(kit: TimeKit) -> st.SearchStrategy[tuple[GraphSpec, list[list[Change]]]]:
    """A graph and rounds of changes for it."""
    return st.one_of(graphs(kit), ladders(kit)).flatmap(lambda spec: st.tuples(st.just(spec), changes(kit, spec)))
