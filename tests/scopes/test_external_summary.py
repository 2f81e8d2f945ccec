"""The external summaries of the children of a scope: the ways back to them, inside of it and round the world.

White box: a way back that is missing or too early shows, if ever, as a late frontier in a large nesting.
"""

from __future__ import annotations

from typing import Any

import pytest

from timely import Antichain, Product, ProductSummary, Step
from timely.progress import GraphBuilder, Source, SummaryRow, Target, refinement
from timely.scopes import EGRESS, INGRESS, RoundTripSummary
from timely.scopes.external_summary import ExternalSummaries, on_cycles


def ways_back(edges: list[tuple[Source, Target]], world: list[Any], ports: list[tuple[int, int]]) -> list[Any]:
    """Return, for each child with so many inputs and one output, which time 0 comes back at, at the earliest, to which input."""
    graph: GraphBuilder[int] = GraphBuilder(int)
    graph.add_node(INGRESS, 0, 1, [])
    graph.add_node(EGRESS, 1, 0, [[]])
    for child, (inputs, step) in enumerate(ports):
        graph.add_node(child, inputs, 1, [[Antichain([Step(step)])]] * inputs)
    for source, target in edges:
        graph.add_edge(source, target)
    surroundings = ExternalSummaries(graph.build(), refinement(int, int), world, len(ports), edges)
    return [
        {
            place: min(int(path.results_in(0) or 0) for path in paths)
            for place, paths in enumerate(surroundings.of(child, inputs, 1)[0])
            if paths
        }
        for child, (inputs, _) in enumerate(ports)
    ]


def test_each_child_receives_the_ways_to_its_own_inputs_alone() -> None:
    """Child 0 leads out of the scope and the world back to it, and to both inputs of child 1; child 1 leads nowhere."""
    edges = [
        (Source(INGRESS, 0), Target(0, 0)),
        (Source(INGRESS, 0), Target(1, 1)),
        (Source(0, 0), Target(1, 0)),
        (Source(0, 0), Target(EGRESS, 0)),
    ]
    world = [SummaryRow(1, {0: Antichain([Step(5)])})]
    assert ways_back(edges, world, [(1, 2), (2, 0)]) == [{0: 5}, {}]


def test_a_way_inside_and_one_round_the_world() -> None:
    edges = [
        (Source(INGRESS, 0), Target(0, 0)),
        (Source(0, 0), Target(1, 0)),
        (Source(1, 0), Target(0, 1)),
        (Source(1, 0), Target(EGRESS, 0)),
    ]
    world = [SummaryRow(1, {0: Antichain([Step(1)])})]
    assert ways_back(edges, world, [(2, 2), (1, 3)]) == [{0: 4, 1: 3}, {0: 2}]
    assert ways_back(edges, [SummaryRow(1, {})], [(2, 2), (1, 3)]) == [{1: 3}, {0: 2}]
    assert ways_back(edges, [], [(2, 2), (1, 3)]) == [{1: 3}, {0: 2}]


@pytest.mark.parametrize(("returns", "expected"), [(False, set()), (True, {0})])
def test_who_is_on_a_way_round_the_world_only_is_on_none_if_there_is_none(returns: bool, expected: set[int]) -> None:
    edges = [(Source(INGRESS, 0), Target(0, 0)), (Source(0, 0), Target(EGRESS, 0)), (Source(0, 0), Target(1, 0))]
    assert on_cycles(2, edges, returns=returns) == expected


INTO = refinement(int, Product[int, int])
STAY = ProductSummary(Step(0), Step(0))
Around = RoundTripSummary[int, Product[int, int]]


def around(before: int = 0, world: int = 0, after: int = 0) -> Around:
    """Return a round trip on which outer times advance by so much on each of its legs."""
    return Around(ProductSummary(Step(before), Step(0)), Step(world), ProductSummary(Step(after), Step(0)), INTO)


def test_it_loses_the_inner_coordinate_and_advances_on_each_leg() -> None:
    assert around(1, 2, 4).results_in(Product(10, 9)) == Product(17, 0)


