"""Hypothesis strategies for what progress tracking is made of: times, summaries, antichains, graphs, changes of counts.

Every strategy takes a type of times, or a :class:`TimeKit` for a type of one's own, and the invariant is that what it
makes is legal: a graph strictly advances on every cycle, rounds of changes keep the promises of local edges, and each
statement of a history is permitted by what was held before it. What it makes is data, whose ``repr`` makes it again. A
caller may rely on small cases coming first when Hypothesis shrinks: fewer nodes, fewer edges, smaller times.
"""

from __future__ import annotations

from typing import Any, get_args, get_origin

import attrs
from hypothesis import strategies as st

from timely.errors import ConfigurationError
from timely.order import Product
from timely.progress import Antichain, ChangeBatch, Location, ProductSummary, Source, Step, Target, Unit, UnitSummary, time_domain
from timely.testing.exchange import ExchangeSimulation, Statement
from timely.testing.graph import GraphSpec, NodeSpec
from timely.testing.oracles import Change


@attrs.frozen
class TimeKit:
    """What random things over a type of times are made of; ``advancing`` summaries strictly advance, ``summaries`` need not.

    For a type of one's own; those of the library have one (:func:`time_kit`).

    >>> kit = TimeKit(int, st.integers(0, 3), st.just(Step(1)), st.just(Step(0)))
    >>> kit.spec is int
    True
    """

    spec: Any
    times: st.SearchStrategy[Any]
    advancing: st.SearchStrategy[Any]
    summaries: st.SearchStrategy[Any]


_LIMITS = st.none() | st.integers(0, 9)


def time_kit(spec: Any) -> TimeKit:
    """Return the kit for ``int``, ``Unit`` or a ``Product`` of such; a kit is returned as it is.

    :class:`~timely.errors.ConfigurationError` for any other type: make a :class:`TimeKit` of strategies for its times and summaries.

    >>> time_kit(Product[int, Unit]).spec == Product[int, Unit]
    True
    """
    if isinstance(spec, TimeKit):
        return spec
    if spec is int:
        return TimeKit(int, st.integers(0, 8), st.builds(Step, st.integers(1, 3), _LIMITS), st.builds(Step, st.integers(0, 2), _LIMITS))
    if spec is Unit:
        return TimeKit(Unit, st.builds(Unit), st.nothing(), st.builds(UnitSummary))
    if get_origin(spec) is Product:
        outer, inner = map(time_kit, get_args(spec))
        advancing = st.builds(ProductSummary, outer.summaries, inner.advancing) | st.builds(
            ProductSummary, outer.advancing, inner.summaries
        )
        summaries = st.builds(ProductSummary, outer.summaries, inner.summaries)
        return TimeKit(spec, st.builds(Product, outer.times, inner.times), advancing, summaries)
    raise ConfigurationError(f"no strategy is known for {spec!r}: give a TimeKit with strategies for its times and summaries")


