"""Hypothesis strategies for what progress tracking is made of: times, graphs, nestings, dataflows, and what happens on them.

Every strategy takes a type of times, or a :class:`TimeKit` for a type of one's own, and the invariant is that what it
makes is legal: a graph strictly advances on every cycle, rounds of changes keep the promises of local edges, and each
statement of a history is permitted by what was held before it. What it makes is data, whose ``repr`` makes it again. A
caller may rely on small cases coming first when Hypothesis shrinks: fewer nodes, fewer edges, smaller times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, get_args, get_origin

import attrs
from hypothesis import assume, find, settings
from hypothesis import strategies as st

from timely.errors import ConfigurationError
from timely.order import Product
from timely.progress import Antichain, ChangeBatch, Location, ProductSummary, Source, Step, Target, Unit, UnitSummary
from timely.testing.dataflow import (
    Concat,
    Dataflow,
    Distinct,
    Filter,
    Input,
    Loop,
    Map,
    Operator,
    Repeat,
    Sending,
    Shuffle,
    Total,
)
from timely.testing.exchange import ExchangeSimulation, Statement
from timely.testing.graph import GraphSpec, NodeSpec
from timely.testing.nesting import Link, Nesting, OpSpec, ScopeSpec, Shift
from timely.testing.oracles import Change

X = TypeVar("X")


def smallest(strategy: st.SearchStrategy[X], condition: Callable[[X], bool] = lambda _: True) -> X:
    """Return the simplest of what a strategy makes that fulfils a condition.

    Hypothesis' ``NoSuchExample`` if there seems to be none. The same every time, whatever was looked for before.

    >>> smallest(st.lists(st.integers()), lambda numbers: sum(numbers) > 9)
    [10]
    """
    return find(strategy, condition, settings=settings(database=None, derandomize=True, max_examples=2_000))


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

    :class:`~timely.errors.ConfigurationError` for any other type: make a :class:`TimeKit` of strategies of one's own.

    >>> time_kit(Product[int, Unit]).spec == Product[int, Unit]
    True
    """
    if isinstance(spec, TimeKit):
        return spec
    if spec is int:
        forward, steps = (st.builds(Step, st.integers(least, least + 2), _LIMITS) for least in (1, 0))
        return TimeKit(int, st.integers(0, 8), forward, steps)
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

    >>> smallest(times(Product[int, int]), lambda time: time.inner >= 2)
    (0, 2)
    """
    return time_kit(spec).times


def summaries(spec: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for path summaries of a type of times, those that strictly advance among them.

    >>> smallest(summaries(int), lambda summary: summary.results_in(4) is None)
    Step(0, limit=0)
    """
    kit = time_kit(spec)
    return kit.summaries | kit.advancing


def antichains(spec: Any, *, max_size: int = 4) -> st.SearchStrategy[Antichain[Any]]:
    """Return a strategy for antichains of times, the empty one among them.

    >>> set(smallest(antichains(Product[int, int]), lambda antichain: len(antichain) == 2)) == {Product(0, 1), Product(1, 0)}
    True
    """
    return st.lists(times(spec), max_size=max_size).map(Antichain)


def change_batches(spec: Any, *, max_size: int = 6) -> st.SearchStrategy[ChangeBatch[Any]]:
    """Return a strategy for batches of changes of times' counts, by -2 to 2 at a go.

    >>> smallest(change_batches(int), lambda batch: any(diff < 0 for _, diff in batch))
    ChangeBatch([(0, -1)])
    """
    return st.lists(st.tuples(times(spec), st.integers(-2, 2)), max_size=max_size).map(ChangeBatch)


# How many ports a side has, how many summaries a pair of ports: by default, and in a tangle. Small numbers first, to shrink to.
_PORTS = (st.sampled_from([0, 1, 1, 2, 2, 3]), st.sampled_from([0, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3]))
_SUMMARIES = (st.sampled_from([0, 1, 1, 1, 2, 3]), st.sampled_from([0, 1, 1, 1, 1, 2]))


@st.composite
def graphs(draw: st.DrawFn, spec: Any, *, max_nodes: int = 6, local: bool = True) -> GraphSpec:
    """Make graphs of nodes with up to three ports a side; a summary advances wherever a cycle could otherwise close.

    An edge to a node of a higher number is free. One that leads back goes to an input whose every summary advances, so
    that every cycle has such an input on it (Naiad section 2.1). Half of the graphs are tangles, in which almost
    everything is connected. Some edges are local, if ``local``.

    >>> smallest(graphs(int), lambda graph: len(graph.edges) > 0)
    GraphSpec(int, (NodeSpec(1, 1, {}, ()),), ((Source(0, 0), Target(0, 0), False),))
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
            if sources and draw(st.integers(0, 5)) > 0:
                edges.append((draw(st.sampled_from(sources)), target, local and draw(st.booleans())))
    return edges


@st.composite
def ladders(draw: st.DrawFn, spec: Any) -> GraphSpec:
    """Make graphs of nodes in a line, joined both ways to their neighbours and here and there to others.

    No single location cuts all the cycles of most. Input 0 is reached from the node before, the others from behind.

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
    """Make rounds of any changes of a graph's counts, but none that is promised not to be negative ever is.

    For the tracker, which must be exact whatever it is told; :func:`histories` makes what a computation could do.

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

    >>> smallest(scenarios(int), lambda scenario: True)
    (GraphSpec(int, (NodeSpec(0, 0, {}, ()),), ()), [[]])
    """
    return st.one_of(graphs(spec), ladders(spec)).flatmap(lambda graph: st.tuples(st.just(graph), changes(spec, graph)))


