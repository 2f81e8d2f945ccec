"""Progress aggregation: the same results, errors and guarantees as where every worker sends to every other.

White box: who sent a progress message is read from the message, and the detector of stalls is switched off once.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from tests.recovery.programs import Stopped, expected
from tests.recovery.programs import program as recovering
from tests.recovery.test_boundary import run_late
from tests.worker.processes import exchanging
from timely import Worker
from timely.errors import (
    ConfigurationError,
    GraphError,
    PeerLostError,
    StalledError,
    WorkerError,
)
from timely.progress import ProgressGroups, ProgressMode
from timely.testing import TimeKit, dataflows, simulate, time_kit
from timely.worker import thread_transports
from timely.worker.stall import StallDetector

SHAPES = [
    ProgressGroups.process(4, 2),
    ProgressGroups.central(4),
    ProgressGroups.central(4, 2),
    ProgressGroups.tree(4, 2),
    ProgressGroups(4, [[0, 1], [1, 2], [2, 3]]),
    ProgressGroups(4, [[0, 1, 2], [2, 3]]),
]
INDIRECT: list[ProgressMode] = ["process", "central", "tree"]


def shape(routes: ProgressGroups) -> str:
    return "+".join("".join(map(str, group)) for group in routes.groups)


# -- in simulation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kit", [time_kit(int)], ids=["int"])
@given(routes=st.sampled_from(SHAPES), data=st.data(), seed=st.integers(0, 999))
def test_every_invariant_holds_with_aggregation(kit: TimeKit, routes: ProgressGroups, data: st.DataObject, seed: int) -> None:
    flow = data.draw(dataflows(kit))
    run = simulate(flow.program, workers=4, seed=seed, groups=routes)
    assert flow.merged(run.results) == flow.reference()


def advancing(worker: Worker) -> bool:
    """Say that an input has advanced, confer, and return whether all that the others said of theirs is known then."""
    with worker.dataflow(int) as scope:
        numbers, stream = scope.new_input()
        probe = stream.probe()
    numbers.advance_to(5)
    worker.step()
    worker.all_gather("said")
    while not worker.idle:
        worker.step()
    known = not probe.less_than(5)
    worker.all_gather("seen")  # nobody lets go before all have looked
    numbers.close()
    worker.run()
    return known


@pytest.mark.parametrize("routes", SHAPES, ids=shape)
def test_progress_sent_before_an_all_gather_has_arrived_after_it(routes: ProgressGroups) -> None:
    for seed in range(4):
        assert simulate(advancing, workers=4, seed=seed, groups=routes).results == [True] * 4


@pytest.mark.parametrize("routes", SHAPES, ids=shape)
def test_a_worker_that_only_forwards_ends_with_the_others(routes: ProgressGroups, monkeypatch: pytest.MonkeyPatch) -> None:
    """All know that of each other, and need not find out by waiting that nothing moves."""

    def program(worker: Worker) -> int:
        numbers, probe = exchanging(worker)
        numbers.send(worker.index)
        numbers.advance_to(1)
        worker.step_while(lambda: probe.less_than(1))
        worker.drop_dataflow(worker.scopes[0])
        return worker.index

    monkeypatch.setattr(StallDetector, "stalled", lambda detector: False)
    assert simulate(program, workers=4, decisions=[], groups=routes).results == [0, 1, 2, 3]


def test_the_checker_knows_what_waits_at_a_worker_between_two_steps() -> None:
    """It received that before it built the dataflow, and passes it on in its next step."""

    def program(worker: Worker) -> list[Any]:
        captured = []
        for _ in range(3):
            with worker.dataflow(int) as scope:
                numbers, stream = scope.new_input()
                captured.append(stream.exchange(lambda x: x).capture())
            numbers.send_batch(list(range(worker.index, 8)))
            worker.step()
            numbers.close()
            for _ in range(worker.index):
                worker.step()
        worker.run()
        return [(time, sorted(batch)) for seen in captured for time, batch in seen.extract()]

    expected = simulate(program, workers=4).results
    for seed in range(8):
        assert simulate(program, workers=4, seed=seed, groups=ProgressGroups.process(4, 2)).results == expected


def test_graphs_that_differ_are_found_before_anything_is_made_of_what_is_passed_on() -> None:
    def program(worker: Worker) -> None:
        with worker.dataflow(int) as scope:
            _, stream = scope.new_input()
            for _ in range(5 if worker.index == 2 else 1):
                stream = stream.exchange(lambda x: x)
            stream.probe()
        worker.run()

    for seed in range(10):
        with pytest.raises(GraphError, match="is not the same on workers"):
            simulate(program, workers=3, seed=seed, groups=ProgressGroups.central(3))


# -- for real ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "dying"), [("process", 0), ("process", 3), ("central", 1), ("tree", 2)])
def test_a_process_that_dies_is_noticed(mode: ProgressMode, dying: int) -> None:
    def program(worker: Worker) -> None:
        numbers, probe = exchanging(worker)
        for epoch in range(1, 10):
            numbers.send(epoch)
            numbers.advance_to(epoch)
            worker.step_while(lambda: probe.less_than(numbers.time))
            if epoch == 5 and worker.index == dying:
                os._exit(7)

    with pytest.raises(WorkerError, match="ended with exit code 7"):
        timely.execute(program, workers=2, processes=2, progress=mode)


@pytest.mark.parametrize("routes", [ProgressGroups.central(3), ProgressGroups(3, [[0, 1], [1, 2]])], ids=shape)
@pytest.mark.parametrize("stop", [2, 5])
def test_a_run_goes_on_from_a_checkpoint(tmp_path: Path, routes: ProgressGroups, stop: int) -> None:
    with pytest.raises((Stopped, PeerLostError)):
        run_late(lambda worker: recovering(worker, tmp_path, 8, stop=stop), 3, stop, routes)
    results = run_late(lambda worker: recovering(worker, tmp_path, 8), 3, stop, routes)
    assert {start for start, _, _ in results} <= {stop, stop - 1}
    assert Counter(record for _, records, _ in results for record in records) == expected(8)


# -- errors -----------------------------------------------------------------------------------------------------------


def test_a_dropped_dataflow_without_progress_stalls_the_others_with_an_error() -> None:
    """What it had to begin with holds back every frontier: those that want more find out that nothing moves."""

    def program(worker: Worker) -> None:
        with worker.dataflow(int, name="dropped") as scope:
            numbers, stream = scope.new_input()
            stream.exchange(lambda x: x).probe()
        if worker.index == 0:
            worker.drop_dataflow(scope)
        numbers.close()
        worker.run()

    for progress in INDIRECT:
        with pytest.raises(StalledError, match="in dataflow 'dropped'"):
            timely.execute(program, workers=3, progress=progress)


def test_groups_for_another_number_of_workers_are_refused() -> None:
    transports = thread_transports(2)
    with pytest.raises(ConfigurationError, match="2 workers cannot have progress groups of 3"):
        Worker(transports[0], groups=ProgressGroups.central(3))
    for transport in transports:
        transport.close(0)
