"""Collections as Arrow tables and DataFrames, collections with a schema, and checks of their counts."""

from __future__ import annotations

import math
import random
from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pytest

import timely
from tests.differential.epochs import changing
from timely import Product, Worker
from timely import differential as dd
from timely.errors import ConfigurationError, ContainerError, OperatorError, SchemaError

pa: Any = pytest.importorskip("pyarrow")
pytest.importorskip("numpy")


class Person(NamedTuple):
    name: str
    age: int


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([(2, "b"), (1, "a")], {"key": [1, 2], "value": ["a", "b"], "count": [1, 1]}),
        ([(1, 2, 3)], {"field_0": [1], "field_1": [2], "field_2": [3], "count": [1]}),
        ([("one",)], {"field_0": ["one"], "count": [1]}),
        ([Person("ada", 36)], {"name": ["ada"], "age": [36], "count": [1]}),
        (["b", "a", "a"], {"record": ["a", "b"], "count": [2, 1]}),
        ([(1, 2), (3, 4, 5)], {"record": [[1, 2], [3, 4, 5]], "count": [1, 1]}),
        ([()], {"record": [[]], "count": [1]}),
        ([], {"record": [], "count": []}),
    ],
)
def test_columns_of_records(records: list[Any], expected: dict[str, list[Any]]) -> None:
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            result = dd.collection(scope, records).output()
        table = result.to_arrow(0, counts=True)
    assert table.to_pydict() == expected
    assert list(table.column_names) == list(expected)


@pytest.mark.filterwarnings("ignore:sums of floats")
def test_counts_of_every_kind() -> None:
    counts = []
    for diff, count in ((int, -2), (float, 0.5), (tuple, (1, 2))):
        with changing(diff=diff) as (session, result):
            session.update("x", count)
            session.close()
            counts += result.to_arrow(0, counts=True).column("count").to_pylist()
    assert counts == [-2, 0.5, [1, 2]]


def test_each_time_and_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    with changing() as (session, result):
        session.insert(("k", 1))
        session.advance_to(1)
        session.remove(("k", 1))
        with pytest.raises(dd.NotCompleteError):
            result.to_arrow(1, counts=True)
        session.close()
        frame = result.to_pandas(0, counts=True)
        assert result.to_pandas(1).empty
    pandas.testing.assert_frame_equal(frame, pandas.DataFrame({"key": ["k"], "value": [1], "count": [1]}), check_dtype=False)


@pytest.mark.parametrize("records", [[(1, 2), ("x", 3)], [(1 << 70, 1)], [(object(), 1)]])
def test_what_is_no_column(records: list[Any]) -> None:
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            result = dd.collection(scope, records).output()
        with pytest.raises(ContainerError, match="column 'key'"):
            result.to_arrow(0, counts=True)


@pytest.mark.parametrize("rows", [10, 1000])
@pytest.mark.parametrize("words", [False, True])
def test_traces_as_tables(rows: int, words: bool) -> None:
    """The same as ``items`` has, at each time, of rows, of columns, and of both."""
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            session, pairs = dd.new_collection(scope)
            arranged = [
                pairs.arrange_by_key(),
                pairs.arrange_by_self(),
                pairs.arrange_by_key().filter_trace(lambda key, value: value % 2 == 0),
                pairs.map(lambda pair: str(pair[1]) if words else pair[1]).arrange_by_self(),
            ]
            traces, probe = [one.trace for one in arranged], arranged[-1].as_collection().probe()
        session.insert_columns([n % 10 for n in range(rows)], range(rows))
        session.advance_to(1)
        for record in ((3, 3), (77, 1)):
            session.update(record, 2)
        session.update((4, 4), -1)
        session.advance_to(2)
        session.insert_columns([5] * rows, range(rows))
        session.advance_to(3)
        worker.step_while(lambda: probe.less_than(3))
        for at in (0, 1, 2, None):
            for one, trace in zip(arranged, traces, strict=True):
                expected = {}
                for key, counts in trace.items(at=at):
                    for value, count in counts.items():
                        expected[(key, value) if one.index.pairs else key] = count
                columns = trace.to_arrow(at=at).to_pydict()
                counts = columns.pop("count")
                records = columns["record"] if "record" in columns else list(zip(*columns.values(), strict=True))
                assert dict(zip(records, counts, strict=True)) == expected
                assert len(counts) == len(expected)
        with traces[0].snapshot(at=1) as view:
            assert view.to_arrow() == traces[0].to_arrow(at=1)
        with pytest.raises(dd.NotCompleteError):
            traces[0].to_arrow(at=3)
        session.close()


def test_empty_traces_as_tables() -> None:
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            pairs = dd.collection(scope, [(1, 1)]).filter(lambda pair: False)
            traces = pairs.arrange_by_key().trace, pairs.arrange_by_self().trace
        worker.run()
        assert [trace.to_arrow().column_names for trace in traces] == [["key", "value", "count"], ["record", "count"]]


