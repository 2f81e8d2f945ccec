"""The oracles on graphs small enough to know the answer, and that they object to engines that are wrong (T9)."""

from __future__ import annotations

from typing import Any, cast

import attrs
import pytest

from timely.errors import InvariantViolation
from timely.order import Product
from timely.progress import ProductSummary, Source, Step, Target
from timely.testing import (
    GraphSpec,
    NodeSpec,
    Oracle,
    check_tracker,
)

RELAY = NodeSpec(1, 1, {(0, 0): (Step(0),)}, ())
SINK = NodeSpec(1, 0, {}, (0,))
LINE = GraphSpec(int, (RELAY, SINK), ((Source(0, 0), Target(1, 0), False),))


def test_could_result_in_is_by_some_path_and_in_time() -> None:
    fork = NodeSpec(1, 2, {(0, 0): (Step(2),), (0, 1): (Step(5, limit=6),)}, ())
    join = NodeSpec(2, 0, {}, (0, 1))
    graph = GraphSpec(int, (fork, join), ((Source(0, 0), Target(1, 0), False), (Source(0, 1), Target(1, 1), False)))
    assert Oracle(graph).leads((Target(0, 0), 1), (Target(1, 0), 3))
    assert not Oracle(graph).leads((Target(0, 0), 1), (Target(1, 0), 2))
    assert Oracle(graph).leads((Target(0, 0), 1), (Target(1, 1), 6))
    assert not Oracle(graph).leads((Target(0, 0), 2), (Target(1, 1), 99))
    assert not Oracle(graph).leads((Target(1, 0), 0), (Target(0, 0), 9))


def test_summaries_of_a_loop_of_two_kinds_of_steps() -> None:
    steps = (ProductSummary(Step(1), Step(0)), ProductSummary(Step(0), Step(1)))
    graph = GraphSpec(Product[int, int], (NodeSpec(1, 1, {(0, 0): steps}, (0,)),), ((Source(0, 0), Target(0, 0), False),))
    assert Oracle(graph).summaries[Target(0, 0)][Source(0, 0)] == list(steps)
    assert Oracle(graph).frontiers({(Target(0, 0), Product(0, 0)): 1})[Source(0, 0)] == {Product(1, 0), Product(0, 1)}


def objected(graph: GraphSpec, wrong: GraphSpec, rounds: list[list[Any]]) -> str:
    """Return which rule is broken when ``wrong`` takes the place of a graph."""
    with pytest.raises(InvariantViolation) as caught:
        check_tracker(graph, rounds, wrong.build())
    return caught.value.invariant


def test_T9_a_dropped_summary() -> None:
    deaf = attrs.evolve(LINE, nodes=(attrs.evolve(RELAY, summaries={}), SINK))
    assert objected(LINE, deaf, [[(Target(0, 0), 3, 1)]]) == "G9"


def test_T9_a_contraction_that_must_not_be() -> None:
    """Counted in one place, what is missing at one end of an edge cancels what is there at the other."""
    contracted = attrs.evolve(LINE, edges=((Source(0, 0), Target(1, 0), True),))
    feed = NodeSpec(0, 1, {}, ())
    longer = GraphSpec(int, (feed, RELAY, SINK), ((Source(0, 0), Target(1, 0), False), (Source(1, 0), Target(2, 0), False)))
    wrong = attrs.evolve(longer, edges=tuple((source, target, True) for source, target, _ in longer.edges))
    rounds: list[list[Any]] = [[(Target(1, 0), 3, -1), (Source(1, 0), 3, +1)]]
    assert check_tracker(longer, rounds) > 0
    assert objected(longer, wrong, rounds) == "G9"
    assert check_tracker(LINE, [[(Source(0, 0), 3, +1)]], contracted.build()) > 0


def test_T9_changes_that_are_not_reported() -> None:
    mute = attrs.evolve(LINE, nodes=(RELAY, attrs.evolve(SINK, observes=())))
    assert objected(LINE, mute, [[(Source(0, 0), 3, 1)]]) == "G9"


def test_T9_changes_that_get_lost_on_the_way() -> None:
    class Lossy:
        """A tracker that reports no change."""

        def __init__(self) -> None:
            self.engine = LINE.build()
            self.observed, self.frontier, self.update = self.engine.observed, self.engine.frontier, self.engine.update

        def propagate(self) -> list[Any]:
            self.engine.propagate()
            return []

    with pytest.raises(InvariantViolation, match="G10: the reported changes of Target"):
        check_tracker(LINE, [[(Source(0, 0), 3, 1)]], cast("Any", Lossy()))
