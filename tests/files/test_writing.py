"""What is written is there once, whole and of one time, whatever an earlier run has left."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timely
from tests.support.memory_registry import MemoryStateRegistry
from timely import OperatorError, Product, Worker
from timely.errors import ConfigurationError, GraphError, SchemaError, StateError, TimestampError

pa: Any = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.parquet")

ROOT = Path(__file__).resolve().parents[2]
Build = Callable[[Any], Any]


def days(scope: Any, count: int = 30) -> Any:
    """Pairs ``(day, n)`` at their day, a share on each worker."""
    numbers = range(scope.allocator.index, count, scope.allocator.peers)
    return scope.to_stream([(n // 10, n) for n in numbers]).delay(lambda row, time: row[0])


def ran(build: Build, workers: int = 1, processes: int = 1) -> list[Any]:
    """Run ``build`` and return what it captured, over all workers."""

    def program(worker: Worker) -> list[Any]:
        with worker.dataflow(int) as scope:
            captured: timely.Capture[Any, Any] = build(scope).capture()
        worker.run()
        return captured.extract()

    return [item for part in timely.execute(program, workers=workers, processes=processes) for item in part]


def read(folder: Path) -> Counter[tuple[Any, ...]]:
    [(_, rows)] = timely.example(lambda scope: scope.read_parquet(folder))
    return Counter(rows)


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def refused(build: Build, error: type[Exception], workers: int = 1) -> str:
    """Return the message of the error that the run of ``build`` ends in, which has this cause."""
    with pytest.raises((error, OperatorError)) as caught:
        ran(build, workers)
    assert isinstance(caught.value, error) or isinstance(caught.value.__cause__, error)
    return str(caught.value)


ROWS = Counter((n // 10, n) for n in range(30))


@pytest.mark.parametrize(("workers", "processes"), [(1, 1), (3, 1), (2, 2)])
def test_each_worker_writes_a_file_for_each_time(tmp_path: Path, workers: int, processes: int) -> None:
    folder = tmp_path / "deep" / "days"
    result = ran(lambda scope: days(scope).write_parquet(folder, schema="day long, n long"), workers, processes)
    peers = workers * processes
    assert names(folder) == [f"time-000000000{day}-part-0000{part}.parquet" for day in range(3) for part in range(peers)]
    assert read(folder) == ROWS
    assert sum(file.rows for _, files in result for file in files) == 30
    for day, files in result:
        for path, rows in files:
            assert Counter(pa.parquet.read_table(path)["day"].to_pylist()) == {day: rows}


def test_one_worker_writes_all(tmp_path: Path) -> None:
    ran(lambda scope: days(scope).write_parquet(tmp_path, schema="day long, n long", on=1), workers=2)
    assert names(tmp_path) == [f"time-000000000{day}-part-00001.parquet" for day in range(3)]
    assert read(tmp_path) == ROWS
    assert "on=2 is not the number" in refused(
        lambda scope: days(scope).write_csv(tmp_path, schema="d long", on=2), GraphError, 2
    )


def test_a_file_has_its_name_when_its_time_is_complete(tmp_path: Path) -> None:
    """And waits in a draft, so that memory is bounded."""
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            probe = stream.write_parquet(tmp_path, schema="n long").probe()
        for n in range(40):
            handle.send_batch(pa.record_batch({"n": [n] * 10_000}))
            worker.step()
        assert [name for name in names(tmp_path) if not name.startswith(".")] == []
        assert [name for name in names(tmp_path) if name.endswith(".draft")] != []
        handle.advance_to(1)
        worker.step_while(lambda: probe.less_than(1))
        assert [name for name in names(tmp_path) if not name.endswith(".lock")] == ["time-0000000000-part-00000.parquet"]
        assert read(tmp_path) == Counter((n,) for n in range(40) for _ in range(10_000))
        handle.advance_to(7)  # nothing came, and so there is no file
        handle.send((8,))
        handle.close()
        worker.run()
    assert names(tmp_path) == ["time-0000000000-part-00000.parquet", "time-0000000007-part-00000.parquet"]


# -- earlier runs --------------------------------------------------------------------------------------------------------


def failing(folder: Path, at: int, **options: Any) -> Build:
    """Return a build that writes the days, and fails at one of them."""

    def check(row: Any) -> Any:
        if row[0] == at:
            raise ValueError("not this day")
        return row

    return lambda scope: days(scope, 40).map(check).write_parquet(folder, schema="day long, n long", **options)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_fails_leaves_whole_files_only(tmp_path: Path, workers: int) -> None:
    folder = tmp_path / "days"
    refused(failing(folder, 2), ValueError, workers)
    assert [name for name in names(folder) if name.startswith(".")] == []
    files = [name for name in names(folder) if not name.startswith(".")]
    assert all(name < "time-0000000002" for name in files)
    for name in files:
        pa.parquet.read_table(folder / name)


KILLED = """
import os, sys
import pyarrow as pa
import timely