# -- schemas -----------------------------------------------------------------------------------------------------------------

PEOPLE: Any = pa.schema([pa.field("name", pa.string(), nullable=False), ("age", pa.int64()), ("here", pa.bool_())])


def test_records_with_a_schema() -> None:
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            session, people = dd.new_collection(scope, schema=PEOPLE)
            known = people.filter(lambda person: person[1] is not None)
            result, everything = known.output(), people.output()
            assert people.map(len).schema is None
            assert people.concat(people).distinct().minus(known).consolidate().schema is PEOPLE
        assert people.schema is known.schema is result.schema is PEOPLE
        session.insert_columns(pa.table({"name": ["ada", "bob"], "age": [36, None], "here": [True, False]}, schema=PEOPLE))
        session.insert(("cy", None, True))
        session.advance_to(1)
        session.remove(("bob", None, False))
        session.close()
        assert result.at(0) == {("ada", 36, True): 1}
        assert everything.at(1) == {("ada", 36, True): 1, ("cy", None, True): 1}
        table = result.to_arrow(1, counts=True)
    names: list[str] = table.schema.names
    assert names == ["name", "age", "here", "count"] and not table.schema.field("count").nullable
    assert table.to_pylist() == [{"name": "ada", "age": 36, "here": True, "count": 1}]


VALUES: dict[Any, list[Any]] = {
    pa.int64(): [-1, 0, 1 << 62],
    pa.float64(): [0.0, -0.0, math.nan, 1.5],
    pa.string(): ["", "a", "\U0001f40d"],
    pa.bool_(): [True, False],
    pa.date32(): [date(1969, 12, 31), date(2026, 2, 28)],
    pa.decimal128(20, 2): [Decimal("-0.01"), Decimal("123456789012345678.90")],
    pa.decimal128(9, 2): [Decimal("-0.01"), Decimal("1.50")],
    pa.timestamp("us"): [datetime(2026, 1, 1, 0, 0, 1)],
    pa.list_(pa.int64()): [[1], [2, None], []],
}


def counted_rows(table: Any) -> Counter[Any]:
    *columns, counts = (column.to_pylist() for column in table.columns)
    counted: Counter[Any] = Counter()
    for row, count in zip(zip(*columns, strict=True), counts, strict=True):
        counted[comparable(row)] += count
    return counted


