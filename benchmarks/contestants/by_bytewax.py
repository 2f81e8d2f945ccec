"""The workloads in bytewax: with its operators for single records, and in the form that it is quickest in.

``count_final`` and ``reduce_final`` add up what is equal in each batch before anything is exchanged. Several processes are a
cluster on this machine, as ``python -m bytewax.run -a`` makes one.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable
from operator import add
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax.connectors.files import FileSource
from bytewax.dataflow import Dataflow, Stream
from bytewax.inputs import DynamicSource, Source, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import cluster_main, run_main

from benchmarks.contestants.told import Answer, Task, in_processes, main

LISTENING = Path("/proc/net/tcp")


class Batches(DynamicSource, StatelessSourcePartition):  # type: ignore[misc]
    """A source that gives the batches that it was made with."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = iter(batches)

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Batches:
        return self

    def next_batch(self) -> Iterable[Any]:
        for batch in self._batches:
            return batch  # type: ignore[no-any-return]
        raise StopIteration()


class Sink(DynamicSink, StatelessSinkPartition):  # type: ignore[misc]
    """A sink that hands each batch to a function."""

    def __init__(self, take: Callable[[list[Any]], object]) -> None:
        self._take = take

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Sink:
        return self

    def write_batch(self, items: list[Any]) -> None:
        self._take(items)


def run(task: Task, source: Callable[[int], Source], build: Callable[[Stream], Stream], keep: Callable[[], Any]) -> list[Any]:
    """Run a dataflow from ``source(index)`` to a sink in all processes; return what its keepers hold, which ``keep()`` makes."""
    ports = _free_ports(task.processes) if task.processes > 1 else []
    addresses = [f"127.0.0.1:{port}" for port in ports]

    def work(index: int) -> list[Any]:
        kept = keep()
        flow = Dataflow("benchmark")
        op.output("sink", build(op.input("source", flow, source(index))), Sink(kept.take))
        if addresses:
            _until_listening(ports[:index])
            cluster_main(flow, addresses, index)
        else:
            run_main(flow)
        return list(kept)

    return [row for rows in in_processes(work, task.processes) for row in rows]


def _free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on now."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def _until_listening(ports: Iterable[int]) -> None:
    """Wait until somebody listens on these ports. A process of a cluster that finds nobody there sleeps for a second."""
    while LISTENING.exists() and not all(f":{port:04X} 00000000:0000 0A" in LISTENING.read_text() for port in ports):
        time.sleep(0.001)


class Rows(list[Any]):
    """Keeps all rows."""

    take = list.extend


class Sum:
    """Keeps how many numbers there were, and their sum."""

    def __init__(self) -> None:
        self.count = self.sum = 0

    def take(self, numbers: list[int]) -> None:
        """Add some numbers."""
        self.count += len(numbers)
        self.sum += sum(numbers)

    def __iter__(self) -> Any:
        return iter([("count", self.count), ("sum", self.sum)])


def _lines(task: Task) -> Callable[[int], Batches]:
    return lambda index: Batches(task.lines(index))


def _share(task: Task) -> Callable[[int], Batches]:
    return lambda index: Batches(task.share(index))


def word_count(task: Task) -> Answer:
    """With the operators of its documentation's word count, on the batches of lines that all get."""
    return run(task, _lines(task), _count, Rows)


def word_count_as_documented(task: Task) -> Answer:
    """The same, and the file read as in that word count, by bytewax's own source: in one of the processes, line by line."""
    return run(task, lambda index: FileSource(task.input, batch_size=task.batch), _count, Rows)


def _count(lines: Stream) -> Stream:
    return op.count_final("count", op.flat_map("split", lines, str.split), lambda word: word)


def word_count_by_batch(task: Task) -> Answer:
    """Each batch of lines is split and counted by hand, in one go."""

    def count(lines: list[str]) -> Iterable[tuple[str, int]]:
        return Counter(" ".join(lines).split()).items()

    def build(lines: Stream) -> Stream:
        return op.reduce_final("sum", op.flat_map_batch("count", lines, count), add)

    return run(task, _lines(task), build, Rows)


def map_filter_map(task: Task) -> Answer:
    """Record by record."""

    def build(numbers: Stream) -> Stream:
        grown = op.map("grow", numbers, lambda x: 3 * x + 1)
        return op.map("halve", op.filter("even", grown, lambda x: x % 2 == 0), lambda x: x // 2)

    return run(task, _share(task), build, Sum)


def map_filter_map_by_batch(task: Task) -> Answer:
    """Three steps that get whole batches."""

    def build(numbers: Stream) -> Stream:
        grown = op.flat_map_batch("grow", numbers, lambda xs: [3 * x + 1 for x in xs])
        even = op.flat_map_batch("even", grown, lambda xs: [x for x in xs if x % 2 == 0])
        return op.flat_map_batch("halve", even, lambda xs: [x // 2 for x in xs])

    return run(task, _share(task), build, Sum)


def sum_by_key(task: Task) -> Answer:
    """Pairs whose values are added up for each of a thousand keys."""

    def build(numbers: Stream) -> Stream:
        return op.reduce_final("sum", op.map("key", numbers, lambda x: (str(x % 1000), x)), add)

    return run(task, _share(task), build, Rows)


def exchange(task: Task) -> Answer:
    """Redistributed, by no key: bytewax exchanges by key only in front of an operator that keeps a state for each."""
    return run(task, _share(task), lambda numbers: op.redistribute("exchange", numbers), Sum)


if __name__ == "__main__":
    main(
        (
            word_count,
            word_count_as_documented,
            word_count_by_batch,
            map_filter_map,
            map_filter_map_by_batch,
            sum_by_key,
            exchange,
        )
    )
