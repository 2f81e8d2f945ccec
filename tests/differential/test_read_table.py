"""Tables of files: the columns are those of the files, each row comes once, and what differs is refused."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

import timely
from timely import ConfigurationError, OperatorError
from timely import differential as dd

ROWS = pa.table({"day": [0, 1], "name": ["ada", None]})


def held(path: Any, **options: Any) -> Any:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            output = dd.read_table(scope, path, **options).output()
        worker.run()
        return output.at(0)


@pytest.mark.parametrize("extension", ["parquet", "csv", "jsonl", "arrow"])
def test_every_format_has_its_columns(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"rows.{extension}"
    if extension == "parquet":
        pa.parquet.write_table(ROWS, path)
    elif extension == "arrow":
        pa.feather.write_feather(ROWS, path)
    else:
        path.write_text({"csv": "day,name\n0,ada\n1,\n", "jsonl": '{"day":0,"name":"ada"}\n{"day":1}\n'}[extension])
    assert held(path) == {(0, "ada"): 1, (1, None): 1}
    assert held(path, time="day", columns=["day"]) == {(0,): 1}


@pytest.mark.parametrize(
    ("extension", "first", "second"),
    [("csv", "x\n1\n", "x,z\n2,9\n"), ("jsonl", '{"x":1}\n', '{"x":2,"z":9}\n')],
)
def test_a_later_file_with_more_columns_is_refused_unless_the_program_says_what_to_read(
    tmp_path: Path, extension: str, first: str, second: str
) -> None:
    (tmp_path / f"a.{extension}").write_text(first)
    (tmp_path / f"b.{extension}").write_text(second)
    with pytest.raises(OperatorError, match=rf"SchemaError: read_table.*b\.{extension}"):
        held(tmp_path)
    assert held(tmp_path, schema="x long") == held(tmp_path, columns=["x"]) == {(1,): 1, (2,): 1}


@pytest.mark.parametrize("extension", ["parquet", "csv", "jsonl"])
def test_a_column_without_a_value_is_text(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"rows.{extension}"
    rows = pa.table({"n": [1], "note": pa.nulls(1)})
    if extension == "parquet":
        pa.parquet.write_table(rows, path)
    else:
        path.write_text({"csv": "n,note\n1,\n", "jsonl": '{"n":1,"note":null}\n'}[extension])
    for source in (path, rows):
        with timely.Worker() as worker:
            with worker.dataflow(int) as scope:
                table = dd.read_table(scope, source) if source is path else dd.table(scope, source)
                output = table.select("n", "note || 'x' as note").output()
            worker.run()
            assert repr(table) == "Table(n BIGINT, note VARCHAR)" and output.at(0) == {(1, None): 1}


def test_each_row_is_read_once_on_several_workers(tmp_path: Path) -> None:
    for part in range(5):
        (tmp_path / f"{part}.csv").write_text(f"n\n{part}\n{part + 10}\n")

    def program(worker: timely.Worker) -> Any:
        with worker.dataflow(int) as scope:
            output = dd.read_table(scope, tmp_path).output()
        worker.run()
        return output.at(0)

    rows: Counter[Any] = Counter()
    for part in timely.execute(program, workers=3):
        rows.update(part)
    assert rows == Counter([(part + more,) for part in range(5) for more in (0, 10)])


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("rows.xlsx", {}, "should end in one of .parquet"),
        ("rows.jsonl", {"delimiter": ";"}, "null_values= and decimal= are for CSV, and these are json"),
        ("rows.jsonl", {"quote": None}, "are for CSV"),
        ("rows.arrow", {"encoding": "latin-1"}, "encoding= is for files of text, and these files are ipc"),
        ("rows.jsonl", {"null_values": ["NA"]}, "are for CSV"),
        ("missing.csv", {}, "there is no file or folder"),
    ],
)
def test_what_cannot_be_read_is_refused_when_it_is_built(tmp_path: Path, name: str, options: dict[str, Any], says: str) -> None:
    if name.startswith("rows"):
        (tmp_path / name).write_text('{"x":1}\n')
    with pytest.raises(ConfigurationError, match=says):
        held(tmp_path / name, **options)


@pytest.mark.parametrize("package", ["sqlglot", "pyarrow"])
def test_without_the_packages_of_tables_the_error_says_what_to_install(package: str) -> None:
    program = f"import sys; sys.modules[{package!r}] = None; from timely import differential as dd; dd.read_table"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        f'timely.errors.ConfigurationError: tables need the package {package}: pip install "timely-dataflow[sql]"'
    )
