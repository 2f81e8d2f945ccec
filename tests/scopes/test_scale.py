"""Building takes steps in proportion to the size of a dataflow, and what has nothing to do takes none.

Steps are the lines that Python runs, loops inside of a line included: the same number on every machine.

White box: the collector is paused while steps are counted, and the limit from which frontiers are passed up is lowered.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

import timely
from benchmarks.scale import REGION, SHAPES, Driven
from timely.scopes import subgraph_builder
from timely.worker.gc_control import collector_paused


def steps(work: Callable[[], object]) -> int:
    """Return how many lines are run by ``work()``."""
    count = 0

    def trace(frame: Any, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    with collector_paused():  # it may find what other tests have left, and run its __del__
        sys.settrace(trace)
        try:
            work()
        finally:
            sys.settrace(before)
    return count


def building(shape: str, units: int) -> int:
    """Return the steps of building a shape, running it until it is idle, and dropping it."""

    def work() -> None:
        worker = timely.Worker()
        with worker.dataflow() as scope:
            alive = SHAPES[shape](scope, units)
        while not worker.idle:
            worker.step()
        worker.drop_dataflow(scope)
        del alive

    return steps(work)


def nesting(depth: int) -> int:
    """Return the steps of building loops in loops, so many deep."""

    def inside(scope: Any, stream: Any, left: int) -> Any:
        if not left:
            return stream
        with scope.iterative() as loop:
            handle, again = loop.feedback()
            stream = inside(loop, stream.enter(loop).concat(again), left - 1)
            stream.connect_loop(handle)
            return stream.leave()

    def work() -> None:
        with timely.Worker().dataflow() as scope:
            inside(scope, scope.to_stream([1]), depth).probe()

    return steps(work)


def test_loops_nested_twice_as_deep_take_at_most_eight_times_the_steps() -> None:
    """The times of a scope have a coordinate for each around it, and there is a way back into it through each of those."""
    nesting(2)
    small, large = nesting(14), nesting(28)
    assert large <= 8 * small


@pytest.mark.parametrize("shape", SHAPES)
def test_twice_the_size_takes_twice_the_steps(shape: str) -> None:
    unit = 20 if "regions" not in shape else REGION
    building(shape, unit)  # what is imported, or made, the first time only
    small, middle, large = (building(shape, unit * size) for size in (1, 2, 4))
    assert large - middle <= 2.2 * (middle - small)


def test_an_epoch_takes_no_more_steps_beside_idle_dataflows() -> None:
    alone, beside = Driven(0, 5), Driven(20, 5)
    for driven in (alone, beside):
        driven.seconds(1)
    assert steps(lambda: alone.seconds(3)) == steps(lambda: beside.seconds(3))


def history() -> list[object]:
    """Run a loop in a region with three outputs, and return all that can be seen of it, step by step."""
    worker = timely.Worker()
    with worker.dataflow() as scope:
        numbers, stream = scope.new_input()
        with scope.region() as region:
            small, large = stream.enter(region).map(lambda x: x + 1).branch(lambda x: x > 9)
            with region.iterative() as loop:
                handle, again = loop.feedback(timely.ProductSummary(timely.Step(0), timely.Step(1, limit=4)))
                around = small.enter(loop).concat(again).map(lambda x: x + 1)
                around.connect_loop(handle)
                done = around.filter(lambda x: x % 2 == 0).leave()
            left = [done.leave(), done.delay(lambda x, time: time + x).leave(), large.leave()]
        probes = [each.probe() for each in left]
        seen = [each.capture() for each in left]
    collected: list[object] = []
    for epoch in range(4):
        numbers.send(5 * epoch)
        numbers.advance_to(epoch + 1)
        for _ in range(3):
            worker.step()
            collected.append([probe.frontier() for probe in probes])
    numbers.close()
    while worker.step():
        collected.append([probe.frontier() for probe in probes])
    return [*collected, *(each.extract() for each in seen)]


def test_the_parent_receives_the_same_by_frontiers_as_by_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where much inside leads to many outputs the one takes the place of the other."""
    by_counts = history()
    monkeypatch.setattr(subgraph_builder, "_MOST_EXITS", -1)
    assert history() == by_counts


def test_many_ways_out_are_reported_by_frontiers() -> None:
    with timely.Worker().dataflow() as scope:
        SHAPES["a partition in a region"](scope, 50)
    [region] = [nested for nested in scope.scopes if nested.outputs == 50]
    assert len(region.trackers) == 2
