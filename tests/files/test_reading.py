"""Each row of files is read once, on any number of workers, with its types and at its time; or an error names the file."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

import timely
from tests.support.memory_registry import MemoryStateRegistry
from timely import OperatorError, Product, Worker
from timely.errors import ConfigurationError, GraphError, SchemaError, TimelyError, TimestampError

pa: Any = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.parquet")

Build = Callable[[Any], Any]


def written(table: Any, path: Path, rows: int = 3) -> None:
    """Write a table in the format of the extension of ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path, row_group_size=rows)
    elif path.suffix == ".arrow":
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table, max_chunksize=rows)
    elif path.suffix == ".csv":
        pa.csv.write_csv(table, path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


def found(build: Build, workers: int = 1, processes: int = 1) -> Counter[tuple[Any, tuple[Any, ...]]]:
    """Run ``build`` and count its rows with their times, over all workers."""

    def program(worker: Worker) -> list[tuple[Any, list[Any]]]:
        with worker.dataflow(int) as scope:
            captured: timely.Capture[Any, Any] = build(scope).capture()
        worker.run()
        return captured.extract()

    counts: Counter[tuple[Any, tuple[Any, ...]]] = Counter()
    for part in timely.execute(program, workers=workers, processes=processes):
        counts.update((time, row) for time, rows in part for row in rows)
    return counts


def refused(build: Build) -> str:
    """Return the message of the library's error that reading ends in, at the build or in the run."""
    with pytest.raises((ConfigurationError, SchemaError, OperatorError)) as caught, Worker() as worker:
        with worker.dataflow(int) as scope:
            build(scope)
        worker.run()
    if isinstance(caught.value, OperatorError):
        assert isinstance(caught.value.__cause__, SchemaError | ConfigurationError | TimestampError)
    return str(caught.value)


READ = {".parquet": "read_parquet", ".csv": "read_csv", ".jsonl": "read_json", ".arrow": "read_ipc"}


@pytest.mark.parametrize("extension", READ)
@pytest.mark.parametrize(("workers", "processes"), [(1, 1), (3, 1), (2, 2)])
def test_each_row_is_read_once(tmp_path: Path, extension: str, workers: int, processes: int) -> None:
    """Of files of different sizes, empty ones included."""
    chance = random.Random(7)
    expected: Counter[Any] = Counter()
    for number in range(5):
        days = [chance.randrange(4) for _ in range(chance.choice([0, 1, 5, 20]) if number else 9)]
        table = pa.table({"day": pa.array(days, pa.int64()), "name": pa.array([f"{number} {n}" for n in range(len(days))])})
        if extension == ".jsonl" or number == 0 or table.num_rows or extension != ".csv":
            written(table, tmp_path / f"part-{number}{extension}")
        expected.update((row["day"], (row["day"], row["name"])) for row in table.to_pylist())
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".hidden").touch()

    def build(scope: Any) -> Any:
        return getattr(scope, READ[extension])(tmp_path, time="day")

    assert found(build, workers, processes) == expected


