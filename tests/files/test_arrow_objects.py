"""Tables of other libraries come once in all, on any number of workers; results go back to them."""

from __future__ import annotations

import builtins
import datetime
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import attrs
import numpy as np
import pytest

import timely
from timely import OperatorError, Product, Worker
from timely import differential as dd
from timely.errors import (
    ConfigurationError,
    ContainerError,
    GraphError,
    NotCompleteError,
    SchemaError,
    TimelyError,
    TimestampError,
)

pa: Any = pytest.importorskip("pyarrow")

Build = Callable[[Any], Any]
TABLE = pa.table({"n": range(100_000), "word": ["a", "b"] * 50_000})


def parts(build: Build, workers: int, processes: int = 1) -> list[list[tuple[Any, ...]]]:
    """Return the rows of each worker."""

    def program(worker: Worker) -> list[tuple[Any, ...]]:
        with worker.dataflow(int) as scope:
            captured: timely.Capture[Any, Any] = build(scope).capture()
        worker.run()
        return [row for _, rows in captured.extract() for row in rows]

    return timely.execute(program, workers=workers, processes=processes)


def polars_table() -> Any:
    return pytest.importorskip("polars").from_arrow(TABLE)


def pandas_table() -> Any:
    pytest.importorskip("pandas", minversion="2.2")
    return TABLE.to_pandas()


def duckdb_table() -> Any:
    relation = pytest.importorskip("duckdb").from_arrow(TABLE)
    if not hasattr(relation, "__arrow_c_stream__"):
        pytest.skip("this DuckDB has no Arrow interface")
    return relation


OBJECTS: dict[str, Callable[[], Any]] = {
    "a table": lambda: TABLE,
    "a batch": lambda: TABLE.combine_chunks().to_batches()[0],
    "a reader": lambda: pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches(max_chunksize=7000)),
    "polars": polars_table,
    "pandas": pandas_table,
    "DuckDB": duckdb_table,
}


@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.parametrize(("workers", "processes"), [(1, 1), (2, 1), (1, 2)])
def test_a_table_comes_once_and_every_worker_gets_a_share(name: str, workers: int, processes: int) -> None:
    made = OBJECTS[name]()
    result = parts(lambda scope: scope.read_arrow(made), workers, processes)
    assert sorted(row for part in result for row in part) == [(n, "ab"[n % 2]) for n in range(100_000)]
    assert all(len(part) >= 30_000 for part in result)


def test_each_worker_may_have_a_table_of_its_own_and_another_may_read() -> None:
    small = pa.table({"n": [1, 2]})
    assert [len(part) for part in parts(lambda scope: scope.read_arrow(small, on="each"), 2)] == [2, 2]

    def own(scope: Any) -> Any:
        return scope.read_arrow(small.slice(scope.allocator.index, 1), on=1)

    assert Counter(row for part in parts(own, 2) for row in part) == Counter([(2,)])


def test_views_become_plain_and_other_columns_stay() -> None:
    polars: Any = pytest.importorskip("polars")
    words = ["to", None, "a word that is longer than twelve bytes"]
    frame = polars.DataFrame(
        {"word": words, "kind": polars.Series(["x", "y", "x"], dtype=polars.Categorical), "at": [b"1", b"2", None]}
    )
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            captured = scope.read_arrow(frame).capture()
        worker.run()
    table = captured.to_arrow()
    assert table.to_pydict() == {"word": words, "kind": ["x", "y", "x"], "at": [b"1", b"2", None]}
    assert table.schema.field("word").type == pa.string()
    assert table.schema.field("kind").type.value_type == pa.string()
    exchanged = parts(lambda scope: scope.read_arrow(frame).exchange("word"), 2)
    assert Counter(row[0] for part in exchanged for row in part) == Counter(words)


def test_times_and_their_errors() -> None:
    late = pa.table({"day": [3, 1]})
    assert timely.example(lambda scope: scope.read_arrow(late, time="day")) == [(1, [(1,)]), (3, [(3,)])]
    for options, message, cause in (
        ({"time": "day", "in_order": True}, "row 2 is at 1, after one at 3", TimestampError),
        ({"time": "week"}, r"time= names no column: 'week' is not in \['day'\]", SchemaError),
    ):
        with pytest.raises(OperatorError, match=message) as caught:
            timely.example(lambda scope: scope.read_arrow(late, **options))  # noqa: B023
        assert isinstance(caught.value.__cause__, cause)


