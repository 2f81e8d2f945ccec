"""A run in which every worker waits for another ends with an error: also where they have built different dataflows.

White box: reports of workers and graph checks meet in orders that threads would hit once in a million runs.
"""

from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timely
from timely import GraphError, InputHandle, PeerLostError, StalledError, Worker
from timely.worker import thread_transports
from timely.worker.graph_check import GraphCheck
from timely.worker.internals import abort, finish
from timely.worker.stall import StallDetector

MODES: list[dict[str, Any]] = [{"workers": 3}, {"processes": 2}, {"workers": 2, "processes": 2}]


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_an_input_that_one_worker_keeps_open_ends_the_run(mode: dict[str, Any]) -> None:
    held: list[InputHandle[int, int]] = []

    def program(worker: Worker) -> None:
        with worker.dataflow(name="open") as scope:
            numbers, stream = scope.new_input()
            stream.exchange(lambda x: x).capture()
        numbers.send(worker.index)
        if worker.index == 1:
            held.append(numbers)
        else:
            numbers.close()
        worker.run()

    with pytest.raises(StalledError, match=r"a capability of /open/input#0 at 0 in dataflow 'open': close the inputs"):
        timely.execute(program, **mode)
    held.clear()


def test_a_dataflow_that_one_worker_drops_ends_the_run() -> None:
    def program(worker: Worker) -> None:
        with worker.dataflow(name="dropped") as scope:
            scope.to_stream([1, 2, 3]).exchange(lambda x: x).capture()
        if worker.index == 1:
            worker.drop_dataflow(scope)
        worker.run()

    with pytest.raises(StalledError, match="in dataflow 'dropped'"):
        timely.execute(program, workers=3)


def searched(*detectors: StallDetector) -> None:
    for detector in detectors:
        detector.search_was_in_vain()


def test_who_holds_input_back_has_not_stalled() -> None:
    one, two = StallDetector(0, 2), StallDetector(1, 2)
    searched(one, two)
    one.receive(1, two.report(), final=False)
    assert one.resting()
    assert not one.stalled()
    assert two.news(final=False) == two.report()
    assert two.news(final=False) is None
    one.receive(1, two.news() or pytest.fail("that it is final now is news"))
    assert one.stalled()
    one.count_sent(1)
    assert not one.resting()


def test_that_a_peer_only_serves_is_a_move() -> None:
    detector = StallDetector(0, 2)
    before = detector.moves
    detector.serve(1)
    assert detector.moves == before + 1


DEEDS = ["send", "deliver", "report", "search", "end"]


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from(DEEDS), st.integers(0, 3), st.integers(0, 3)), max_size=60),
    st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_a_stall_is_found_exactly_when_nothing_can_move(history: list[tuple[str, int, int]], abandoned: list[bool]) -> None:
    """Links keep their order, so that an end is received behind all messages. When all have reported at rest, all know.

    Some have something that nothing refers to any more, and act when they find it.
    """
    workers = range(4)
    detectors = [StallDetector(index, 4) for index in workers]
    links: dict[tuple[int, int], list[Any]] = {(i, j): [] for i in workers for j in workers}
    quiet, ended = [False] * 4, [False] * 4

    def deliver(i: int, j: int) -> None:
        message = links[i, j].pop(0)
        if ended[j]:
            return
        if message == "message":
            detectors[j].count_received(i)
            quiet[j] = False
        elif message == "ended":
            detectors[j].end(i)
        else:
            detectors[j].receive(i, message)

    def send(i: int, message: Any) -> None:
        for j in workers:
            if i != j:
                links[i, j].append(message)

    def report(i: int) -> None:
        quiet[i] = True
        news = detectors[i].news()
        if news is not None:
            send(i, news)

    def search(i: int) -> None:
        if not quiet[i] or not detectors[i].still() or detectors[i].has_searched:
            return
        if not abandoned[i]:
            detectors[i].search_was_in_vain()
            return report(i)
        abandoned[i] = quiet[i] = False
        for j in workers:
            if i != j:
                detectors[i].count_sent(j)
                links[i, j].append("message")

    def check() -> bool:
        waiting = [i for i in workers if not ended[i]]
        collected = [quiet[i] and detectors[i].stalled() for i in waiting]
        if any(collected):
            assert all(quiet[i] for i in waiting)
            assert not any("message" in links[i, j] for i in workers for j in waiting)
            assert not any(abandoned[i] for i in waiting)
        return all(collected)

    for deed, i, j in history:
        if deed == "deliver" and i != j and links[i, j]:
            deliver(i, j)
        elif not ended[i]:
            if deed == "send" and not quiet[i] and i != j:
                detectors[i].count_sent(j)
                links[i, j].append("message")
            elif deed == "report":
                report(i)
            elif deed == "search":
                search(i)
            elif deed == "end":
                ended[i] = True
                send(i, "ended")
        check()
    for _ in range(9):
        for i, j in links:
            while links[i, j]:
                deliver(i, j)
        for i in workers:
            if not ended[i]:
                report(i)
                search(i)
    assert check()


