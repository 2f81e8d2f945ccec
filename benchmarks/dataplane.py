"""The data plane in one process: what a pipeline costs beside the same work without a dataflow.

Every figure is of the processor's time, and every run's result is looked at. ``lists``: one million integers, in lists of 10,000,
through map, filter and map. ``words``: two million words in lines of ten, by record and on Arrow columns. ``exchange``: Arrow
batches dealt by a column of integers, among one worker or two threads; a worker takes a step after each that it sends, or after
ten, which it then deals together. ``batches of one``: what a message costs from an input through map, filter and map to a probe.
:mod:`benchmarks.keyed` has the operators with state.
"""

from __future__ import annotations

import functools
import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import timely
from benchmarks import keyed
from benchmarks.measure import as_workers, in_turn
from benchmarks.report import Row

NUMBERS = 1_000_000
LINES = 200_000
ROWS = 4_000_000
ONES = 20_000
OFTEN = 3
"""How many rounds to do for one: they take some seconds each, and what else the machine does shows in them."""

Streams = timely.Stream[int, Any]


def _triple(x: int) -> int:
    return 3 * x


def _is_even(x: int) -> bool:
    return x % 2 == 0


def _increment(x: int) -> int:
    return x + 1


@functools.cache
def _lists() -> list[list[int]]:
    return [list(range(start, start + 10_000)) for start in range(0, NUMBERS, 10_000)]


def _by_hand(work: Callable[[list[int]], list[int]]) -> Callable[[], float]:
    """Return what times a function of each list of numbers."""

    def timed() -> float:
        batches = _lists()
        start = time.process_time()
        found = [work(batch) for batch in batches]
        seconds = time.process_time() - start
        assert sum(map(sum, found)) == _EXPECTED
        return seconds

    return timed


_EXPECTED = sum(3 * x + 1 for x in range(0, NUMBERS, 2))


def _run(batches: list[Any], build: Callable[[Streams], Streams], every: int = 1) -> tuple[float, list[Any]]:
    """Return the seconds that a dataflow takes for the batches, and what came out; a step after so many of them."""
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        captured = build(stream).capture()
    start = time.process_time()
    for number, batch in enumerate(batches):
        handle.send_batch(batch)
        if number % every == 0:
            worker.step()
    handle.close()
    worker.run()
    return time.process_time() - start, [batch for _, batch in captured.messages]


def _pipeline(build: Callable[[Streams], Streams]) -> Callable[[], float]:
    def timed() -> float:
        seconds, found = _run(_lists(), build)
        assert sum(map(sum, found)) == _EXPECTED
        return seconds

    return timed


def _map_filter_map(numbers: Streams) -> Streams:
    return numbers.map(_triple).filter(_is_even).map(_increment)


def _by_batch(numbers: Streams) -> Streams:
    tripled = numbers.map_batch(lambda batch: [3 * x for x in batch])
    return tripled.map_batch(lambda batch: [x for x in batch if x % 2 == 0]).map_batch(lambda batch: [x + 1 for x in batch])


# -- words -------------------------------------------------------------------------------------------------------------


@functools.cache
def _lines() -> list[list[str]]:
    """Return lines of ten words, of which a few are frequent and many are rare, in lists of 10,000."""
    chance = random.Random(1)
    words = [f"word{number}" for number in range(10_000)]
    weights = [1 / (place + 1) for place in range(len(words))]
    drawn = iter(chance.choices(words, weights, k=10 * LINES))
    lines = [" ".join(ten) for ten in zip(*[drawn] * 10, strict=True)]
    return [lines[start : start + 10_000] for start in range(0, LINES, 10_000)]


@functools.cache
def _line_columns() -> list[pa.RecordBatch]:
    return [pa.record_batch({"line": lines}) for lines in _lines()]


@functools.cache
def _word_counts() -> Counter[str]:
    return Counter(word for lines in _lines() for line in lines for word in line.split())


def _counter() -> float:
    lists = _lines()
    start = time.process_time()
    counts: Counter[str] = Counter()
    for lines in lists:
        for line in lines:
            counts.update(line.split())
    seconds = time.process_time() - start
    assert counts == _word_counts()
    return seconds


