"""A run in which every worker waits for another ends with an error that says what is held, and no live run is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from timely import InputHandle, StalledError, Worker
from timely.worker.stall import StallDetector

MODES = [{"workers": 3}, {"processes": 2}, {"workers": 2, "processes": 2}]


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_an_input_that_one_worker_keeps_open_ends_the_run(mode: dict[str, int]) -> None:
    kept: list[InputHandle[int, int]] = []

    def program(worker: Worker) -> None:
        with worker.dataflow(name="open") as scope:
            numbers, stream = scope.new_input()
            stream.exchange(lambda x: x).capture()
        numbers.send(worker.index)
        if worker.index == 1:
            kept.append(numbers)
        else:
            numbers.close()
        worker.run()

    with pytest.raises(StalledError, match=r"a capability of /open/input#0 at 0 in dataflow 'open': close the inputs"):
        timely.execute(program, **mode)
    kept.clear()


def test_a_dataflow_that_one_worker_drops_ends_the_run() -> None:
    def program(worker: Worker) -> None:
        with worker.dataflow(name="dropped") as scope:
            scope.to_stream([1, 2, 3]).exchange(lambda x: x).capture()
        if worker.index == 1:
            worker.drop_dataflow(scope)
        worker.run()

    with pytest.raises(StalledError, match="in dataflow 'dropped'"):
        timely.execute(program, workers=3)


def test_who_holds_input_back_has_not_stalled() -> None:
    one, two = StallDetector(0, 2), StallDetector(1, 2)
    one.heard(1, two.report(), final=False)
    assert one.resting()
    assert not one.stalled()
    assert two.news(final=False) == two.report()
    assert two.news(final=False) is None
    one.heard(1, two.news() or pytest.fail("that it is final now is news"))
    assert one.stalled()
    one.sent(1)
    assert not one.resting()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.booleans()), max_size=30))
def test_no_message_on_its_way_is_overlooked(history: list[tuple[int, int, bool]]) -> None:
    """Workers send, get what is on its way, and report, in any order; a quiet worker acts again only on a message."""
    detectors = [StallDetector(index, 3) for index in range(3)]
    on_its_way = {(i, j): 0 for i in range(3) for j in range(3)}
    quiet = [False] * 3
    for i, j, deliver in history:
        if i == j:
            quiet[i] = True
            for other in range(3):
                if other != i:
                    detectors[other].heard(i, detectors[i].report())
        elif deliver and on_its_way[i, j]:
            on_its_way[i, j] -= 1
            detectors[j].got(i)
            quiet[j] = False
        elif not quiet[i]:
            on_its_way[i, j] += 1
            detectors[i].sent(j)
        for index, detector in enumerate(detectors):
            if quiet[index] and detector.stalled():
                assert all(quiet)
                assert not any(on_its_way.values())


def test_what_was_sent_to_a_peer_that_has_ended_does_not_count() -> None:
    one, two = StallDetector(0, 2), StallDetector(1, 2)
    one.sent(1)
    one.heard(1, two.report())
    assert not one.stalled()
    one.ended(1)
    assert one.stalled()