@pytest.mark.parametrize("table", [[1, 2], "rows", {"n": [1]}, None])
def test_what_is_no_table_is_refused(table: Any) -> None:
    with pytest.raises(SchemaError, match="takes an object with Arrow's C interface"):
        timely.example(lambda scope: scope.read_arrow(table))


def test_an_array_is_no_table_and_a_worker_is_a_number() -> None:
    with pytest.raises(OperatorError, match="cannot be read as Arrow data"):
        timely.example(lambda scope: scope.read_arrow(pa.array([1])))
    with pytest.raises(GraphError, match="on=3"):
        timely.example(lambda scope: scope.read_arrow(pa.table({"n": [1]}), on=3))


# -- data that others made wrong -----------------------------------------------------------------------------------------

ENTRIES, MAPS = pa.list_(pa.struct([("key", pa.int64()), ("value", pa.string())])), pa.map_(pa.int64(), pa.string())
DEEP_ENTRIES, DEEP_MAPS = pa.list_(pa.struct([("key", pa.string()), ("value", ENTRIES)])), pa.map_(pa.string(), MAPS)


@attrs.frozen
class Exported:
    """A batch of lists that is exported as one of maps: PyArrow itself makes none with a null as a key."""

    batch: Any
    kind: Any
    stream: bool

    def __getattr__(self, name: str) -> Any:
        if name == ("__arrow_c_stream__" if self.stream else "__arrow_c_array__"):
            return self.export
        raise AttributeError(name)

    def export(self, _: object = None) -> Any:
        schema = pa.schema([pa.field("a", self.kind)])
        if self.stream:
            return pa.RecordBatchReader.from_batches(schema, [self.batch]).__arrow_c_stream__()
        return schema.__arrow_c_schema__(), self.batch.__arrow_c_array__()[1]


def entries(rows: list[Any], lists: Any, maps: Any) -> list[Any]:
    """Return rows of lists as they are exported, in both ways, as rows of maps."""
    return [Exported(pa.record_batch({"a": pa.array(rows, lists)}), maps, stream) for stream in (False, True)]


def with_offsets(kind: Any, values: Any) -> Any:
    """Return a column whose first row ends far beyond its values."""
    buffers = [None, pa.py_buffer(b"".join(n.to_bytes(4, "little") for n in (0, 1 << 30, 1)))]
    if isinstance(values, bytes):
        return pa.table({"a": pa.Array.from_buffers(kind, 2, [*buffers, pa.py_buffer(values)])})
    return pa.table({"a": pa.Array.from_buffers(kind, 2, buffers, children=[values])})


def read_and_insert(data: Any) -> Iterator[Any]:
    """Yield the rows of an object as ``read_arrow`` has them, and as a table has."""
    for build in (lambda scope: scope.read_arrow(data), lambda scope: dd.table(scope, data)):
        with timely.Worker() as worker:
            try:
                with worker.dataflow(int) as scope:
                    stream = build(scope)
                    rows = stream.output() if isinstance(stream, dd.Table) else stream.capture()
                worker.run()
                yield sorted(map(repr, rows.to_arrow().column("a").to_pylist()))
            except TimelyError as error:
                yield str(error)


def print_errors() -> None:
    for data in (
        *entries([[{"key": 1, "value": "a"}], None, [{"key": None, "value": "b"}]], ENTRIES, MAPS),
        *entries([[[{"key": None, "value": "b"}]]], pa.large_list(ENTRIES), pa.large_list(MAPS)),
        with_offsets(pa.string(), b"abc"),
        with_offsets(pa.list_(pa.int8()), pa.array([1], pa.int8())),
        pa.table({"a": pa.DictionaryArray.from_arrays(pa.array([1 << 30]), pa.array(["a"]), safe=False)}),
    ):
        print(*read_and_insert(data), sep="\n")


def test_wrong_data_of_others_is_refused_and_does_not_end_the_process() -> None:
    code = f"import {__name__} as tests; tests.print_errors()"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr
    errors = ran.stdout.splitlines()
    expected = ["should have no nulls"] * 8 + ["offset"] * 4 + ["out of bounds"] * 2
    assert len(errors) == len(expected)
    for error, text in zip(errors, expected, strict=True):
        assert "column 'a': " in error and text in error, error


