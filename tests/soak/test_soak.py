"""The properties that matter most, on fresh random cases for as long as one likes: ``pytest -m soak --soak-seconds 600``.

Each is the property that runs with every change, which says what it checks; ``--soak-seconds`` is for each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.progress import test_exchange, test_oracle
from tests.properties import test_flattening, test_schedules
from timely.progress import Product

pytestmark = pytest.mark.soak
Soak = Callable[..., None]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_Z1_to_Z5_schedules(soak: Soak, workers: int) -> None:
    soak(test_schedules.test_Z1_to_Z5_and_the_outputs_of_a_sequential_reference, workers=workers)


@pytest.mark.parametrize(
    "prop",
    [
        test_flattening.test_frontiers_in_a_nesting_equal_those_of_the_flat_graph,
        test_flattening.test_closing_everything_empties_every_frontier_and_completes,
        test_flattening.test_a_cycle_is_refused_exactly_if_time_need_not_advance_on_it,
    ],
    ids=["frontiers", "completion", "cycles"],
)
def test_flattening_of_nestings(soak: Soak, prop: Any) -> None:
    soak(prop)


@pytest.mark.parametrize("kit", test_oracle.KITS.values(), ids=test_oracle.KITS)
def test_T5_G9_trackers(soak: Soak, kit: Any) -> None:
    soak(test_oracle.test_T5_G9_frontiers_are_exact, kit=kit)


@pytest.mark.parametrize("spec", [int, Product[int, int]], ids=["int", "product"])
def test_T6_exchange(soak: Soak, spec: Any) -> None:
    soak(test_exchange.test_T6_X1_to_X6_and_I1_to_I7_under_any_interleaving, spec=spec)