def _count_words(build: Callable[[Streams], Streams]) -> Callable[[], float]:
    def timed() -> float:
        seconds, found = _run(_lines(), build)
        assert dict(pair for batch in found for pair in batch) == _word_counts()
        return seconds

    return timed


def _words(batch: pa.RecordBatch) -> pa.RecordBatch:
    words = pc.list_flatten(pc.split_pattern(batch.column("line"), " "))
    return pa.RecordBatch.from_arrays([words], ["word"])


def _word_columns() -> float:
    seconds, found = _run(_line_columns(), lambda lines: lines.map_batch(_words).group_by("word", number="count"))
    _check_columns(found)
    return seconds


def _word_columns_by_hand() -> float:
    batches = _line_columns()
    start = time.process_time()
    table = pa.Table.from_batches([_words(batch) for batch in batches])
    counted = table.group_by("word", use_threads=False).aggregate([([], "count_all")])
    seconds = time.process_time() - start
    _check_columns(counted.to_batches())
    return seconds


def _check_columns(found: list[pa.RecordBatch]) -> None:
    counts = {word: number for batch in found for word, number in zip(*map(pa.Array.to_pylist, batch.columns), strict=True)}
    assert counts == _word_counts()


# -- exchange ------------------------------------------------------------------------------------------------------------


@functools.cache
def _columns(size: int) -> list[pa.RecordBatch]:
    keys = np.random.default_rng(1).integers(0, 1 << 40, ROWS)
    whole = pa.record_batch({"key": keys, "value": np.arange(ROWS)})
    return [whole.slice(start, size) for start in range(0, ROWS, size)]


def _exchange(size: int, workers: int, every: int = 1) -> Callable[[], float]:
    """Return what times an exchange of batches of a size, each of which a worker sends its share of; a step after so many."""

    def timed() -> float:
        batches = _columns(size)
        ready = threading.Barrier(workers)

        def program(worker: timely.Worker) -> tuple[float, list[Any]]:
            with worker.dataflow(int) as scope:
                handle, stream = scope.new_input()
                captured = stream.exchange("key").capture()
            ready.wait()
            start = time.process_time()  # of all threads together
            for number, batch in enumerate(batches[worker.index :: worker.peers], 1):
                handle.send_batch(batch)
                if number % every == 0:
                    worker.step()
            handle.close()
            worker.run()
            ready.wait()
            return time.process_time() - start, [batch for _, batch in captured.messages]

        found = timely.execute(program, workers=workers)
        assert sum(_checked(batch, worker, workers) for worker, (_, parts) in enumerate(found) for batch in parts) == ROWS
        return max(seconds for seconds, _ in found)

    return timed


def _exchange_by_hand(size: int, workers: int) -> Callable[[], float]:
    """Return what times the same calls in as many threads: each deals its share of the batches, hands the parts over through
    queues, and takes what the others have for it.

    It routes as the exchange does, by the key's remainder, and takes the rows out with the same kernel. What it leaves out is
    what a dataflow is for: it takes nothing before all is dealt, counts nothing, asks nobody whether a time is over, and would
    fail on a key that is missing or is text.
    """

    def timed() -> float:
        batches = _columns(size)
        queues: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(workers)]
        got: list[list[Any]] = [[] for _ in range(workers)]

        def deal(index: int) -> None:
            for batch in batches[index::workers]:
                owners = batch.column("key").to_numpy() % workers
                for worker in range(workers):
                    queues[worker].put(batch.take(pa.array(np.flatnonzero(owners == worker))))
            for other in queues:
                other.put(None)  # that was all
            for _ in range(workers):
                got[index].extend(iter(queues[index].get, None))

        threads = [threading.Thread(target=deal, args=(index,)) for index in range(workers)]
        start = time.process_time()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.process_time() - start
        assert sum(_checked(part, worker, workers) for worker, parts in enumerate(got) for part in parts) == ROWS
        return seconds

    return timed


def _checked(batch: pa.RecordBatch, worker: int, workers: int) -> int:
    assert not np.any(batch.column("key").to_numpy() % workers != worker)
    return len(batch)


