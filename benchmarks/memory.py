"""Memory: the peak of graph algorithms over the size of their input, and what a loop holds after millions of iterations.

A peak is what a fresh process held at most beyond what it held before it read its input, when everything was
imported and had run on a small graph. The input is part of it. With two processes it is the sum of both, each of which reads
its half. A loop's growth is what a process holds more after all of its iterations than after the first tenth of them.
``python -m benchmarks.memory 10000000`` measures both with so many edges and iterations, which takes half an hour.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import timely
from benchmarks.graphs import ALGORITHMS, grid, random_graph
from benchmarks.report import Row, table
from benchmarks.sizing_memory import held
from timely.monitor.memory import record_memory

BARRED = "PageRank"
"""The algorithm that has a bar: at most 8 times the input, better 4."""

_CHILD = "from benchmarks.memory import child; child({name!r}, {file!r}, {processes})"
_LOOP = "from benchmarks.memory import loop; loop({iterations}, {data}, {processes})"


def child(name: str, file: str, processes: int) -> None:
    """Print the KiB that each worker has needed for the edges in a file, as JSON: the whole of a fresh process's work."""
    build, _ = ALGORITHMS[name]

    def run(worker: timely.Worker, edges: pa.RecordBatch) -> int:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            found = build(stream).capture()
        handle.send_batch(edges)
        handle.close()
        del edges
        worker.run()
        return sum(len(batch) for _, batch in found.messages)

    def program(worker: timely.Worker) -> tuple[int, int]:
        run(worker, grid(10).slice(worker.index))
        before = held()
        found = run(worker, _part(file, worker.index, worker.peers))
        return record_memory() // 1024 - before, found

    parts = timely.execute(program, processes=processes)
    assert sum(found for _, found in parts) > 0
    print(json.dumps([kib for kib, _ in parts]))


def _part(file: str, index: int, peers: int) -> pa.RecordBatch:
    """Return one worker's part of the edges, read into its memory."""
    with pa.OSFile(file) as source:
        return pa.ipc.open_file(source).get_batch(index)


def peak(name: str, edges: pa.RecordBatch, processes: int) -> float:
    """Return the peak memory of all workers together over the size of the edges."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder, "edges.arrow"))
        each = -(-len(edges) // processes)
        with pa.ipc.new_file(file, edges.schema) as sink:
            for index in range(processes):
                sink.write_batch(edges.slice(index * each, each))
        program = _CHILD.format(name=name, file=file, processes=processes)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return float(sum(json.loads(done.stdout)) * 1024 / edges.nbytes)


def graph_rows(edges: int = 1_000_000) -> list[Row]:
    """Measure the peaks on a random graph with so many edges."""
    graph = random_graph(edges // 10, edges)
    rows = []
    for name in ALGORITHMS:
        for processes in (1, 2):
            floor, aim = (8.0, 4.0) if name.startswith(BARRED) and processes == 1 else (None, None)
            found = peak(name, graph, processes)
            what = f"{name}, {edges / 1e6:g} M edges, {processes} processes: peak over input"
            rows.append(Row(what, found, floor, aim, less=True, note=f"input {graph.nbytes / 2**20:.0f} MiB"))
    return rows


def looping(iterations: int, data: bool, look: Callable[[int], object]) -> Callable[[timely.Worker], None]:
    """Return a program of one loop, which calls ``look(iteration)`` in each: with ``data`` one record goes round and to another
    worker each time, and without, the loop's operator asks to be notified of the next iteration.
    """

    def pass_on(_: object, info: timely.OperatorInfo) -> Callable[..., None]:
        def logic(input: timely.InputPort[int, int], output: timely.OutputPort[int]) -> None:
            for capability, batch in input:
                look(capability.time)
                if capability.time < iterations:
                    output.session(capability).give_batch([1 - record for record in batch])

        return logic

    def wait(input: object, output: object, notificator: timely.Notificator[int]) -> None:
        for capability, _ in notificator:
            look(capability.time)
            if capability.time < iterations:
                capability.downgrade(capability.time + 1)
                notificator.notify_at(capability)

    def program(worker: timely.Worker) -> None:
        with worker.dataflow() as scope:
            handle, again = scope.feedback()
            if data:
                records = scope.to_stream([0] if worker.index == 0 else []).concat(again)
                looped = records.unary(timely.Exchange(lambda record: record), "pass on", pass_on)
            else:
                looped = again.unary_notify(timely.Pipeline, "wait", [0], wait)
            looped.connect_loop(handle)
        worker.run()

    return program


def growth(iterations: int, data: bool, processes: int) -> int:
    """Return the KiB by which a loop's processes grow, the largest growth of all, from a tenth of the iterations to all.

    It has a process of its own: one that has done something else before takes back, bit by bit, what it had let go of.
    """
    program = _LOOP.format(iterations=iterations, data=data, processes=processes)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return int(done.stdout)


def loop(iterations: int, data: bool, processes: int) -> None:
    """Print the KiB by which the processes of a loop grow.

    Nobody watches the run: who watches loads what it takes to explain one, some 4 MB, once a run has taken 15 seconds.
    """

    def program(worker: timely.Worker) -> int:
        seen: dict[bool, int] = {}

        def look(iteration: int) -> None:
            # With data, a worker sees every other iteration.
            if iteration in (iterations // 10, iterations // 10 + 1, iterations - 1, iterations):
                seen[iteration >= iterations - 1] = held()

        looping(iterations, data, look)(worker)
        return seen[True] - seen[False]

    print(max(timely.execute(program, processes=processes, watch=False)))


def loop_rows(iterations: int = 1_000_000) -> list[Row]:
    """Measure how loops grow; a tenth as many iterations between processes, which are ten times slower."""
    rows = []
    for processes, many in ((1, iterations), (2, iterations // 10)):
        for data in (False, True):
            what = f"loop {'with' if data else 'without'} data, {many:,} iterations, {processes} processes: KiB grown"
            rows.append(Row(what, growth(many, data, processes), 64, 0, less=True))
    return rows


def run(rounds: int = 1, quick: bool = False) -> list[Row]:
    """Return all rows; one round is enough for what varies by a hundredth."""
    return [*graph_rows(), *loop_rows(100_000 if quick else 1_000_000)]


if __name__ == "__main__":
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    print(table([*graph_rows(size), *loop_rows(size)]))
