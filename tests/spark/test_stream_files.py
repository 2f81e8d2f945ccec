"""The files of a stream, without Spark: what is written is there as a whole, and the workers' shares are all rows, each once.

White box: files that are damaged, or half written, are read back without a stream.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from timely.errors import ChangedDataflowError, CheckpointError, ConfigurationError, SchemaError
from timely.spark.streaming.directory import StreamDirectory
from timely.spark.streaming.epoch_files import read_share
from timely.spark.streaming.epoch_log import File
from timely.spark.streaming.schemas import StreamSchemas

SIZES = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3), max_size=6)
"""How many rows each batch of each file has."""


def write(directory: StreamDirectory, name: str, batches: list[pa.RecordBatch]) -> File:
    """A file of batches."""

    def fill(file: BinaryIO) -> None:
        with pa.ipc.new_file(file, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)

    directory.write(name, fill)
    return File(name, sum(batch.num_rows for batch in batches))


@given(SIZES, st.integers(1, 5))
def test_the_shares_of_the_workers_are_all_rows_each_once(sizes: list[list[int]], workers: int) -> None:
    numbers = iter(range(1000))
    with tempfile.TemporaryDirectory() as folder:
        directory = StreamDirectory.at(folder)
        files = []
        for number, batches in enumerate(sizes):
            columns = [pa.array([next(numbers) for _ in range(size)], pa.int64()) for size in batches]
            files.append(write(directory, f"inputs/{number}", [pa.record_batch({"n": column}) for column in columns]))
        read = Counter(
            n
            for worker in range(workers)
            for batch in read_share(directory, files, worker, workers)
            for n in batch["n"].to_pylist()
        )
    assert read == Counter(range(sum(map(sum, sizes))))


@pytest.mark.parametrize("damage", ["missing", "truncated", "other"])
def test_a_file_that_is_missing_or_damaged(tmp_path: Path, damage: str) -> None:
    directory = StreamDirectory.at(tmp_path)
    file = write(directory, "inputs/0/a", [pa.record_batch({"n": [1, 2, 3]})])
    path = tmp_path / file.name
    if damage == "missing":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[:-30])
    else:
        write(directory, "inputs/0/a", [pa.record_batch({"n": [1]})])
    with pytest.raises(CheckpointError, match="inputs/0/a"):
        list(read_share(directory, [file], 0, 1))


def test_a_file_whose_writing_fails_is_not_there_and_the_one_before_it_is(tmp_path: Path) -> None:
    directory = StreamDirectory.at(tmp_path)
    directory.write("x/a", lambda file: file.write(b"before"))

    def fail(file: Any) -> None:
        file.write(b"aft")
        raise OSError("no space left on device")

    with pytest.raises(CheckpointError, match="x/a cannot be written: no space left on device"):
        directory.write("x/a", fail)
    assert directory.read("x/a") == b"before"
    assert os.listdir(tmp_path / "x") == ["a"]


def test_names_and_deleting(tmp_path: Path) -> None:
    directory = StreamDirectory.at(tmp_path.as_uri())
    assert directory.names("inputs") == []
    directory.write("inputs/7/a b%", lambda file: file.write(b"1"))
    assert (directory.names("inputs"), directory.names("inputs/7")) == (["7"], ["a b%"])
    assert directory.for_spark("inputs/7/a b%") == f"file://{tmp_path}/inputs/7/a b%"
    for _ in range(2):
        directory.delete("inputs/7")
    assert directory.names("inputs") == []


def test_a_place_has_one_name_for_spark_and_one_for_arrow() -> None:
    directory = StreamDirectory("s3a://bucket/stream", "bucket/stream")
    assert directory.for_spark("query") == "s3a://bucket/stream/query"
    assert directory.for_arrow("state") == "s3://bucket/stream/state"


@pytest.mark.parametrize("where", ["", 3, None, "nosuch://x/y"])
def test_what_is_no_place(where: Any) -> None:
    with pytest.raises(ConfigurationError, match="checkpoint"):
        StreamDirectory.at(where)


def test_a_stream_is_known_by_its_columns(tmp_path: Path) -> None:
    directory = StreamDirectory.at(tmp_path)
    columns = {"edges": StructType().add("src", "long")}, {"sums": StructType().add("n", "long")}
    before = StreamSchemas(*columns)
    before.settle(directory)
    before.check(directory)
    with pytest.raises(SchemaError, match="input 'edges' has the columns src string; in the checkpoint it has src bigint"):
        StreamSchemas({"edges": StructType().add("src", "string")}, before.outputs).check(directory)
    with pytest.raises(SchemaError, match="output 'sums' has the columns n string; in the checkpoint it has n bigint"):
        StreamSchemas(before.inputs, {"sums": StructType().add("n", "string")}).check(directory)
    with pytest.raises(ChangedDataflowError, match="with the outputs sums; this one has sums, more"):
        StreamSchemas(before.inputs, {**before.outputs, "more": StructType()}).check(directory)
    (tmp_path / "stream.json").write_text('{"format": 99, "inputs": {}, "outputs": {}}')
    with pytest.raises(CheckpointError, match="is of format 99, and this version of timely reads 3"):
        before.check(directory)
    (tmp_path / "stream.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"stream\.json is damaged"):
        before.check(directory)
