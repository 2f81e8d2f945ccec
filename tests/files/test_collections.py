"""Collections of batches, and batches of changes: what goes out comes in again."""

from __future__ import annotations

from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timely
from timely import OperatorError, Worker
from timely import differential as dd
from timely.errors import ContainerError, DifferenceError, SchemaError

pa: Any = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.parquet")

WORDS = pa.schema([("word", pa.string()), ("n", pa.int64())])
PAIRS = pa.schema([("src", pa.int64()), ("dst", pa.int64())])


def test_rows_of_batches_are_records_at_their_times() -> None:
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            collection = dd.from_batches(stream, "word string, n long")
            output = collection.output()
            ones = dd.from_batches(scope.read_arrow(pa.table({"n": [1, None, 1]})), "n long").output()
        assert collection.schema == WORDS
        handle.send_batch(pa.record_batch({"n": pa.array([1, None], pa.int8()), "word": ["a", None]}))
        handle.advance_to(2)
        handle.send_batch([("a", 1)])  # rows are taken too
        handle.close()
        assert output.at(0) == {("a", 1): 1, (None, None): 1}
        assert output.at(2) == {("a", 1): 2, (None, None): 1}
        assert output.to_arrow(counts=True).schema == WORDS.append(pa.field("count", pa.int64(), nullable=False))
        assert ones.at(0) == {(1,): 2, (None,): 1}


@pytest.mark.parametrize(
    ("batch", "count", "message"),
    [
        ({"word": ["a"]}, None, "input 'from_batches': the batch has no column 'n'"),
        ({"word": ["a"], "n": [1.5]}, None, "input 'from_batches': column 'n' is declared int64, and the batch has double"),
        ({"word": ["a"], "n": [1], "m": [1]}, None, "has a column 'm' that was not declared"),
        ({"word": ["a"], "n": [1]}, "count", "the batch has no column 'count'"),
        ({"word": ["a"], "n": [1], "count": [0.5]}, "count", "column 'count' is declared int64"),
        ({"word": ["a"], "n": [1], "count": pa.array([None], pa.int64())}, "count", "column 'count' is declared not null"),
    ],
)
def test_batches_of_other_columns_are_refused(batch: dict[str, Any], count: str | None, message: str) -> None:
    with pytest.raises(OperatorError, match=message) as caught:
        timely.example(lambda scope: dd.from_batches(scope.read_arrow(pa.record_batch(batch)), WORDS, count=count).stream)
    assert isinstance(caught.value.__cause__, SchemaError)


def test_columns_that_no_batch_can_have_are_refused() -> None:
    worker = Worker()
    with worker.dataflow(int) as scope:
        with pytest.raises(SchemaError, match="the column of counts, 'n', is no field"):
            dd.from_batches(scope.empty(), WORDS, count="n")
        numbers = dd.collection(scope, [(1, 2)])
        with pytest.raises(SchemaError, match="the columns of the records are not known"):
            numbers.to_batches()
        with pytest.raises(ContainerError, match="rename the field"):
            numbers.to_batches("n long, count long")
        _, vectors = dd.new_collection(scope, diff=tuple)
        with pytest.raises(DifferenceError, match="counts are a column of numbers"):
            vectors.to_batches("n long, m long")


changes = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 2), st.integers(-2, 2)), max_size=12)


@given(changes=changes, workers=st.integers(1, 2), many=st.booleans())
@settings(max_examples=25, deadline=None)
def test_what_goes_out_comes_in_again(changes: list[tuple[int, int, int, int]], workers: int, many: bool) -> None:
    """As rows and as columns; each changed row once for each time."""

    def program(worker: Worker) -> Any:
        with worker.dataflow(int) as scope:
            session, collection = dd.new_collection(scope, schema=PAIRS)
            batches = collection.to_batches()
            captured: timely.Capture[int, Any] = batches.capture()
            again = dd.from_batches(batches, PAIRS, count="count")
            direct, back = collection.output(worker=0), again.output(worker=0)
        for time in range(4):
            session.advance_to(time)
            if many and worker.index == 0:
                session.insert_columns(pa.table({"src": range(200), "dst": range(200)}, schema=PAIRS))
            for when, src, dst, diff in changes[worker.index :: worker.peers]:
                if when == time:
                    session.update((src, dst), diff)
        session.close()
        worker.run()
        return captured.extract(), [(time, direct.at(time), back.at(time)) for time in range(4)]

    result = timely.execute(program, workers=workers)
    states = result[0][1]
    assert all(one == other for _, one, other in states)
    expected: Counter[Any] = Counter()
    for when, src, dst, diff in changes:
        expected[when, src, dst] += diff
    if many:
        expected.update((time, n, n) for time in range(4) for n in range(200))
    rows = [(time, *row) for captured, _ in result for time, some in captured for row in some]
    assert len({row[:3] for row in rows}) == len(rows)
    assert {row[:3]: row[3] for row in rows} == {change: count for change, count in expected.items() if count}


@pytest.mark.parametrize("kind", ["parquet", "csv", "json", "ipc"])
def test_changes_in_files_are_a_collection_again(tmp_path: Path, kind: str) -> None:
    schema = pa.schema([("day", pa.date32()), ("word", pa.string())])

    def write(worker: Worker) -> None:
        with worker.dataflow(int) as scope:
            session, collection = dd.new_collection(scope, schema=schema)
            getattr(collection.to_batches(), f"write_{kind}")(tmp_path)
        if worker.index == 0:
            for row in ((date(2024, 1, 1), "a"), (date(2024, 1, 2), "b"), (None, "c")):
                session.insert(row)
            session.advance_to(1)
            session.remove((date(2024, 1, 1), "a"))
        session.close()
        worker.run()

    timely.execute(write, workers=2)
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            declared = schema.append(pa.field("count", pa.int64(), nullable=False))
            stream = getattr(scope, f"read_{kind}")(tmp_path, schema=declared)
            output = dd.from_batches(stream, schema, count="count").output()
        assert output.at(0) == {(date(2024, 1, 2), "b"): 1, (None, "c"): 1}


def test_a_count_of_packages_is_what_arrow_says() -> None:
    """The whole way with real data: a file in, SQL, DataFrames out."""
    pytest.importorskip("sqlglot")

    path = Path(timely.__file__).parent / "cli" / "data" / "debian12.parquet"
    packages: Any = pa.parquet.read_table(path, columns=["section", "installed_kib"])
    schema = pa.schema([("section", pa.string()), ("installed_kib", pa.int64())])

    def program(worker: Worker) -> Any:
        with worker.dataflow(int) as scope:
            table = dd.table(scope.read_parquet(path, schema=schema), schema)
            totals = table.group_by("section").agg("count(*) as n", "sum(installed_kib) as kib")
            output, changes = totals.output(worker=0), totals.to_batches().capture()
        worker.run()
        return output.to_arrow(counts=True).to_pylist() if worker.index == 0 else [], changes.to_arrow().to_pylist()

    [(rows, some), (_, others)] = timely.execute(program, workers=2)
    assert sorted(map(repr, some + others)) == sorted(map(repr, rows))
    expected = packages.group_by("section").aggregate([([], "count_all"), ("installed_kib", "sum")]).to_pylist()
    assert len(expected) > 20
    assert Counter((row["section"], row["n"], row["kib"]) for row in rows) == Counter(
        (row["section"], row["count_all"], row["installed_kib_sum"]) for row in expected
    )
