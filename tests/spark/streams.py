"""What the tests of streams have in common: a folder in which edges arrive, a dataflow with state, and somebody who takes
epochs.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import timely
from timely.dataflow import route

Streams = Mapping[str, timely.Stream[int, Any]]
Row = tuple[Any, ...]

WORDS = "word string, n long"
COUNTS = "word string, total long"


class Folder:
    """A folder into which files of words arrive, each an epoch of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self.files = 0

    def put(self, *epochs: Sequence[tuple[str, int]]) -> None:
        """Add a file for each epoch, newer than all before it; the order of the files is that of their times."""
        for rows in epochs:
            aside = self.path.parent / f".{self.path.name}-{self.files}"
            aside.write_text("".join(json.dumps({"word": word, "n": n}) + "\n" for word, n in rows) or "\n")
            os.utime(aside, (1_000_000_000 + self.files,) * 2)
            aside.rename(self.path / f"{self.files}.json")
            self.files += 1

    def read(self, session: SparkSession) -> DataFrame:
        """The streaming DataFrame of what arrives, a file in each micro-batch."""
        return session.readStream.schema(WORDS).option("maxFilesPerTrigger", 1).json(str(self.path)).where("n is not null")


def totals(stream: timely.Stream[int, Any]) -> timely.Stream[int, Any]:
    """The running total of each word that an epoch has: at each time one row for each of its words."""

    def constructor(capability: Any, info: timely.OperatorInfo) -> Callable[[Any, Any], object]:
        sums: Counter[str] = Counter()
        waiting: dict[int, tuple[Any, Counter[str]]] = {}

        def load(items: Any) -> None:
            for time, word, n in items:
                if time is None:
                    sums[word] += n
                else:
                    waiting.setdefault(time, (capability.delayed(time), Counter()))[1][word] += n

        def save() -> Any:
            yield from ((route(word), (None, word, n)) for word, n in sums.items())
            for time, (_, counts) in waiting.items():
                yield from ((route(word), (time, word, n)) for word, n in counts.items())

        info.register_state(save, load)
        capability.drop()

        def logic(input: Any, output: Any) -> None:
            for cap, rows in input:
                if cap.time not in waiting:
                    waiting[cap.time] = (cap.retain(), Counter())
                for word, n in rows:
                    waiting[cap.time][1][word] += n
            for time in sorted(waiting):
                if input.frontier.less_equal(time):
                    break
                cap, counts = waiting.pop(time)
                sums.update(counts)
                output.session(cap).give_many([(word, sums[word]) for word in counts])
                cap.drop()

        return logic

    return stream.unary_frontier(timely.Exchange(lambda row: row[0]), "totals", constructor)


def as_rows(stream: timely.Stream[int, Any]) -> timely.Stream[int, Any]:
    """A stream of Arrow batches as one of lists of tuples."""
    return stream.map_batch(lambda batch: list(zip(*(column.to_pylist() for column in batch.columns), strict=True)))


def as_batches(stream: timely.Stream[int, Any], *names: str) -> timely.Stream[int, Any]:
    """A stream of lists of tuples as one of Arrow batches."""
    return stream.map_batch(lambda rows: pa.RecordBatch.from_pydict(dict(zip(names, zip(*rows, strict=True), strict=True))))


def count_words(scope: timely.ScopeBuilder[int], words: timely.Stream[int, Any]) -> Streams:
    """A build: the running totals of words."""
    return {"counts": as_batches(totals(as_rows(words)), "word", "total")}


def expected(epochs: Sequence[Sequence[tuple[str, int]]]) -> dict[int, list[Row]]:
    """What the dataflow of :func:`count_words` gives at each epoch, sorted."""
    sums: Counter[str] = Counter()
    by_name: dict[int, list[Row]] = {}
    for epoch, rows in enumerate(epochs):
        for word, n in rows:
            sums[word] += n
        by_name[epoch] = sorted({(word, sums[word]) for word, _ in rows})
    return by_name


def descriptions(session: SparkSession) -> set[str]:
    """What Spark's pages say that the jobs of a session do."""
    context: Any = session.sparkContext
    jobs = context._jsc.sc().statusStore().jobsList(None)
    described = (jobs.apply(position).description() for position in range(jobs.size()))
    return {str(description.get()) for description in described if description.isDefined()}


@attrs.define
class Taker:
    """Takes what a stream hands over: the rows of each output, sorted, for each time that an epoch was handed over."""

    seen: list[tuple[int, dict[str, list[Row]]]] = attrs.field(factory=list)
    on_epoch: Callable[[int], object] = lambda epoch: None
    changed: threading.Condition = attrs.field(factory=threading.Condition)

    def __call__(self, epoch: int, tables: Mapping[str, DataFrame]) -> None:
        actual = {name: sorted(tuple(row) for row in table.collect()) for name, table in tables.items()}
        with self.changed:
            self.seen.append((epoch, actual))
            self.changed.notify_all()
        self.on_epoch(epoch)

    @property
    def epochs(self) -> list[int]:
        """The epochs that have been handed over, in order."""
        return [epoch for epoch, _ in self.seen]

    def of(self, name: str) -> dict[int, list[Row]]:
        """The rows of one output by epoch."""
        return {epoch: tables[name] for epoch, tables in self.seen}

    def wait_for(self, epoch: int, handle: Any) -> None:
        """Wait until an epoch has been handed over; raises what the stream ended for."""
        with self.changed:
            while epoch not in self.epochs:
                handle.await_termination(0)
                assert handle.is_active
                self.changed.wait(0.2)