@pytest.mark.parametrize(
    "legs",
    [
        (ProductSummary(Step(0), Step(0, limit=5)), Step(1), STAY),
        (STAY, Step(1, limit=5), STAY),
        (STAY, Step(1), ProductSummary(Step(0, limit=5), Step(0))),
    ],
    ids=["out", "round", "in"],
)
def test_what_does_not_get_through_one_leg_does_not_come_back(legs: tuple[Any, Any, Any]) -> None:
    there_and_back = Around(*legs, INTO)
    assert there_and_back.results_in(Product(0, 0)) == Product(1, 0)
    assert there_and_back.results_in(Product(6, 6)) is None


def test_what_follows_happens_when_it_is_back() -> None:
    longer = around(1, 2).followed_by(ProductSummary(Step(4), Step(1)))
    assert longer == Around(ProductSummary(Step(1), Step(0)), Step(2), ProductSummary(Step(4), Step(1)), INTO)
    assert longer is not None
    assert longer.results_in(Product(10, 9)) == Product(17, 1)


def test_one_follows_another() -> None:
    twice = around(1, 2, 4).followed_by(around(8, 16, 32))
    assert twice is not None
    assert twice.results_in(Product(100, 9)) == Product(163, 0)
    thrice = twice.followed_by(around(world=64))
    assert thrice is not None
    assert thrice.results_in(Product(100, 9)) == Product(227, 0)
    never = around(after=9).followed_by(Around(ProductSummary(Step(0, limit=3), Step(0)), Step(0), STAY, INTO))
    assert never is None


def test_what_never_gets_through_is_no_round_trip() -> None:
    only = Around(STAY, Step(0), ProductSummary(Step(0, limit=3), Step(0)), INTO)
    assert only.followed_by(ProductSummary(Step(9, limit=3), Step(0))) is None


@pytest.mark.parametrize("leg", range(3))
def test_they_are_compared_leg_by_leg(leg: int) -> None:
    less, more = around(1, 1, 1), around(*[1 + (place == leg) for place in range(3)])
    assert less <= more and more >= less and less != more
    assert not more <= less and not less >= more
    crossed = around(*[1 - (place == leg) + (place == (leg + 1) % 3) for place in range(3)])
    assert not less <= crossed and not crossed <= less


def test_equal_ones_are_one_element_of_a_set() -> None:
    assert around(1, 2, 3) <= around(1, 2, 3) >= around(1, 2, 3)
    assert {around(1, 2, 3), around(1, 2, 3), around(3, 2, 1)} == {around(3, 2, 1), around(1, 2, 3)}


def test_they_are_not_comparable_with_the_summaries_of_paths_inside() -> None:
    assert (around() <= STAY) is False
    assert (around() >= STAY) is False
    assert (around() == STAY) is False


def test_messages_show_the_three_legs() -> None:
    """The message about a cycle through several scopes does."""
    zero, one = "ProductSummary(Step(0), Step(0))", "ProductSummary(Step(1), Step(0))"
    assert repr(around(0, 2, 1)) == f"RoundTripSummary({zero}, Step(2), {one})"


class Strict:
    """A summary that looks at what it is compared with, as one of a user's own may, and knows nothing of round trips."""

    def __init__(self, n: int) -> None:
        self.n = n

    def results_in(self, time: int) -> int | None:
        return time + self.n

    def followed_by(self, other: Strict) -> Strict | None:
        return Strict(self.n + other.n)

    def __le__(self, other: Strict) -> bool:
        return self.n <= other.n

    def __eq__(self, other: object) -> bool:
        return self.n == other.n  # type: ignore[attr-defined,no-any-return]

    def __hash__(self) -> int:
        return self.n


def test_summaries_that_know_nothing_of_round_trips_are_not_compared_with_them() -> None:
    def round_trip(before: Any, world: Any, after: Any) -> Any:
        return RoundTripSummary(before, world, after, refinement(int, int))

    plain = round_trip(Strict(0), Strict(1), Strict(0))
    further = [round_trip(*legs) for legs in ((Strict(0), plain, Strict(0)), (Strict(0), Strict(1), plain))]
    for one in (plain, *further):
        for other in (plain, *further):
            assert (one <= other) is (one == other) is (one is other)
    assert plain <= round_trip(Strict(0), Strict(2), Strict(0)) and not round_trip(Strict(1), Strict(1), Strict(0)) <= plain
