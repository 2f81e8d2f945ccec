"""Async operators and sources: what is awaited holds its time back, is bounded, and ends with its dataflow; errors arrive.

Who comes first is decided by events, never by the clock: a gate that the test opens when it has seen what it is to see.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import itertools
import os
import threading
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from tests.worker.test_spawn import room_for
from timely import CapabilityError, ConfigurationError, ContainerError, OperatorError, Product, Worker

WORKERS = pytest.mark.parametrize("workers", [1, 2, 3])


class Gate:
    """Something that can be waited for on any loop, and opened from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = False
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def wait(self) -> None:
        event = asyncio.Event()
        with self._lock:
            if self._open:
                return
            self._waiting.append((asyncio.get_running_loop(), event))
        await event.wait()

    def open(self) -> None:
        with self._lock:
            self._open = True
            for loop, event in self._waiting:
                loop.call_soon_threadsafe(event.set)


def loop_threads() -> list[threading.Thread]:
    """The threads with a loop that are running."""
    return [thread for thread in threading.enumerate() if thread.name == "timely asyncio"]


def step_until(worker: Worker, condition: Callable[[], bool]) -> None:
    """Step, waiting for what others do."""
    while not condition():
        worker.step_or_park(0.05)


async def double(x: int) -> int:
    await asyncio.sleep(0)
    return 2 * x


def records(messages: list[tuple[Any, Any]]) -> Counter[tuple[Any, Any]]:
    return Counter((time, record) for time, batch in messages for record in batch)


# -- map_async ---------------------------------------------------------------------------------------------------------


pairs = st.builds(Product, st.integers(0, 2), st.integers(0, 2))
batches = st.lists(st.tuples(pairs, st.lists(st.integers(), max_size=4)), max_size=8)


@given(batches, st.integers(1, 4))
def test_map_async_is_map_but_for_the_order(sent: list[tuple[Any, list[int]]], limit: int) -> None:
    """At partially ordered times, in any order; compared with what ``map`` gives."""
    time_type: Any = Product[int, int]
    with Worker() as worker:
        with worker.dataflow(time_type) as scope:
            (handle, capability), stream = scope.new_unordered_input()
            awaited, plain = stream.map_async(double, limit).capture(), stream.map(lambda x: 2 * x).capture()
        for time, batch in sent:
            handle.session(capability.delayed(time)).give_many(batch)
            worker.step()
        capability.drop()
        worker.run()
    assert records(awaited.messages) == records(plain.messages)


def test_what_is_awaited_holds_its_time_and_no_other() -> None:
    gates = {0: Gate(), 1: Gate()}

    async def wait_for(epoch: int) -> int:
        await gates[epoch].wait()
        return epoch

    with Worker() as worker:
        with worker.dataflow(int) as scope:
            numbers, stream = scope.new_input()
            awaited = stream.map_async(wait_for)
            seen, probe = awaited.capture(), awaited.probe()
            beside = stream.probe()
        for epoch in range(2):
            numbers.send(epoch)
            numbers.advance_to(epoch + 1)
        step_until(worker, lambda: not beside.less_than(2))  # what is awaited is in nobody else's way
        assert probe.frontier() == timely.Antichain([0])
        gates[1].open()
        step_until(worker, lambda: seen.messages == [(1, [1])])
        assert probe.frontier() == timely.Antichain([0])
        gates[0].open()
        step_until(worker, lambda: not probe.less_than(2))
        assert seen.extract() == [(0, [0]), (1, [1])]
        numbers.close()
        worker.run()


@WORKERS
@pytest.mark.parametrize("limit", [1, 3])
def test_no_more_than_the_limit_is_under_way(workers: int, limit: int) -> None:
    """As many as may are begun, and not one more, until somebody lets them go; counted on each worker's own loop."""
    total = 10

    def program(worker: Worker) -> tuple[int, int]:
        gate, begun = Gate(), list[int]()
        now = most = 0

        async def counted(x: int) -> int:
            nonlocal now, most
            now += 1
            most = max(most, now)
            begun.append(x)
            await gate.wait()
            await asyncio.sleep(0)
            now -= 1
            return x

        with worker.dataflow(int) as scope:
            seen = scope.to_stream(range(total)).map_async(counted, limit=limit).capture()
        step_until(worker, lambda: len(begun) == limit)
        for _ in range(5):
            worker.step()
        assert begun == list(range(limit))
        gate.open()
        worker.run()
        assert sorted(x for _, batch in seen.messages for x in batch) == list(range(total))
        return most, len(begun)

    assert timely.execute(program, workers=workers) == [(limit, total)] * workers