def times(spec: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for times of a type.

    >>> from hypothesis import find
    >>> find(times(Product[int, int]), lambda time: time.inner >= 2)
    (0, 2)
    """
    return time_kit(spec).times


def summaries(spec: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for path summaries of a type of times, those that strictly advance among them.

    >>> from hypothesis import find
    >>> find(summaries(int), lambda summary: summary.results_in(4) is None)
    Step(0, limit=0)
    """
    kit = time_kit(spec)
    return kit.summaries | kit.advancing


def antichains(spec: Any, *, max_size: int = 4) -> st.SearchStrategy[Antichain[Any]]:
    """Return a strategy for antichains of times, the empty one among them.

    >>> from hypothesis import find
    >>> set(find(antichains(Product[int, int]), lambda antichain: len(antichain) == 2)) == {Product(0, 1), Product(1, 0)}
    True
    """
    return st.lists(times(spec), max_size=max_size).map(Antichain)


def change_batches(spec: Any, *, max_size: int = 6) -> st.SearchStrategy[ChangeBatch[Any]]:
    """Return a strategy for batches of changes of times' counts, by -2 to 2 at a go.

    >>> from hypothesis import find
    >>> find(change_batches(int), lambda batch: any(diff < 0 for _, diff in batch))
    ChangeBatch([(0, -1)])
    """
    return st.lists(st.tuples(times(spec), st.integers(-2, 2)), max_size=max_size).map(ChangeBatch)


_PORTS = (st.sampled_from([0, 1, 1, 2, 2, 3]), st.sampled_from([2, 3]))
_SUMMARIES = (st.sampled_from([0, 1, 1, 1, 2, 3]), st.sampled_from([1, 1, 1, 1, 2, 0]))


@st.composite
def graphs(draw: st.DrawFn, spec: Any, *, max_nodes: int = 6, local: bool = True) -> GraphSpec:
    """Make graphs of nodes with up to three ports a side; a summary advances wherever a cycle could otherwise close.

    An edge to a node of a higher number is free. One that leads back goes to an input whose every summary advances, so
    that every cycle has such an input on it (Naiad section 2.1). Half of the graphs are tangles, in which almost
    everything is connected. Some edges are local, if ``local``.

    >>> from hypothesis import find
    >>> find(graphs(int), lambda graph: len(graph.edges) > 0)
    GraphSpec(int, (NodeSpec(0, 1, {}, ()), NodeSpec(1, 0, {}, ())), ((Source(0, 0), Target(1, 0), False),))
    """
    kit = time_kit(spec)
    tangled = draw(st.booleans())
    nodes: list[NodeSpec] = []
    looping: list[Target] = []
    for number in range(draw(st.integers(min(3, max_nodes) if tangled else 1, max_nodes))):
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
                edges.append((draw(st.sampled_from(sources)), target, local and draw(st.booleans())))
    return edges


@st.composite
def ladders(draw: st.DrawFn, spec: Any) -> GraphSpec:
    """Make graphs of nodes in a line, joined both ways to their neighbours and here and there to others.

    No single location cuts all of their cycles. Input 0 is reached from the node before, the others from behind.

    >>> from hypothesis import find
    >>> len(find(ladders(int), lambda graph: True).nodes)
    4
    """
    kit = time_kit(spec)
    length = draw(st.integers(4, 7))
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
    """Make rounds of any changes of a graph's counts, but none that is promised not to be negative ever is.

    For the tracker, which must be exact whatever it is told; :func:`histories` makes what a computation could do.

    >>> from hypothesis import find
    >>> graph = GraphSpec(int, (NodeSpec(1, 0, {}, (0,)),), ())
    >>> find(changes(int, graph), lambda rounds: any(diff < 0 for changes in rounds for _, _, diff in changes))
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

    >>> from hypothesis import find
    >>> find(scenarios(int), lambda scenario: True)
    (GraphSpec(int, (NodeSpec(0, 0, {}, ()),), ()), [[]])
    """
    return st.one_of(graphs(spec), ladders(spec)).flatmap(lambda graph: st.tuples(st.just(graph), changes(spec, graph)))


@st.composite
def histories(draw: st.DrawFn, spec: Any, graph: GraphSpec, *, max_size: int = 20) -> list[Statement]:
    """Make legal histories of one worker: atomic statements, each permitted by what was held or consumed (OC2).

    Before the first there is one capability at the minimum at each output. Add them up in order for a tracker, a scheduler, or
    a scope of one's own; no count is ever negative.

    >>> from hypothesis import find
    >>> graph = GraphSpec(int, (NodeSpec(0, 1, {}, ()), NodeSpec(1, 0, {}, (0,))), ((Source(0, 0), Target(1, 0), False),))
    >>> find(histories(int, graph), lambda history: any(location == Target(1, 0) for s in history for location, _, _ in s))
    [((Target(1, 0), 0, 1),)]
    """
    simulation = ExchangeSimulation(graph, 1, draw(st.lists(times(spec), max_size=3, unique=True)))
    made: list[Statement] = []
    for _ in range(draw(st.integers(0, max_size))):
        statements = simulation.statements(0)
        if not statements:
            break
        made.append(draw(st.sampled_from(statements)))
        simulation.do(0, made[-1])
    return made