def test_few_files_are_shared_by_row_groups_and_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "days.parquet"
    written(pa.table({"day": [n // 5 for n in range(60)], "n": range(60)}), path, rows=10)

    def program(worker: Worker) -> list[int]:
        with worker.dataflow(int) as scope:
            captured = scope.read_parquet(path, time="day", in_order=True).capture()
        worker.run()
        return [row[1] for _, rows in captured.extract() for row in rows]

    parts = timely.execute(program, workers=2)
    assert [len(part) for part in parts] == [30, 30]
    assert sorted(parts[0] + parts[1]) == list(range(60))


def test_a_folder_a_glob_and_a_list_are_the_same(tmp_path: Path) -> None:
    paths = [tmp_path / f"{n}.csv" for n in range(3)]
    for number, path in enumerate(paths):
        written(pa.table({"n": [number]}), path)
    expected = Counter({(0, (n,)): 1 for n in range(3)})
    for values in (tmp_path, str(tmp_path / "*.csv"), str(tmp_path / "**"), paths, [str(paths[0]), tmp_path / "[12].csv"]):
        assert found(lambda scope: scope.read_csv(values)) == expected  # noqa: B023


def test_compressed_files_and_other_delimiters(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.csv.gz", "wt") as file:
        file.write("n\tname\n1\tx\n")
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as file:
        file.write('{"n": 1, "name": "x"}\n')
    (tmp_path / "a.tsv").write_text("n\tname\n1\tx\n")
    expected = Counter({(0, (1, "x")): 1})
    assert found(lambda scope: scope.read_csv(tmp_path / "a.csv.gz", delimiter="\t")) == expected
    assert found(lambda scope: scope.read_csv(tmp_path / "a.tsv")) == expected
    assert found(lambda scope: scope.read_json(tmp_path / "a.jsonl.gz")) == expected


def test_names_of_folders_are_columns(tmp_path: Path) -> None:
    for year, kind in ((2023, "a%2Fb"), (2024, "__HIVE_DEFAULT_PARTITION__")):
        written(pa.table({"n": [year]}), tmp_path / "run=5" / f"year={year}" / f"kind={kind}" / "x.parquet")
    expected = Counter({(0, (2023, 2023, "a/b")): 1, (0, (2024, 2024, None)): 1})
    assert found(lambda scope: scope.read_parquet(tmp_path / "run=5")) == expected
    assert found(lambda scope: scope.read_parquet(tmp_path / "run=5" / "*" / "*" / "*.parquet"), 2) == expected
    years = Counter({(2023, ("a/b", 2023)): 1, (2024, (None, 2024)): 1})
    assert found(lambda scope: scope.read_parquet(tmp_path / "run=5", columns=["kind", "year"], time="year")) == years
    rows = {"json": '{"n": 1}\n{"n": 2}\n', "csv": "n\n1\n2\n"}
    for kind, text in rows.items():
        (tmp_path / kind / "year=5").mkdir(parents=True)
        (tmp_path / kind / "year=5" / f"a.{kind}").write_text(text)
    assert found(lambda scope: scope.read_csv(tmp_path / "csv", columns=["year"])) == Counter({(0, (5,)): 2})
    assert "are names of folders alone" in refused(lambda scope: scope.read_json(tmp_path / "json", columns=["year"]))
    assert "name different columns" in refused(
        lambda scope: scope.read_parquet([tmp_path / "run=5", tmp_path / "run=5" / "year=2023"])
    )


# -- columns and types ---------------------------------------------------------------------------------------------------


def test_columns_are_chosen_and_declared(tmp_path: Path) -> None:
    (tmp_path / "codes.csv").write_text("code,n,more\n007,1,x\n,2,y\n" + '"",3,z\n')
    inferred = found(lambda scope: scope.read_csv(tmp_path / "codes.csv", columns=["n", "more"]))
    assert inferred == Counter({(0, (1, "x")): 1, (0, (2, "y")): 1, (0, (3, "z")): 1})
    declared = found(lambda scope: scope.read_csv(tmp_path / "codes.csv", schema="code string, n double"))
    assert declared == Counter({(0, ("007", 1.0)): 1, (0, (None, 2.0)): 1, (0, ("", 3.0)): 1})
    written(pa.table({"n": pa.array([1, 2], pa.int32()), "name": ["a", "b"]}), tmp_path / "narrow.parquet")
    wide = found(lambda scope: scope.read_parquet(tmp_path / "narrow.parquet", schema=pa.schema([("n", pa.int64())])))
    assert wide == Counter({(0, (1,)): 1, (0, (2,)): 1})


def test_missing_values_are_what_the_program_says(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,country\n1,NA\n-,DE\n")
    missing, types = ["-"], MappingProxyType({"country": "string"})  # a view, which cannot be sent
    build: Build = lambda scope: (scope.read_csv(tmp_path, null_values=missing, schema=types), missing.pop())[0]  # noqa: E731
    assert found(build, processes=2) == Counter({(0, (1, "NA")): 1, (0, (None, "DE")): 1})


def test_fields_that_a_json_object_has_not_are_null_and_late_ones_are_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    padding = "x" * 100
    rows = [{"n": n, "pad": padding} for n in range(20_000)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + json.dumps({"n": -1, "pad": "", "late": 5}))
    assert "unexpected field" in (message := refused(lambda scope: scope.read_json(path)))
    assert "schema={'name': 'type'} declares it" in message and "a.jsonl" in message
    counts = found(lambda scope: scope.read_json(path, schema={"late": "long"}).filter(lambda row: row[2] is not None))
    assert counts == Counter({(0, (-1, "", 5)): 1})
    counts = found(lambda scope: scope.read_json(path, schema="n long, late long").filter(lambda row: row[1] is not None))
    assert counts == Counter({(0, (-1, 5)): 1})
    assert found(lambda scope: scope.read_json(path, columns=["n"]).count().map(lambda n: (n,))) == Counter({(0, (20_001,)): 1})


IN_ORDER = {"time": "n", "in_order": True}
PARQUET = r"b\.parquet' should end in one of .*: read it with read_parquet"

MANY = "1234\n" * 300_000
"""More than Arrow infers types from."""

REFUSED: dict[str, tuple[dict[str, str], dict[str, Any], str]] = {
    "a value that does not parse": ({"a.csv": "n\n1\n", "b.csv": "n\n2\nzz\n"}, {}, r"b\.csv.*is int64, .* has 'zz': schema="),
    "a value that is declared otherwise": ({"a.csv": "n\n1.5\n"}, {"schema": "n long"}, r"a\.csv.*has '1.5'"),
    "a value that is missing": ({"a.csv": f"n\n{MANY}N/A\n"}, {}, r"and line 300002 has 'N/A': null_values=\['', 'N/A'"),
    "a larger number": ({"a.csv": f"n\n{MANY}1.5\n"}, {}, r"has '1.5': schema=\{'n': 'double'\} reads it as a number"),
    "another delimiter": ({"a.csv": "n;m\n1;2,5\n"}, {}, r"2 values, and the header 1: 1;2,5; .* delimiter=';'"),
    "a header with another delimiter": ({"a.csv": "n;m\n1;2\n"}, {}, r"a\.csv' has one column, 'n;m'; .* delimiter=';'"),
    "a number beyond 64 bits": ({"a.csv": "n\n1\n", "b.csv": f"n\n{2**63}\n"}, {}, r"75808': schema=\{'n': 'string'\}"),
    "a code after the first megabyte": ({"a.csv": f"n\n{MANY}007\n"}, {}, r"'n' of .*a\.csv' has '007'.*\{'n': 'string'\}"),
    "a code in another file": ({"a.csv": "n,m\n1,2\n", "b.csv": "n,m\n1,-01\n"}, {}, r"'m' of .*b\.csv' has '-01'"),
    "a code before a slash": ({"a.csv": f"n/m\n{MANY.replace('1', '1/2')}01/2\n"}, {"delimiter": "/"}, r"'n' of .*'01'"),
    "a type of no column": ({"a.csv": "n\n1\n"}, {"schema": {"m": "long"}}, r"a\.csv' has no column 'm'; it has 'n'"),
    "no type": ({"a.csv": "n\n1\n"}, {"schema": {"n": "whole"}}, r"'whole' is no type of a column, for 'n'"),
    "a short line": ({"a.csv": "n,m\n1,2\n3\n"}, {}, r"a\.csv.*line 3 has 1 value, and the header 2"),
    "an empty file": ({"a.csv": ""}, {}, r"a\.csv.*its first line, with the names"),
    "a missing column in another file": ({"a.csv": "n,m\n1,2\n", "b.csv": "n,k\n1,2\n"}, {}, r"b\.csv' has no column 'm'"),
    "one more column in another file": ({"a.csv": "n\n1\n", "b.csv": "n,m\n1,2\n"}, {}, r"b\.csv' has a column 'm' that"),
    "a column twice": ({"a.csv": "n,n\n1,2\n"}, {}, r"a\.csv' cannot be read as csv: two columns are called 'n'"),
    "a column that is not there": ({"a.csv": "n\n1\n"}, {"columns": ["m"]}, r"no column 'm'; there are 'n'"),
    "a declared column that is not there": ({"a.csv": "n\n1\n"}, {"schema": "m long"}, r"a\.csv' has no column 'm'"),
    "a column named twice": ({"a.csv": "n\n1\n"}, {"columns": ["n", "n"]}, r"names a column twice"),
    "columns in a text": ({"a.csv": "n\n1\n"}, {"columns": "n"}, r"columns= is a list of names"),
    "types that are none": ({"a.csv": "n\n1\n"}, {"schema": "n whole"}, r"'n whole' is no name and type of a column"),
    "a time that is no column": ({"a.csv": "n\n1\n"}, {"time": "m"}, r"time= names no column that is read: 'm'"),
    "a time that is no time": ({"a.csv": "n\n1\n"}, {"time": 5}, r"time= is the name of a column, or a function"),
    "order of nothing": ({"a.csv": "n\n1\n"}, {"in_order": True}, r"in_order=True needs time="),
    "a row without a time": ({"a.csv": "n,m\n1,0\n,1\n"}, {"time": "n"}, r"row 2 of '.*a\.csv' has no time"),
    "a time of another type": ({"a.csv": "n\n1\n0.5\n"}, {"time": "n"}, r"row 1 of '.*a\.csv': .*1.0"),
    "a negative time": ({"a.csv": "n\n1\n2\n-1\n"}, {"time": "n"}, r"row 3 of '.*a\.csv': .*-1 is before the minimum"),
    "a late row": ({"a.csv": "n\n1\n", "b.csv": "n\n5\n4\n"}, IN_ORDER, r"row 2 of '.*b\.csv' is at 4, after one at 5"),
    "too many times": ({"a.csv": "n\n1\n"}, {"time": lambda batch: [1, 2]}, r"for 1 rows it returned \[1, 2\]"),
    "one time for all": ({"a.csv": "n\n1\n"}, {"time": lambda batch: 3}, r"returned 3"),
    "another extension": ({"a.csv": "n\n1\n", "b.parquet": ""}, {}, PARQUET),
    "an unknown extension": ({"a.csv": "n\n1\n", "b.dat": ""}, {}, r"b\.dat' should end in .*: name the files with a glob"),
    "an empty folder": ({}, {}, r"has no files"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_refused_with_its_file(tmp_path: Path, case: str) -> None:
    files, options, message = REFUSED[case]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert re.search(message, error := refused(lambda scope: scope.read_csv(tmp_path, **options))), error


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "-", ":"])
@pytest.mark.parametrize("code", ["01067", "-07", '"007"', " 00", "+01", "00", "01.5"])
def test_a_column_with_a_code_is_text(tmp_path: Path, delimiter: str, code: str) -> None:
    path = tmp_path / "a.csv"
    if delimiter in code:
        code = f'"{code}"'
    path.write_text(
        delimiter.join("anz") + "\n" + "".join(delimiter.join(row) + "\n" for row in (["1", "2", "10"], ["2", "0", code]))
    )
    rows = found(lambda scope: scope.read_csv(path, delimiter=delimiter))
    assert rows == Counter({(0, (1, 2, "10")): 1, (0, (2, 0, code.strip('"'))): 1})


def test_whole_numbers_beyond_64_bits_are_text(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("long,n,x\n12345678901234567890,-9223372036854775808,1.5\n12345678901234567891,1,12345678901234567890\n")
    rows = found(lambda scope: scope.read_csv(path))
    assert rows == Counter(
        {(0, ("12345678901234567890", -(2**63), 1.5)): 1, (0, ("12345678901234567891", 1, 12345678901234567890.0)): 1}
    )
    declared = found(lambda scope: scope.read_csv(path, columns=["long"], schema={"long": pa.decimal128(38)}))
    assert declared == Counter({(0, (Decimal(12345678901234567890 + i),)): 1 for i in range(2)})


ZONED, PLAIN = "2024-10-27T02:30:00+02:00", "2024-10-27T02:30:00"
INSTANT = datetime(2024, 10, 27, 0, 30, tzinfo=UTC)


def test_a_timestamp_of_json_keeps_its_zone(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = {"z": ZONED, "plain": PLAIN, "both": ZONED, "in": [{"z": ZONED}]}, {"both": PLAIN}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            read = scope.read_json(path).capture()
        worker.run()
    assert read.to_arrow().to_pylist() == [
        {"z": INSTANT, "plain": datetime(2024, 10, 27, 2, 30), "both": ZONED, "in": [{"z": INSTANT}]},
        {"z": None, "plain": None, "both": PLAIN, "in": None},
    ]


@pytest.mark.parametrize(("zone", "value"), [(None, ZONED), ("UTC", PLAIN), ("Europe/Berlin", PLAIN)])
def test_a_timestamp_of_json_without_the_zone_of_its_column_is_refused(tmp_path: Path, zone: str | None, value: str) -> None:
    path, schema = tmp_path / "a.jsonl", pa.schema([("at", pa.timestamp("us", zone))])
    path.write_text(json.dumps({"at": value}))
    assert "zone offset" in refused(lambda scope: scope.read_json(path, schema=schema))


def test_numbers_dates_and_times_are_no_codes(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        "n,x,day,at,t\n"
        + "0,0.5,2024-01-05,2024-01-05 09:00:00,09:05:00\n-10,-0.25,2024-01-05,2024-01-05 09:00:00,09:05:00\n" * 2
    )
    kinds = timely.example(lambda scope: scope.read_csv(path).map_batch(lambda batch: [str(kind) for kind in batch.schema.types]))
    assert kinds == [(0, sorted(["int64", "double", "date32[day]", "timestamp[s]", "time32[s]"]))]


def test_some_types_are_declared_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("zip,n,note\n10115,1,\n,2,\n")
    assert found(lambda scope: scope.read_csv(tmp_path, schema={"zip": "varchar", "n": pa.float64()})) == Counter(
        {(0, ("10115", 1.0, None)): 1, (0, (None, 2.0, None)): 1}
    )
    (tmp_path / "b.csv").write_text("zip,n,note\n007,1,\n")
    assert found(lambda scope: scope.read_csv(tmp_path, schema={"zip": "long"}, columns=["zip"])) == Counter(
        {(0, (10115,)): 1, (0, (None,)): 1, (0, (7,)): 1}
    )


def test_types_of_files_that_have_them_stay_or_are_refused(tmp_path: Path) -> None:
    written(pa.table({"n": [1]}), tmp_path / "a.parquet")
    written(pa.table({"n": [1.5]}), tmp_path / "b.parquet")
    message = refused(lambda scope: scope.read_parquet(tmp_path))
    assert "column 'n' is double in" in message and "b.parquet" in message and "schema=" in message
    both = found(lambda scope: scope.read_parquet(tmp_path, schema="n double"))
    assert both == Counter({(0, (1.0,)): 1, (0, (1.5,)): 1})
    message = refused(lambda scope: scope.read_parquet(tmp_path, schema="n long"))
    assert "b.parquet': column 'n' is declared int64, and the batch has double" in message
    message = refused(lambda scope: scope.read_parquet(tmp_path, schema="n string"))
    assert "column 'n' is declared string, and the batch has int64: declare the type that it has" in message
    (tmp_path / "c.parquet").write_bytes(b"PAR1 not at all")
    assert "c.parquet' cannot be read as parquet" in refused(lambda scope: scope.read_parquet(tmp_path / "c.parquet"))


@pytest.mark.parametrize("path", ["nowhere.csv", "nowhere/*.csv", [], os.fsdecode(b"\xff.csv")])
def test_a_path_that_leads_nowhere_is_refused(path: Any) -> None:
    refused(lambda scope: scope.read_csv(path))


def test_a_file_that_changes_during_the_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("n\n1\n")
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            scope.read_csv(path).probe()
        path.write_text("n\n1\n2\n")
        with pytest.raises(OperatorError, match="has changed since the run began"):
            worker.run()


# -- times ---------------------------------------------------------------------------------------------------------------


def test_times_of_other_types_and_from_functions(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    written(pa.table({"day": [date(2024, 1, 2), date(2024, 1, 1)], "n": [0, 1]}), path)
    with Worker() as worker:
        with worker.dataflow(Product[int, int]) as scope:
            pairs = scope.read_parquet(path, time=lambda batch: [Product(n, 1) for n in batch["n"].to_pylist()]).capture()
        with worker.dataflow(int) as other:
            days = other.read_parquet(path, time=lambda batch: pa.compute.day(batch["day"]), columns=["n", "day"]).capture()
            array = other.read_parquet(path, time=lambda batch: batch["n"].to_numpy(), columns=["n"]).capture()
        worker.run()
    assert [time for time, _ in pairs.extract()] == [Product(0, 1), Product(1, 1)]
    assert [(time, [row[0] for row in rows]) for time, rows in days.extract()] == [(1, [1]), (2, [0])]
    assert array.extract() == [(0, [(0,)]), (1, [(1,)])]


def test_rows_in_order_complete_times_while_the_rest_is_read(tmp_path: Path) -> None:
    """And no more than a batch is read at once."""
    written(pa.table({"day": range(50), "n": range(50)}), tmp_path / "a.arrow", rows=1)
    for in_order in (True, False):
        batches: list[int] = []
        complete: list[int] = []
        with Worker() as worker:
            with worker.dataflow(int) as scope:
                stream = scope.read_ipc(tmp_path / "a.arrow", time="day", in_order=in_order)
                probe = stream.inspect_batch(lambda time, batch: batches.append(time)).probe()  # noqa: B023
            while not worker.idle:
                before = len(batches)
                worker.step()
                assert len(batches) - before <= 1
                complete.append(next(time for time in range(51) if time == 50 or probe.less_equal(time)))
        assert batches == list(range(50))
        assert set(complete) == (set(range(51)) if in_order else {0, 50})


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("source", ["files", "table"])
def test_a_source_waits_for_its_probe(tmp_path: Path, times: int, source: str) -> None:
    """Which an input holds back here; without the probe all is read."""
    table = pa.table({"day": [n // 2 for n in range(40)]})
    written(table, tmp_path / "a.arrow", rows=1)
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=1))
    for bounded in (True, False):
        days: list[int] = []
        with Worker() as worker:
            probe: timely.ProbeHandle[int] = timely.ProbeHandle()
            options: dict[str, Any] = {"probe": probe, "times": times} if bounded else {}
            with worker.dataflow(int) as scope:
                held, waiting = scope.new_input()
                if source == "files" or not bounded:
                    stream = scope.read_ipc(tmp_path / "a.arrow", time="day", in_order=True, **options)
                else:
                    stream = scope.read_arrow(reader, time="day", in_order=True, **options)
                stream.inspect_batch(lambda time, batch: days.append(time)).concat(waiting).probe(probe)  # noqa: B023
            for day in range(20):
                while not worker.idle:
                    worker.step()
                assert max(days) == (min(day + times, 19) if bounded else 19)
                held.advance_to(day + 1)
            held.close()
            worker.run()
        assert days == [n // 2 for n in range(40)]


def test_bounds_that_bind_nothing_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n1\n")
    probe: timely.ProbeHandle[int] = timely.ProbeHandle()
    path = tmp_path / "a.csv"
    assert "probe= needs in_order=True" in refused(lambda scope: scope.read_csv(path, time="n", probe=probe))
    assert "times=0" in refused(lambda scope: scope.read_csv(path, time="n", in_order=True, probe=probe, times=0))
    with pytest.raises(GraphError, match="its probe is attached to nothing"), Worker() as worker, worker.dataflow(int) as scope:
        scope.read_csv(path, time="n", in_order=True, probe=probe)
    with (
        pytest.raises(GraphError, match="probe is to be a timely.ProbeHandle"),
        Worker() as worker,
        worker.dataflow(int) as scope,
    ):
        scope.read_csv(path, time="n", in_order=True, probe=5)  # type: ignore[arg-type]


def test_empty_files_among_others_have_no_rows(tmp_path: Path) -> None:
    (tmp_path / "0.csv").touch()
    (tmp_path / "1.csv").write_text("n\n1\n")
    assert found(lambda scope: scope.read_csv(tmp_path)) == Counter({(0, (1,)): 1})


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("steps", [0, 1, 2, 5, 30])
@pytest.mark.parametrize("source", ["files", "table"])
def test_a_resumed_run_reads_the_rest(tmp_path: Path, source: str, steps: int, workers: int) -> None:
    """Also in the middle of a file, and on another number of workers."""
    table = pa.table({"day": [n // 10 for n in range(40)], "n": range(40)})
    for day in range(4):
        written(table.slice(10 * day, 10), tmp_path / f"{day}.arrow", rows=4)

    def program(worker: Worker, start: Sequence[Any], steps: int) -> tuple[list[Any], Any]:
        registry = MemoryStateRegistry(worker, start)
        with worker.dataflow(int) as scope:
            if source == "files":
                stream = scope.read_ipc(tmp_path, time="day", in_order=True)
            else:
                batches = table.to_batches(max_chunksize=4)
                stream = scope.read_arrow(pa.RecordBatchReader.from_batches(table.schema, batches), time="day", in_order=True)
            captured = stream.capture()
        for _ in range(steps):
            worker.step()
        if start:
            worker.run()
        return [tuple(row.values()) for _, batch in captured.messages for row in batch.to_pylist()], registry.snapshot()

    before = timely.Worker()
    first, snapshot = program(before, (), steps)
    later = timely.execute(lambda worker: program(worker, [snapshot], 0)[0], workers=workers)
    assert (len(first) == 40) == (steps == 30)
    assert sorted([*first, *(row for part in later for row in part)]) == [(n // 10, n) for n in range(40)]


def test_values_with_line_breaks_are_not_cut_where_a_block_ends(tmp_path: Path) -> None:
    rows = 40_000
    (tmp_path / "a.csv").write_text("n,text\n" + "".join(f'{n},"first line of {n}\n,second\n"\n' for n in range(rows)))
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            captured = scope.read_csv(tmp_path / "a.csv").capture()
        worker.run()
    table = captured.to_arrow()
    assert table["n"].to_pylist() == list(range(rows))
    assert table["text"].to_pylist() == [f"first line of {n}\n,second\n" for n in range(rows)]


JSON = st.recursive(
    st.none() | st.integers(-9, 9) | st.text('[]{}"\\\n é', max_size=6),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text('[]{}"\\', max_size=4), each, max_size=3),
    max_leaves=10,
)


@hypothesis.settings(max_examples=15)
@hypothesis.given(values=st.lists(JSON, min_size=1, max_size=20))
def test_json_is_read_whatever_brackets_its_texts_hold(values: list[Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    """The depth is that of the values; texts add nothing to it, and take nothing from it."""
    path = tmp_path_factory.mktemp("json") / "a.jsonl"
    path.write_text("".join(json.dumps({"id": n, "text": json.dumps(value)}) + "\n" for n, value in enumerate(values)))
    expected = Counter({(0, (n, json.dumps(value))): 1 for n, value in enumerate(values)})
    assert found(lambda scope: scope.read_json(path)) == expected
    around = json.dumps({"text": json.dumps(values), "more": values})
    path.write_text('{"deep": ' * 101 + around + "}" * 101)
    assert "nested more than 100 deep" in refused(lambda scope: scope.read_json(path))


def test_a_line_of_json_without_end_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timely.files.text_files._LONGEST", 1 << 21)
    with gzip.open(tmp_path / "a.jsonl.gz", "wb") as file:
        file.write(b'{"a": "' + bytes(1 << 22))
    assert "a line has more than" in refused(lambda scope: scope.read_json(tmp_path / "a.jsonl.gz"))


EVERY_KIND = {
    "n": [1, 2, 3],
    "s": ["a", "bb", None],
    "l": [[1], [2, 3], None],
    "t": [{"a": 1}, None, {"a": 2}],
    "b": [b"1", b"22", b"3"],
}


def changed_ipc_files(path: Path, files: int) -> Iterator[None]:
    """Write a file of many types, each time with other bytes changed."""
    table = pa.table(EVERY_KIND)
    words = pa.array(["x", "y", "x"]).dictionary_encode()
    views = pa.array(["more than twelve bytes", None, "q"], pa.string_view())
    written(table.append_column("d", words).append_column("v", views), path)
    whole, source = path.read_bytes(), random.Random(1)
    for _ in range(files):
        data = bytearray(whole)
        for _ in range(source.randrange(1, 4)):
            data[source.randrange(len(data))] = source.choice([0, 127, 128, 255, source.randrange(256)])
        path.write_bytes(data)
        yield


def check_changed_ipc_files(path: Path, files: int) -> None:
    for _ in changed_ipc_files(path, files):
        with contextlib.suppress(TimelyError):
            timely.example(lambda scope: scope.read_ipc(path))


def test_an_ipc_file_with_changed_bytes_is_read_or_refused(tmp_path: Path) -> None:
    """Where batches are not validated, one in some hundred of these ends the process."""
    check_changed_ipc_files(tmp_path / "a.arrow", 150)


@pytest.mark.parametrize("dictionary", [False, True])
def test_a_name_within_a_column_of_ipc_that_is_no_text_is_refused(dictionary: bool, tmp_path: Path) -> None:
    column: pa.Array = pa.array([{"inner_name": 1}, {"inner_name": 2}])
    if dictionary:
        column = pa.DictionaryArray.from_arrays(pa.array([1, 0]), column)
    written(pa.table({"column": column}), tmp_path / "a.arrow")
    whole = (tmp_path / "a.arrow").read_bytes()
    (tmp_path / "a.arrow").write_bytes(whole.replace(b"inner_name", b"\x80nner_name"))
    assert "cannot be read as ipc: 'utf-8' codec" in refused(lambda scope: scope.read_ipc(tmp_path / "a.arrow"))


@pytest.mark.soak
def test_very_many_changed_ipc_files_are_read_or_refused(tmp_path: Path) -> None:
    check_changed_ipc_files(tmp_path / "a.arrow", 5_000)


def test_timestamps_of_nanoseconds_are_times_where_no_digit_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "at.parquet"
    for nanoseconds, expected in ((5_000, datetime(1970, 1, 1, 0, 0, 0, 5)), (5_001, None)):
        written(pa.table({"at": pa.array([nanoseconds], pa.timestamp("ns"))}), path)
        worker = timely.Worker()
        with worker.dataflow(datetime) as scope:
            captured = scope.read_parquet(path, time="at").capture()
        if expected is not None:
            worker.run()
            assert [time for time, _ in captured.messages] == [expected]
        else:
            with pytest.raises(timely.OperatorError, match="a time is finer than microseconds"):
                worker.run()
