"""The external summaries of the children of a scope: the ways back to them, inside of it and round the world.

White box: a way back that is missing or too early shows, if ever, as a late frontier in a large nesting.
"""

from __future__ import annotations

from typing import Any

import pytest

from timely import Antichain, Step
from timely.progress import GraphBuilder, Source, SummaryRow, Target, refinement
from timely.scopes import EGRESS, INGRESS
from timely.scopes.external_summary import ExternalSummaries, on_cycles

ACROSS = [[Antichain([Step(0)])]]


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
