"""Cycles on which time does not strictly advance are found, and named; others are not (R5 to R7, G2).

White box: a feedback set that is too large, or an order that is not topological, costs time and changes no frontier.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.progress.times import Moment, Shift
from timely.errors import CycleError
from timely.order import Product
from timely.progress import Antichain, GraphBuilder, Location, ProductSummary, Source, Step, Target, strongly_connected
from timely.progress.graph_theory import feedback_set, reachable, reverse_postorder
from timely.testing import GraphSpec, TimeKit, graphs


@attrs.frozen(order=True)
class Rubber:
    """A moment that may also be doubled."""

    at: int

    @classmethod
    def minimum(cls) -> Rubber:
        return cls(0)

    @classmethod
    def identity(cls) -> Affine:
        return Affine(1, 0, 0)


@attrs.frozen(order=False)
class Affine:
    """Multiply, add, but never to before ``floor``: one of few summaries for which it matters which comes first."""

    times: int
    plus: int
    floor: int

    def results_in(self, time: Rubber, /) -> Rubber | None:
        return Rubber(max(self.floor, self.times * time.at + self.plus))

    def followed_by(self, other: Affine, /) -> Affine | None:
        moved = self.times * other.times, self.plus * other.times + other.plus
        return Affine(*moved, max(other.floor, self.floor * other.times + other.plus))

    def __le__(self, other: Affine, /) -> bool:
        # Straight lines from a floor on, so that a few dozen moments tell for these small numbers.
        return all((self.results_in(Rubber(at)) or Rubber(0)) <= (other.results_in(Rubber(at)) or Rubber(0)) for at in range(60))


class Climb(Shift):
    """A summary that cannot be composed."""

    __slots__ = ()

    def followed_by(self, other: Shift, /) -> Shift | None:
        raise AssertionError("nothing is to be composed")


class Ladder(Moment):
    """A moment whose summaries cannot be composed."""

    __slots__ = ()

    @classmethod
    def identity(cls) -> Climb:
        return Climb(0)


def ring(time: Any, summaries: list[Any]) -> GraphBuilder[Any]:
    graph: GraphBuilder[Any] = GraphBuilder(time)
    for node, summary in enumerate(summaries):
        graph.add_node(node, 1, 1, [[Antichain([summary])]], name=f"step {node}")
    for node in range(len(summaries)):
        graph.add_edge(Source(node, 0), Target((node + 1) % len(summaries), 0))
    return graph


def test_R5_is_acyclic() -> None:
    graph: GraphBuilder[int] = GraphBuilder(int)
    for node in range(3):
        graph.add_node(node, 1, 1, [[Antichain([Step(0)])]])
    graph.add_edge(Source(0, 0), Target(1, 0))
    graph.add_edge(Source(1, 0), Target(2, 0))
    assert graph.is_acyclic()
    graph.add_edge(Source(2, 0), Target(0, 0))
    assert not graph.is_acyclic()


def test_R6_is_acyclic_without_feedback_node() -> None:
    graph: GraphBuilder[int] = GraphBuilder(int)
    graph.add_node(0, 2, 2, {0: {0: Antichain([Step(0)])}, 1: {1: Antichain([Step(1)])}})
    graph.add_edge(Source(0, 0), Target(0, 1))
    graph.add_edge(Source(0, 1), Target(0, 0))
    assert graph.is_acyclic()
    assert ring(int, [Step(0), Step(0), Step(1)]).is_acyclic()
    graph.build()
    assert graph.is_acyclic()


def test_R7_build_refuses_a_cycle_that_does_not_advance() -> None:
    graph: GraphBuilder[int] = GraphBuilder(int)
    graph.add_node("in", 0, 1, [], name="in")
    graph.add_node("a", 2, 1, [[Antichain([Step(0)])]] * 2, name="concat")
    graph.add_node("b", 1, 2, [[Antichain([Step(0)]), Antichain([Step(2)])]], name="split")
    graph.add_node("c", 1, 1, [[Antichain([Step(0)])]], name="map")
    graph.add_edge(Source("in", 0), Target("a", 0))
    graph.add_edge(Source("a", 0), Target("b", 0))
    graph.add_edge(Source("b", 0), Target("c", 0))
    graph.add_edge(Source("c", 0), Target("a", 1))
    with pytest.raises(CycleError, match="feedback") as caught:
        graph.build()
    nodes = caught.value.nodes
    start = nodes.index("a")
    assert nodes[start:] + nodes[:start] == ("a", "b", "c")
    assert all(name in str(caught.value) for name in ("concat", "split", "map"))


@pytest.mark.parametrize(
    ("time", "summaries", "advances"),
    [
        (int, [Step(0, limit=5)], False),
        (int, [Step(0, limit=5), Step(0, limit=3)], False),
        (int, [Step(0, limit=5), Step(1, limit=3)], True),
        (int, [Step(6, limit=5), Step(0)], True),
        (Product[int, int], [ProductSummary(Step(0), Step(1)), ProductSummary(Step(0), Step(0))], True),
        (Product[int, int], [ProductSummary(Step(0), Step(0, limit=9))], False),
        (Moment, [Shift(3), Shift(-2)], True),
        (Moment, [Shift(3), Shift(-3)], False),
        (Moment, [Shift(-3, 7), Shift(2)], False),
        (Moment, [Shift(0, 4)], False),
        (Moment, [Shift(1, 4)], True),
        (Product[Moment, Moment], [ProductSummary(Shift(-1), Shift(1))], False),
        (Product[Moment, Moment], [ProductSummary(Shift(-1), Shift(1)), ProductSummary(Shift(1), Shift(0))], True),
    ],
)
def test_G2_cycles_of_one_ring(time: Any, summaries: list[Any], advances: bool) -> None:
    assert ring(time, summaries).is_acyclic() == advances


@pytest.mark.parametrize(("order", "advances"), [((-3, None, 3), False), ((3, None, -3), True)])
@pytest.mark.parametrize("start", range(3))
def test_summaries_are_composed_in_the_order_of_the_cycle(order: tuple[int | None, ...], advances: bool, start: int) -> None:
    """Take 3 (not below 0), double, add 3: 3 stays 3. The other way round every moment gets later."""
    legs = [Affine(2, 0, 0) if by is None else Affine(1, by, max(by, 0)) for by in order]
    assert ring(Rubber, [*legs[start:], *legs[:start]]).is_acyclic() == advances


def test_nothing_is_composed_where_no_summary_goes_back() -> None:
    """The usual case: what does not advance closes no cycle, and nothing else need be known."""
    assert ring(Ladder, [Climb(0), Climb(2), Climb(0)]).is_acyclic()


def test_a_cycle_that_goes_back_is_named_in_order() -> None:
    """What goes round it for ever is a walk; the cycle is one round of it, along the edges."""
    graph: GraphBuilder[Moment] = GraphBuilder(Moment)
    forward, back, stay = (Antichain([Shift(by)]) for by in (5, -1, 0))
    graph.add_node("hub", 3, 3, [[forward, stay, stay], [stay, back, forward], [forward, forward, forward]])
    for name in ("a", "b"):
        graph.add_node(name, 1, 1, [[stay]])
    for port in (0, 2):
        graph.add_edge(Source("hub", port), Target("hub", port))
    for start, end in ((Source("hub", 1), Target("a", 0)), (Source("a", 0), Target("b", 0)), (Source("b", 0), Target("hub", 1))):
        graph.add_edge(start, end)
    with pytest.raises(CycleError) as caught:
        graph.build()
    nodes = caught.value.nodes
    start_at = nodes.index("hub")
    assert nodes[start_at:] + nodes[:start_at] == ("hub", "a", "b")


def test_a_long_cycle_is_found() -> None:
    graph = ring(int, [Step(0)] * 5000)
    with pytest.raises(CycleError) as caught:
        graph.build()
    assert len(caught.value.nodes) == 5000


STEPS = st.builds(Step, st.sampled_from([0, 0, 1]), st.none() | st.integers(3, 5))
PAIRS = st.builds(ProductSummary, STEPS, STEPS)
SHIFTS = st.builds(Shift, st.integers(-2, 2))
KITS = {
    "int": TimeKit(int, st.integers(0, 9), STEPS, STEPS),
    "product": TimeKit(Product[int, int], st.nothing(), PAIRS, PAIRS),
    "moment": TimeKit(Moment, st.nothing(), SHIFTS, SHIFTS),
}


def advances(spec: GraphSpec, summary: Any) -> bool:
    """Return whether a summary takes each of some times to a later one, or nowhere."""
    if spec.time is Moment:
        times: list[Any] = [Moment(at) for at in range(60)]
    elif spec.time is int:
        times = list(range(6))
    else:
        times = [Product(outer, inner) for outer in range(6) for inner in range(6)]
    results = [(time, summary.results_in(time)) for time in times]
    return all(result is None or (time <= result and time != result) for time, result in results)


def cycles(spec: GraphSpec) -> list[Any]:
    """Return the summaries of all simple cycles, by walking every path that meets no location twice."""
    steps = spec.steps()
    collected: list[Any] = []
    for start in spec.locations():
        paths: list[tuple[tuple[Location, ...], Any, Location]] = [((start,), summary, end) for end, summary in steps[start]]
        while paths:
            path, summary, end = paths.pop()
            if end == start:
                collected.append(summary)
            elif end not in path:
                extended = [(to, summary.followed_by(step)) for to, step in steps[end]]
                paths += [((*path, end), composed, to) for to, composed in extended if composed is not None]
    return collected


@pytest.mark.parametrize("kit", KITS.values(), ids=KITS)
@given(data=st.data())
def test_G2_cycles_of_random_graphs(kit: TimeKit, data: st.DataObject) -> None:
    spec = data.draw(graphs(kit, max_nodes=3))
    expected = all(advances(spec, summary) for summary in cycles(spec))
    assert spec.builder().is_acyclic() == expected
    if not expected:
        with pytest.raises(CycleError) as caught:
            spec.build()
        nodes = caught.value.nodes
        joined = {(source.node, target.node) for source, target, _ in spec.edges}
        assert nodes
        assert all(step in joined for step in zip(nodes, [*nodes[1:], nodes[0]]))


GRAPHS = st.integers(1, 8).flatmap(
    lambda size: st.lists(st.lists(st.integers(0, size - 1), max_size=4), min_size=size, max_size=size)
)


@given(GRAPHS)
def test_components_are_those_that_reach_each_other_in_topological_order(successors: list[list[int]]) -> None:
    components = strongly_connected(successors)
    place = {vertex: i for i, component in enumerate(components) for vertex in component}
    assert all(components)
    assert sorted(vertex for component in components for vertex in component) == list(range(len(successors)))
    reach = [reachable(successors, [vertex]) for vertex in range(len(successors))]
    for start in range(len(successors)):
        for end in range(len(successors)):
            assert (place[start] == place[end]) == bool(reach[start][end] and reach[end][start])
            assert place[start] <= place[end] or not reach[start][end]


@pytest.mark.parametrize(
    "successors",
    [
        [[2, 3], [0, 3], [3], [1, 2]],  # to merge a vertex that has several ways in and out would hide vertex 3
        [[1, 2], [2], [3], [0, 1]],
        [[], [], [0, 1], [0, 1]],  # no cycle at all
        [[2, 3], [3, 4], [0, 1, 4], [0, 2, 3], [1]],
        [[1, 4], [0, 2], [0, 1], [1, 4], [0, 2, 3]],
        [[4], [3, 4, 5], [], [2, 4, 5], [0, 1], [1, 3]],
    ],
)
def test_feedback_set_is_smallest_where_the_reductions_suffice(successors: list[list[int]]) -> None:
    def cuts(chosen: tuple[int, ...]) -> bool:
        rest = [[w for w in ways if w not in chosen and w != v and v not in chosen] for v, ways in enumerate(successors)]
        return all(len(part) == 1 for part in strongly_connected(rest))

    vertices = range(len(successors))
    result = feedback_set(vertices, successors)
    assert cuts(tuple(result))
    assert not any(cuts(fewer) for size in range(len(result)) for fewer in combinations(vertices, size))


@pytest.mark.parametrize("size", [3, 4, 7])
def test_feedback_set_where_no_reduction_applies(size: int) -> None:
    """Each vertex leads to every other: all but one must go, and which of them does not matter."""
    everything = [[end for end in range(size) if end != start] for start in range(size)]
    assert len(set(feedback_set(range(size), everything))) == size - 1


@given(GRAPHS)
def test_elimination_order_has_every_vertex_once_and_is_topological_as_far_as_cycles_allow(successors: list[list[int]]) -> None:
    order = reverse_postorder(successors)
    assert sorted(order) == list(range(len(successors)))
    place = {vertex: i for i, vertex in enumerate(order)}
    for start, ends in enumerate(successors):
        for end in ends:
            assert place[start] < place[end] or reachable(successors, [end])[start]


@given(GRAPHS)
def test_feedback_set_cuts_every_cycle(successors: list[list[int]]) -> None:
    for component in strongly_connected(successors):
        chosen = feedback_set(component, successors)
        left = set(component) - set(chosen)
        rest = [[w for w in ways if v in left and w in left and w != v] for v, ways in enumerate(successors)]
        assert all(len(part) == 1 for part in strongly_connected(rest))
        assert len(component) > 1 or not chosen


@attrs.frozen(order=False)
class Plain:
    """A summary of whole numbers that is equal to itself, and has no order besides."""

    n: int

    def results_in(self, time: int, /) -> int | None:
        return Tick(time + self.n)

    def followed_by(self, other: Plain, /) -> Plain | None:
        return Plain(self.n + other.n)

    def __le__(self, other: Plain, /) -> bool:
        return self == other

    def __lt__(self, other: Plain, /) -> bool:
        return False


class Tick(int):
    """A time whose summaries are those."""

    @classmethod
    def minimum(cls) -> Tick:
        return cls(0)

    @classmethod
    def identity(cls) -> Plain:
        return Plain(0)


@pytest.mark.parametrize("n", [0, 1])
def test_a_cycle_that_advances_with_a_summary_that_does_not_is_an_error_with_that_reason(n: int) -> None:
    graph: GraphBuilder[Any] = GraphBuilder(Tick)
    graph.add_node("body", 1, 1, [[Antichain([Plain(0)])]])
    graph.add_node("feedback", 1, 1, [[Antichain([Plain(n)])]])
    graph.add_edge(Source("body", 0), Target("feedback", 0))
    graph.add_edge(Source("feedback", 0), Target("body", 0))
    order = r"its summary Plain\(n=1\) turns 0 into 1, but Plain\(n=0\) <= Plain\(n=1\) is False; give the summaries an order"
    with pytest.raises(CycleError, match=order if n else "put a feedback on it whose summary advances every time"):
        graph.build()
