"""Ingesting an epoch: Spark's tasks write its rows to Arrow files, and each worker reads its share of them.

The driver sees the names of the files only. The invariant: the shares of the workers, whatever their number, are together all
rows of the epoch, each once. Files that are not in the epoch log (of a task that ran twice, or a driver that ended) mean nothing.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator, Sequence

import attrs
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from timely.errors import CheckpointError
from timely.spark.session import tasks_python
from timely.spark.shipping import carried
from timely.spark.streaming.directory import StreamDirectory
from timely.spark.streaming.epoch_log import File
from timely.spark.versions import batches_from_java

_WRITTEN = "file string, rows long"


@attrs.frozen
class _IngestTask:
    directory: StreamDirectory
    epoch: int
    attempt: str

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the batches to a file of this task's own; yield its name and how many rows it has, unless there are none."""
        batches = batches_from_java(batches)
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return
        task = TaskContext.get()
        assert task is not None
        name = f"inputs/{self.epoch}/{self.attempt}-{task.partitionId()}-{task.taskAttemptId()}.arrow"
        rows = 0

        def fill(file: object) -> None:
            nonlocal rows
            with pa.ipc.new_file(file, first.schema) as writer:
                for batch in itertools.chain([first], batches):
                    writer.write_batch(batch)
                    rows += batch.num_rows

        self.directory.write(name, fill)
        yield pa.RecordBatch.from_pydict({"file": [name], "rows": [rows]})


def write_epoch(frame: DataFrame, directory: StreamDirectory, epoch: int, name: str) -> list[File]:
    """Write the rows of ``frame``, for the stream ``name``, to files by Spark; return these, in order.

    Spark's exception where it cannot.
    """
    task = _IngestTask(directory, epoch, secrets.token_hex(4))
    with tasks_python(frame.sparkSession):
        writing = frame.mapInArrow(carried(task.run, f"timely {name}: rows of an epoch"), _WRITTEN)
    return sorted((File(row.file, row.rows) for row in writing.collect()), key=lambda file: file.name)


def read_share(directory: StreamDirectory, files: Sequence[File], worker: int, workers: int) -> Iterator[pa.RecordBatch]:
    """Read the share of one of ``workers`` workers in the rows of some files.

    With as many files as workers each goes to one worker as a whole, else each worker reads a slice of every one.
    ``CheckpointError`` for a file that is missing or damaged.
    """
    whole = len(files) >= workers
    for number, file in enumerate(files):
        if whole and number % workers != worker:
            continue
        for batch in _read(directory, file):
            if not whole:
                start = batch.num_rows * worker // workers
                batch = batch.slice(start, batch.num_rows * (worker + 1) // workers - start)
            if batch.num_rows:
                yield batch


def _read(directory: StreamDirectory, file: File) -> Iterator[pa.RecordBatch]:
    rows = 0
    with directory.open(file.name) as source:
        reader = pa.ipc.open_file(source)
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            rows += batch.num_rows
            yield batch
    if rows != file.rows:
        raise CheckpointError(f"{directory.uri}/{file.name} has {rows} rows, and {file.rows} were written: it is damaged")
