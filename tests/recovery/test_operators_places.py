"""Operators whose state belongs to a worker, sources, and operators with two inputs: cut at any boundary, they go on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timely
from tests.recovery.cutting import EPOCHS, Build, Cut, Phase, Sends, cuts, run, sends
from tests.support.memory_registry import MemoryStateRegistry, settle
from timely import Messages, Pipeline, Progress, StateError, operators
from timely.recovery import Recovery


def _both_received(scope: Any, left: Any, right: Any) -> Any:
    """A closure with two inputs, which counts what came on both at a time."""
    counts: dict[int, int] = {}

    def logic(left: Any, right: Any, output: Any, notificator: Any) -> None:
        for input in (left, right):
            for capability, batch in input:
                counts[capability.time] = counts.get(capability.time, 0) + len(batch)
                notificator.notify_at(capability.retain())
        for capability, _ in notificator:
            if capability.time in counts:
                output.session(capability).give(counts.pop(capability.time))

    def register(info: timely.OperatorInfo) -> None:
        info.register_state(lambda: ((0, item) for item in counts.items()), counts.update)

    by_nothing = timely.Exchange(lambda record: 0)
    return left.binary_notify(right, by_nothing, by_nothing, "both", [], logic, state=register)


def _both_alone(scope: Any, left: Any, right: Any) -> Any:
    """As ``_both_received``, by time, so that the state of a time goes where its records go."""
    tag = left.concat(right).inspect_time(lambda time, record: None)
    return tag.aggregate(lambda key, value, n: (n or 0) + 1, lambda key, n: (key, n))


BINARY: dict[str, Build] = {
    "join": lambda scope, left, right: left.join(right),
    "join by key": lambda scope, left, right: left.join(right, key=lambda k: 7),
    "reclock": lambda scope, stream, clock: stream.apply(operators.reclock, clock.broadcast()),
    "concat": _both_alone,
}


@pytest.mark.parametrize("name", BINARY)
@given(left=sends, right=sends, cuts=cuts, workers=st.integers(1, 3), compact=st.booleans())
@settings(max_examples=12)
def test_two_inputs_that_are_cut_give_what_they_give_without(
    name: str, left: Sends, right: Sends, cuts: list[Cut], workers: int, compact: bool
) -> None:
    build = BINARY[name]
    assert run(build, left, right, cuts=cuts, workers=workers, compact=compact) == run(build, left, right)


@given(sends=sends, cuts=cuts, workers=st.integers(1, 3))
@settings(max_examples=12)
def test_counts_of_workers_that_come_and_go_add_up(sends: Sends, cuts: list[Cut], workers: int) -> None:
    def totals(cuts: Sequence[Cut], workers: int) -> Counter[Any]:
        """The numbers that came out, added up by time, wherever they came out."""
        sums: Counter[Any] = Counter()
        for (_, time, record), count in run(lambda scope, s: s.count(), sends, cuts=cuts, workers=workers).items():
            sums[time] += int(record) * count
        return +sums

    assert totals(cuts, workers) == totals([], 1)


@given(sends=sends, end=st.integers(0, EPOCHS), workers=st.integers(1, 3))
@settings(max_examples=12)
def test_what_each_worker_has_of_a_time_goes_on_there(sends: Sends, end: int, workers: int) -> None:
    def accumulated(scope: Any, stream: Any) -> Any:
        return stream.map(lambda pair: pair[1]).accumulate(0, lambda total, x: total + x)

    def reduced(scope: Any, stream: Any) -> Any:
        return stream.map(lambda pair: pair[1]).apply(operators.all_reduce, max)

    def both_received(scope: Any, stream: Any, other: Any = None) -> Any:
        return _both_received(scope, stream, stream)

    for build in (accumulated, reduced, both_received):
        assert run(build, sends, cuts=[(end, workers)], workers=workers) == run(build, sends, workers=workers)


@given(sends=sends, cut=st.tuples(st.integers(0, EPOCHS), st.integers(1, 3)), workers=st.integers(1, 3))
@settings(max_examples=12)
def test_a_reduction_goes_on_on_any_number_of_workers(sends: Sends, cut: Cut, workers: int) -> None:
    def build(scope: Any, stream: Any) -> Any:
        return stream.map(lambda pair: pair[1]).apply(operators.all_reduce, max)

    assert run(build, sends, cuts=[cut], workers=workers).keys() == run(build, sends).keys()  # which every worker gets


def test_two_states_of_one_time_are_not_accumulated_by_one_worker() -> None:
    def build(scope: Any, stream: Any) -> Any:
        return stream.accumulate(0, lambda total, x: total + x)

    with pytest.raises(StateError, match=r"accumulate.* two workers had begun .* at 3"):
        run(build, [[(3, 1), (3, 2)], [], [], []], cuts=[(1, 2)], workers=1)


# -- sources ---------------------------------------------------------------------------------------------------------------


def _feeding(worker: timely.Worker, start: Sequence[Any], make: Callable[[Any], Any]) -> tuple[MemoryStateRegistry, Any]:
    keeper = MemoryStateRegistry(worker, start)
    with worker.dataflow(int) as scope:
        seen = make(scope).capture()
    return keeper, seen


@pytest.mark.parametrize("steps", range(5))
def test_records_that_were_sent_are_not_sent_again(steps: int) -> None:
    worker = timely.Worker()
    keeper, seen = _feeding(worker, (), lambda scope: scope.to_stream(range(10_000)))
    for _ in range(steps):
        worker.step()
    later = timely.Worker()
    _, rest = _feeding(later, [keeper.snapshot()], lambda scope: scope.to_stream(range(10_000)))
    later.run()
    first = [x for _, batch in seen.messages for x in batch]
    assert 0 < len(first) <= 10_000 or steps == 0
    assert first + [x for _, batch in rest.messages for x in batch] == list(range(10_000))


def test_records_that_were_all_sent_are_not_sent_by_other_workers() -> None:
    def build(scope: Any, stream: Any) -> Any:
        return scope.to_stream(range(5) if scope.allocator.index == 0 else []).concat(stream)

    nothing: Sends = [[]] * EPOCHS
    assert run(build, nothing, cuts=[(1, 2), (2, 3)]) == Counter({(0, 0, str(x)): 1 for x in range(5)})


def test_records_that_were_not_all_sent_go_on_with_as_many_workers_only() -> None:
    worker = timely.Worker()
    keeper, _ = _feeding(worker, (), lambda scope: scope.to_stream(range(10_000)))
    worker.step()
    with pytest.raises(StateError, match="to_stream.*worker 0 of 1 had sent 4096.*go on with 1 workers"):
        Phase(lambda scope: scope.to_stream([]), 0, 2, [keeper.snapshot()])


def _slow(start: Sequence[Any]) -> tuple[timely.Worker, MemoryStateRegistry, Any, list[int], Any]:
    """An iterator source that may have two records under way, behind a gate."""
    worker, taken = timely.Worker(), list[int]()
    probe: timely.ProbeHandle[int] = timely.ProbeHandle()

    def numbers() -> Any:
        for x in range(6):
            taken.append(x)
            yield x, [x]

    keeper = MemoryStateRegistry(worker, start)
    with worker.dataflow(int) as scope:
        stream = scope.iterator_source("numbers", numbers(), probe, records=2)
        gate, hold = scope.new_input()
        held = stream.delay_batch(lambda time: time + 1).concat(hold)
        held.probe(probe)
        seen = held.capture()
    return worker, keeper, gate, taken, seen


@pytest.mark.parametrize("boundary", range(8))
def test_an_iterator_goes_on_behind_what_was_sent(boundary: int) -> None:
    worker, keeper, gate, _, seen = _slow(())
    gate.advance_to(boundary)
    settle([worker])
    before = seen.extract()
    worker, keeper, gate, taken, seen = _slow([keeper.snapshot()])
    gate.advance_to(boundary)
    settle([worker])
    assert len(taken) <= min(boundary + 3, 6)  # no more under way than there may be
    gate.close()
    worker.run()
    assert before + seen.extract() == [(x + 1, [x]) for x in range(6)]


RECORDED: list[list[Messages[int] | Progress[int]]] = [[Progress([(1, 1)]), Messages(1, ["b"]), Progress([(1, -1)])]]
RECORDED += [[Progress([(0, 1)]), Messages(0, ["a"]), Progress([(0, -1), (2, 1)]), Messages(3, ["c"]), Progress([(2, -1)])]]


class Pausing(operators.EventSource[int]):
    """Events of which so many are there by now."""

    def __init__(self, events: Sequence[Any], there: int) -> None:
        self.events, self.left = iter(events), there

    def take(self) -> Any:
        if not self.left:
            return None
        self.left -= 1
        return next(self.events)


@pytest.mark.parametrize("there", range(6))
def test_a_replay_goes_on_behind_what_it_had_passed_on(there: int) -> None:
    worker = timely.Worker()
    keeper, seen = _feeding(worker, (), lambda scope: scope.replay(*(Pausing(events, there) for events in RECORDED)))
    for _ in range(3):
        worker.step()
    later = timely.Worker()
    _, rest = _feeding(later, [keeper.snapshot()], lambda scope: scope.replay(*RECORDED))
    later.run()
    assert sorted(seen.extract() + rest.extract()) == [(0, ["a"]), (1, ["b"]), (3, ["c"])]


def test_recorded_files_are_recognised_by_their_paths_on_other_workers(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "ab"]
    for path, events in zip(paths, RECORDED):
        sink: timely.FileSink[int] = timely.FileSink(path)
        for event in events:
            sink.append(event)

    def mine(scope: Any, stream: Any) -> Any:
        return scope.replay(*paths[scope.allocator.index :: scope.allocator.peers]).concat(stream)

    nothing: Sends = [[]] * EPOCHS
    assert run(mine, nothing, cuts=[(1, 2), (2, 1)]) == run(mine, nothing)


def test_events_without_a_path_are_not_gone_on_with_by_other_workers() -> None:
    worker = timely.Worker()
    keeper, _ = _feeding(worker, (), lambda scope: scope.replay(Pausing(RECORDED[0], 2)))
    worker.step()
    with pytest.raises(StateError, match="replay.* no file.*go on with 1 workers"):
        Phase(lambda scope: scope.replay(RECORDED[0]), 0, 2, [keeper.snapshot()])


# -- outside ---------------------------------------------------------------------------------------------------------------


def test_what_was_asked_and_not_answered_is_asked_again() -> None:
    answered: list[int] = []

    def asking(start: Sequence[Any], willing: Callable[[int], bool]) -> tuple[timely.Worker, MemoryStateRegistry, Any, Any]:
        async def ask(x: int) -> int:
            while not willing(x):
                await asyncio.sleep(0.001)
            answered.append(x)
            return 10 * x

        worker = timely.Worker()
        keeper = MemoryStateRegistry(worker, start)
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            seen = stream.map_async(ask, limit=2).capture()
        return worker, keeper, handle, seen

    worker, keeper, handle, seen = asking((), lambda x: x < 2)
    handle.send_batch([0, 1])
    handle.advance_to(1)
    handle.send_batch([2, 3, 4])
    worker.step_while(lambda: sum(len(batch) for _, batch in seen.messages) < 2)
    snapshot = keeper.snapshot()
    worker.close()
    assert seen.extract() == [(0, [0, 10])]
    worker, _, handle, seen = asking([snapshot], lambda x: True)
    handle.close()
    worker.run()
    assert seen.extract() == [(1, [20, 30, 40])]
    assert sorted(answered) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("on", [None, 0, "each"])
def test_stream_1_no_checkpoint_before_the_end_of_an_async_iterable(tmp_path: Path, on: Any) -> None:
    """A run of two workers: refused before the end, and what was sent by then is not sent again."""

    def program(worker: timely.Worker) -> list[Any]:
        over = False

        async def ticks() -> Any:
            yield worker.index, ["tick"]
            while not over:
                await asyncio.sleep(0.001)

        with Recovery(worker, tmp_path) as recovery:
            with worker.dataflow(int) as scope:
                seen = scope.from_async("clock", ticks, on=on).capture()
                handle, _ = scope.new_input()
            if recovery.time is None:
                with pytest.raises(StateError, match="clock.*is not over"):
                    recovery.checkpoint(0)
                over = True
            handle.close()
            worker.run()
            if recovery.time is None:
                recovery.checkpoint(1)
            return seen.extract()

    senders = 1 if on == 0 else 2
    expected = [[(index, ["tick"])] if index < senders else [] for index in range(2)]
    assert timely.execute(program, workers=2) == expected
    assert timely.execute(program, workers=2) == [[], []]


def test_a_frontier_is_reported_once() -> None:
    def looking(start: Sequence[Any]) -> tuple[timely.Worker, MemoryStateRegistry, Any, list[Any]]:
        worker, seen = timely.Worker(), list[Any]()
        keeper = MemoryStateRegistry(worker, start)
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            stream.inspect_progress(lambda time, batch: None, seen.append)
        return worker, keeper, handle, seen

    worker, keeper, handle, first = looking(())
    for time in (1, 3):
        handle.advance_to(time)
        settle([worker])
    worker, _, handle, then = looking([keeper.snapshot()])
    for time in (2, 3, 4):
        handle.advance_to(time)
        settle([worker])
    assert first + then == [timely.Antichain([time]) for time in (1, 3, 4)]


class Adder:
    """A scope of one's own: passes on the running sum of all that came."""

    inputs, outputs = 1, 1

    def __init__(self) -> None:
        self.total = 0

    def connect(self, inlets: Any, outlets: Any, activate: Any) -> None:
        self.inlet, self.outlet = inlets[0], outlets[0]

    def get_internal_summary(self) -> Any:
        return [[timely.Antichain([timely.Step(0)])]], [[]]

    def set_external_summary(self, summaries: Any, external: Any) -> None:
        pass

    def push_external_progress(self, external: Any) -> None:
        pass

    def pull_internal_progress(self, internal: Any, consumed: Any, produced: Any) -> bool:
        for time, batch in self.inlet:
            self.total += sum(batch)
            self.outlet.send(time, [self.total])
            consumed[0].update(time, len(batch))
            produced[0].update(time, 1)
        return False