def comparable(row: Any) -> Any:
    return tuple(tuple(value) if isinstance(value, list) else "NaN" if str(value) == "nan" else value for value in row)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("sql", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_tables_of_columns_and_rows(seed: int, sql: bool, workers: int) -> None:
    """Columns are inserted and removed, and rows too: what is held at each time, and all changes, before and after ``forget``."""
    if sql:
        pytest.importorskip("sqlglot")
    source = random.Random(seed)
    others = [kind for kind in VALUES if sql or not pa.types.is_list(kind)]  # lists are no records
    kinds = [pa.int64(), pa.float64(), *source.sample(others, 2)]
    schema = pa.schema([(f"c{place}", kind) for place, kind in enumerate(kinds)])
    batches = [
        pa.table([source.choices([*VALUES[kind], None], k=1100) for kind in kinds], schema=schema).append_column(
            "n", [range(1100)]
        )
        for _ in range(3)
    ]
    expected: list[Counter[Any]] = [Counter()]
    epochs: list[list[tuple[Any, int]]] = []
    for time, (part, diff) in enumerate([(0, 2), (1, 1), (0, -1), (1, -1)]):
        epochs.append([(batches[part], diff), (batches[2].slice(10 * time, 10), 1)])
        held = expected[-1].copy()
        for batch, count in epochs[-1]:
            held.update(counted_rows(batch.append_column("count", [[count] * len(batch)])))
        expected.append(+held)

    def program(worker: Worker) -> tuple[list[Any], list[tuple[int, Any]]]:
        with worker.dataflow(int) as scope:
            if sql:
                table = dd.table(scope, batches[0].schema)
                rows: Any = dd.sql(scope, "select * from t where n + 1 > 0", t=table)
                session = table.session
            else:
                session, rows = dd.new_collection(scope, schema=batches[0].schema)
            result, changes = rows.output(worker=seed or None), rows.to_batches().capture()
        for time, epoch in enumerate(epochs):
            for batch, diff in epoch if worker.index == 0 else ():
                session.insert_columns(batch, diff=diff)
            session.advance_to(time + 1)
        tables = []
        for forgets in (False, True):
            for at in range(len(epochs)):
                if forgets:
                    result.forget(at)
                tables.append((result.to_arrow(at), result.to_arrow(at, counts=True)))
        session.close()
        worker.run()
        assert {comparable(row): count for row, count in result.at(3).items()} == counted_rows(tables[-1][1])
        return tables, changes.messages

    shares = timely.execute(program, workers=workers)
    for place, rows in enumerate(2 * expected[1:]):
        plain, counted = zip(*(tables[place] for tables, _ in shares), strict=True)
        assert sum((counted_rows(table) for table in counted), Counter()) == rows
        assert sum(table.num_rows for table in plain) == rows.total()
        assert not any(str(value) == "-0.0" for table in plain if len(table) >= 1000 for value in table["c1"].to_pylist())
        assert all(table["count"].to_numpy().all() for table in counted)
    total: Counter[Any] = Counter()
    for time, rows in enumerate(expected[1:]):
        for at, batch in (message for _, messages in shares for message in messages):
            total.update(counted_rows(batch) if at == time else {})
        assert +total == rows


NESTED = [
    (pa.list_(pa.float64()), [math.nan, -0.0]),
    (pa.list_(pa.list_(pa.int64())), [[1, None], []]),
    (pa.struct([("a", pa.float64()), ("b", pa.list_(pa.string()))]), {"a": math.nan, "b": ["x"]}),
]


@pytest.mark.parametrize(("kind", "value"), NESTED, ids=str)
@pytest.mark.parametrize("sql", [False, True])
def test_nested_values_that_came_as_columns_go_again(kind: Any, value: Any, sql: bool) -> None:
    batch = pa.table({"v": pa.array([value, None], kind)})
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            if sql:
                pytest.importorskip("sqlglot")
                table = dd.table(scope, batch.schema)
                session, result = table.session, dd.sql(scope, "select * from t", t=table).output()
            else:
                session, rows = dd.new_collection(scope, schema=batch.schema)
                result = rows.output()
        for time, diff in enumerate((2, -2)):
            session.insert_columns(batch, diff=diff)
            session.advance_to(time + 1)
        assert result.to_arrow(0).num_rows == 4
        assert set(result.at(0).values()) == {2}
        assert result.at(1) == {}
        session.close()


@pytest.mark.parametrize("rows", [10, 2000])
@pytest.mark.parametrize("schema", ["n string", "n long, more long"])
def test_columns_are_refused_where_their_rows_are(rows: int, schema: str) -> None:
    """Text is not made of numbers, whatever the number of rows."""
    declared = pa.schema([("n", pa.int64())])
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            session, numbers = dd.new_collection(scope, schema=declared)
            numbers.to_batches(schema).probe()
        session.insert_columns(pa.table({"n": range(rows)}, schema=declared))
        session.close()
        with pytest.raises(OperatorError, match="to_batches") as raised:
            worker.run()
        assert isinstance(raised.value.__cause__, SchemaError)


@pytest.mark.parametrize("rows", [10, 2000])
def test_a_record_of_another_type_that_is_gone_is_not_looked_at(rows: int) -> None:
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            session, numbers = dd.new_collection(scope, schema=pa.schema([("n", pa.int64())]))
            result = numbers.output()
        session.insert(("x",))
        session.insert_columns(pa.table({"n": range(rows)}))
        session.advance_to(1)
        session.remove(("x",))
        session.close()
        assert result.to_arrow(1).num_rows == rows


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.bool_()])
@pytest.mark.parametrize("rows", [1, 500])
def test_records_of_one_column_are_tuples(kind: Any, rows: int) -> None:
    schema = pa.schema([("only", kind)])
    column = pa.array([bool(n) for n in range(rows)] if kind == pa.bool_() else range(rows)).cast(kind)
    with changing(lambda rows: (rows.output(), rows.distinct().output()), schema=schema) as (session, (result, count)):
        session.insert_columns(pa.record_batch([column], schema=schema), diff=2)
        session.close()
        expected: dict[Any, int] = {}
        for value in column.to_pylist():
            expected[(value,)] = expected.get((value,), 0) + 2
        assert result.at(0) == expected
        assert all(type(record[0]) is type(column[0].as_py()) for record in result.at(0))
        assert count.at(0) == dict.fromkeys(expected, 1)
        assert result.to_arrow(0, counts=True).column_names == ["only", "count"]
        assert result.to_arrow(0, counts=True).num_rows == len(expected)