def test_a_report_is_as_short_among_many_workers_as_among_few() -> None:
    few, many = StallDetector(0, 2), StallDetector(0, 2000)
    for detector in (few, many):
        detector.count_sent(1)
        detector.count_received(1, 1000)
    assert len(pickle.dumps(tuple(many.report()))) <= len(pickle.dumps(tuple(few.report()))) + 2
    assert many.report() != StallDetector(0, 2000).report()


def two_workers() -> tuple[Worker, Worker]:
    one, two = (Worker(transport) for transport in thread_transports(2))
    return one, two


def build(worker: Worker, name: str) -> InputHandle[int, int]:
    with worker.dataflow(name=name) as scope:
        numbers, stream = scope.new_input()
        stream.exchange(lambda x: x).probe()
    return numbers


def test_a_name_that_is_no_text_passes_the_graph_check() -> None:
    """As those of files are that were named in another encoding, on Linux."""

    def program(worker: Worker) -> list[tuple[int, list[int]]]:
        with worker.dataflow(name="caf\udce9") as scope:
            seen = scope.to_stream([2]).exchange(lambda x: x).capture()
        worker.run()
        return seen.extract()

    assert timely.execute(program, workers=2) == [[(0, [2, 2])], []]


def test_equal_graphs_pass_the_check() -> None:
    sides = [GraphCheck(index, 3) for index in range(3)]
    seen = [side.built(4, ["scope /a"]) for side in sides]
    for side, index in ((side, index) for side in range(3) for index in range(3) if side != index):
        sides[side].compare(4, index, seen[index])
    assert all(side.known == {4} for side in sides)
    assert not any(side._open for side in sides)  # what it looks like is not kept any longer


def test_of_several_differences_the_first_is_named() -> None:
    one, two = GraphCheck(0, 2), GraphCheck(1, 2)
    one.built(0, ["scope /a", "operator /a/map#0", "operator /a/map#1"])
    with pytest.raises(GraphError, match="worker 0 has operator /a/map#0, worker 1 has operator /a/filter#0; "):
        one.compare(0, 1, two.built(0, ["scope /a", "operator /a/filter#0"]))


def test_a_difference_beyond_what_is_sent_is_still_found() -> None:
    one, two = GraphCheck(0, 2), GraphCheck(1, 2)
    lines = [f"operator {i}" for i in range(2_000)]
    one.built(0, lines)
    with pytest.raises(GraphError, match="differ beyond the first operators"):
        one.compare(0, 1, two.built(0, [*lines, "one more"]))


def test_a_dataflow_built_after_a_peer_has_ended() -> None:
    one, two = two_workers()
    finish(two)
    one.step()
    with pytest.raises(GraphError, match=r"worker 1 has ended without building dataflow 0 \('late'\)"):
        build(one, "late")
    one.close()
    two.close()


def test_a_worker_that_is_closed_too_early_is_missed() -> None:
    one, two = two_workers()
    build(one, "mine")
    numbers = build(two, "mine")
    one.close()
    with pytest.raises(PeerLostError, match="worker 0 failed.*closed before dataflow 'mine' was complete"):
        two.run()
    numbers.close()
    two.close()


def test_a_worker_that_has_failed_stays_so() -> None:
    one, two = two_workers()
    abort(two, ValueError("mine"))
    with pytest.raises(PeerLostError, match="worker 1 failed, so worker 0 stops: ValueError: mine"):
        one.step()
    for deed in (one.step, one.run, one.run_step):
        with pytest.raises(PeerLostError, match="worker 0 has failed already"):
            deed()
    one.close()
    two.close()


def test_a_stall_is_found_although_messages_came_before_their_dataflow() -> None:
    sent, taken = threading.Event(), threading.Event()

    def program(worker: Worker) -> None:
        first = build(worker, "first")
        if worker.index == 1:
            second = build(worker, "second")
            for number in range(10):
                second.send(number)
            worker.step()
            sent.set()
            taken.wait()
        else:
            sent.wait()
            worker.step()  # takes in messages of a dataflow that is not built here yet
            taken.set()
            second = build(worker, "second")
        second.close()
        worker.run()
        first.close()

    with pytest.raises(StalledError, match="a capability of /first/input#0 at 0"):
        timely.execute(program, workers=2)
