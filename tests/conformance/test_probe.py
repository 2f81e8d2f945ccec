"""Probes, by the ids of docs/conformance.md, with several workers too."""

from __future__ import annotations

from typing import Any

import pytest

import timely
from timely import Antichain, ProbeHandle, TimestampError


def test_B1_a_probe_follows_its_input() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        probe = stream.probe()
    for r in range(10):
        assert not probe.done()
        assert probe.less_equal(r)
        assert probe.less_than(r + 1)
        assert not probe.less_than(r)
        handle.advance_to(r + 1)
        worker.step()
    handle.close()
    for _ in range(4):
        worker.step()
    assert probe.done()


def test_B1_a_probe_behind_a_nested_loop() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        with scope.iterative() as loop:
            around, again = loop.feedback()
            done, more = stream.enter(loop).concat(again).branch(lambda x: x > 0)
            more.map(lambda x: x - 1).connect_loop(around)
            probe = done.leave().probe()
    for r in range(5):
        handle.send(r)
        handle.advance_to(r + 1)
        worker.step_while(lambda: probe.less_than(handle.time))
        assert probe.frontier() == Antichain([r + 1])
    handle.close()
    worker.run()
    assert probe.done()


def test_B2_a_fresh_handle_is_done() -> None:
    probe: ProbeHandle[int] = ProbeHandle()
    assert list(probe.frontier()) == []
    assert probe.done()
    assert not probe.less_equal(0)


def test_B4_before_the_first_step_the_frontier_is_the_minimum() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        _handle, stream = scope.new_input()
        probe = stream.probe()
    assert probe.frontier() == Antichain([0])


def test_B4_while_the_dataflow_is_built_too() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        probe = stream.probe()
        assert probe.frontier() == Antichain([0])
        assert not probe.done()
        assert probe.less_equal(0)
        with scope.iterative() as loop:
            inner = stream.enter(loop).probe()
            assert inner.frontier() == Antichain([timely.Product(0, 0)])
        handle.advance_to(2)
        assert probe.less_than(1)
    assert (probe.frontier(), inner.frontier()) == (Antichain([0]), Antichain([timely.Product(0, 0)]))
    worker.step_while(lambda: probe.less_than(2))
    handle.close()
    worker.run()
    assert probe.done()
    assert inner.done()


def test_to_wait_for_a_dataflow_inside_of_its_own_block_is_an_error() -> None:
    worker = timely.Worker()
    with pytest.raises(timely.StalledError, match="still being built runs after its with-block"), worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        probe = stream.probe()
        handle.advance_to(1)
        worker.step_while(lambda: probe.less_than(1))


@pytest.mark.parametrize("ask", [ProbeHandle.less_than, ProbeHandle.less_equal])
def test_a_probe_asked_about_a_wrong_type_is_an_error_that_names_its_times(ask: Any) -> None:
    worker = timely.Worker()
    with worker.dataflow(int, name="df") as scope:
        _, stream = scope.new_input()
        outside = stream.probe()
        with scope.iterative("rounds") as rounds:
            inside = stream.enter(rounds).probe()
    with pytest.raises(TimestampError, match=r"'probe' \(/df/rounds#\d/probe#0\): 1 is not .* type Product\[int, int\]") as error:
        ask(inside, 1)
    assert isinstance(error.value.__cause__, TypeError)
    with pytest.raises(TimestampError, match=r"'probe' \(/df/probe#1\): '1' is not a time of type int"):
        ask(outside, "1")


def test_one_handle_at_two_places_shows_both() -> None:
    worker = timely.Worker()
    both: ProbeHandle[int] = ProbeHandle()
    with worker.dataflow(int) as scope:
        left, lefts = scope.new_input()
        right, rights = scope.new_input()
        for stream in (lefts, rights):
            assert timely.operators.probe(stream, both) is both
    left.advance_to(5)
    worker.step()
    assert both.frontier() == Antichain([0])
    right.advance_to(3)
    worker.step()
    assert both.frontier() == Antichain([3])
    right.close()
    worker.step()
    assert both.frontier() == Antichain([5])
    assert not both.done()
    left.close()
    worker.run()
    assert both.done()