def _again(work: Callable[[], float]) -> Callable[[], float]:
    """Return what does a work twice, in a process as a run has them, and returns the seconds of the second time.

    What is measured otherwise is whose memory is asked for anew, page by page, as the allocators were left by what ran before.
    """

    def timed() -> float:
        work()
        return work()

    return lambda: as_workers(timed, 1)[0]


# -- batches of one ------------------------------------------------------------------------------------------------------


def _ones(every: int) -> Callable[[], float]:
    """Return what times batches of one record, with a step after so many of them; seconds for each batch."""

    def timed() -> float:
        seconds, found = _run([[x] for x in range(ONES)], _map_filter_map, every)
        assert sum(map(sum, found)) == sum(3 * x + 1 for x in range(0, ONES, 2))
        return seconds / ONES

    return timed


def run(rounds: int = 5) -> list[Row]:
    """Run everything in turn, and return the rows of the report."""
    functions = _by_hand(lambda batch: [_increment(y) for x in batch if _is_even(y := _triple(x))])
    expressions = _by_hand(lambda batch: [y + 1 for x in batch if (y := 3 * x) % 2 == 0])
    sizes = (1_000, 100_000)
    works: dict[str, Callable[[], float]] = {
        "functions": functions,
        "expressions": expressions,
        "pipeline": _pipeline(_map_filter_map),
        "by batch": _pipeline(_by_batch),
        "Counter": _counter,
        "value_counts": _count_words(lambda lines: lines.flat_map(str.split).value_counts()),
        "exchanged": _count_words(lambda lines: lines.flat_map(str.split).exchange(lambda word: word).value_counts()),
        "columns": _word_columns,
        "columns by hand": _word_columns_by_hand,
        "one": _ones(1),
        "hundred": _ones(100),
    }
    for size in sizes:
        _columns(size)  # made now, they need not be in each of the processes
        for workers in (1, 2):
            works[f"exchange {size} {workers}"] = _again(_exchange(size, workers))
        works[f"exchange by hand {size}"] = _again(_exchange_by_hand(size, 2))
    works["exchange 1000 2, a step after ten"] = _again(_exchange(1_000, 2, every=10))
    took = in_turn(works, OFTEN * rounds)
    words = 10 * LINES
    rows = [
        Row("map, filter, map on lists, against one comprehension", took["pipeline"] / took["functions"], 2, 1.2, less=True),
        Row(
            "the same with map_batch, against one comprehension",
            took["by batch"] / took["expressions"],
            2,
            1.2,
            less=True,
            note="expressions written out on both sides",
        ),
        Row("map, filter, map with functions, against expressions written out", took["pipeline"] / took["expressions"]),
        Row("columnar word count, against Arrow by hand", took["columns"] / took["columns by hand"], 1.3, 1.05, less=True),
    ]
    for size in sizes:
        ratio = took[f"exchange {size} 2"] / took[f"exchange by hand {size}"]
        rows.append(Row(f"columnar exchange, batches of {size:,}, 2 threads, against two by hand", ratio, 1.3, 1.05, less=True))
        rows.append(Row(f"columnar exchange, batches of {size:,}, 1 worker, rows/s", ROWS / took[f"exchange {size} 1"]))
    seldom = took["exchange 1000 2, a step after ten"] / took["exchange by hand 1000"]
    rows.append(Row("the same with batches of 1,000, a step after ten", seldom, 1.3, 1.05, less=True))
    rows += [
        Row("word count by value_counts, against a Counter", took["value_counts"] / took["Counter"], 1.3, 1, less=True),
        Row("word count by value_counts, words/s", words / took["value_counts"]),
        Row("word count with an exchange of every word, words/s", words / took["exchanged"]),
        Row("columnar word count, words/s", words / took["columns"]),
        Row("map, filter, map on lists, records/s", NUMBERS / took["pipeline"]),
        Row("batches of one, a step after each, batches/s", 1 / took["one"]),
        Row("batches of one, a step after a hundred, batches/s", 1 / took["hundred"]),
    ]
    return [*rows, *keyed.rows(rounds)]