@WORKERS
def test_what_an_async_function_raises_names_the_operator(workers: int) -> None:
    begun, let_go = list[tuple[int, int]](), list[tuple[int, int]]()

    def program(worker: Worker) -> None:
        async def fail(x: int) -> int:
            if worker.index == workers - 1 and x == 3:
                raise LookupError(f"no {x} there")
            begun.append((worker.index, x))
            try:
                await Gate().wait()
            finally:
                let_go.append((worker.index, x))
            return x

        with worker.dataflow(int, name="asking") as scope:
            scope.to_stream(range(5)).map_async(fail).probe()

    message = r"'map_async · fail' \(/asking/map_async · fail#1\) on worker \d raised LookupError: no 3"
    with pytest.raises(OperatorError, match=message) as failure:
        timely.execute(program, workers=workers)
    assert isinstance(failure.value.__cause__, LookupError)
    assert failure.value.worker == workers - 1
    assert loop_threads() == []
    assert (workers - 1, 0) in begun
    assert sorted(let_go) == sorted(begun)


def test_what_is_no_awaitable_and_what_cancels_itself_is_an_error() -> None:
    async def cancelled(x: int) -> int:
        raise asyncio.CancelledError

    plain: Any = lambda x: x  # noqa: E731
    with pytest.raises(OperatorError, match="TypeError.*await"):
        timely.example(lambda scope: scope.to_stream([1]).map_async(plain))
    with pytest.raises(OperatorError, match="what was awaited was cancelled"):
        timely.example(lambda scope: scope.to_stream([1]).map_async(cancelled))
    with pytest.raises(ConfigurationError, match="limit=0 lets nothing through"):
        timely.example(lambda scope: scope.to_stream([1]).map_async(double, limit=0))
    assert loop_threads() == []


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_an_interruption_is_passed_on_as_it_is(kind: type[BaseException]) -> None:
    async def leave(x: int) -> int:
        raise kind

    with pytest.raises(kind):
        timely.example(lambda scope: scope.to_stream([1]).map_async(leave))
    assert loop_threads() == []


def waiting(begun: list[str], ended: list[str]) -> Any:
    """A dataflow with a function and a source that wait for ever, and say when they begin and when they are let go."""

    async def wait_for_ever(what: str) -> str:
        begun.append(what)
        try:
            await Gate().wait()
        finally:
            await asyncio.sleep(0)  # what tidies up may wait for others too
            ended.append(what)
        return what

    async def source() -> AsyncIterator[tuple[int, list[str]]]:
        yield 0, ["function"]
        await wait_for_ever("source")

    return lambda scope: scope.from_async("waiting", source).map_async(wait_for_ever).capture()


def test_a_dataflow_that_is_dropped_lets_go_of_what_it_awaits() -> None:
    begun, ended, others = list[str](), list[str](), list[str]()
    with Worker() as worker:
        with worker.dataflow(int, name="unwanted") as unwanted:
            waiting(begun, ended)(unwanted)
        with worker.dataflow(int) as scope:
            waiting(others, [])(scope)
            numbers, stream = scope.new_input()
            seen = stream.map_async(double).capture()
        step_until(worker, lambda: len(begun) == len(others) == 2)
        assert len(loop_threads()) == 1  # one for all of a worker's operators
        assert ended == []
        worker.drop_dataflow(unwanted)
        assert sorted(ended) == ["function", "source"]
        numbers.send(21)
        step_until(worker, lambda: seen.messages == [(0, [42])])  # the other goes on
    assert loop_threads() == []


def test_a_source_that_is_dropped_is_closed_where_it_has_stopped() -> None:
    """At a ``yield``, since it was far enough ahead of its worker; and at once, though the loop goes on for others."""
    ahead, closed = threading.Event(), list[str]()

    async def endless() -> AsyncIterator[tuple[int, list[int]]]:
        try:
            for x in itertools.count():
                if x == 1000:
                    ahead.set()
                yield 0, []
        finally:
            await asyncio.sleep(0)
            closed.append("endless")

    begun: list[str] = []
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            waiting(begun, [])(scope)
        with worker.dataflow(int) as unwanted:
            generator = endless()  # somebody else has it too, so that it does not end for want of that
            unwanted.from_async("endless", lambda: generator)
        step_until(worker, lambda: len(begun) == 2 and ahead.is_set())
        worker.drop_dataflow(unwanted)
        assert closed == ["endless"]


def test_what_goes_wrong_when_it_is_let_go_of_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    begun: list[int] = []

    async def untidy(x: int) -> int:
        begun.append(x)
        try:
            await Gate().wait()
        finally:
            raise OSError("it would not close")

    with Worker() as worker:
        with worker.dataflow(int, name="asking") as scope:
            scope.to_stream([1]).map_async(untidy)
        step_until(worker, lambda: begun == [1])
    [record] = caplog.records
    assert record.name == "asyncio"
    assert "cancelled at the end of operator /asking/map_async · untidy#1" in caplog.text
    assert "it would not close" in caplog.text


