"""Bounds: what workers hold where one sends ten times as fast as another one reads, and of one large record.

Each figure is of a run in a fresh process. A producer sends strings of a thousand characters in lists of 4,096, and a consumer
takes a hundred microseconds for each record, ten times what a producer alone takes. The peak is that of the process that held
most, with its interpreter. A stopped consumer has its process stopped by a signal for the whole time: what the producer grows by
is given. A loop sends each record round to another worker, with a bound of 64 KB on what is in flight, and has to end. A large
record is one string of bytes; what its receiver held at most, beyond what it held before, is given over the record's size.
A stash holds such strings for a time that never completes, under ``memory="200MB"``: what the process had at most is given, when
the error came that names the operator and the time.
``python -m benchmarks.bounds 600`` has producers run for ten minutes.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import timely
from benchmarks.report import Row, table
from benchmarks.sizing_memory import held
from timely.memory import MemoryBudget
from timely.monitor.memory import record_memory

MIB = 1 << 20
SECONDS = 10.0
LARGE = 256 * MIB
BUDGET = 200
"""MiB that a process with a stash may take."""
_PAUSE = 1e-4
_CHILD = "from benchmarks import bounds; bounds.{name}({arguments})"


def _apart(name: str, *arguments: object) -> list[float]:
    """Return what a function here prints, called in a fresh process."""
    program = _CHILD.format(name=name, arguments=", ".join(map(repr, arguments)))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found: list[float] = json.loads(done.stdout)
    return found


def slow_consumer(seconds: float, workers: int, processes: int) -> None:
    """Print the peak of each process, in MiB, and the records that were read."""

    def program(worker: timely.Worker) -> tuple[float, int]:
        end, read = time.monotonic() + seconds, 0

        def records() -> Iterator[str]:
            number = 0
            while worker.index == 0 and time.monotonic() < end:
                number += 1
                yield f"{number:01000d}"

        def consume(_: int, batch: list[str]) -> None:
            nonlocal read
            read += len(batch)
            time.sleep(_PAUSE * len(batch))

        with worker.dataflow(int) as scope:
            scope.to_stream(records()).exchange(lambda _: 1).inspect_batch(consume).probe()
        worker.run()
        return record_memory() / MIB, read

    found = timely.execute(program, workers=workers, processes=processes)
    print(json.dumps([max(peak for peak, _ in found), sum(read for _, read in found)]))


def stopped_consumer(seconds: float) -> None:
    """Print the MiB that a producer grew by in so many seconds in which its consumer's process was stopped."""
    reader, writer = os.pipe()

    def program(worker: timely.Worker) -> float:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            probe = stream.exchange(lambda _: 1).probe()
        if worker.index == 1:
            os.write(writer, os.getpid().to_bytes(8))
            os.kill(os.getpid(), signal.SIGSTOP)
        grown = 0.0
        if worker.index == 0:
            consumer = int.from_bytes(os.read(reader, 8))
            before, end, number = held(), time.monotonic() + seconds, 0
            while time.monotonic() < end:
                handle.send_batch([f"{number + each:01000d}" for each in range(4096)])
                handle.advance_to(handle.time + 1)
                number += 4096
                worker.step()
            grown = (held() - before) / 1024
            os.kill(consumer, signal.SIGCONT)
        handle.close()
        worker.step_while(lambda: not probe.done())
        return grown

    print(json.dumps([max(timely.execute(program, processes=2, watch=False))]))


