"""Sources wait while peers have much to take; what is under way, loops included, does not, and goes to disk where it is much.

White box: the queue of a connection and who waits when are state machines, whose every state no run reaches.
"""

from __future__ import annotations

import mmap
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from timely.memory import MemoryBudget
from timely.memory.paged_file import PagedFile
from timely.monitor.memory import resident_memory
from timely.worker.peer_pressure import PATIENCE, FlowControl
from timely.worker.process_link import SendQueue

SIZE = 1000
"""Characters of a record."""
BOUND = 1 << 20
"""Bytes in flight; as many again may be taken and not worked off, and some are on their way."""


def records(many: int) -> list[str]:
    """Return records that differ: equal ones take no bytes."""
    return [f"{number:0{SIZE}d}" for number in range(many)]


def shared(length: int) -> Any:
    """Return an array of zeros that all processes of a run see."""
    return np.frombuffer(mmap.mmap(-1, 8 * length), np.int64)


def bound(size: int = BOUND) -> MemoryBudget:
    return MemoryBudget(None, in_flight=size)


def slow(counts: Any, seconds: float, stop: Callable[[], object] = lambda: None) -> Callable[[Any, Any], None]:
    """Return what counts the records of a batch, slowly, and how many were on their way at most."""

    def read(time_: Any, batch: Any) -> None:
        counts[2] = max(counts[2], counts[0] - counts[1])
        stop()
        time.sleep(seconds * len(batch))
        counts[1] += len(batch)

    return read