@pytest.mark.parametrize("deep", [False, True])
def test_maps_of_others_come_as_they_are(deep: bool) -> None:
    rows: list[Any] = [[{"key": 1, "value": "a"}, {"key": 2, "value": None}], None, []]
    expected: list[Any] = [[(1, "a"), (2, None)], None, []]
    if deep:
        rows, expected = [[{"key": "x", "value": row}] for row in rows], [[("x", row)] for row in expected]
    for data in entries(rows, DEEP_ENTRIES if deep else ENTRIES, DEEP_MAPS if deep else MAPS):
        assert [*read_and_insert(data)] == [sorted(map(repr, expected))] * 2


def test_maps_without_entries_have_a_key_of_no_type() -> None:
    data = pytest.importorskip("duckdb").sql("select map() a").to_arrow_table()
    read, inserted = read_and_insert(data)
    assert read == ["[]"] and inserted.startswith("column 'a{}' is null")


# -- results -------------------------------------------------------------------------------------------------------------


def test_outputs_and_captures_are_read_by_other_libraries() -> None:
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            output = dd.from_batches(scope.read_arrow(TABLE), TABLE.schema).map(lambda row: (row[1], 1)).output()
            captured = scope.read_arrow(TABLE.slice(0, 3)).capture()
            rows = scope.to_stream([(1, "a")]).capture()
        worker.run()
    expected = {"key": ["a", "b"], "value": [1, 1], "count": [50_000, 50_000]}
    assert output.to_polars(counts=True).to_dict(as_series=False) == expected
    assert output.to_pandas(counts=True).to_dict("list") == expected
    assert pa.table(output).to_pydict() == {"key": ["a"] * 50_000 + ["b"] * 50_000, "value": [1] * 100_000}
    assert polars.DataFrame(output).shape == (100_000, 2)
    assert duckdb.from_arrow(pa.table(output)).sum("value").fetchall() == [(100_000,)]
    assert pa.table(captured).to_pydict() == {"n": [0, 1, 2], "word": ["a", "b", "a"]}
    assert captured.to_polars()["n"].to_list() == captured.to_pandas()["n"].to_list() == [0, 1, 2]
    assert rows.to_polars("n long, word string").to_dict(as_series=False) == {"n": [1], "word": ["a"]}
    with pytest.raises(SchemaError, match="declare the columns, as in to_arrow"):
        rows.to_arrow()


def test_a_capture_of_several_schemas_or_of_nothing_is_no_table() -> None:
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            captured, nothing = stream.capture(), scope.empty().capture()
        handle.send_batch(pa.record_batch({"n": [1]}))
        handle.send_batch(pa.record_batch({"n": [1.5]}))
        handle.close()
        worker.run()
    with pytest.raises(SchemaError, match="Arrow batches of one schema"):
        captured.to_arrow()
    assert captured.to_arrow("n double").to_pydict() == {"n": [1.0, 1.5]}
    with pytest.raises(SchemaError, match="has no records, and so no columns"):
        nothing.to_arrow()
    assert nothing.to_arrow("n double").num_rows == 0


def test_the_latest_complete_time_of_an_output() -> None:
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            words, collection = dd.new_collection(scope)
            output = collection.output()
        with pytest.raises(NotCompleteError, match="complete at no time yet"):
            output.to_arrow()
        words.insert("a")
        words.advance_to(3)
        words.insert("b")  # at a time that is not complete
        assert output.to_arrow().to_pydict() == {"record": ["a"]}
        words.advance_to(9)
        assert output.to_arrow().to_pydict() == {"record": ["a", "b"]}
        assert output.to_arrow(2).to_pydict() == output.to_arrow(at=2).to_pydict() == {"record": ["a"]}
        output.forget(before=5)
        words.remove("a")
        words.close()
        assert pa.table(output).to_pydict() == {"record": ["b"]}


def test_partial_times_have_no_latest_one_before_the_end() -> None:
    with Worker() as worker:
        with worker.dataflow(Product[int, int]) as scope:
            words, collection = dd.new_collection(scope)
            output = collection.output()
        words.insert("a")
        words.advance_to(Product(0, 1))
        with pytest.raises(NotCompleteError, match="say which with at="):
            output.to_arrow()
        assert output.to_arrow(at=Product(0, 0)).num_rows == 1
        words.close()
        assert output.to_arrow().num_rows == 1