class StatefulScope(Adder):
    """The same, and it can say what it has."""

    def checkpoint(self) -> int:
        return self.total

    def restore(self, state: int) -> None:
        self.total = state


def _adding(kind: type[Adder]) -> Build:
    return lambda scope, stream: scope.add_scope(kind(), [stream])[0]


def test_a_custom_scope_goes_on_with_its_state() -> None:
    sent = [[(0, 1)], [(0, 2)], [(0, 3)], [(0, 4)]]
    expected = Counter({(0, epoch, str(total)): 1 for epoch, total in enumerate((1, 3, 6, 10))})
    for epoch in range(EPOCHS + 1):
        assert run(_adding(StatefulScope), sent, cuts=[(epoch, 1)]) == expected
    with pytest.raises(StateError, match="StatefulScope.* 1 workers .* cannot be repartitioned to 2"):
        run(_adding(StatefulScope), sent, cuts=[(2, 1)], workers=2)


def test_a_custom_scope_without_a_checkpoint_is_refused() -> None:
    with pytest.raises(StateError, match="Adder"):
        run(_adding(Adder), [[]] * EPOCHS)


# -- vertices --------------------------------------------------------------------------------------------------------------


class Last(timely.Vertex[int]):
    """Keeps the last record of each time in an attribute, and does not say how to deal that anew."""

    def __init__(self) -> None:
        self.found: dict[int, Any] = {}

    def on_recv(self, port: int, batch: Any, time: int) -> None:
        self.found[time] = max([*batch, self.found.get(time, batch[0])])
        self.notify_at(time)

    def on_notify(self, time: int) -> None:
        self.send_by(0, [self.found.pop(time)], time)


