"""One program, whichever way progress goes: the same records at the same times, and no invariant broken on the way.

Random dataflows with loops, scopes in scopes and cycles, over times of every kind, those of one's own and partially ordered ones
among them. In simulation every invariant is checked after each turn, under schedules that deliver when they like; for real, on
threads and on processes, the records alone say whether a frontier moved too early or never.

White box: the limits of batches are lowered, so that few records reach them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timely
from tests.testing.kits import KITS
from timely.dataflow import ports
from timely.progress import PROGRESS_MODES, ProgressGroups, ProgressMode
from timely.testing import TimeKit, dataflows, simulate
from timely.testing.random_dataflows import Dataflow
from timely.worker import batching

EVERY_KIT = pytest.mark.parametrize("kit", KITS.values(), ids=KITS)
EVERY_MODE = pytest.mark.parametrize("mode", PROGRESS_MODES)
FEW = settings(max_examples=max(settings().max_examples // 8, 3))
"""For what is tried with every kit, or with every mode on every size."""


@EVERY_KIT
@FEW
@given(data=st.data(), mode=st.sampled_from(PROGRESS_MODES), each=st.sampled_from([1, 2]), seed=st.integers(0, 10**6))
def test_every_mode_in_simulation(kit: TimeKit, data: st.DataObject, mode: ProgressMode, each: int, seed: int) -> None:
    flow = data.draw(dataflows(kit))
    run = simulate(flow.program, workers=4, seed=seed, groups=ProgressGroups.named(mode, 4, each))
    assert flow.merged(run.results) == flow.reference()


@given(dataflows(max_operators=8), st.integers(1, 3), st.integers(1, 4), st.integers(0, 10**6))
def test_however_batches_are_joined_and_split_on_their_way(flow: Dataflow, small: int, flush_at: int, seed: int) -> None:
    """With bounds so low that small lists are joined, and gathered, in part: before an operator, and on the way to a peer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ports, "SMALL", small)
        patch.setattr(ports, "FLUSH_AT", flush_at)
        patch.setattr(batching, "FLUSH_AT", flush_at)
        run = simulate(flow.program, workers=2, seed=seed)
    assert flow.merged(run.results) == flow.reference()


# -- for real ----------------------------------------------------------------------------------------------------------


@EVERY_MODE
@pytest.mark.parametrize(("workers", "processes"), [(4, 1), (1, 4), (2, 2)])
@settings(max_examples=max(settings().max_examples // 8, 3))
@given(kit=st.sampled_from(sorted(KITS)), data=st.data())
def test_every_mode_for_real(workers: int, processes: int, mode: ProgressMode, kit: str, data: st.DataObject) -> None:
    flow = data.draw(dataflows(KITS[kit]))
    results = timely.execute(flow.program, workers=workers, processes=processes, progress=mode)
    assert flow.merged(results) == flow.reference()


@pytest.fixture
def thresholds() -> Iterator[None]:
    """Has Python look for garbage as it did before, after the test."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("thresholds")
@pytest.mark.parametrize("threshold", [0, 1], ids=["never", "always"])
@FEW
@given(flow=dataflows())
def test_whenever_python_collects_garbage(threshold: int, flow: Dataflow) -> None:
    """No capability waits for the garbage collector to be dropped, and none is dropped by it too early."""
    gc.set_threshold(threshold)
    results = timely.execute(flow.program, workers=2)
    gc.set_threshold(0)
    assert flow.merged(results) == flow.reference()
