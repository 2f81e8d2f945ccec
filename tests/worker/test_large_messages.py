"""Large containers between processes arrive whole, and a process that is killed keeps nobody waiting.

White box: the most memory that a process has held is what the system says of it.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import timely
from timely.monitor.memory import record_memory


def exchanging(rounds: int) -> Callable[[timely.Worker], dict[tuple[str, int], int]]:
    """Return a program that deals large arrays, batches and lists to all, and says what this worker got: sums, by epoch."""

    def program(worker: timely.Worker) -> dict[tuple[str, int], int]:
        sums: dict[tuple[str, int], int] = {}

        def add(kind: str, time: int, batch: Any) -> None:
            numbers = batch["n"].to_numpy() if kind == "batches" else np.asarray(batch)
            sums[kind, time] = sums.get((kind, time), 0) + int(numbers.sum())

        kinds: dict[str, tuple[Callable[[Any], Any], Any]] = {
            "arrays": (lambda array: array, lambda numbers: numbers),
            "batches": (lambda array: pa.record_batch({"n": array}), "n"),
            "lists": (lambda array: array.tolist(), lambda number: number),
        }
        with worker.dataflow(int) as scope:
            for kind, (make, key) in kinds.items():
                handle, stream = scope.new_input()
                stream.exchange(key).inspect_batch(partial(add, kind))
                for number in range(rounds):
                    handle.send_batch(make(np.arange(50_000) + worker.index + number))
                    handle.advance_to(number + 1)
                handle.close()
        worker.run()
        return sums

    return program


@pytest.mark.parametrize(("workers", "processes"), [(1, 2), (1, 3), (2, 2)])
def test_processes_give_what_threads_give(workers: int, processes: int) -> None:
    program = exchanging(3)
    assert timely.execute(program, workers=workers, processes=processes) == timely.execute(program, workers=workers * processes)


def test_a_receiver_that_is_killed_ends_the_run_and_keeps_nobody_waiting() -> None:
    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            stream.exchange(lambda x: 1 + x % 0 if x < 0 else 1).probe()
        if worker.index == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        for number in range(1000):  # far more than there is room for
            handle.send_batch(list(range(50_000)))
            handle.advance_to(number + 1)
            worker.step()

    with pytest.raises(timely.WorkerError, match="process 1 .* ended with exit code -9"):
        timely.execute(program, processes=2)


@pytest.mark.parametrize("size", [(1 << 26) - 200, 90 << 20])
def test_a_large_record_arrives_and_a_receiver_has_no_second_copy(size: int) -> None:
    def program(worker: timely.Worker) -> float:
        before = record_memory()
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            captured = stream.exchange(lambda pair: pair[0]).inspect(lambda pair: seen.append(pair[1])).capture()
        if worker.index == 0:
            handle.send((1, os.urandom(1000) * (size // 1000)))
            handle.send((1, "behind"))
        handle.close()
        seen: list[Any] = []
        worker.run()
        if worker.index == 0:
            return 0.0
        large, behind = seen
        assert (len(large), large[:1000] == large[-1000:], behind) == (size // 1000 * 1000, True, "behind")
        assert sum(len(batch) for _, batch in captured.messages) == 2
        return (record_memory() - before) / size

    grown = timely.execute(program, processes=2)[1]
    assert grown < (1.7 if size > 1 << 26 else 2.2)


@pytest.mark.parametrize("sender", [True, False])
def test_a_record_beyond_memory_is_an_error_with_its_size(sender: bool) -> None:
    """Either at the sender, whose pickle is a copy, or at the receiver."""

    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            stream.exchange(lambda _: 1).map(len).probe()
        record = "x" * (64 << 20) if worker.index == 0 else ""
        if sender == (worker.index == 0):
            with open("/proc/self/statm") as file:
                most = int(file.read().split()[0]) * resource.getpagesize() + (16 << 20)
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
        if worker.index == 0:
            handle.send(record)
        handle.close()
        worker.run()

    expected = r"exchange into input 0 of operator 'exchange'.*\d{8} bytes" if sender else "what worker 0 sent to worker 1"
    with pytest.raises(timely.OutOfMemoryError, match=f"{expected}.*memory=") as caught:
        timely.execute(program, processes=2)
    assert caught.value.worker == (0 if sender else 1)