@pytest.mark.parametrize(("kind", "workers", "processes"), [("input", 2, 1), ("source", 1, 2)])
def test_a_fast_producer_waits_for_a_slow_consumer(kind: str, workers: int, processes: int) -> None:
    counts, total = shared(3), 60_000

    def numbers() -> Iterator[str]:
        for record in records(total):
            counts[0] += 1
            yield record

    def program(worker: timely.Worker) -> None:
        mine = worker.index == 0
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            if kind == "source":
                stream = stream.concat(scope.to_stream(numbers() if mine else iter(())))
            stream.exchange(lambda _: 1).inspect_batch(slow(counts, 3e-5)).probe()
        for _ in range(total // 1000 if kind == "input" and mine else 0):
            counts[0] += 1000
            handle.send_batch(records(1000))
            worker.step()
        handle.close()
        worker.run()

    timely.execute(program, workers=workers, processes=processes, memory=bound())
    assert counts[0] == counts[1] == total
    assert 0 < counts[2] < 20 * BOUND // SIZE  # of 60 times the bound: a source sends 4 MB at once


def test_a_stopped_consumer_stops_its_producer() -> None:
    counts = shared(3)

    def stop_once() -> None:
        if not counts[1]:
            os.kill(os.getpid(), signal.SIGSTOP)

    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            stream.exchange(lambda x: 1).inspect_batch(slow(counts, 0, stop_once)).probe()
        if worker.index == 0:
            while counts[0] < 1_000_000:
                handle.send_batch(records(1000))
                counts[0] += 1000
                begun = time.monotonic()
                worker.step()
                if time.monotonic() - begun > 0.9 * PATIENCE:
                    break
            pid = int(process[0])
            os.kill(pid, signal.SIGCONT)
        else:
            process[0] = os.getpid()
        handle.close()
        worker.run()

    process = shared(1)
    timely.execute(program, processes=2, memory=bound())
    assert counts[0] * SIZE < 8 * BOUND  # the connection itself takes some
    assert counts[1] == counts[0]


@pytest.mark.parametrize(("workers", "processes"), [(3, 1), (1, 2)])
def test_loops_under_a_bound_of_a_record_end(workers: int, processes: int) -> None:
    """What goes round is always more than the bound, and what goes in waits for a second at most."""

    def program(worker: timely.Worker) -> int:
        with worker.dataflow(int) as scope:
            handle, again = scope.feedback()
            numbers = scope.to_stream(iter(range(worker.index * 9000, worker.index * 9000 + 9000)))
            steps = numbers.map(lambda x: (x, 3)).concat(again)
            moved = steps.exchange(lambda pair: pair[0] + pair[1]).map(lambda pair: (pair[0], pair[1] - 1))
            moved.filter(lambda pair: pair[1] > 0).connect_loop(handle)
            captured = moved.filter(lambda pair: pair[1] == 0).count().capture()
        worker.run()
        return sum(x for _, batch in captured.messages for x in batch)

    assert sum(timely.execute(program, workers=workers, processes=processes, memory=bound(1000))) == 9000 * workers * processes


def test_an_operator_that_leaves_its_input_unread_does_not_stop_the_sources() -> None:
    """It reads one side first: the other side waits, with more than the bound."""
    total = 6000

    def side(_: object, info: timely.OperatorInfo) -> Callable[..., None]:
        def logic(first: Any, second: Any, output: Any) -> None:
            for capability, batch in first:
                output.session(capability).give_batch(batch)
            if not first.frontier:
                for capability, batch in second:
                    output.session(capability).give_batch(batch)

        return logic

    def program(worker: timely.Worker) -> int:
        mine = iter(records(total) if worker.index == 0 else [])
        also = iter(records(total) if worker.index == 0 else [])
        with worker.dataflow(int) as scope:
            one, two = scope.to_stream(mine).delay(lambda _x, t: t), scope.to_stream(also)
            pact = timely.Exchange(lambda _: 1)
            read = one.binary_frontier(two, pact, pact, "one side first", side)
            captured = read.count().capture()
        worker.run()
        return sum(x for _, batch in captured.messages for x in batch)

    assert timely.execute(program, workers=2, memory=bound(1 << 16)) == [0, 2 * total]


def test_what_one_activation_sends_goes_to_disk() -> None:
    size, many = 1 << 20, 256

    def burst(capability: Any, info: timely.OperatorInfo) -> Callable[..., None]:
        def logic(output: Any) -> None:
            if capability.held:
                before = resident_memory()
                for number in range(many):
                    output.session(capability).give_batch([bytes([number]) * size])
                capability.drop()
                counts[0] = resident_memory() - before
                counts[1] = 1

        return logic

    def program(worker: timely.Worker) -> list[int]:
        with worker.dataflow(int) as scope:
            stream = scope.source("burst", burst) if worker.index == 0 else scope.source("burst", lambda c, i: lambda o: None)
            captured = stream.exchange(lambda _: 1).map(lambda record: record[0]).capture()
        while worker.index == 1 and not counts[1]:
            time.sleep(0.01)
        worker.run()
        return [x for _, batch in captured.messages for x in batch]

    counts = shared(2)
    assert timely.execute(program, processes=2, memory=bound()) == [[], list(range(many))]
    assert counts[0] < many * size // 2


@given(st.lists(st.one_of(st.lists(st.binary(max_size=9), max_size=3), st.integers(1, 20)), max_size=40), st.integers(0, 30))
def test_bytes_leave_a_queue_as_they_came(history: list[list[bytes] | int], limit: int) -> None:
    queue, expected, result = SendQueue(limit), b"", b""
    for event in [*history, *[1000] * 60]:
        if isinstance(event, int):
            if queue:
                pieces = queue.pieces(2)
                assert 0 < len(pieces) <= 2
                taken = b"".join(map(bytes, pieces))[:event]
                queue.sent(len(taken))
                result += taken
        else:
            queue.extend(event)
            expected += b"".join(event)
        assert queue.size == len(expected) - len(result)
        assert 0 <= queue.on_disk <= queue.size
    assert result == expected
    assert not queue


def test_a_full_disk_leaves_what_waits_in_memory(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    queue = SendQueue(1)
    queue.extend([b"first"])
    with monkeypatch.context() as patched:
        patched.setattr(PagedFile, "append", lambda self, pieces: (_ for _ in ()).throw(OSError(28, "no space")))
        queue.extend([b"second"])
    queue.extend([b"third"])
    assert (queue.size, queue.on_disk) == (16, 5)
    assert "cannot be written" in caplog.text
    result = b""
    while queue:
        [piece, *_] = queue.pieces(1)
        result += piece
        queue.sent(len(piece))
    assert result == b"firstsecondthird"


def test_sources_go_on_when_half_of_the_credit_is_free_or_after_a_while() -> None:
    ran: list[str] = []
    flow = FlowControl(0, 100)

    def run() -> None:
        ran.append("again")

    assert not flow.defer(run)
    assert (flow.limit, flow.note(0, True), flow.note(0, True), flow.limit) == (100, True, False, 50)
    assert flow.defer(run)
    assert flow.defer(run)  # runs once
    flow.release(1.0)
    assert not ran
    flow.release(1.0 + PATIENCE)
    assert (ran, flow.waiting, flow.crowded) == (["again"], {}, {0})
    assert flow.defer(run)
    assert flow.note(1, True)
    assert flow.note(0, False)
    flow.release(2.0 + PATIENCE)
    assert len(ran) == 1  # a peer is still crowded
    assert flow.note(1, False)
    flow.release(2.0 + PATIENCE)
    assert (len(ran), flow.waiting, flow.crowded) == (2, {}, set())
