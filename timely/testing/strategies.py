"""Hypothesis strategies for times, path summaries, progress graphs, and changes of their counts.

Every strategy takes a time type or a :class:`~timely.testing.TimeKit`. What it makes is legal, and shrinks to small cases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_args, get_origin

import attrs
from hypothesis import find, settings
from hypothesis import strategies as st

from timely.errors import ConfigurationError
from timely.order import Product
from timely.progress import Antichain, Location, LoopSummary, LoopTime, ProductSummary, Source, Step, Target, Unit, UnitSummary
from timely.testing.oracles import Change, GraphSpec, NodeSpec

X = TypeVar("X")


@attrs.frozen
class TimeKit:
    """Strategies for a time type. No summary goes back in time; ``advancing`` ones strictly advance every time.

    ``advancing`` is ``st.nothing()`` if no summary does. ``inside`` are kits of types that refine this one, for nested scopes;
    ``parts`` are the two kits of a product.

    >>> kit = TimeKit(int, st.integers(0, 3), st.just(Step(1)), st.just(Step(0)))
    >>> kit.spec is int
    True
    """

    spec: Any
    times: st.SearchStrategy[Any]
    advancing: st.SearchStrategy[Any]
    summaries: st.SearchStrategy[Any]
    inside: tuple[TimeKit, ...] = ()
    parts: tuple[TimeKit, TimeKit] | None = None

    def product(self, inner: TimeKit) -> TimeKit:
        """Return the kit of ``Product[self.spec, inner.spec]``; its summaries advance if those of one coordinate do."""
        ways = [(self.summaries, inner.advancing), (self.advancing, inner.summaries)]
        able = [way for way in ways if not any(part.is_empty for part in way)]
        advancing = st.one_of([st.builds(ProductSummary, *way) for way in able])
        summaries = st.builds(ProductSummary, self.summaries, inner.summaries)
        product: Any = Product  # its coordinates are known only at run time
        times = st.builds(Product, self.times, inner.times)
        return TimeKit(product[self.spec, inner.spec], times, advancing, summaries, (), (self, inner))


_LIMITS = st.none() | st.integers(0, 9)
_SMALL = st.integers(0, 3)
_COUNTERS = st.lists(_SMALL, max_size=3).map(tuple)


def time_kit(spec: Any) -> TimeKit:
    """Return the kit for ``int``, ``Unit``, ``LoopTime`` or a ``Product`` of these. A kit is returned as it is.

    >>> time_kit(Product[int, LoopTime]).spec == Product[int, LoopTime]
    True
    """
    if isinstance(spec, TimeKit):
        return spec
    if spec is int:
        forward, steps = (st.builds(Step, st.integers(least, least + 2), _LIMITS) for least in (1, 0))
        return TimeKit(int, st.integers(0, 8), forward, steps)
    if spec is Unit:
        return TimeKit(Unit, st.builds(Unit), st.nothing(), st.builds(UnitSummary))
    if spec is LoopTime:
        rounds = st.builds(LoopSummary, _SMALL, st.integers(1, 3), st.integers(1, 2), _COUNTERS)
        later = st.builds(LoopSummary, st.integers(1, 2)) | rounds
        return TimeKit(LoopTime, st.builds(LoopTime, _SMALL, _COUNTERS), later, st.builds(LoopSummary) | later)
    if get_origin(spec) is Product:
        outer, inner = map(time_kit, get_args(spec))
        return outer.product(inner)
    raise ConfigurationError(f"no strategy is known for {spec!r}: give a TimeKit with strategies for its times and summaries")


def times(spec: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for times of a type.

    >>> smallest(times(Product[int, int]), lambda time: time.inner >= 2)
    (0, 2)
    """
    return time_kit(spec).times


def summaries(spec: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for path summaries of a time type, advancing ones among them.

    >>> smallest(summaries(int), lambda summary: summary.results_in(4) is None)
    Step(0, limit=0)
    """
    kit = time_kit(spec)
    return kit.summaries | kit.advancing


def smallest(strategy: st.SearchStrategy[X], condition: Callable[[X], bool] = lambda _: True) -> X:
    """Return the simplest value that fulfils a condition, always the same one; ``NoSuchExample`` if there is none.

    >>> smallest(st.lists(st.integers()), lambda numbers: sum(numbers) > 9)
    [10]
    """
    return find(strategy, condition, settings=settings(database=None, deadline=None, derandomize=True, max_examples=2_000))


# Ports on a side and summaries of a pair of ports, by default and in a tangle. Small numbers come first, to shrink to.
_PORTS = (st.sampled_from([0, 1, 1, 2, 2, 3]), st.sampled_from([0, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3]))
_SUMMARIES = (st.sampled_from([0, 1, 1, 1, 2, 3]), st.sampled_from([0, 1, 1, 1, 1, 2]))


@st.composite
def graphs(draw: st.DrawFn, spec: Any, *, max_nodes: int = 6, local: bool = True) -> GraphSpec:
    """Make graphs of nodes with up to three ports a side. In half of them almost everything is connected.

    Every cycle advances: an edge back leads to an input all of whose summaries advance. ``local`` allows local edges.

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
    """Make lines of nodes with edges both ways, so that no single location cuts all cycles.

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
    """Make rounds of changes of a graph's counts, for a tracker. Counts at local edges are never negative.

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
                diff = -draw(st.integers(1, 3)) * counts[location, time]  # to nothing, or across it at once
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
