"""The properties that matter most, on fresh random cases for as long as one likes: ``pytest -m soak --soak-seconds 600``.

Each is the property that runs with every change, which says what it checks; ``--soak-seconds`` is for each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance import test_capture
from tests.progress import (
    test_aggregation,
    test_antichain,
    test_change_batch,
    test_cycles,
    test_mutable_antichain,
    test_oracle,
)
from tests.properties import test_flattening, test_schedules
from tests.testing import test_custom_dataflows, test_simulator
from tests.testing.kits import KITS
from tests.worker import test_progress_aggregation

pytestmark = pytest.mark.soak
Soak = Callable[..., None]


@pytest.mark.parametrize(
    "prop",
    [
        test_antichain.test_T1_minimal_elements,
        test_antichain.test_T1_stands_for_what_is_beyond,
        test_mutable_antichain.test_T2_frontier_of_positive_counts,
        test_change_batch.test_T3_sums,
    ],
    ids=["T1_minimal", "T1_beyond", "T2_frontier", "T3_sums"],
)
def test_T1_to_T3_counts(soak: Soak, prop: Any) -> None:
    soak(prop)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_Z1_to_Z5_schedules(soak: Soak, workers: int) -> None:
    soak(test_schedules.test_Z1_to_Z5_and_the_outputs_of_a_sequential_reference, workers=workers)


@pytest.mark.parametrize("kit", KITS.values(), ids=KITS)
def test_Z1_to_Z5_with_aggregation(soak: Soak, kit: Any) -> None:
    soak(test_progress_aggregation.test_every_invariant_holds_with_aggregation, kit=kit)


def test_X_aggregation(soak: Soak) -> None:
    soak(test_aggregation.test_a_worker_has_received_a_prefix_of_the_batches_of_each_other_worker)


@pytest.mark.parametrize(
    "prop",
    [
        test_flattening.test_frontiers_in_a_nesting_equal_those_of_the_flat_graph,
        test_flattening.test_a_cycle_is_refused_exactly_if_time_need_not_advance_on_it,
    ],
    ids=["frontiers", "cycles"],
)
def test_flattening_of_nestings(soak: Soak, prop: Any) -> None:
    soak(prop)


@pytest.mark.parametrize("kit", test_oracle.KITS.values(), ids=test_oracle.KITS)
def test_T5_G9_trackers(soak: Soak, kit: Any) -> None:
    soak(test_oracle.test_T5_G9_frontiers_are_exact, kit=kit)


@pytest.mark.parametrize("kit", test_cycles.KITS.values(), ids=test_cycles.KITS)
def test_G2_cycles(soak: Soak, kit: Any) -> None:
    soak(test_cycles.test_G2_cycles_of_random_graphs, kit=kit)


def test_T6_T7_simulations(soak: Soak) -> None:
    soak(test_simulator.test_T6_T7_any_decisions_will_do)


@pytest.mark.parametrize("kit", KITS.values(), ids=KITS)
def test_T7_times_of_ones_own(soak: Soak, kit: Any) -> None:
    soak(test_custom_dataflows.test_law_2_T7_a_dataflow_over_custom_times_computes_what_the_reference_computes, kit=kit)


@pytest.mark.parametrize("kind", test_capture.TIMES)
def test_T8_capture_and_replay(soak: Soak, kind: str) -> None:
    soak(test_capture.test_T8_any_interleaving_of_legal_streams_replays_to_the_same, kind=kind)
