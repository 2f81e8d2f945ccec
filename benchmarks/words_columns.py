"""The workloads of ``benchmarks.peers`` in this library on columns: Arrow's batches and NumPy's arrays.

Run by itself as ``python -m benchmarks.words_columns``, as the contestants are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.acero  # what Arrow would import with the first group_by
import pyarrow.compute as pc
from pyarrow import csv

from benchmarks.contestants.told import Answer, Task, main
from benchmarks.words import count_and_sum, run


def word_count(task: Task) -> Answer:
    """Lines are split by Arrow; each worker counts its own words before anything is exchanged."""

    def words(lines: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"word": pc.list_flatten(pc.ascii_split_whitespace(lines["line"]))})

    return run(task, _lines(task), lambda lines: lines.map_batch(words).group_by("word", n="count"))


def word_count_exchanged(task: Task) -> Answer:
    """Every word goes to the worker that counts it."""

    def words(lines: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"word": pc.list_flatten(pc.ascii_split_whitespace(lines["line"]))})

    return run(task, _lines(task), lambda lines: lines.map_batch(words).exchange("word").group_by("word", n="count"))


def _lines(task: Task) -> Callable[[int], Iterator[pa.RecordBatch]]:
    """Return what reads a process's part of the file into a column, on its own thread, and gives it in batches.

    It is read as Arrow reads streams, a megabyte at a time: the memory of one is there again for the next. No batch is larger.
    """

    def batches(index: int) -> Iterator[pa.RecordBatch]:
        lines = csv.ParseOptions(delimiter="\x01", quote_char=False)
        one_column = csv.ReadOptions(column_names=["line"], use_threads=False)
        with csv.open_csv(pa.BufferReader(task.part(index)), one_column, lines) as blocks:
            for block in blocks:
                yield from (block.slice(start, task.batch) for start in range(0, block.num_rows, task.batch))

    return batches


def map_filter_map(task: Task) -> Answer:
    """Three operators that get arrays."""

    def build(numbers: Any) -> Any:
        grown = numbers.map_batch(lambda xs: 3 * xs + 1)
        return count_and_sum(grown.map_batch(lambda xs: xs[xs % 2 == 0]).map_batch(lambda xs: xs // 2), np.sum)

    return run(task, _arrays(task), build)


def sum_by_key(task: Task) -> Answer:
    """Numbers that are added up for each of a thousand keys, which are strings."""

    def pairs(numbers: Any) -> pa.RecordBatch:
        return pa.record_batch({"key": pa.array(numbers % 1000).cast(pa.string()), "number": numbers})

    return run(task, _arrays(task), lambda numbers: numbers.map_batch(pairs).group_by("key", sum=("number", "sum")))


def exchange(task: Task) -> Answer:
    """Every number goes to the worker that it belongs to."""
    return run(task, _arrays(task), lambda numbers: count_and_sum(numbers.exchange(lambda xs: xs), np.sum))


def _arrays(task: Task) -> Callable[[int], Iterator[Any]]:
    return lambda index: (np.arange(numbers.start, numbers.stop) for numbers in task.share(index))


if __name__ == "__main__":
    main((word_count, word_count_exchanged, map_filter_map, sum_by_key, exchange))