def loop(records: int, rounds: int, processes: int) -> None:
    """Print the seconds that a loop takes in which all records go round, with next to nothing in flight."""

    def program(worker: timely.Worker) -> int:
        with worker.dataflow(int) as scope:
            handle, again = scope.feedback()
            given = scope.to_stream(iter(range(worker.index, records, worker.peers))).map(lambda number: (number, rounds))
            moved = given.concat(again).exchange(sum).map(lambda pair: (pair[0], pair[1] - 1))
            moved.filter(lambda pair: pair[1] > 0).connect_loop(handle)
            found = moved.filter(lambda pair: pair[1] == 0).count().capture()
        worker.run()
        return sum(count for _, batch in found.messages for count in batch)

    begun = time.monotonic()
    bound = MemoryBudget(None, in_flight="64KB")
    found = timely.execute(program, workers=2 // processes, processes=processes, memory=bound)
    assert sum(found) == records
    print(json.dumps([time.monotonic() - begun]))


def large_record(size: int) -> None:
    """Print what the receiver of one record held at most, beyond what it held before, over the record's size."""

    def program(worker: timely.Worker) -> float:
        before = held()
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            lengths = stream.exchange(lambda _: 1).map(len).capture()
        if worker.index == 0:
            handle.send(bytes(size))
        handle.close()
        worker.run()
        assert [x for _, batch in lengths.messages for x in batch] == [size] * worker.index
        return (record_memory() - 1024 * before) / size

    print(json.dumps([timely.execute(program, processes=2)[1]]))


def stash(workers: int, processes: int) -> None:
    """Print the peak, in MiB, of the process that ran out of its budget, since an operator holds all that comes."""
    peaks = multiprocessing.get_context("fork").Array("d", workers * processes)

    def hold() -> Callable[..., None]:
        held: dict[int, tuple[timely.Capability[int], list[str]]] = {}

        def logic(input: timely.InputPort[int, str], output: timely.OutputPort[int]) -> None:
            for capability, batch in input:
                if capability.time not in held:
                    held[capability.time] = capability.retain(), []
                held[capability.time][1].extend(batch)

        return logic

    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            stream.exchange(hash).unary(timely.Pipeline, "stash", lambda _, info: hold()).probe()
        try:
            for number in range(0, 100_000_000, 4096):
                handle.send_batch([f"{number + each:01000d}" for each in range(4096)])
                worker.step()
        finally:
            peaks[worker.index] = record_memory() / MIB

    try:
        timely.execute(program, workers=workers, processes=processes, memory=f"{BUDGET}MB", watch=False)
    except timely.OutOfMemoryError as error:
        assert "held by operator 'stash'" in str(error), error
        assert "at time 0" in str(error), error
    print(json.dumps([max(peaks[:])]))


def run(quick: bool = False, seconds: float = SECONDS) -> list[Row]:
    """Return all rows; one round is enough for what is bounded."""
    seconds = min(seconds, 3.0) if quick else seconds
    rows = []
    for workers, processes in ((2, 1), (1, 2)):
        peak, read = _apart("slow_consumer", seconds, workers, processes)
        what = "threads" if processes == 1 else "processes"
        name = f"slow consumer, {seconds:g} s, two {what}: peak of a process, MiB"
        rows.append(Row(name, peak, 200, 128, less=True, note=f"{read:,.0f} records of 1 KB"))
    [grown] = _apart("stopped_consumer", min(seconds, 20.0))
    rows.append(Row(f"stopped consumer, {min(seconds, 20.0):g} s: producer grown, MiB", grown, 120, 64, less=True))
    for processes in (1, 2):
        [took] = _apart("loop", 20_000, 20, processes)
        rows.append(Row(f"loop with 64 KB in flight, {processes} processes: seconds", took, 60, less=True))
    [over] = _apart("large_record", LARGE)
    rows.append(Row(f"record of {LARGE // MIB} MiB: receiver's peak over the record", over, 1.5, 1.2, less=True))
    for workers, processes in ((1, 1), (2, 1), (1, 2)):
        [peak] = _apart("stash", workers, processes)
        name = f"stash under {BUDGET} MiB, {workers} threads, {processes} processes: peak at the error, MiB"
        rows.append(Row(name, peak, 2 * BUDGET, 1.6 * BUDGET, less=True))
    return rows


if __name__ == "__main__":
    print(table(run(seconds=float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS)))