def program(worker):
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        probe = stream.write_parquet(sys.argv[1], schema="day long, n long").probe()
    for day in range(5):
        for n in range(20):
            handle.send_batch(pa.record_batch({"day": [day] * 10_000, "n": [n] * 10_000}))
        if day == 3:
            for _ in range(50):
                worker.step()
            os._exit(7)
        handle.advance_to(day + 1)
        worker.step_while(lambda: probe.less_than(day + 1))

timely.execute(program)
"""


def test_a_process_that_is_killed_leaves_whole_files_and_a_draft(tmp_path: Path) -> None:
    folder = tmp_path / "days"
    done = subprocess.run([sys.executable, "-c", KILLED, str(folder)], cwd=ROOT, check=False)
    assert done.returncode == 7
    assert ".time-0000000003-part-00000.parquet.draft" in names(folder)
    expected = Counter((day, n) for day in range(3) for n in range(20) for _ in range(10_000))
    assert Counter(zip(*pa.parquet.read_table(folder).to_pydict().values(), strict=True)) == expected
    ran(lambda scope: days(scope).write_parquet(folder, schema="day long, n long", overwrite=True), 2)
    assert read(folder) == ROWS
    assert len(names(folder)) == 6


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_again_replaces_what_an_earlier_one_has_left(tmp_path: Path, workers: int) -> None:
    folder = tmp_path / "days"
    ran(lambda scope: days(scope, 90).write_parquet(folder, schema="day long, n long"), 3)  # more times, and more workers
    (folder / ".time-0000000001-part-00007.parquet.draft").write_text("half")
    message = refused(lambda scope: days(scope).write_parquet(folder, schema="day long, n long"), ConfigurationError, workers)
    assert "has the files of an earlier run: overwrite=True" in message
    assert len(names(folder)) >= 9 * 3
    ran(lambda scope: days(scope).write_parquet(folder, schema="day long, n long", overwrite=True), workers)
    assert read(folder) == ROWS
    assert len(names(folder)) == 3 * workers


def test_drafts_alone_are_no_files(tmp_path: Path) -> None:
    (tmp_path / ".time-0000000001-part-00000.parquet.draft").write_text("half")
    (tmp_path / ".DS_Store").touch()
    ran(lambda scope: days(scope).write_parquet(tmp_path, schema="day long, n long"))
    assert read(tmp_path) == ROWS
    assert not list(tmp_path.glob("*.draft")) and (tmp_path / ".DS_Store").exists()


def test_files_of_others_are_never_removed(tmp_path: Path) -> None:
    (tmp_path / "thesis.parquet").write_text("years")
    message = refused(
        lambda scope: days(scope).write_parquet(tmp_path, schema="d long, n long", overwrite=True), ConfigurationError
    )
    assert "'thesis.parquet' in the folder is of another program" in message
    assert names(tmp_path) == ["thesis.parquet"]
    (tmp_path / "file").touch()
    refused(lambda scope: days(scope).write_csv(tmp_path / "file", schema="d long, n long"), ConfigurationError)


@pytest.mark.parametrize("path", ["", "*.parquet", "time-0000000000-part-00000.parquet", ".."])
def test_what_the_dataflow_reads_is_not_removed(tmp_path: Path, path: str) -> None:
    folder = tmp_path / "days"
    ran(lambda scope: days(scope).write_parquet(folder, schema="day long, n long"))
    with pytest.raises(ConfigurationError, match="overwrite=True would remove what the same dataflow reads"):
        ran(lambda scope: scope.read_parquet(folder / path).write_parquet(folder, overwrite=True))
    assert read(folder) == ROWS


def test_another_folder_than_the_one_that_is_read_is_overwritten(tmp_path: Path) -> None:
    for _ in range(2):
        ran(lambda scope: days(scope).write_parquet(tmp_path / "days", schema="day long, n long", overwrite=True))
        ran(lambda scope: scope.read_parquet(tmp_path / "days").write_parquet(tmp_path / "copy", overwrite=True))
    assert read(tmp_path / "copy") == ROWS


@pytest.mark.parametrize(("path", "message"), [("~/words", "is not expanded: give '/"), (Path("s3://bucket/words"), "is a URI")])
def test_paths_that_are_elsewhere_for_arrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str | Path, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=message):
        timely.example(lambda scope: scope.to_stream([pa.record_batch({"n": [1]})]).write_parquet(path))
    with pytest.raises(ConfigurationError, match=message):
        timely.example(lambda scope: scope.read_csv(path))
    assert list(tmp_path.iterdir()) == []


def test_two_that_write_into_one_folder_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")

    def build(scope: Any) -> Any:
        first, second = (days(scope).write_parquet(tmp_path, schema="day long, n long") for _ in range(2))
        return first.concat(second)

    assert "another operator or program is writing into the folder" in refused(build, ConfigurationError)
    ran(lambda scope: days(scope).write_parquet(tmp_path, schema="day long, n long", overwrite=True))
    assert read(tmp_path) == ROWS


def test_a_run_that_ends_while_another_begins_is_seen(tmp_path: Path) -> None:
    """Whose files were not there when the dataflow was built; and one that is refused leaves the lock to its owner."""
    pytest.importorskip("fcntl")
    first, second, third = Worker(), Worker(), Worker()
    handles: list[timely.InputHandle[int, Any]] = []
    for worker in (first, second, third):
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            stream.write_parquet(tmp_path, schema="n long")
        handle.send((len(handles),))
        handles.append(handle)
    first.step()
    with pytest.raises(OperatorError, match="another operator or program is writing"):
        second.step()
    second.close()
    assert names(tmp_path) == [".part-00000.lock"]
    handles[0].close()
    first.run()
    with pytest.raises(OperatorError, match="has the files of an earlier run"):
        third.step()
    third.close()
    assert read(tmp_path) == Counter({(0,): 1})
    first.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_resumed_run_keeps_what_is_complete_and_writes_the_rest(tmp_path: Path, workers: int) -> None:
    """The first run dies after its checkpoint at day 2, when it has written day 2 and begun day 3."""
    folder = tmp_path / "days"

    def program(worker: Worker, die: bool) -> None:
        with timely.Recovery(worker, tmp_path / "state") as recovery:
            with worker.dataflow(int, name="days") as scope:
                handle, stream = scope.new_input()
                probe = stream.write_parquet(folder, schema="day long, n long").probe()
            begin = recovery.time or 0
            handle.advance_to(begin)
            for day in range(begin, 5):
                for n in range(10):
                    if n % worker.peers == worker.index:
                        handle.send((day, n))
                handle.advance_to(day + 1)
                worker.step_while(lambda: probe.less_than(handle.time))
                if day == 1 and die:
                    recovery.checkpoint(2)
                if day == 3 and die:
                    (folder / f".time-0000000004-part-0000{worker.index}.parquet.draft").write_text("half")
                    return
            handle.close()
            worker.run()

    timely.execute(lambda worker: program(worker, True), workers=2)
    held = {file.name: file.stat().st_mtime_ns for file in folder.glob("time-000000000[01]*")}
    assert len(held) == 4
    timely.execute(lambda worker: program(worker, False), workers=workers)
    assert read(folder) == Counter((day, n) for day in range(5) for n in range(10))
    assert {file.name: file.stat().st_mtime_ns for file in folder.glob("time-000000000[01]*")} == held
    assert not list(folder.glob(".*"))


def test_rows_that_wait_at_a_checkpoint_are_not_lost(tmp_path: Path) -> None:
    def program(worker: Worker, start: Sequence[Any], rows: range) -> Any:
        registry = MemoryStateRegistry(worker, start)
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            stream.write_parquet(tmp_path, schema="n long", overwrite=True)
        handle.send_batch(pa.record_batch({"n": rows}))
        worker.step()
        snapshot = registry.snapshot()
        handle.close()
        if start:
            worker.run()
        return snapshot

    first = timely.Worker()
    snapshot = program(first, (), range(140_000))
    first.close()
    timely.execute(lambda worker: program(worker, [snapshot], range(10)), workers=2)
    assert read(tmp_path) == Counter((n,) for n in range(140_000)) + Counter((n,) for n in range(10)) + Counter(
        (n,) for n in range(10)
    )


# -- formats, rows and times ---------------------------------------------------------------------------------------------

VALUES: dict[Any, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.float64(): st.floats(allow_nan=False, allow_infinity=False),
    pa.string(): st.text(st.characters(codec="utf-8", exclude_characters="\x00"))
    | st.sampled_from(["", "NA", "null", "0", "\r\n"]),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1)),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[Any, list[tuple[Any, ...]]]:
    """A schema of two columns or more, and rows of it."""
    types = draw(st.lists(st.sampled_from(list(VALUES)), min_size=2, max_size=4))
    rows = draw(st.lists(st.tuples(*(st.none() | VALUES[kind] for kind in types)), min_size=1, max_size=8))
    return pa.schema([(f"column {n}", kind) for n, kind in enumerate(types)]), rows


@pytest.mark.parametrize("kind", ["parquet", "csv", "json", "ipc"])
@given(table=tables())
@settings(max_examples=25, deadline=None)
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, kind: str, table: tuple[Any, Any]) -> None:
    schema, rows = table
    folder = tmp_path_factory.mktemp("table")
    timely.example(lambda scope: getattr(scope.to_stream(rows), f"write_{kind}")(folder, schema=schema))
    [(_, result)] = timely.example(lambda scope: getattr(scope, f"read_{kind}")(folder, schema=schema))
    assert Counter(result) == Counter(rows)


def test_batches_are_written_as_they_are(tmp_path: Path) -> None:
    batch = pa.record_batch({"n": pa.array([1], pa.int16()), "word": pa.array(["a"]).dictionary_encode()})
    timely.example(lambda scope: scope.read_arrow(batch).write_parquet(tmp_path))
    assert pa.parquet.read_table(tmp_path).schema.field("n").type == pa.int16()
    batches = [pa.record_batch({"n": [1]}), pa.record_batch({"n": [0.5]})]

    def two(scope: Any) -> Any:
        handle, stream = scope.new_input()
        for one in batches:
            handle.send_batch(one)
        return stream.write_parquet(tmp_path / "two")

    assert "had the columns n int64 first, and then n double" in refused(two, SchemaError)


@pytest.mark.parametrize(
    ("kind", "rows", "schema", "message"),
    [
        ("parquet", [(1, 2)], None, "declare its columns, as in schema="),
        ("parquet", [(1, "a")], "n long, m long", "column 'm' is declared int64, and the batch has string"),
        ("parquet", [(1,)], "n long, m long", "has not: map it to such a tuple"),
        ("parquet", [{"n": 1, "k": 2}], "n long, m long", "has not: map it to such a tuple"),
        ("parquet", [(1, 2)], "n whole", "'n whole' is no name and type"),
        ("parquet", [(None,)], pa.schema([pa.field("n", pa.int64(), nullable=False)]), "declared not null"),
        ("csv", [(1, [2])], pa.schema([("n", pa.int64()), ("m", pa.list_(pa.int64()))]), "cannot be written as csv"),
        ("csv", ["a", None], "word string", "would be an empty line, which readers skip"),
        ("json", [(b"x",)], "n binary", "JSON has no form for b'x'"),
        ("json", [(math.nan,)], "n double", "cannot be written as JSON"),
        ("json", [(Decimal("1.5"),)], pa.schema([("n", pa.decimal128(5, 1))]), "JSON has no form for Decimal"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path: Path, kind: str, rows: list[Any], schema: Any, message: str) -> None:
    def build(scope: Any) -> Any:
        return getattr(scope.to_stream(rows), f"write_{kind}")(tmp_path / "out", schema=schema)

    with pytest.raises((SchemaError, ConfigurationError, OperatorError), match=message):
        ran(build)
    assert not (tmp_path / "out").exists() or names(tmp_path / "out") == []


def test_results_of_operators_are_rows(tmp_path: Path) -> None:
    """``join``, ``aggregate`` and ``sessions`` return tuples in tuples."""
    from timely.operators.keyed.windows import sessions

    def build(scope: Any) -> Any:
        left, right = scope.to_stream([(1, "one"), (2, "two")]), scope.to_stream([(2, "II"), (2, "ii")])
        joined = left.join(right).write_parquet(tmp_path / "joined", schema="n long, left string, right string")
        totals = left.aggregate(lambda key, value, n: (n or 0) + 1, lambda key, n: (key, n))
        events = scope.to_stream([1, 12, 4, 30]).apply(sessions, 10, at=lambda event: event)[0]
        schema = pa.schema([("key", pa.null()), ("start", pa.int64()), ("end", pa.int64()), ("events", pa.list_(pa.int64()))])
        return joined.concat(
            totals.write_parquet(tmp_path / "totals", schema="n long, count long"),
            events.write_parquet(tmp_path / "sessions", schema=schema),
        )

    ran(build)
    assert read(tmp_path / "joined") == Counter([(2, "two", "II"), (2, "two", "ii")])
    assert read(tmp_path / "totals") == Counter([(1, 1), (2, 1)])
    table = pa.parquet.read_table(tmp_path / "sessions").to_pylist()
    assert [(row["start"], row["end"], row["events"]) for row in table] == [(1, 22, [1, 4, 12]), (30, 40, [30])]


@pytest.mark.parametrize(
    ("time", "values", "expected"),
    [
        (Product[int, int], [Product(1, 20), Product(0, 3)], ["0000000000-0000000003", "0000000001-0000000020"]),
        (str, ["a/b", "é"], ["%C3%A9", "a%2Fb"]),
        (date, [date(2024, 1, 2), date(2023, 12, 31)], ["2023-12-31", "2024-01-02"]),
    ],
)
def test_times_that_are_no_whole_numbers(tmp_path: Path, time: Any, values: list[Any], expected: list[str]) -> None:
    with Worker() as worker:
        with worker.dataflow(time) as scope:
            stream = scope.to_stream([0, 1]).delay(lambda n, _: values[n])
            stream.write_csv(tmp_path, schema="n long")
        worker.run()
    assert names(tmp_path) == [f"time-{text}-part-00000.csv" for text in expected]


def test_times_of_one_text_are_refused(tmp_path: Path) -> None:
    times = [("a-b", "c"), ("a", "b-c")]
    with Worker() as worker:
        with worker.dataflow(tuple[str, str]) as scope:
            scope.to_stream([0, 1]).delay(lambda n, _: times[n]).write_csv(tmp_path, schema="n long")
        with pytest.raises(OperatorError, match="two times, .* have the same text") as caught:
            worker.run()
    assert isinstance(caught.value.__cause__, TimestampError)


def test_timestamps_in_json_are_iso_8601(tmp_path: Path) -> None:
    rows = [(datetime(2024, 1, 2, 3, 4, 5),)]
    timely.example(lambda scope: scope.to_stream(rows).write_json(tmp_path, schema="at timestamp_ntz"))
    assert (tmp_path / "time-0000000000-part-00000.jsonl").read_text() == '{"at": "2024-01-02T03:04:05"}\n'


def test_a_picture_of_what_writes_changes_nothing(tmp_path: Path) -> None:
    ran(lambda scope: days(scope).write_parquet(tmp_path, schema="day long, n long"))
    worker = Worker()
    with worker.dataflow(int) as scope:
        days(scope).write_parquet(tmp_path, schema="day long, n long", overwrite=True)
        assert "write_parquet" in scope.picture().mermaid()
    assert read(tmp_path) == ROWS


def test_state_of_other_times_cannot_be_resumed(tmp_path: Path) -> None:
    """Whose files do not say whether they are of before."""
    (tmp_path / "time-a-part-00000.csv").touch()

    def program(worker: Worker) -> None:
        with timely.Recovery(worker, tmp_path / "state") as recovery:
            with worker.dataflow(int, name="days") as scope:
                handle, stream = scope.new_input()
                stream.write_csv(tmp_path / "days", schema="n long")
            handle.advance_to(recovery.time or 0)
            handle.advance_to(3)
            if recovery.time is None:
                recovery.checkpoint(3)
                (tmp_path / "days" / "time-a-part-00000.csv").touch()
            handle.close()
            worker.run()

    timely.execute(program)
    with pytest.raises(OperatorError, match="files of times that are no whole numbers do not say") as caught:
        timely.execute(program)
    assert isinstance(caught.value.__cause__, StateError) or isinstance(caught.value, StateError)
