"""Odd nestings: scopes without operators, sources and sinks inside, streams that go in and out, many dataflows at once."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

import timely
from timely import Antichain, Product, ScopeBuilder, Step, Stream

SIZES = [(1, 1), (2, 1), (3, 1), (1, 2)]
sizes = pytest.mark.parametrize(("workers", "processes"), SIZES)


def test_one_stream_enters_twice_and_leaves_twice() -> None:
    def build(scope: ScopeBuilder[int]) -> Stream[int, Any]:
        stream = scope.to_stream([1, 2])
        with scope.region() as box:
            first, second = stream.enter(box), stream.enter(box)
            return first.leave().concat(first.leave(), second.leave(), second.map(lambda x: -x).leave())

    assert timely.example(build) == [(0, [-2, -1, 1, 1, 1, 2, 2, 2])]


def test_an_empty_region_beside() -> None:
    def build(scope: ScopeBuilder[int]) -> Stream[int, Any]:
        with scope.region(), scope.iterative():
            pass
        return scope.to_stream([1])

    assert timely.example(build) == [(0, [1])]


def test_a_scope_may_be_built_on_after_its_block_until_the_dataflow_is_complete() -> None:
    def build(scope: ScopeBuilder[int]) -> Stream[int, Any]:
        with scope.region() as box:
            stream = scope.to_stream([1]).enter(box)
        return stream.map(lambda x: x + 1).leave()

    assert timely.example(build) == [(0, [2])]


@sizes
def test_work_in_a_scope_without_outputs_keeps_the_dataflow_alive(workers: int, processes: int) -> None:
    def program(worker: timely.Worker) -> list[Any]:
        seen: list[Any] = []
        with worker.dataflow(int) as scope:
            stream = scope.to_stream([3] if worker.index == 0 else ())
            with scope.region() as box, box.iterative() as loop:
                handle, again = loop.feedback()
                around = stream.enter(box).enter(loop).concat(again).exchange(lambda x: x)
                around.inspect_time(lambda t, x: seen.append((t.inner, x))).map(lambda x: x - 1).filter(bool).connect_loop(handle)
        worker.run()
        return seen

    found = timely.execute(program, workers=workers, processes=processes)
    assert sorted(entry for seen in found for entry in seen) == [(0, 3), (1, 2), (2, 1)]


@sizes
def test_sources_and_inputs_inside_a_nested_scope(workers: int, processes: int) -> None:
    def program(worker: timely.Worker) -> Any:
        with worker.dataflow(int) as scope:
            with scope.iterative() as loop:
                handle, stream = loop.new_input()
                both = stream.concat(loop.to_stream([worker.index]))
                times: list[Any] = []
                left = both.exchange(lambda x: x).inspect_time(lambda t, x: times.append((t, x))).leave()
            probe, seen = left.probe(), left.capture()
        handle.advance_to(Product(0, 4))
        handle.send(worker.index)
        handle.advance_to(Product(2, 4))
        worker.step_while(lambda: probe.less_than(2))
        assert probe.frontier() == Antichain([2])
        handle.send(worker.index)
        handle.close()
        worker.run()
        return seen.extract(), sorted(times)

    for index, found in enumerate(timely.execute(program, workers=workers, processes=processes)):
        assert found == (
            [(0, [index, index]), (2, [index])],
            [(Product(0, 0), index), (Product(0, 4), index), (Product(2, 4), index)],
        )


def test_two_loops_through_one_operator() -> None:
    def build(scope: ScopeBuilder[int]) -> Stream[int, Any]:
        short, short_again = scope.feedback(Step(1, limit=3))
        long, long_again = scope.feedback(Step(2, limit=4))
        around = scope.to_stream([0]).concat(short_again, long_again)
        around.connect_loop(short)
        around.connect_loop(long)
        return around

    # The number of ways to reach t by steps of one (from before 3) and of two (from before 3).
    found = {time: len(records) for time, records in timely.example(build)}
    ways = {0: 1}
    for t in range(1, 5):
        ways[t] = (ways.get(t - 1, 0) if t <= 3 else 0) + ways.get(t - 2, 0)
    assert found == ways


@sizes
def test_a_dataflow_built_late_on_one_worker_gets_what_came_early(workers: int, processes: int) -> None:
    def program(worker: timely.Worker) -> Any:
        with worker.dataflow(int, name="first") as scope:
            handle, stream = scope.new_input()
            probe = stream.exchange(lambda x: x).probe()
        if worker.index == worker.peers - 1:
            # The others build the second dataflow, and send in it, while this one has not yet.
            for _ in range(200):
                worker.step()
        with worker.dataflow(int, name="second") as scope:
            seen = scope.to_stream(range(20)).exchange(lambda x: x).capture()
        for epoch in range(1, 5):
            handle.send(epoch)
            handle.advance_to(epoch)
            if worker.index < worker.peers - 1:
                worker.step()
        worker.step_while(lambda: probe.less_than(4))
        handle.close()
        worker.run()
        return seen.extract()

    w = workers * processes
    found = timely.execute(program, workers=workers, processes=processes)
    assert found == [[(0, sorted([*range(index, 20, w)] * w))] for index in range(w)]


@attrs.frozen(order=False)
class Version:
    """Times, and their summaries, that look at what they are compared with, as those in docs/timestamps.md do."""

    major: int = 0
    minor: int = 0

    def __le__(self, other: Version) -> bool:
        return self.major <= other.major and self.minor <= other.minor

    def __lt__(self, other: Version) -> bool:
        return self <= other and self != other

    @classmethod
    def minimum(cls) -> Version:
        return cls()

    @classmethod
    def identity(cls) -> Version:
        return cls()

    def results_in(self, time: Version) -> Version | None:
        return Version(self.major + time.major, self.minor + time.minor)

    followed_by = results_in


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_loops_inside_and_around_of_times_of_ones_own(workers: int, depth: int) -> None:
    """A scope that something leads back to both within the scope around it and further out."""

    def nested(stream: Stream[Version, int], level: int) -> Stream[Version, int]:
        if level == depth:
            with stream.scope.region("innermost") as inner:
                return stream.enter(inner).map(lambda x: x + 1).leave()
        with stream.scope.region(f"level{level}") as scope:
            handle, again = scope.feedback(Version(minor=1))
            now = nested(stream.enter(scope).concat(again), level + 1)
            now.filter(lambda x: x % 3 != 0).connect_loop(handle)
            return now.filter(lambda x: x % 3 == 0).leave()

    def program(worker: timely.Worker) -> list[tuple[Version, list[int]]]:
        with worker.dataflow(Version) as scope:
            handle, again = scope.feedback(Version(major=1))
            now = nested(scope.to_stream([1] if worker.index == 0 else []).concat(again), 0)
            now.filter(lambda x: x < 9).connect_loop(handle)
            seen = now.capture()
        worker.run()
        return seen.extract()

    found = [each for seen in timely.execute(program, workers=workers) for each in seen]
    assert found == [(Version(0, 1), [3]), (Version(1, 3), [6]), (Version(2, 5), [9])]


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


def test_a_dataflow_that_ends_for_nobody_because_of_its_times_says_to_check_them() -> None:
    rough = type("Rough", (Fine,), {"to_inner": classmethod(lambda cls, outer: cls(outer + 1 if outer else 0))})
    with pytest.raises(timely.StalledError, match="still dataflow 'df' that is not complete, .*check_refinement"):
        through(timely.Worker(), rough)
