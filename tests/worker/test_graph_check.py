"""The graph check: workers build different dataflows, or stop before their peers, and none waits for ever.

White box: graph checks meet in every order, and one worker is ended or fails by hand while its peer runs on.
"""

from __future__ import annotations

import threading

import pytest

import timely
from timely import GraphError, InputHandle, PeerLostError, StalledError, Worker
from timely.worker import thread_transports
from timely.worker.graph_check import GraphCheck
from timely.worker.internals import abort, finish


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