DAY, NOON = datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1, 12)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (DAY, 3),
        (DAY, NOON),
        (NOON, 0.5),
        (NOON, NOON.replace(tzinfo=datetime.UTC)),
        (NOON.replace(tzinfo=datetime.UTC), NOON),
        (NOON.time(), 3),
        (NOON.time(), NOON.time().replace(tzinfo=datetime.UTC)),
        (NOON - NOON, Decimal(1)),
        (b"a", "a"),
        (0.5, True),
        (3, np.bool_(True)),
        ((DAY,), (None, NOON)),
    ],
)
def test_no_value_becomes_one_of_the_type_of_another(one: Any, other: Any) -> None:
    kind = pa.array([one]).type
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            captured = scope.to_stream([(one,), (None,), (other,)]).capture()
            nested = scope.to_stream([({"a": one},), ({"a": other},), (None,)]).capture()
            output = dd.collection(scope, [(one,), (other,)]).output()
            right = scope.to_stream([(one,), (None,), (one,)]).capture()
        worker.run()
    for made, declared in ((captured, kind), (nested, pa.struct([("a", kind)]))):
        with pytest.raises(SchemaError, match=r"'v' is declared .*, and its values are of no Arrow type: "):
            made.to_arrow(pa.schema([("v", declared)]))
    with pytest.raises(ContainerError, match="'field_0' cannot be an Arrow array"):
        output.to_arrow()
    assert right.to_arrow(pa.schema([("v", kind)]))["v"].to_pylist() == pa.array([one, None, one]).to_pylist()


def test_nanoseconds_of_pandas_are_lost_nowhere() -> None:
    pandas = pytest.importorskip("pandas", minversion="2.2")
    for whole, finer in (pandas.Timestamp(5_000), pandas.Timestamp(5_001)), (pandas.Timedelta(5_000), pandas.Timedelta(5_001)):
        with Worker() as worker:
            with worker.dataflow(int) as scope:
                outputs = [dd.collection(scope, [(value,)]).output() for value in (whole, finer)]
            worker.run()
        assert outputs[0].to_arrow()["field_0"].to_pylist() == [whole]
        with pytest.raises(ContainerError, match="'field_0' cannot be an Arrow array"):
            outputs[1].to_arrow()


def test_whole_numbers_beside_nulls_are_the_same_in_pandas() -> None:
    most, kind = 2**53 + 1, pa.int64()
    schema = pa.schema([("n", kind), ("l", pa.list_(kind)), ("s", pa.struct([("a", kind)])), ("m", pa.map_(kind, kind))])
    rows = [(most, (most, None), (most,), ((most, None),)), (None, (None,), (None,), ())]
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            output = dd.table(dd.collection(scope, rows), schema).output()
            captured = scope.read_arrow(pa.table({"u": pa.array([None, 2**64 - 1], pa.uint64())})).capture()
            twice = scope.read_arrow(pa.table([[most, None], ["a", None]], ["same", "same"])).capture()
        worker.run()
        frame = output.to_pandas().sort_values("n")
        assert [*map(str, frame.dtypes)] == ["Int64", *["object"] * 3] and frame["n"].sum() == most
        assert [frame["l"].iloc[0][0], frame["s"].iloc[0], frame["m"].iloc[0]] == [most, {"a": most}, [(most, None)]]
        assert captured.to_pandas()["u"].max() == 2**64 - 1
        assert twice.to_pandas().to_numpy().tolist() == [[most, "a"], [None, None]]
        with worker.dataflow(int) as scope:
            again = dd.table(scope, frame).output()
        assert again.at(0) == dict.fromkeys(rows, 1)


@pytest.mark.parametrize(("module", "method"), [("polars", "to_polars"), ("pandas", "to_pandas")])
def test_a_library_that_is_missing_is_asked_for(monkeypatch: pytest.MonkeyPatch, module: str, method: str) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **more: Any) -> Any:
        if name == module:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *arguments, **more)

    with Worker() as worker:
        with worker.dataflow(int) as scope:
            output = dd.collection(scope, [(1, 2)]).output()
        worker.run()
        monkeypatch.setattr(builtins, "__import__", without)
        with pytest.raises(ConfigurationError, match=f"pip install {module}"):
            getattr(output, method)()
