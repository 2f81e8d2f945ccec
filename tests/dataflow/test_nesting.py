"""Odd nestings: scopes without operators, sources and sinks inside, loops in loops, many dataflows at once."""

from __future__ import annotations

import gc
import itertools
import tracemalloc
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from benchmarks.memory import looping
from timely import LoopSummary, LoopTime, ScopeBuilder, Step, Stream
from timely.testing import simulate


def test_a_scope_may_be_built_on_after_its_block_until_the_dataflow_is_complete() -> None:
    def build(scope: ScopeBuilder[int]) -> Stream[int, Any]:
        with scope.region() as box:
            stream = scope.to_stream([1]).enter(box)
        return stream.map(lambda x: x + 1).leave()

    assert timely.example(build) == [(0, [2])]


class Forth(Step):
    """A step along times of a class of one's own."""

    def __init__(self, n: int, kind: type[int] = int) -> None:
        super().__init__(n)
        self.kind = kind

    def results_in(self, time: int) -> int | None:
        return self.kind(time + self.n)

    def followed_by(self, other: Step) -> Step | None:
        return Forth(self.n + other.n, self.kind)


class Fine(int):
    """Whole numbers that refine whole numbers."""

    @classmethod
    def minimum(cls) -> Fine:
        return cls(0)

    @classmethod
    def identity(cls) -> Step:
        return Forth(0, cls)

    @classmethod
    def to_inner(cls, outer: int) -> Any:
        return cls(outer)

    def to_outer(self) -> Any:
        return int(self)

    @classmethod
    def summarize(cls, summary: Step) -> Step:
        return Step(summary.n)


def through(worker: timely.Worker, inner: type[Fine]) -> timely.Capture[int, int]:
    with worker.dataflow(name="df") as scope, scope.scoped(inner, "inside") as inside:
        numbers: Stream[int, int] = scope.to_stream([1]).delay(lambda record, time: 1)
        seen: timely.Capture[int, int] = numbers.enter(inside).map(lambda x: x).leave().capture()
    worker.run()
    return seen


@pytest.mark.parametrize(
    ("methods", "what"),
    [
        ({"to_inner": classmethod(lambda cls, outer: None)}, r"to_inner\(0\) returned None, which is not a time of type Rough"),
        ({"to_inner": classmethod(lambda cls, outer: outer)}, r"to_inner\(0\) returned 0, .* of type int, not Rough"),
        ({"to_outer": lambda self: "0"}, r"to_outer\(0\) returned '0', which is not a time of type int"),
        ({"to_inner": classmethod(lambda cls, outer: cls(outer + 1))}, "what enters at 0 and leaves at once .* comes out at 1"),
    ],
)
def test_times_that_do_not_refine_those_around_them_are_refused(methods: dict[str, Any], what: str) -> None:
    assert through(timely.Worker(), Fine).extract() == [(1, [1])]
    with pytest.raises(timely.TimestampError, match=f"^scope '/df/inside#0': Rough does not refine int: {what}"):
        through(timely.Worker(), type("Rough", (Fine,), methods))


def test_a_dataflow_that_never_completes_because_of_its_times_is_an_error_that_names_the_check() -> None:
    rough = type("Rough", (Fine,), {"to_inner": classmethod(lambda cls, outer: cls(outer + 1 if outer else 0))})
    with pytest.raises(timely.StalledError, match="still dataflow 'df' that is not complete, .*check_refinement"):
        through(timely.Worker(), rough)


Visits = Counter[tuple[LoopTime, int]]


def along(stream: Stream[LoopTime, int], summary: LoopSummary) -> Stream[LoopTime, int]:
    handle, moved = stream.scope.feedback(summary)
    stream.connect_loop(handle)
    return moved


def loops(
    stream: Stream[LoopTime, int], rounds: list[int], seen: list[tuple[LoopTime, int]], level: int = 1
) -> Stream[LoopTime, int]:
    """Have records go round ``rounds[level - 1]`` times in the loop at ``level``, and in those inside it in each of these."""
    if level > len(rounds):
        return stream.inspect_time(lambda time, x: seen.append((time, x))).exchange(lambda x: x + 1)
    again, back = stream.scope.feedback(LoopSummary.feedback(level))
    inside = along(stream, LoopSummary.ingress(level)).concat(back)
    done = loops(inside, rounds, seen, level + 1)
    over, more = done.branch_when(lambda time: time.counters[level - 1] + 1 < rounds[level - 1])
    more.connect_loop(again)
    return along(over, LoopSummary.egress(level))


def program(rounds: list[int], records: int) -> Any:
    def run(worker: timely.Worker) -> tuple[Visits, Visits]:
        seen: list[tuple[LoopTime, int]] = []
        with worker.dataflow(LoopTime) as scope:
            mine = scope.to_stream(range(records) if worker.index == 0 else [])
            out = loops(mine, rounds, seen).capture()
        worker.run()
        return Counter(seen), Counter((time, x) for time, batch in out.messages for x in batch)

    return run


def expected(rounds: list[int], records: int) -> tuple[Visits, Visits]:
    every_round = itertools.product(*map(range, rounds))
    visits = Counter((LoopTime(0, counters), x) for counters in every_round for x in range(records))
    return visits, Counter((LoopTime(0), x) for x in range(records))


def total(results: list[tuple[Visits, Visits]]) -> tuple[Visits, Visits]:
    visits, out = zip(*results, strict=True)
    return sum(visits, Counter()), sum(out, Counter())


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("rounds", [[], [4], [2, 3], [2, 1, 2, 2]])
def test_every_round_of_every_loop_is_made_once(rounds: list[int], workers: int) -> None:
    assert total(timely.execute(program(rounds, 3), workers=workers)) == expected(rounds, 3)


@given(st.lists(st.integers(1, 3), max_size=3), st.integers(1, 3), st.integers(0, 10**6))
def test_under_every_schedule(rounds: list[int], workers: int, seed: int) -> None:
    assert total(simulate(program(rounds, 2), workers, seed).results) == expected(rounds, 2)


FEW, MANY = 1_000, 2_500


@pytest.mark.parametrize(("workers", "most"), [(1, 4_000), (2, 40_000)])
def test_what_is_allocated_does_not_grow_with_the_iterations(workers: int, most: int) -> None:
    """Anything that is kept for each of the iterations would be some hundred kilobytes."""
    allocated: dict[int, int] = {}

    def look(iteration: int) -> None:
        if iteration in (FEW, MANY):
            gc.collect()
            allocated[iteration] = tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        timely.execute(looping(MANY, True, look), workers=workers)
    finally:
        tracemalloc.stop()
    assert allocated[MANY] - allocated[FEW] < most
