"""The data plane between workers: what it costs that records go to the worker that their key says.

Every worker sends batches of whole numbers, each in an epoch of its own, through an exchange by value, and waits until all
workers have got the epoch before it sends the next: so no one is ahead, and nothing piles up. A record is one number; records per
second are those of all workers together, by the clock. Every worker adds up what it gets, and the sums are compared with what was
sent. Lists of 1 are a thousand batches in an epoch, of one record each. One row has a source that does not wait: it is up to ten
epochs ahead, as a program is that only reads and advances.

By hand is what a batch takes in any case: remainders, rows, the two parts taken out and added up, and the part that goes to the
other worker copied once, an Arrow batch as the bytes of its stream. Two processes do that at once, made as those of a run are,
but nothing goes from one to the other. The exchange is held against it in seconds of the processor, those of both processes added
up, since by hand nobody has to be waited for. Over sockets, by hand, the part goes to the other process, which acknowledges it.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

import timely
from benchmarks.measure import Measured, as_workers
from benchmarks.report import Row
from timely import InputPort, OutputPort, Worker

Seconds: TypeAlias = tuple[float, float]
"""By the clock, and of the processor: per record."""

DIFFERENT = 4
OFTEN = 3
"""How many rounds to do for one: they take some seconds each, and what else the machine does shows in them."""

WARM = 10
"""Epochs that come before those that are timed."""


def _arrays(size: int, worker: int) -> list[Any]:
    generator = np.random.default_rng(worker)
    return [generator.integers(0, 1 << 40, size) for _ in range(DIFFERENT)]


def _arrow(size: int, worker: int) -> list[Any]:
    return [pa.record_batch({"n": array}) for array in _arrays(size, worker)]


def _lists(size: int, worker: int) -> list[Any]:
    return [array.tolist() for array in _arrays(size, worker)]


def _single(size: int, worker: int) -> list[Any]:
    """Return batches that are sent a thousand at a time."""
    return [[[x] for x in array.tolist()] for array in _arrays(1000, worker)]


Sums = Callable[[Any], int]
SUMS: dict[str, tuple[Callable[[int, int], list[Any]], Any, Sums]] = {
    "arrays": (_arrays, lambda array: array, lambda array: int(array.sum())),
    "Arrow": (_arrow, "n", lambda batch: int(batch.column(0).to_numpy().sum())),
    "lists": (_lists, lambda x: x, sum),
}
"""For each kind of container: what makes some, the key of the exchange, and what adds one up."""


def _exchange(kind: str, size: int, epochs: int, many: int = 1, ahead: int = 0) -> Callable[[Worker], tuple[float, float]]:
    """Return the program, of ``many`` batches an epoch: seconds of the clock and of this process's processor, for all epochs.

    The source may be so many epochs ``ahead`` of the probe.
    """
    make, key, add_up = SUMS[kind]

    def program(worker: Worker) -> tuple[float, float]:
        batches = make(size, worker.index)
        got = [0]

        def logic(input: InputPort[int, Any], output: OutputPort[int]) -> None:
            for _, batch in input:
                got[0] += add_up(batch)

        with worker.dataflow() as scope:
            handle, stream = scope.new_input()
            probe = stream.unary(timely.Exchange(key), "add up", lambda capability, info: logic).probe()
        for epoch in range(epochs + WARM):
            if epoch == WARM:
                start = time.perf_counter(), time.process_time()
            for number in range(many):
                handle.send_batch(batches[(epoch + number) % DIFFERENT])
            handle.advance_to(epoch + 1)
            worker.step_while(lambda: probe.less_than(epoch + 1 - ahead))  # noqa: B023  (it is called here only)
        worker.step_while(lambda: probe.less_than(epochs + WARM))
        taken = time.perf_counter() - start[0], time.process_time() - start[1]
        handle.close()
        worker.run()
        sent = sum(add_up(batches[(epoch + number) % DIFFERENT]) for epoch in range(epochs + WARM) for number in range(many))
        totals = worker.all_gather((sent, got[0]))
        assert sum(one for one, _ in totals) == sum(other for _, other in totals), "records were lost"
        return taken

    return program


def _tiny(epochs: int, many: int = 1000) -> Callable[[Worker], tuple[float, float]]:
    """Return the program of batches of one record, ``many`` of them in an epoch."""

    def program(worker: Worker) -> tuple[float, float]:
        got = [0]

        def logic(input: InputPort[int, int], output: OutputPort[int]) -> None:
            for _, batch in input:
                got[0] += len(batch)

        with worker.dataflow() as scope:
            handle, stream = scope.new_input()
            probe = stream.unary(timely.Exchange(lambda x: x), "count", lambda capability, info: logic).probe()
        start = time.perf_counter(), time.process_time()
        for epoch in range(epochs):
            for number in range(many):
                handle.send_batch([number])
            handle.advance_to(epoch + 1)
            worker.step_while(lambda: probe.less_than(epoch + 1))  # noqa: B023
        taken = time.perf_counter() - start[0], time.process_time() - start[1]
        handle.close()
        worker.run()
        assert sum(worker.all_gather(got[0])) == epochs * many * worker.peers, "records were lost"
        return taken

    return program


def _arrays_by_hand(array: Any) -> None:
    odd = (array % 2) != 0
    kept, sent = array[np.flatnonzero(~odd)], array[np.flatnonzero(odd)]
    bytearray(memoryview(sent).cast("B"))
    kept.sum()
    sent.sum()


def _arrow_by_hand(batch: Any) -> None:
    odd = (batch.column(0).to_numpy() % 2) != 0
    kept, sent = batch.take(np.flatnonzero(~odd)), batch.take(np.flatnonzero(odd))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, sent.schema) as writer:
        writer.write_batch(sent)
    with pa.ipc.open_stream(sink.getvalue()) as reader:
        sent = reader.read_next_batch()
    kept.column(0).to_numpy().sum()
    sent.column(0).to_numpy().sum()


BY_HAND: dict[str, Callable[[Any], None]] = {"arrays": _arrays_by_hand, "Arrow": _arrow_by_hand}


def _by_hand(kind: str, size: int, batches: int) -> float:
    """Return seconds of the processor per record: what two processes take to deal batches to two, and copy one of the parts."""
    containers, deal = SUMS[kind][0](size, 0), BY_HAND[kind]

    def work() -> float:
        for number in range(batches + WARM):
            if number == WARM:
                start = time.process_time()
            deal(containers[number % DIFFERENT])
        return time.process_time() - start

    taken = as_workers(work, 2)
    return sum(taken) / (len(taken) * size * batches)


def _over_sockets(size: int, batches: int) -> float:
    """Return seconds of the processor per record: two processes send each other parts of arrays, and acknowledge each."""
    pair, head = socket.socketpair(), struct.Struct("<Q")

    def work(worker: Worker) -> float:
        sock, arrays = pair[worker.index], _arrays(size, worker.index)
        total = 0
        for number in range(batches + WARM):
            if number == WARM:
                start = time.process_time()
            array = arrays[number % DIFFERENT]
            mine = (array % 2) == worker.index
            kept, sent = array[np.flatnonzero(mine)], array[np.flatnonzero(~mine)]
            sock.sendmsg([head.pack(sent.nbytes), memoryview(sent).cast("B")])
            (length,) = head.unpack(sock.recv(head.size, socket.MSG_WAITALL))
            came = bytearray(length)
            sock.recv_into(came, 0, socket.MSG_WAITALL)
            total += int(kept.sum()) + int(np.frombuffer(came, np.int64).sum())
            sock.send(b"got it")
            sock.recv(6, socket.MSG_WAITALL)
        seconds = time.process_time() - start
        total -= sum(int(arrays[number % DIFFERENT].sum()) for number in range(batches + WARM))
        assert sum(worker.all_gather(total)) == 0, "records were lost"
        return seconds

    with pair[0], pair[1]:
        return sum(timely.execute(work, processes=2)) / (2 * size * batches)


def _run(program: Callable[[Worker], tuple[float, float]], records: int, processes: int = 1) -> Seconds:
    found = timely.execute(program, processes=processes)
    total = records * len(found)
    return max(clock for clock, _ in found) / total, sum(processor for _, processor in found) / total


def measured(works: dict[str, Callable[[], Sequence[float]]], rounds: int) -> dict[str, list[Measured]]:
    """Run every work in each round, every other round backwards, and return for each work what it returned, by place."""
    found: dict[str, list[Sequence[float]]] = {name: [] for name in works}
    for turn in range(rounds):
        for name in list(works)[:: -1 if turn % 2 else 1]:
            found[name].append(works[name]())
    return {name: [Measured(values) for values in zip(*tuples, strict=True)] for name, tuples in found.items()}


def run(rounds: int = 5, quick: bool = False) -> list[Row]:
    """Return the rows of the report."""
    less = 10 if quick else 1
    works: dict[str, Callable[[], Sequence[float]]] = {}
    for kind, size, epochs in (
        ("arrays", 100_000, 200),
        ("arrays", 1000, 2000),
        ("Arrow", 100_000, 200),
        ("Arrow", 1000, 2000),
        ("lists", 100_000, 20),
        ("lists", 1000, 1000),
    ):
        program = _exchange(kind, size, epochs // less)
        records = size * (epochs // less)
        works[f"{kind} of {size:,}, 1 worker"] = lambda p=program, r=records: _run(p, r)  # type: ignore[misc]
        works[f"{kind} of {size:,}, two processes"] = lambda p=program, r=records: _run(p, r, processes=2)  # type: ignore[misc]
    ten = _exchange("arrays", 1000, 200 // less, many=10)
    works["arrays of 1,000, ten an epoch, two processes"] = lambda: _run(ten, 10_000 * (200 // less), processes=2)
    pipelined = _exchange("arrays", 1000, 2000 // less, ahead=10)
    works["arrays of 1,000, ten epochs ahead, two processes"] = lambda: _run(pipelined, 1000 * (2000 // less), processes=2)
    works["by hand, arrays of 1,000 over sockets"] = lambda: (0.0, _over_sockets(1000, 2000 // less))
    single = _tiny(100 // less)
    works["lists of 1, two processes"] = lambda: _run(single, 1000 * (100 // less), processes=2)
    for kind in BY_HAND:
        for size, batches in ((100_000, 200), (1000, 2000)):
            works[f"by hand, {kind} of {size:,}"] = lambda k=kind, s=size, b=batches: (0.0, _by_hand(k, s, b // less))  # type: ignore[misc]
    found = measured(works, OFTEN * rounds)
    bars = {"arrays of 100,000, two processes": (20e6, 29e6), "arrays of 1,000, two processes": (None, 4e6)}
    rows = []
    for name, (clock, _) in found.items():
        if not name.startswith("by hand"):
            floor, aim = bars.get(name, (None, None))
            rows.append(Row(f"exchange, {name}, records/s", 1 / clock, floor=floor, aim=aim))
    for kind in BY_HAND:
        for size, floor, aim in ((100_000, 1.3, None), (1000, *((3, 1.5) if kind == "arrays" else (None, None)))):
            ratio = found[f"{kind} of {size:,}, two processes"][1] / found[f"by hand, {kind} of {size:,}"][1]
            rows.append(Row(f"{kind} of {size:,}, two processes, processor against by hand", ratio, floor, aim, less=True))
    small = "arrays of 1,000, two processes", "arrays of 1,000, ten an epoch, two processes"
    ahead = "arrays of 1,000, ten epochs ahead, two processes"
    for ours, theirs in (small[0], "arrays of 1,000 over sockets"), (small[1], "arrays of 1,000"), (ahead, "arrays of 1,000"):
        ratio = found[ours][1] / found[f"by hand, {theirs}"][1]
        rows.append(Row(f"{ours}, processor against by hand, {theirs}", ratio, 3, 1.5, less=True))
    return rows
