"""Hypothesis strategies for progress graphs, and for what happens on them.

Every strategy takes a time type or a :class:`~timely.testing.TimeKit`. What it makes is legal, and small cases come first when
Hypothesis shrinks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import find, settings
from hypothesis import strategies as st

from timely.progress import Antichain, Location, Source, Target
from timely.testing.exchange_rules import Do, ExchangeRules, Statement
from timely.testing.graph import GraphSpec, NodeSpec
from timely.testing.oracles import Change
from timely.testing.time_strategies import time_kit, times

X = TypeVar("X")


def smallest(strategy: st.SearchStrategy[X], condition: Callable[[X], bool] = lambda _: True) -> X:
    """Return the simplest value of a strategy that fulfils a condition, the same every time; ``NoSuchExample`` if there is none.

    >>> smallest(st.lists(st.integers()), lambda numbers: sum(numbers) > 9)
    [10]
    """
    return find(strategy, condition, settings=settings(database=None, derandomize=True, max_examples=2_000))


# Ports on a side and summaries of a pair of ports, by default and in a tangle. Small numbers come first, to shrink to.
_PORTS = (st.sampled_from([0, 1, 1, 2, 2, 3]), st.sampled_from([0, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3]))
_SUMMARIES = (st.sampled_from([0, 1, 1, 1, 2, 3]), st.sampled_from([0, 1, 1, 1, 1, 2]))


@st.composite
def graphs(draw: st.DrawFn, spec: Any, *, max_nodes: int = 6, local: bool = True) -> GraphSpec:
    """Make graphs of nodes with up to three ports a side. Half of them are tangles, in which almost everything is connected.

    An edge back to a lower node leads to an input whose every summary advances, so every cycle advances (Naiad section 2.1).
    Some edges are local, if ``local``.

    >>> smallest(graphs(int), lambda graph: len(graph.edges) > 0).edges
    ((Source(0, 0), Target(0, 0), False),)
    """
    kit = time_kit(spec)
    tangled = draw(st.booleans())
    nodes: list[NodeSpec] = []
    looping: list[Target] = []
    for number in range(draw(st.integers(1, max_nodes))):
        inputs, outputs = draw(_PORTS[tangled]), draw(_PORTS[tangled])
        loops = [not kit.advancing.is_empty and draw(st.booleans()) for _ in range(inputs)]
        looping += [Target(number, i) for i, loop in enumerate(loops) if loop]
        ways: dict[tuple[int, int], tuple[Any, ...]] = {}
        for i, loop in enumerate(loops):
            for o in range(outputs):
                size = draw(_SUMMARIES[tangled])
                chosen = draw(st.lists(kit.advancing if loop else kit.summaries, min_size=size, max_size=size))
                if chosen:
                    ways[i, o] = tuple(Antichain(chosen))
        observes = tuple(i for i in range(inputs) if draw(st.booleans()))
        nodes.append(NodeSpec(inputs, outputs, ways, observes))
    return GraphSpec(kit.spec, tuple(nodes), tuple(draw(_edges(nodes, looping, local))))


@st.composite
def _edges(draw: st.DrawFn, nodes: list[NodeSpec], looping: list[Target], local: bool) -> list[tuple[Source, Target, bool]]:
    """Make edges that lead back only to the inputs in ``looping``; few inputs are left without one."""
    edges: list[tuple[Source, Target, bool]] = []
    for number, node in enumerate(nodes):
        for target in (Target(number, port) for port in range(node.inputs)):
            sources = [
                Source(other, port)
                for other, from_node in enumerate(nodes)
                if (other >= number if target in looping else other < number)
                for port in range(from_node.outputs)
            ]
            if sources and draw(st.integers(0, 5)) > 0:
                edges.append((draw(st.sampled_from(sources)), target, local and draw(st.booleans())))
    return edges


@st.composite
def ladders(draw: st.DrawFn, spec: Any) -> GraphSpec:
    """Make graphs of nodes in a line, joined both ways to their neighbours, and some to others: no one location cuts all cycles.

    >>> len(smallest(ladders(int), lambda graph: True).nodes)
    1
    """
    kit = time_kit(spec)
    length = draw(st.sampled_from([1, 2, 3, 4, 4, 5, 5, 6, 6, 7]))
    nodes: list[NodeSpec] = []
    edges: list[tuple[Source, Target, bool]] = []
    for number in range(length):
        pairs = {(i, o): (draw(kit.advancing if i else kit.summaries),) for i in range(3) for o in range(2)}
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


@st.composite
def changes(draw: st.DrawFn, spec: Any, graph: GraphSpec, *, max_rounds: int = 6) -> list[list[Change]]:
    """Make rounds of any changes of a graph's counts, for a tracker; the counts of local edges are never negative.

    >>> graph = GraphSpec(int, (NodeSpec(1, 0, {}, (0,)),), ())
    >>> smallest(changes(int, graph), lambda rounds: any(diff < 0 for changes in rounds for _, _, diff in changes))
    [[(Target(0, 0), 0, -1)]]
    """
    kit = time_kit(spec)
    locations = graph.locations()
    if not locations:
        return [[]]
    safe = graph.never_negative()
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


def scenarios(spec: Any) -> st.SearchStrategy[tuple[GraphSpec, list[list[Change]]]]:
    """Return a strategy for a graph and rounds of changes for it.

    >>> smallest(scenarios(int), lambda scenario: True)[1]
    [[]]
    """
    shapes = [graphs(spec)] if time_kit(spec).advancing.is_empty else [graphs(spec), ladders(spec)]
    return st.one_of(shapes).flatmap(lambda graph: st.tuples(st.just(graph), changes(spec, graph)))


@st.composite
def histories(draw: st.DrawFn, spec: Any, graph: GraphSpec, *, max_size: int = 20) -> list[Statement]:
    """Make legal histories of one worker: atomic statements, each permitted by what it held or consumed (OC2).

    At the start each output has one capability at the minimum. Summed up in order, no count is ever negative.

    >>> graph = GraphSpec(int, (NodeSpec(0, 1, {}), NodeSpec(1, 0, {}, (0,))), ((Source(0, 0), Target(1, 0), False),))
    >>> smallest(histories(int, graph), lambda history: any(location == Target(1, 0) for s in history for location, _, _ in s))
    [((Target(1, 0), 0, 1),)]
    """
    rules = ExchangeRules(graph, 1, draw(st.lists(times(spec), max_size=3, unique=True)))
    state = rules.initial()
    made: list[Statement] = []
    for _ in range(draw(st.integers(0, max_size))):
        statements = list(rules.statements(state, 0))
        if not statements:
            break
        made.append(draw(st.sampled_from(statements)))
        state = rules.after(state, Do(0, made[-1]))
    return made
