"""I3 to I5: differences other than whole numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.differential.epochs import changing
from timely import Worker
from timely import differential as dd
from timely.errors import DifferenceError, OperatorError
from timely.testing import differential

Run = Callable[..., Any]

SHORTEST = dd.Ring(zero=float("inf"), add=min, multiply=lambda a, b: a + b)
"""Min-plus: what is added can never be taken away."""


def test_DD_I3_tuples_add_up_coordinate_by_coordinate(run: Run) -> None:
    for build in (lambda c: c, lambda c: c.consolidate(), lambda c: c.arrange_by_self().as_collection()):
        assert run(build, [("a", 0, (1, 2)), ("a", 0, (3, 4))], diff=tuple) == [("a", 0, (4, 6))]
        assert run(build, [("a", 0, (1, -1)), ("a", 0, (-1, 1))], diff=tuple) == []


def test_DD_I4_differences_that_grow_in_length(run: Run) -> None:
    changes = [("a", 0, (1, 2, 3)), ("a", 0, (1, 1, 1, 1))]
    for build in (lambda c: c, lambda c: c.consolidate()):
        assert run(build, changes, diff=tuple) == [("a", 0, (2, 3, 4, 1))]


def test_DD_I3_tuples_in_joins(run: Run) -> None:
    left = [(("a", 1), 0, (1, 2)), (("b", 1), 0, (5, 5))]
    counted = run(lambda c: c.join(dd.collection(c.scope, [("a", "x"), ("a", "x")], on=0)), left, diff=tuple)
    assert counted == [(("a", (1, "x")), 0, (2, 4))]


@contextmanager
def built() -> Iterator[Any]:
    """Build a dataflow that is run, so that nothing is warned about."""
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            yield scope
        worker.step()


@pytest.mark.parametrize("operator", ["negate", "reduce", "iterate", "minus", "antijoin", "assert_equal", "Variable"])
def test_DD_I5_operators_that_take_away_are_refused(operator: str) -> None:
    with built() as scope:
        _, growing = dd.new_collection(scope, diff=SHORTEST)
        uses: dict[str, Callable[[], Any]] = {
            "negate": lambda: growing.negate(),
            "reduce": lambda: growing.reduce(lambda key, values: []),
            "iterate": lambda: growing.iterate(lambda scope, inner: inner),
            "minus": lambda: growing.minus(growing),
            "antijoin": lambda: growing.antijoin(dd.collection(scope, ["k"])),
            "assert_equal": lambda: growing.assert_equal(growing),
            "Variable": lambda: dd.Variable(scope, growing),
        }
        with pytest.raises(DifferenceError, match="takes records away, so it needs differences with negate"):
            uses[operator]()


def test_DD_I5_removing_and_inserting_need_what_the_ring_lacks() -> None:
    with changing(lambda growing: growing.consolidate().output(), diff=SHORTEST) as (session, output):
        with pytest.raises(DifferenceError, match="one"):
            session.insert("a")
        with pytest.raises(DifferenceError):
            session.remove("a")
        session.update("a", 5)
        session.update("a", 3)
        session.close()
        assert output.at(0) == {"a": 3}


def test_DD_I4_differences_have_the_operators_of_numbers() -> None:
    ring = dd.Ring(
        zero=(0, 0),
        add=lambda a, b: (a[0] + b[0], a[1] + b[1]),
        negate=lambda a: (-a[0], -a[1]),
        multiply=lambda a, b: (a[0] * b[0], a[1] * b[1]),
    )
    held: list[Any] = []

    def f(key: Any, values: Any) -> Any:
        one, two = (diff for _, diff in sorted(values))
        held.extend([-one, one - two, two * one, 3 * one, one * -2, 0 - two])
        return []

    with changing(lambda pairs: pairs.reduce(f).output(), diff=ring) as (session, output):
        session.update(("k", 1), (1, 2))
        session.update(("k", 2), (5, 7))
        session.close()
        output.at(0)
    assert [difference.value for difference in held] == [(-1, -2), (-4, -5), (5, 14), (3, 6), (-2, -4), (-5, -7)]


def test_DD_I5_distinct_needs_an_order() -> None:
    with built() as scope:
        _, growing = dd.new_collection(scope, diff=SHORTEST)
        with pytest.raises(DifferenceError):
            growing.distinct()
        with pytest.raises(DifferenceError):
            growing.threshold(lambda record, count: 1)


SIGNED = dd.Ring(
    zero=(0, 0),
    add=lambda a, b: (a[0] + b[0], a[1] + b[1]),
    negate=lambda a: (-a[0], -a[1]),
    is_positive=lambda a: a[0] > 0,
)
"""Pairs of numbers, of which the first says whether there is any."""


def test_number_14_threshold_is_in_the_ring_or_refused(run: Run) -> None:
    changes = [("a", 0, (1, 5)), ("a", 1, (2, 1)), ("b", 0, (1, 7)), ("b", 2, (-1, -7))]
    result = run(lambda c: c.threshold(lambda record, count: (0, count[1])), changes, diff=SIGNED)
    assert result == [("a", 0, (0, 5)), ("b", 0, (0, 7)), ("a", 1, (0, 1)), ("b", 2, (0, -7))]
    assert run(lambda c: c.distinct(), changes, diff=SIGNED) == [("a", 0, 1), ("b", 0, 1), ("b", 2, -1)]
    with built() as scope:
        _, growing = dd.new_collection(scope, diff=dd.Ring(0, max, is_positive=bool))
        growing.distinct()
        with pytest.raises(DifferenceError, match="threshold takes records away, so it needs differences with negate"):
            growing.threshold(lambda record, count: count)


def test_number_14_a_threshold_of_another_kind_is_refused(run: Run) -> None:
    with pytest.raises(OperatorError, match=r"differences of this collection are int, not 0\.5"):
        run(lambda c: c.threshold(lambda record, count: count / 2), [("a", 0, 1)])


def distances(roots: Any, edges: Any) -> Any:
    with roots.scope.iterative() as loop:
        variable: Any = dd.Variable(loop, diff=SHORTEST)
        further = variable.collection.map(lambda node: (node, None)).join_map(edges.enter(loop), lambda node, _, to: to)
        return variable.set(further.concat(roots.enter(loop)).consolidate()).leave()


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 2), st.integers(0, 9)), max_size=12),
    st.integers(1, 3),
    st.booleans(),
)
def test_shortest_paths_by_min_plus_on_graphs_with_cycles(arcs: list[Any], workers: int, compact: bool) -> None:
    edges = [((one, other), time, length) for one, other, time, length in arcs]
    for one_by_one in (True, False):
        result = differential.run(
            distances, [(0, 0, 0)], edges, diff=SHORTEST, workers=workers, compact=compact, one_by_one=one_by_one
        )
        for time in range(3):
            expected = {0: 0}
            for _ in range(5):
                for (one, other), when, length in edges:
                    if when <= time and one in expected:
                        expected[other] = min(expected[one] + length, expected.get(other, math.inf))
            least: dict[int, int] = {}
            for node, when, distance in result:
                if when <= time:
                    least[node] = min(distance, least.get(node, distance))
            assert least == expected


def test_only_updates_that_change_a_sum_go_on(run: Run) -> None:
    changes = [("a", 0, 5), ("a", 1, 7), ("a", 2, 5), ("a", 3, 2), ("b", 3, 1)]
    assert run(lambda c: c.consolidate(), changes, diff=SHORTEST) == [("a", 0, 5), ("a", 3, 2), ("b", 3, 1)]
    counts = dd.Ring(zero=0, add=lambda a, b: a + b)
    assert run(lambda c: c.consolidate(), changes, diff=counts) == changes


def test_DD_I5_shortest_paths_by_min_plus(run: Run) -> None:
    edges = [((1, 2), 0, 4), ((1, 3), 0, 1), ((3, 2), 0, 1), ((2, 4), 0, 5)]
    assert run(distances, [(1, 0, 0)], edges, diff=SHORTEST) == [(1, 0, 0), (2, 0, 2), (3, 0, 1), (4, 0, 7)]
