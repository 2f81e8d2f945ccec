"""Folders that grow: each row of each file once, whatever dies."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

import timely
from timely import connect
from timely import differential as dd
from timely.connect import FolderSource
from timely.errors import ConnectorError, OperatorError
from timely.recovery import MemoryStore, Recovery
from timely.testing import MemoryBroker, MemorySink, check_source

SCHEMA = "word string, n long"


def write(folder: Path, name: str, first: int, rows: int = 5) -> None:
    """Put a file of rows into a folder."""
    table = pa.table({"word": [f"w{n % 3}" for n in range(first, first + rows)], "n": range(first, first + rows)})
    if name.endswith(".csv"):
        pa.csv.write_csv(table, folder / name)
    else:
        pa.parquet.write_table(table, folder / name, row_group_size=2)


@pytest.mark.parametrize("seed", range(2))
def test_each_row_of_each_file_is_there_once_whatever_dies(tmp_path: Path, seed: int) -> None:
    for number in range(5):
        write(tmp_path, f"part-{number}.{('parquet', 'csv')[number % 2]}", 5 * number)
    (tmp_path / "_draft.csv").write_text("no,file\n")
    (tmp_path / "empty.csv").touch()
    expected = {(f"w{n % 3}", n): 1 for n in range(25)}
    assert check_source(lambda: FolderSource(tmp_path, SCHEMA, bounded=True), expected, seed=seed, odds=0.4) > 0


def count(folder: Path, store: MemoryStore, target: MemoryBroker, worker: timely.Worker) -> None:
    """Count the words of the files that are there."""
    with Recovery(worker, store) as recovery:
        with worker.dataflow(int) as scope:
            words = dd.table(scope, FolderSource(folder, SCHEMA, bounded=True))
            words.group_by("word").agg("count(*) as n").write(MemorySink(target))
        connect.run(recovery)


def test_files_that_come_are_read_by_the_next_run_and_changed_ones_refused(tmp_path: Path) -> None:
    store, target = MemoryStore(), MemoryBroker()
    run = partial(timely.execute, partial(count, tmp_path, store, target))
    write(tmp_path, "a.parquet", 0)
    run(workers=2)
    write(tmp_path, "b.csv", 5, rows=10)
    (tmp_path / "c.csv").touch()
    run(workers=1)
    (tmp_path / "a.parquet").unlink()
    write(tmp_path, "c.csv", 0, rows=3)
    run(workers=1)
    assert target.rows == Counter({("w0", 6): 1, ("w1", 6): 1, ("w2", 6): 1})
    write(tmp_path, "a.parquet", 0, rows=3)  # the deleted one is forgotten
    run(workers=1)
    assert target.rows == Counter({("w0", 7): 1, ("w1", 7): 1, ("w2", 7): 1})
    text = (tmp_path / "b.csv").read_text()
    for other in (text.replace("w0", "w1"), text + "w0,9\n"):
        (tmp_path / "b.csv").write_text(other)
        with pytest.raises(
            OperatorError, match=r"file 'b.csv' has \d+ bytes, and had \d+ when its first 10 rows were read"
        ) as raised:
            run(workers=1)
        assert isinstance(raised.value.__cause__, ConnectorError)