@st.composite
def histories(draw: st.DrawFn, spec: Any, graph: GraphSpec, *, max_size: int = 20) -> list[Statement]:
    """Make legal histories of one worker: atomic statements, each permitted by what was held or consumed (OC2).

    Before the first there is one capability at the minimum at each output. Add them up in order for a tracker, a scheduler, or
    a scope of one's own; no count is ever negative.

    >>> graph = GraphSpec(int, (NodeSpec(0, 1, {}, ()), NodeSpec(1, 0, {}, (0,))), ((Source(0, 0), Target(1, 0), False),))
    >>> smallest(histories(int, graph), lambda history: any(location == Target(1, 0) for s in history for location, _, _ in s))
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


@st.composite
def _shifts(draw: st.DrawFn, depth: int, *, advancing: bool, limits: bool) -> Shift:
    """Make a shift of times with so many coordinates; an advancing one advances at least one of them, mostly the innermost."""
    by = [draw(st.sampled_from([0, 0, 0, 1, 2])) for _ in range(depth)]
    if advancing and not any(by):
        by[draw(st.sampled_from([*range(depth), depth - 1]))] = 1
    bounds = [n + draw(st.integers(0, 3)) if limits and draw(st.integers(0, 7)) == 7 else None for n in by]
    return Shift(tuple(by), tuple(bounds))


@st.composite
def nestings(
    draw: st.DrawFn, *, max_ops: int = 7, max_scopes: int = 6, limits: bool = True, exchanges: bool = False
) -> Nesting:
    """Make nestings of scopes; cycles on which time does not advance are possible: see :meth:`Nesting.repaired`.

    >>> smallest(nestings(), lambda nesting: len(nesting.links) > 0).ops[0].scope
    0
    """
    scopes = [ScopeSpec(0, False)]
    ops: list[OpSpec] = []
    order: list[tuple[bool, int]] = []
    for _ in range(draw(st.integers(2, max_ops + max_scopes - 1))):
        deepest = len(scopes) - 1
        where = draw(st.sampled_from([*range(deepest + 1), deepest]))
        if len(scopes) < max_scopes and (draw(st.booleans()) or len(ops) == max_ops):
            order.append((True, len(scopes)))
            scopes.append(ScopeSpec(where, draw(st.booleans())))
        elif len(ops) < max_ops:
            order.append((False, len(ops)))
            around = Nesting(tuple(scopes), (), (), ()).depth(where)
            ops.append(draw(_ops(where, around, limits)))
    sources = [Source(op, o) for op, spec in enumerate(ops) for o in range(spec.outputs)]
    links = []
    for target in (Target(op, i) for op, spec in enumerate(ops) for i in range(len(spec.observes))):
        if sources and draw(st.integers(0, 6)) > 0:
            links.append(Link(draw(st.sampled_from(sources)), target, exchanges and draw(st.booleans())))
    return Nesting(tuple(scopes), tuple(ops), tuple(links), tuple(order))


@st.composite
def _ops(draw: st.DrawFn, scope: int, depth: int, limits: bool) -> OpSpec:
    inputs, outputs = draw(st.integers(0, 2)), draw(st.sampled_from([1, 1, 1, 0, 2]))
    rows = []
    for _ in range(inputs):
        looping = draw(st.booleans())
        row: list[tuple[Shift, ...]] = []
        for _ in range(outputs):
            count = draw(st.sampled_from([1, 1, 1, 1, 2, 0]))
            row.append(tuple(draw(_shifts(depth, advancing=looping, limits=limits)) for _ in range(count)))
        rows.append(tuple(row))
    return OpSpec(scope, outputs, tuple(rows), tuple(draw(st.booleans()) for _ in range(inputs)))


MOST_RECORDS: Final = 1_000
"""How many records the operators of a random dataflow make at most: loops in loops could multiply them without end."""

_RECORDS = st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple)


@st.composite
def dataflows(draw: st.DrawFn, *, max_operators: int = 6, max_sendings: int = 5) -> Dataflow:
    """Make whole dataflows, with what is sent: inputs, record-wise operators, exchanges, state, notifications, nested loops.

    >>> smallest(dataflows(), lambda flow: any(isinstance(operator, Total) for operator in flow.operators))
    Dataflow((Input(), Total(0)), ())
    """
    inputs = draw(st.integers(1, 2))
    operators: list[Operator] = [Input() for _ in range(inputs)]
    for _ in range(draw(st.integers(0, max_operators))):
        operators.append(draw(_operators(len(operators), depth=0)))
    sendings = st.builds(Sending, st.integers(0, inputs - 1), st.integers(0, 2), st.integers(0, 4), _RECORDS)
    flow = Dataflow(tuple(operators), tuple(draw(st.lists(sendings, max_size=max_sendings))))
    assume(flow.at_most() <= MOST_RECORDS)
    return flow


@st.composite
def _operators(draw: st.DrawFn, streams: int, depth: int) -> Operator:
    """Make an operator that reads some of so many streams."""
    source = st.integers(0, streams - 1)
    kinds: list[st.SearchStrategy[Operator]] = [
        st.builds(Map, source, st.integers(0, 3), st.integers(0, 3)),
        st.builds(Filter, source, st.integers(2, 4)),
        st.builds(Shuffle, source, st.integers(1, 3)),
        st.builds(Concat, st.lists(source, min_size=1, max_size=3).map(tuple)),
        st.builds(Distinct, source),
        st.builds(Total, source),
        st.builds(Repeat, source, st.integers(0, 2)),
    ]
    if depth == 2 or draw(st.integers(0, 3)) < 3:
        return draw(st.one_of(kinds))
    body: list[Operator] = []
    for _ in range(draw(st.integers(1, 3))):
        body.append(draw(_operators(len(body) + 1, depth + 1)))
    return Loop(draw(source), tuple(body), draw(st.integers(0, 3)))