def test_a_vertex_without_redistribute_is_not_repartitioned() -> None:
    with pytest.raises(StateError, match=r"vertex Last.*redistribute\(states, index, peers\), or go on with 2 workers"):
        run(lambda scope, stream: stream.vertex(Last), [[(3, 1), (3, 2)], [], [], []], cuts=[(1, 2)], workers=3)


def test_a_vertex_without_state_needs_no_redistribute() -> None:
    sent: Sends = [[(0, 1), (0, 2)], [], [(0, 3)], []]
    outputs = run(lambda scope, stream: stream.vertex(Last, pact=timely.Exchange(int)), sent, cuts=[(2, 2)], workers=3)
    assert outputs == Counter({(0, 0, "1"): 1, (0, 0, "2"): 1, (0, 2, "3"): 1})


def test_a_key_of_two_workers_is_not_repartitioned() -> None:
    with pytest.raises(StateError, match="'a'"):
        operators.redistribute_by_key([{"a": 1}, {"a": 2}], timely.dataflow.route("a") % 2, 2)


def test_closures_without_state_declare_it_in_one_word() -> None:
    def logic(input: Any, output: Any, notificator: Any) -> None:
        for capability, batch in input:
            output.session(capability).give_batch(batch)

    def build(scope: Any, stream: Any) -> Any:
        return stream.unary_notify(Pipeline, "mine", [], logic, state=timely.OperatorInfo.declare_stateless)

    assert run(build, [[(0, 1)], [], [(0, 2)], []], cuts=[(1, 2)]) == Counter({(0, 0, "1"): 1, (0, 2, "2"): 1})


@pytest.mark.parametrize("workers", [1, 2])
def test_requests_of_a_notificator_come_as_often_as_they_were_made(workers: int) -> None:
    seen: list[tuple[int, int]] = []

    def logic(input: Any, output: Any, notificator: Any) -> None:
        for capability, batch in input:
            for _ in batch:
                notificator.notify_at(capability.delayed(3))
        seen.extend((capability.time, count) for capability, count in notificator)

    def build(scope: Any, stream: Any) -> Any:
        return stream.unary_notify(Pipeline, "mine", [1, 1, 5], logic, state=timely.OperatorInfo.declare_stateless)

    run(build, [[(0, 1)], [(0, 1)], [], []], cuts=[(2, 1)], workers=workers)
    counts = {1: [(1, 2), (3, 2), (5, 1)], 2: [(1, 2), *[(3, 1), (5, 1)] * 2]}
    assert sorted(seen) == sorted(counts[workers])
