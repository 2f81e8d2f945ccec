"""One program, whichever way progress goes: the same records at the same times, and no invariant broken on the way.

Random dataflows with loops, scopes in scopes and cycles, over times of every kind, those of one's own and partially ordered ones
among them. In simulation every invariant is checked after each turn, under schedules that deliver when they like; for real, on
threads and on processes, the records alone say whether a frontier moved too early or never.

White box: the limits of batches are lowered, so that few records reach them.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeAlias

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timely
from tests.testing.kits import KITS
from timely.dataflow import ports
from timely.progress import PROGRESS_MODES, ProgressGroups, ProgressMode
from timely.testing import TimeKit, dataflows, simulate
from timely.testing.random_dataflows import Begun, Dataflow
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


WORKERS = 4
LASTING = KITS["int"], KITS["sets"], KITS["quarters_in_hours"], KITS["loop_in_loop_time"]
Moment: TypeAlias = tuple[int, int]
"""After so many further dataflows were begun, and so many steps."""


@attrs.frozen
class Life:
    """A dataflow, and for each worker the moment when it drops it; none, for one that is not dropped."""

    flow: Dataflow
    dropped: tuple[Moment, ...] = ()

    def drops(self, worker: int, moment: Moment) -> bool:
        return bool(self.dropped) and self.dropped[worker] == moment


@attrs.frozen
class Plan:
    """What happens on each worker: the dataflows in the order in which they are begun, and how many steps are between two."""

    lives: tuple[Life, ...]
    steps: int

    def program(self, worker: timely.Worker) -> list[list[dict[Any, list[int]]]]:
        begun: list[Begun] = []
        for stage in range(len(self.lives) + 1):
            begun += [life.flow.begin(worker) for life in self.lives[stage : stage + 1]]
            for step in range(self.steps + 1):
                if step:
                    worker.step()
                for place, (life, each) in enumerate(zip(self.lives, begun, strict=False)):
                    if life.drops(worker.index, (stage - place, step)):
                        worker.drop_dataflow(each.scope)
        for life, each in zip(self.lives, begun, strict=True):
            if life.dropped:
                worker.drop_dataflow(each.scope)  # at last, where its moment never came
        worker.run()
        return [each.seen() for each in begun]

    def check(self, results: list[list[list[dict[Any, list[int]]]]]) -> None:
        for place, life in enumerate(self.lives):
            result, right = life.flow.merged([seen[place] for seen in results]), life.flow.reference()
            if not life.dropped:
                assert result == right
            for given_, whole in zip(result, right, strict=True):
                assert all(Counter(records) <= Counter(whole.get(time, ())) for time, records in given_.items())


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    steps = draw(st.integers(0, 4))
    moments = st.tuples(st.integers(0, 2), st.integers(0, steps))
    lives = []
    for _ in range(draw(st.integers(1, 4))):
        flow = draw(st.sampled_from(LASTING).flatmap(lambda kit: dataflows(kit, max_operators=4)))
        dropped = draw(st.just(()) | st.tuples(*[moments] * WORKERS))
        lives.append(Life(flow, dropped))
    return Plan(tuple(lives), steps)


@given(plans(), st.sampled_from(PROGRESS_MODES), st.sampled_from([1, 2]), st.integers(0, 10**6))
def test_dataflows_come_and_go_in_every_mode(plan: Plan, mode: ProgressMode, each: int, seed: int) -> None:
    plan.check(simulate(plan.program, workers=WORKERS, seed=seed, groups=ProgressGroups.named(mode, WORKERS, each)).results)


@pytest.mark.parametrize("mode", PROGRESS_MODES)
@pytest.mark.parametrize(("workers", "processes"), [(WORKERS, 1), (2, WORKERS // 2)])
@settings(max_examples=settings().max_examples // 6)
@given(plan=plans())
def test_dataflows_come_and_go_for_real(workers: int, processes: int, mode: ProgressMode, plan: Plan) -> None:
    plan.check(timely.execute(plan.program, workers=workers, processes=processes, progress=mode))


EPOCHS = 4


@given(
    st.lists(st.integers(0, EPOCHS), min_size=WORKERS, max_size=WORKERS),
    st.sampled_from(PROGRESS_MODES),
    st.sampled_from([1, 2]),
    st.integers(0, 10**6),
)
def test_workers_that_stay_make_progress_whoever_has_left(leaves: list[int], mode: ProgressMode, each: int, seed: int) -> None:
    """A worker that has closed its input, and said so, may drop the dataflow, and end its program: nobody waits for it."""

    def program(worker: timely.Worker) -> int:
        with worker.dataflow(int) as scope:
            numbers, stream = scope.new_input()
            probe = stream.probe()
        for epoch in range(1, leaves[worker.index] + 1):
            numbers.send(epoch)
            numbers.advance_to(epoch)
            worker.step_while(lambda: probe.less_than(numbers.time))
        numbers.close()
        worker.step()
        worker.drop_dataflow(scope)
        return leaves[worker.index]

    assert simulate(program, workers=WORKERS, seed=seed, groups=ProgressGroups.named(mode, WORKERS, each)).results == leaves