def test_pairs_of_whole_numbers_stay_columns() -> None:
    schema = pa.schema([("src", pa.int64()), ("dst", pa.int32())])
    kinds = []

    def build(edges: Any) -> Any:
        edges.stream.inspect_batch(lambda time, batch: kinds.append(type(batch).__name__))
        return edges.output()

    with changing(build, schema=schema) as (session, result):
        session.insert_columns(pa.table({"src": [1, 2], "dst": [2, 3]}, schema=schema))
        session.insert_columns(pa.table({"src": [1, None], "dst": [2, 3]}, schema=schema))
        session.close()
        assert result.at(0) == {(1, 2): 2, (2, 3): 1, (None, 3): 1}
        assert result.to_arrow(0, counts=True).to_pydict()["src"].count(None) == 1
    assert kinds == ["Updates", "RowColumns"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (([1], [2]), "one Arrow batch or table"),
        ((pa.table({"name": ["ada"]}),), "name: string, age: int64, here: bool, and name: string came"),
        ((pa.table({"name": ["ada"], "age": [1.5], "here": [True]}),), "age: double"),
        ((pa.table({"name": [None], "age": [1], "here": [True]}, schema=pa.schema([*PEOPLE])),), "'name' is not nullable"),
        ((pa.table({"name": ["a"], "age": [1], "here": [True]}, schema=PEOPLE), [1, 1]), "one Arrow batch or table"),
    ],
)
def test_columns_of_another_schema(columns: Any, message: str) -> None:
    with changing(schema=PEOPLE) as (session, _), pytest.raises(ContainerError, match=message):
        session.insert_columns(*columns)


@pytest.mark.parametrize("record", ["ada", ("ada", 36), ["ada", 36, True], (None, 36, True)])
def test_records_of_another_schema(record: Any) -> None:
    with changing(schema=PEOPLE) as (session, _):
        for send in (
            session.insert,
            session.remove,
            lambda record: session.update(record, 2),
            lambda record: session.update_at(record, 1, 2),
            lambda record: session.insert_batch([record]),
        ):
            with pytest.raises(ContainerError):
                send(record)


def test_what_is_no_schema() -> None:
    with Worker() as worker, worker.dataflow(int) as scope:
        for schema in (["name"], "name", pa.schema([]), pa.schema([("a", pa.int64()), ("a", pa.int64())])):
            with pytest.raises((ContainerError, ConfigurationError)):
                dd.new_collection(scope, schema=schema)
    with changing(schema=pa.schema([("count", pa.int64())])) as (session, result):
        session.close()
        with pytest.raises(ContainerError, match="'count'"):
            result.to_arrow(0, counts=True)


# -- counts ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("columns", [False, True])
def test_a_count_below_zero(workers: int, columns: bool) -> None:
    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int) as scope:
            session, collection = dd.new_collection(scope)
            dd.check_counts(collection)
        if worker.index == 0:
            if columns:
                session.insert_columns(range(1000))
            session.insert(7)
        session.advance_to(1)
        if worker.index == workers - 1:
            session.update(7, -2)
        session.advance_to(2)
        if worker.index == 0:
            if columns:
                session.insert_columns(range(1000), diff=-1)
            session.remove(7)
        session.close()
        worker.run()

    with pytest.raises(dd.CollectionMismatch, match="below 0.*check_counts was called at .*test_arrow") as caught:
        timely.execute(program, workers=workers)
    expected = {(2, 7, -2)} if columns else {(1, 7, -1)}
    assert {(caught.value.time, caught.value.record, caught.value.diff)} == expected


def test_counts_that_are_right_at_complete_times() -> None:
    """Updates in any order, at times that are partially ordered."""
    with Worker() as worker:
        with worker.dataflow(Product[int, int]) as scope:
            session, collection = dd.new_collection(scope)
            dd.check_counts(collection)
        session.remove("a")
        session.insert("a")
        session.update_at("a", Product(0, 1), 1)
        session.update_at("a", Product(1, 0), 1)
        session.update_at("a", Product(1, 1), -2)
        session.close()
        worker.run()
    with Worker() as worker:
        with worker.dataflow(Product[int, int]) as scope:
            session, collection = dd.new_collection(scope)
            dd.check_counts(collection)
        session.insert("a")
        session.update_at("a", Product(0, 1), -1)
        session.update_at("a", Product(1, 0), -1)
        session.close()
        with pytest.raises(dd.CollectionMismatch) as caught:
            worker.run()
    assert (caught.value.time, caught.value.record, caught.value.diff) == (Product(1, 1), "a", -1)


def test_other_limits_and_other_differences() -> None:
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            with pytest.warns(timely.TimelyWarning, match="do not cancel exactly"):
                session, collection = dd.new_collection(scope, diff=float)
            dd.check_counts(collection, lower=1.0)
            _, vectors = dd.new_collection(scope, diff=tuple)
            with pytest.raises(dd.DifferenceError):
                dd.check_counts(vectors)
        session.update("a", 1.5)
        session.advance_to(1)
        session.update("a", -1.5)
        session.advance_to(2)
        session.update("b", 0.5)
        session.close()
        with pytest.raises(dd.CollectionMismatch) as caught:
            worker.run()
    assert (caught.value.time, caught.value.record, caught.value.diff) == (2, "b", 0.5)