@pytest.mark.parametrize("busy", [True, False])
def test_a_worker_that_is_let_go_of_unclosed_leaves_no_thread(busy: bool) -> None:
    """Nor what it had awaited, which is cancelled."""
    begun, ended, seen = list[str](), list[str](), list[int]()
    before = len(os.listdir("/proc/self/fd"))
    worker = Worker()
    with worker.dataflow(int) as scope:
        numbers, stream = scope.new_input()
        stream.map_async(double).inspect(seen.append)
        if busy:
            waiting(begun, ended)(scope)
    numbers.send(1)
    numbers.advance_to(1)
    step_until(worker, lambda: len(seen) == 1 and len(begun) == 2 * busy)
    [thread] = loop_threads()
    del worker, scope, numbers, stream
    gc.collect()
    thread.join(600)
    assert not thread.is_alive()
    assert sorted(ended) == sorted(begun)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("room", [0, 1, 2])
@pytest.mark.parametrize("source", [True, False])
def test_where_no_file_is_left_for_a_loop_the_operator_raises_an_error(source: bool, room: int) -> None:
    """It waited for ever."""

    async def ticks() -> AsyncIterator[tuple[int, list[int]]]:
        yield 0, [1]

    with Worker() as worker:
        with worker.dataflow(int, name="df") as scope:
            stream = scope.from_async("clock", ticks) if source else scope.to_stream([1]).map_async(double)
            stream.probe()
        message = r"operator /df/.+#\d awaits on a thread of its own, .*Too many open files; raise how many .*ulimit -n"
        with room_for(room), pytest.raises(OperatorError, match=message) as failure:
            worker.run()
    assert failure.value.name == ("clock" if source else "map_async · double")
    assert isinstance(failure.value.__cause__, ConfigurationError)
    assert loop_threads() == []


