"""Safety and liveness of nested dataflows on several workers, under every schedule of steps and deliveries.

Nesting is invisible to progress: every frontier is the one that a flat graph of the whole would give.
"""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.properties.relays import Choices, Cluster, plans, reference
from tests.support.nesting import Nesting
from tests.support.nesting_builder import build_nesting
from tests.support.nesting_strategy import nestings
from timely import CycleError, Worker


@pytest.mark.parametrize("workers", [1, 2, 3])
@settings(max_examples=4 * settings().max_examples)
@given(st.data())
def test_Z1_to_Z5_and_the_outputs_of_a_sequential_reference(workers: int, data: st.DataObject) -> None:
    nesting = data.draw(nestings(exchanges=True)).repaired()
    plan = data.draw(plans(nesting, workers))
    expected = reference(plan)
    assume(sum(map(len, expected.values())) < 300)
    choices = Choices(data)
    cluster = Cluster(plan, choices, sharing=data.draw(st.booleans()))
    for _ in range(choices.below(4)):
        for _ in range(choices.below(25)):
            cluster.act()
        if choices.below(2) and None not in cluster.relays:
            cluster.settle()
            cluster.check_precision()
    cluster.finish()
    assert cluster.received == expected


def check_against_flat_graph(nesting: Nesting, data: st.DataObject, most: int, *, sharing: bool) -> None:
    """Fewer than ``most`` times, let operators of a nesting act and compare all frontiers with those of the flat graph; in the
    end all is closed, and every frontier is empty.
    """
    choices = Choices(data)
    cluster = Cluster(data.draw(plans(nesting.repaired(), 1)), choices, sharing=sharing)
    cluster.build(0)
    for _ in range(choices.below(most)):
        cluster.settle()
        cluster.check_precision()
        for _ in range(1 + choices.below(3)):
            cluster.act()
    cluster.finish()


@given(nestings(), st.booleans(), st.data())
def test_frontiers_in_a_nesting_equal_those_of_the_flat_graph(nesting: Nesting, sharing: bool, data: st.DataObject) -> None:
    check_against_flat_graph(nesting, data, most=12, sharing=sharing)


@given(nestings(limits=False), st.booleans())
def test_a_cycle_is_refused_exactly_if_time_need_not_advance_on_it(nesting: Nesting, sharing: bool) -> None:
    with pytest.raises(CycleError) if nesting.stuck() else contextlib.nullcontext():
        build_nesting(nesting, Worker(), lambda op, inputs, capabilities, info: lambda *ports: None, sharing=sharing)
