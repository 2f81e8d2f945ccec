"""I3 to I5: differences other than whole numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from timely import Worker
from timely import differential as dd
from timely.errors import DifferenceError

Run = Callable[..., Any]

SHORTEST = dd.Ring(zero=float("inf"), add=min, multiply=lambda a, b: a + b)
"""Min-plus: what is added can never be taken away."""


def test_I3_tuples_add_up_coordinate_by_coordinate(run: Run) -> None:
    for build in (lambda c: c, lambda c: c.consolidate(), lambda c: c.arrange_by_self().as_collection()):
        assert run(build, [("a", 0, (1, 2)), ("a", 0, (3, 4))], diff=tuple) == [("a", 0, (4, 6))]
        assert run(build, [("a", 0, (1, -1)), ("a", 0, (-1, 1))], diff=tuple) == []


def test_I4_differences_that_grow_in_length(run: Run) -> None:
    changes = [("a", 0, (1, 2, 3)), ("a", 0, (1, 1, 1, 1))]
    for build in (lambda c: c, lambda c: c.consolidate()):
        assert run(build, changes, diff=tuple) == [("a", 0, (2, 3, 4, 1))]


def test_I3_tuples_in_joins(run: Run) -> None:
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
def test_I5_operators_that_take_away_are_refused(operator: str) -> None:
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


def test_I5_removing_and_inserting_need_what_the_ring_lacks() -> None:
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            session, growing = dd.new_collection(scope, diff=SHORTEST)
            output = growing.consolidate().output()
        with pytest.raises(DifferenceError, match="one"):
            session.insert("a")
        with pytest.raises(DifferenceError):
            session.remove("a")
        session.update("a", 5)
        session.update("a", 3)
        session.close()
        assert output.at(0) == {"a": 3}


def test_I4_differences_have_the_operators_of_numbers() -> None:
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

    with Worker() as worker:
        with worker.dataflow(int) as scope:
            session, pairs = dd.new_collection(scope, diff=ring)
            pairs.reduce(f).output()
        session.update(("k", 1), (1, 2))
        session.update(("k", 2), (5, 7))
        session.close()
        worker.run()
    assert [difference.value for difference in held] == [(-1, -2), (-4, -5), (5, 14), (3, 6), (-2, -4), (-5, -7)]


def test_I5_distinct_needs_an_order() -> None:
    with built() as scope:
        _, growing = dd.new_collection(scope, diff=SHORTEST)
        with pytest.raises(DifferenceError):
            growing.distinct()
        with pytest.raises(DifferenceError):
            growing.threshold(lambda record, count: 1)


def test_I5_shortest_paths_by_min_plus(run: Run) -> None:
    def distances(roots: Any, edges: Any) -> Any:
        with roots.scope.iterative() as loop:
            variable: Any = dd.Variable(loop, diff=SHORTEST)
            further = variable.collection.map(lambda node: (node, None)).join_map(edges.enter(loop), lambda node, _, to: to)
            return variable.set(further.concat(roots.enter(loop)).consolidate()).leave()

    edges = [((1, 2), 0, 4), ((1, 3), 0, 1), ((3, 2), 0, 1), ((2, 4), 0, 5)]
    assert run(distances, [(1, 0, 0)], edges, diff=SHORTEST) == [(1, 0, 0), (2, 0, 2), (3, 0, 1), (4, 0, 7)]
