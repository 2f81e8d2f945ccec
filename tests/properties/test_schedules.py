"""Safety and liveness of nested dataflows on several workers, under every schedule of steps and deliveries."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.properties.relays import Choices, Cluster, plans, reference
from tests.support.nesting_strategy import nestings


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