def test_a_loop_in_a_process_that_was_forked() -> None:
    """Whose parent had a loop running, of which the child has only the memory."""

    def program(worker: Worker) -> tuple[int, list[Any]]:
        with worker.dataflow(int) as scope:
            seen = scope.to_stream(range(6)).map_async(double).exchange(lambda x: x // 2).capture()
        worker.run()
        return os.getpid(), seen.extract()

    begun: list[str] = []
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            waiting(begun, [])(scope)
        step_until(worker, lambda: len(begun) == 2)
        results = timely.execute(program, processes=2)
    assert [seen for _, seen in results] == [[(0, [0, 0, 4, 4, 8, 8])], [(0, [2, 2, 6, 6, 10, 10])]]
    assert len({process for process, _ in results} | {os.getpid()}) == 3


# -- from_async --------------------------------------------------------------------------------------------------------


def test_a_pair_moves_time_on_and_an_empty_one_does_only_that() -> None:
    gate = Gate()

    async def now_and_then() -> AsyncIterator[tuple[int, list[str]]]:
        yield 2, ["two"]
        yield 5, []
        await gate.wait()
        yield 5, ["five"]

    with Worker() as worker:
        with worker.dataflow(int) as scope:
            stream = scope.from_async("now and then", now_and_then)
            seen, probe = stream.capture(), stream.probe()
        worker.step_while(lambda: probe.less_than(5))  # a worker that has nothing to do waits to be rung for, and is not stalled
        assert (seen.extract(), probe.frontier()) == ([(2, ["two"])], timely.Antichain([5]))
        gate.open()
        worker.run()
        assert seen.extract() == [(2, ["two"]), (5, ["five"])]


def test_an_iterable_is_only_so_far_ahead_of_its_worker() -> None:
    taken: list[int] = []
    gate, far = Gate(), threading.Event()

    async def numbers() -> AsyncIterator[tuple[int, list[int]]]:
        await gate.wait()
        for x in range(1000):
            taken.append(x)
            if x == 64:
                far.set()
            yield 0, [x]

    with Worker() as worker:
        with worker.dataflow(int) as scope:
            seen = scope.from_async("numbers", numbers).count().capture()
        worker.step()
        gate.open()
        assert far.wait(600)
        assert taken == list(range(65))  # 64 that wait, and one in its hands
        worker.run()
    assert seen.extract() == [(0, [1000])]


class Countdown:
    """An async iterable that is no generator, and has nothing to close."""

    def __init__(self) -> None:
        self.left = 3

    def __aiter__(self) -> Countdown:
        return self

    async def __anext__(self) -> tuple[int, list[int]]:
        if not self.left:
            raise StopAsyncIteration
        self.left -= 1
        return 0, [self.left]


def test_any_async_iterable_will_do() -> None:
    assert timely.example(lambda scope: scope.from_async("countdown", Countdown)) == [(0, [0, 1, 2])]


def giving(*items: Any) -> Any:
    async def generator() -> AsyncIterator[Any]:
        for item in items:
            yield item

    return lambda scope: scope.from_async("given", generator)


def test_what_a_source_does_wrong_names_it() -> None:
    with pytest.raises(OperatorError, match=r"'given' .*cannot downgrade the capability for 3 to 2") as failure:
        timely.example(giving((3, [1]), (2, [1])))
    assert isinstance(failure.value.__cause__, CapabilityError)
    for wrong in (None, 7, (1, [2], 3)):
        with pytest.raises(OperatorError, match=r"'given' .*is to give pairs \(time, container\), and gave") as failure:
            timely.example(giving(wrong))
        assert isinstance(failure.value.__cause__, ContainerError)
    with pytest.raises(OperatorError, match="'given'.*TimestampError"):
        timely.example(giving(("soon", [1])))
    lists: Any = lambda: [(0, [1])]  # noqa: E731
    with pytest.raises(OperatorError, match="TypeError.*async iter"):
        timely.example(lambda scope: scope.from_async("a list", lists))

    async def breaks_off() -> AsyncIterator[tuple[int, list[int]]]:
        yield 0, [1]
        raise OSError("the line is dead")

    with pytest.raises(OperatorError, match="'line'.*OSError: the line is dead"):
        timely.example(lambda scope: scope.from_async("line", breaks_off))
    assert loop_threads() == []


# -- at_end, by which an operator lets go of what it has outside ---------------------------------------------------------


def borrowing(ended: list[str], *names: str, then: Callable[[], object] = lambda: None) -> Any:
    def constructor(capability: Any, info: timely.OperatorInfo) -> Any:
        for name in names:
            info.at_end(functools.partial(ended.append, name))
        info.at_end(then)
        held = None if info.name == "complete" else capability
        return lambda *ports: held

    return constructor


def test_at_end_comes_once_whichever_way_the_end_comes() -> None:
    complete, dropped, closed = list[str](), list[str](), list[str]()
    with Worker() as worker:
        with worker.dataflow() as scope:
            handle, stream = scope.new_input()
            stream.unary(timely.Pipeline, "complete", borrowing(complete, "x"))
        with worker.dataflow() as unwanted:
            unwanted.source("dropped", borrowing(dropped, "first", "second"))
        with worker.dataflow() as lasting, lasting.iterative() as inner:
            inner.source("closed", borrowing(closed, "nested"))
        for _ in range(3):
            worker.step()
        assert (complete, dropped, closed) == ([], [], [])
        handle.close()
        worker.drop_dataflow(unwanted)
        worker.drop_dataflow(unwanted)
        worker.step()
        assert (complete, dropped, closed) == (["x"], ["second", "first"], [])
    worker.close()
    assert (complete, dropped, closed) == (["x"], ["second", "first"], ["nested"])


def test_what_was_to_be_let_go_of_is_forgotten() -> None:
    """Though a handle keeps the operator."""
    held: list[Any] = []

    class Line:
        def close(self) -> None:
            """Nothing to do."""

    line = Line()
    followed = weakref.ref(line)
    kept_by_info: list[timely.OperatorInfo] = []

    def constructor(capability: Any, info: timely.OperatorInfo) -> Any:
        kept_by_info.append(info)
        info.at_end(held.pop().close)
        return lambda output: None

    worker = Worker()
    held.append(line)
    with worker.dataflow() as scope:
        scope.source("line", constructor)
    del line
    assert followed() is not None
    worker.run()
    gc.collect()
    assert followed() is None
    assert kept_by_info[0].name == "line"


@pytest.mark.filterwarnings("ignore:dataflow 'one' was built and never run")
def test_one_that_fails_at_its_end_is_named_and_keeps_nobody_else_from_theirs() -> None:
    ended: list[str] = []

    def fail() -> None:
        raise OSError("it would not close")

    worker = Worker()
    with worker.dataflow(name="one") as scope:
        scope.source("before", borrowing(ended, "before"))
        scope.source("stubborn", borrowing(ended, "stubborn", then=fail))
        scope.source("after", borrowing(ended, "after"))
    with worker.dataflow(name="two") as scope:
        scope.source("other", borrowing(ended, "other"))
    with pytest.raises(OperatorError, match="'stubborn'.*OSError: it would not close"):
        worker.close()
    assert sorted(ended) == ["after", "before", "other", "stubborn"]
