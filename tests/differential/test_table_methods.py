"""Methods of tables: each gives what the same SQL gives in DuckDB, at every epoch of random changes."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import timely
from tests.differential.beside_duckdb import Tables
from tests.differential.epochs import changing, contents
from timely import GraphError, SchemaError, SqlError
from timely import differential as dd

duckdb = pytest.importorskip("duckdb")

SALES = pa.schema([("id", pa.int64()), ("item", pa.string()), ("price", pa.int64()), ("minute", pa.int64())])
QUOTES = pa.schema([("item", pa.string()), ("minute", pa.int64()), ("bid", pa.int64())])


def maybe(source: random.Random, value: Any) -> Any:
    return None if source.random() < 0.15 else value


def sale(source: random.Random) -> Any:
    return (
        maybe(source, source.randint(1, 5)),
        maybe(source, source.choice("abc")),
        maybe(source, source.randint(0, 9)),
        maybe(source, source.randint(0, 9)),
    )


def quote(source: random.Random) -> Any:
    # DuckDB takes any row of those that tie in an as-of join, so none do: the bid follows from the rest
    item, at = maybe(source, source.choice("abc")), maybe(source, source.randint(0, 9))
    return item, at, None if at is None else at * 10


TABLES = Tables({"sales": SALES, "quotes": QUOTES}, {"sales": sale, "quotes": quote})

AS_OF = "select s.*, q.bid from sales s asof {} join quotes q on s.item = q.item and s.minute >= q.minute"

METHODS: dict[str, tuple[Callable[..., Any], str]] = {
    "with_columns": (
        lambda sales, quotes: sales.with_columns("price + 1 as more", price="price * 2", note="'x'"),
        "select id, item, price * 2, minute, price + 1, 'x' from sales",
    ),
    "rename": (
        lambda sales, quotes: sales.rename({"price": "cost", "ID": "key"}).select("cost", "key"),
        "select price, id from sales",
    ),
    "cast": (
        lambda sales, quotes: sales.cast({"price": "double", "id": "varchar"}),
        "select id::varchar, item, price::double, minute from sales",
    ),
    "drop": (lambda sales, quotes: sales.drop("item", "minute"), "select id, price from sales"),
    "union": (
        lambda sales, quotes: sales.select("item", "minute").union(quotes.drop("bid")),
        "select item, minute from sales union select item, minute from quotes",
    ),
    "union_all": (
        lambda sales, quotes: sales.select("item", "minute").union_all(quotes.drop("bid")),
        "select item, minute from sales union all select item, minute from quotes",
    ),
    "except_": (
        lambda sales, quotes: sales.select("item").except_(quotes.select("item")),
        "select item from sales except select item from quotes",
    ),
    "except_all": (
        lambda sales, quotes: sales.select("item").except_all(quotes.select("item")),
        "select item from sales except all select item from quotes",
    ),
    "intersect": (
        lambda sales, quotes: sales.select("item").intersect(quotes.select("item")),
        "select item from sales intersect select item from quotes",
    ),
    "intersect_all": (
        lambda sales, quotes: sales.select("item").intersect_all(quotes.select("item")),
        "select item from sales intersect all select item from quotes",
    ),
    "limit": (
        lambda sales, quotes: sales.limit(3, ["price desc", "id"], offset=1),
        "select * from sales order by price desc, id, id, item, price, minute limit 3 offset 1",
    ),
    "limit of groups": (
        lambda sales, quotes: sales.group_by("item").limit(2, "price"),
        "select * from sales qualify row_number() over (partition by item order by price, id, item, price, minute) <= 2",
    ),
    "asof": (
        lambda sales, quotes: sales.join(quotes, on=["item", "minute"], how="asof"),
        AS_OF.format(""),
    ),
    "asof left": (
        lambda sales, quotes: sales.join(quotes, on=["item", "minute"], how="asof left"),
        AS_OF.format("left"),
    ),
    "asof of one column": (
        lambda sales, quotes: sales.join(quotes.select("minute", "bid").distinct(), on="minute", how="asof left"),
        "select s.*, q.bid from sales s asof left join (select distinct minute, bid from quotes) q on s.minute >= q.minute",
    ),
    "asof later": (
        lambda sales, quotes: sales.join(quotes, on="this.item = other.item and this.minute < other.minute", how="asof left"),
        "select s.*, q.* from sales s asof left join quotes q on s.item = q.item and s.minute < q.minute",
    ),
    "asof turned": (
        lambda sales, quotes: sales.join(quotes, on="other.minute < this.minute + 1 and this.item = other.item", how="asof"),
        "select s.*, q.* from sales s asof join quotes q on s.item = q.item and s.minute + 1 > q.minute",
    ),
    "map_rows": (
        lambda sales, quotes: sales.map_rows(
            lambda row: (row[1], None if row[2] is None else row[2] * 2), pa.schema([("item", pa.string()), ("n", pa.int64())])
        ),
        "select item, price * 2 from sales",
    ),
    "map_batches": (
        lambda sales, quotes: sales.map_batches(lambda batch: batch.filter(pc.greater(batch["price"], 4)), SALES),
        "select * from sales where price > 4",
    ),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_gives_what_sql_gives_at_every_epoch(name: str) -> None:
    build, query = METHODS[name]
    TABLES.check(build, query)


@pytest.mark.parametrize("name", ["asof", "asof left", "limit of groups", "map_batches"])
def test_three_workers_give_the_same(name: str) -> None:
    build, query = METHODS[name]
    assert TABLES.stream(3).held_on_workers(build) == TABLES.stream(3).expected(query)


def test_of_rows_that_tie_in_an_asof_join_the_first_by_all_columns_is_used() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            left = dd.table(scope, pa.table({"minute": [3]}))
            right = dd.table(scope, pa.schema([("minute", pa.int64()), ("x", pa.string())]))
            output = left.join(right, on="minute", how="asof").output()
        for x in (None, "b", "a"):
            right.session.insert((2, x))
        right.session.advance_to(1)
        right.session.remove((2, "a"))
        right.session.close()
        assert output.at(0) == {(3, "a"): 1} and output.at(1) == {(3, "b"): 1}


# -- Arrow ---------------------------------------------------------------------------------------------------------


def rows_of(data: Any, **options: Any) -> Any:
    return contents(lambda scope: dd.table(scope, data, **options))


DATA = pa.table(
    {
        "id": pa.array([1, 2, 2], pa.int16()),
        "name": pa.array(["ada", None, None]).dictionary_encode(),
        "score": pa.array([0.5, 1, 1], pa.float32()),
    }
)
ROWS = {(1, "ada", 0.5): 1, (2, None, 1.0): 2}


class Exported:
    """Data of another library, of which only the interface of Arrow is known."""

    def __init__(self, data: pa.RecordBatch) -> None:
        self._data = data

    def __arrow_c_array__(self, requested: Any = None) -> Any:
        return self._data.__arrow_c_array__(requested)


@pytest.mark.parametrize("workers", [1, 2])
def test_arrow_data_come_once_however_many_workers_there_are(workers: int) -> None:
    def program(worker: timely.Worker) -> Any:
        with worker.dataflow(int) as scope:
            output = dd.table(scope, DATA).select("id", "name", "score").output(worker=0)
        worker.run()
        return output.at(0)

    assert timely.execute(program, workers=workers)[0] == ROWS


def test_data_of_other_libraries() -> None:
    assert rows_of(DATA) == ROWS
    assert rows_of(DATA.to_batches()[0]) == ROWS
    assert rows_of(Exported(DATA.to_batches()[0])) == ROWS
    assert rows_of(duckdb.sql("select 1::smallint as id, 'ada' as name")) == {(1, "ada"): 1}
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"at": pandas.to_datetime(["2024-01-01 10:00"]), "x": [1.5]})
    assert [type(value).__name__ for value in next(iter(rows_of(frame)))] == ["datetime", "float"]


def test_an_index_of_pandas_is_a_column_only_where_it_has_a_name() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"c": ["x", "y", "x"], "n": [2, 1, 2]})
    assert rows_of(frame.sort_values("n")) == rows_of(frame.iloc[[2, 0, 1]]) == {("x", 2): 2, ("y", 1): 1}
    assert rows_of(frame.groupby("c").sum()) == {("x", 4): 1, ("y", 1): 1}
    assert rows_of(frame.groupby(["n", "c"]).size().to_frame("rows")) == {(1, "y", 1): 1, (2, "x", 2): 1}
    with pytest.raises(SchemaError, match=r"reset_index\(drop=True\)"):
        rows_of(frame.set_index("n", drop=False))
    assert timely.example(lambda scope: scope.read_arrow(frame.sort_values("n"))) == [(0, [("x", 2), ("x", 2), ("y", 1)])]
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            table = dd.table(scope, pa.schema([("c", pa.string()), ("n", pa.int64())]))
            output = table.output()
        table.session.insert_columns(frame.sort_values("n"))
        table.session.close()
        assert output.at(0) == {("x", 2): 2, ("y", 1): 1}


def test_data_of_polars() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"id": [1, 2], "name": ["ada", None]})
    for kind in (polars.String, polars.Categorical, polars.Enum(["ada"])):
        assert rows_of(frame.cast({"name": kind})) == {(1, "ada"): 1, (2, None): 1}


def test_arrow_data_that_cannot_be_rows_are_refused() -> None:
    late = pa.table({"at": pa.array([1], pa.timestamp("ns"))})
    with pytest.raises(SchemaError, match="at"):
        rows_of(late)
    with pytest.raises(GraphError, match="no Arrow data"):
        rows_of([(1,)])
    with pytest.raises(GraphError, match="schema of its rows"):
        rows_of(None)


def batches(*data: Any, schema: Any) -> Any:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            output = dd.table(stream, schema).output()
        for time, batch in enumerate(data):
            handle.send(batch)
            handle.advance_to(time + 1)
        handle.close()
        return [output.at(time) for time in range(len(data))]


def test_a_stream_of_batches_has_their_rows_at_their_times() -> None:
    schema = pa.schema([("n", pa.int64()), ("name", pa.string())])
    first = pa.record_batch({"n": pa.array([1, 1], pa.int8()), "name": ["a", "a"]})
    assert batches(first, pa.table({"n": [2], "name": ["b"]}), schema=schema) == [{(1, "a"): 2}, {(1, "a"): 2, (2, "b"): 1}]
    for bad in (pa.table({"n": [2]}), pa.table({"n": ["x"], "name": ["b"]}), 3):
        with pytest.raises(timely.OperatorError) as caught:
            batches(bad, schema=schema)
        assert isinstance(caught.value.__cause__, SchemaError)


def test_a_stream_of_files_or_of_rows(tmp_path: Path) -> None:
    pq.write_table(DATA, tmp_path / "data.parquet")
    assert contents(lambda scope: dd.table(scope.read_parquet(tmp_path / "data.parquet"), DATA.schema)) == ROWS
    assert contents(lambda scope: dd.table(scope.to_stream([(1, "ada", 0.5)]), DATA.schema)) == {(1, "ada", 0.5): 1}


def test_an_output_has_the_schema_of_its_table() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            output = dd.table(scope, DATA).select("score", "name as who").output()
        table = output.to_arrow(0, counts=True)
    assert table.schema.names == ["score", "who", "count"] and table.schema.types[:2] == [pa.float32(), pa.string()]
    assert table.to_pylist() == [{"score": 0.5, "who": "ada", "count": 1}, {"score": 1.0, "who": None, "count": 2}]


def words_of(schema: Any) -> Any:
    return lambda scope: dd.table(scope, pa.table({"word": ["ada"], "n": [1]}), schema=schema)


TAKES_A_SCHEMA: dict[str, Callable[[Any, Any], Any]] = {
    "table of a session": lambda scope, schema: dd.table(scope, schema),
    "table by keyword": lambda scope, schema: dd.table(scope, schema=schema),
    "table of data": lambda scope, schema: words_of(schema)(scope),
    "table of a stream": lambda scope, schema: dd.table(scope.to_stream([("ada", 1)]), schema),
    "table of a collection": lambda scope, schema: dd.table(dd.collection(scope, [("ada", 1)]), schema),
    "map_rows": lambda scope, schema: words_of(None)(scope).map_rows(lambda row: row, schema),
    "map_batches": lambda scope, schema: words_of(None)(scope).map_batches(lambda batch: batch, schema),
    "from_columns": lambda scope, schema: dd.from_columns(scope, schema)[1],
    "new_collection": lambda scope, schema: dd.new_collection(scope, schema=schema)[1],
    "from_batches": lambda scope, schema: dd.from_batches(scope.to_stream([]), schema),
}


@pytest.mark.parametrize("entry", TAKES_A_SCHEMA)
def test_text_1_a_schema_may_be_a_text_everywhere(entry: str) -> None:
    schema = pa.schema([("word", pa.string()), ("n", pa.int64())])
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            for spelling in (schema, "word string, n long", "word: varchar, `n` bigint"):
                assert TAKES_A_SCHEMA[entry](scope, spelling).schema == schema
            for wrong in ("word whole", "", "n long, n long", ["word"], 5):
                with pytest.raises((timely.ConfigurationError, GraphError), match="column|schema"):
                    TAKES_A_SCHEMA[entry](scope, wrong)
        worker.step()


def test_the_column_of_counts_is_no_field_of_the_rows() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            stream: timely.Stream[int, Any] = scope.to_stream([])
            schema = pa.schema([("a", pa.int64()), ("n", pa.int64())])
            assert dd.from_batches(stream, "a long, n long", count="m").schema == schema
            with pytest.raises(SchemaError, match="the column of counts, 'n', is no field of the rows"):
                dd.from_batches(stream, "a long, n long", count="n")
        worker.step()


def test_rows_that_are_equal_come_out_each_and_go_in_again(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            pairs = dd.table(scope, pa.table({"a": ["a", "a", "b"], "x": [1, 1, 5]}))
            output = pairs.output()
            pairs.to_batches().write_csv(tmp_path / "pairs")
        worker.run()
        frame, counted = output.to_pandas(), output.to_pandas(counts=True)
    assert frame.to_dict("list") == {"a": ["a", "a", "b"], "x": [1, 1, 5]}
    assert counted.to_dict("list") == {"a": ["a", "b"], "x": [1, 5], "count": [2, 1]}
    held = {("a", 1): 2, ("b", 5): 1}
    assert rows_of(frame) == rows_of(counted, count="count") == held
    assert contents(lambda scope: dd.read_table(scope, tmp_path / "pairs", count="count")) == held
    for count, data in (("n", frame), ("a", frame), ("count", pa.schema([("count", pa.int64())]))):
        with pytest.raises((SchemaError, GraphError), match="count="):
            rows_of(data, count=count)
    with pytest.raises(timely.OperatorError, match="has nulls"):
        rows_of(pandas.DataFrame({"a": ["x"]}).assign(n=pandas.array([None], "Int64")), count="n")


def test_rows_that_are_there_less_than_once_are_no_rows_of_a_frame() -> None:
    with changing() as (session, output):
        session.update("x", -2)
        session.close()
        with pytest.raises(timely.DifferenceError, match="'x' has the count -2: more of it was removed than was there"):
            output.to_arrow()
        assert output.to_arrow(counts=True).to_pylist() == [{"record": "x", "count": -2}]


def test_a_column_may_be_called_count() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            output = dd.table(scope, DATA).group_by().agg("count(*) as count").output()
        worker.run()
        assert output.to_arrow().to_pylist() == [{"count": 3}]
        with pytest.raises(timely.ContainerError, match="called 'count'"):
            output.to_arrow(counts=True)


# -- errors --------------------------------------------------------------------------------------------------------


def boom(row: Any) -> Any:
    raise ValueError("boom")


@pytest.mark.parametrize(
    ("build", "cause"),
    [
        (lambda table: table.map_rows(boom, DATA.schema), ValueError),
        (lambda table: table.map_batches(boom, DATA.schema), ValueError),
        (lambda table: table.map_rows(lambda row: row[:1], DATA.schema), SchemaError),
        (lambda table: table.map_batches(lambda batch: [1], DATA.schema), SchemaError),
        (lambda table: table.map_batches(lambda batch: batch.select(["id"]), DATA.schema), SchemaError),
    ],
)
def test_errors_of_functions_name_the_operator_and_the_line(build: Any, cause: Any) -> None:
    with pytest.raises(timely.OperatorError) as caught:
        contents(lambda scope: build(dd.table(scope, DATA)))
    assert isinstance(caught.value.__cause__, cause)
    assert "map_" in str(caught.value) and "test_table_methods.py" in str(caught.value)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda table: table.drop("nothing"), "there is no column 'nothing'; there are id, name, score"),
        (lambda table: table.drop("id", "name", "score"), "leaves no column"),
        (lambda table: table.rename({"id": "name"}), "two columns 'name'"),
        (lambda table: table.rename({"x": "y"}), "no column 'x'"),
        (lambda table: table.cast({"id": "float4000"}), "float4000"),
        (lambda table: table.with_columns("id + 1"), "needs a name"),
        (lambda table: table.with_columns("1 as x", x="2"), "'x' twice"),
        (lambda table: table.union(table.drop("id")), "columns"),
        (lambda table: table.join(table, on="this.id = other.id", how="asof"), "one inequality"),
        (lambda table: table.cast({"id": "int) as x, (1"}), "not one expression of SQL"),
        (lambda table: table.cast({"id": "nope"}), "at line 1, column 1: there is no type nope here"),
        (lambda table: table.join(table, on="this.id <> other.id", how="asof"), ">=, >, <= or <"),
        (lambda table: table.join(table, on="this.id >= this.score", how="asof"), "each side"),
        (lambda table: table.join(table, on=["id", "none"], how="asof"), "no column 'none'"),
    ],
)
@pytest.mark.filterwarnings("ignore::timely.TimelyWarning")
def test_what_cannot_be_built_says_why(build: Any, message: str) -> None:
    with timely.Worker() as worker, worker.dataflow(int) as scope:
        table = dd.table(scope, DATA)
        with pytest.raises(SqlError, match=message) as caught:
            build(table)
        assert "test_table_methods.py" in str(caught.value)
        with pytest.raises(GraphError, match="whole number"):
            table.limit(0, "id")


def test_columns_of_one_name_get_names_of_their_own() -> None:
    def joined(scope: Any) -> Any:
        table = dd.table(scope, DATA)
        return table.join(table, on="this.id = other.id").select("id", "id_1").distinct()

    assert contents(joined) == {(1, 1): 1, (2, 2): 1}


# -- lists ---------------------------------------------------------------------------------------------------------

POSTS = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string())), ("sizes", pa.list_(pa.int64()))])


def post(source: random.Random) -> Any:
    tags = tuple(maybe(source, source.choice("abc")) for _ in range(source.randint(0, 3)))
    return source.randint(1, 4), maybe(source, tags), maybe(source, tuple(range(source.randint(0, 3))))


LISTS = Tables({"posts": POSTS}, {"posts": post})

UNNESTED = [
    "select id, unnest(tags) from posts",
    "select id, unnest(tags) as t, unnest(sizes) as s from posts",
    "select id, upper(unnest(tags)) || '!' from posts where id > 1",
    "select unnest([1, id]) from posts",
    "select distinct unnest(tags) from posts",
    "select unnest(tags) as t, id from posts order by t, id limit 3",
    "select t, count(*) from (select unnest(tags) as t from posts) group by t",
    "select id, t from posts, unnest(tags) as u(t)",
    "select id, t from posts, unnest(posts.tags) as u(t) where t <> 'a' and id < 4",
    "select id, t, s from posts, unnest(tags) as u(t), unnest(sizes) as v(s) where s > 0",
    "select id, t from posts cross join unnest(tags) as u(t)",
    "select id, t from posts left join unnest(tags) as u(t) on true",
    "select id, t from posts join unnest(tags) as u(t) on t = 'b'",
    "select id, t, i from posts, unnest(tags) with ordinality as u(t, i)",
    "select id, t from posts, lateral unnest(tags) as u(t)",
    "select u.unnest from posts, unnest(sizes) u",
    "select x from unnest([1, 2, 2]) as u(x)",
    "select p.id, x from posts p, unnest(list_concat(p.sizes, [7])) as u(x) join (values (1), (7)) as v(y) on x = y",
    "select id from posts p where exists (select 1 from unnest(p.tags) as u(t) where t = 'a')",
    "select id, (select sum(s) from unnest(p.sizes) as u(s)) from posts p",
    "select min(tags), max(tags), max(sizes), count(distinct tags) from posts",
    "select tags, count(*) from posts group by tags",
    "select id, tags from posts order by tags desc, sizes nulls first, id limit 3",
    "select a.id, b.id from posts a join posts b on a.tags = b.tags",
    "select a.id, b.id from posts a join posts b on a.tags is not distinct from b.tags",
    "select id from posts p where not exists (select 1 from posts q where q.sizes is not distinct from p.sizes and q.id > p.id)",
    "select tags from posts union select ['a'] union select list_append(tags, 'z') from posts",
    "select p, p.id from (select {'id': id, 'n': len(sizes)} as p from posts)",
    "select max({'n': len(sizes), 'id': id}) from posts",
    "select q.p.n from (select {'n': len(sizes)} as p from posts) q where q.p.n > 1",
]


@pytest.mark.parametrize("query", UNNESTED)
def test_lists_and_structs_in_queries(query: str) -> None:
    LISTS.check(lambda posts: dd.sql(posts.scope, query, posts=posts), query, 1, 10)


def test_explode() -> None:
    LISTS.check(lambda posts: posts.explode("tags"), "select id, unnest(tags), sizes from posts")


@pytest.mark.filterwarnings("ignore::timely.TimelyWarning")
@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select unnest(id) from posts", "takes a list, not BIGINT"),
        ("select id from posts right join unnest(tags) as u(t) on true", "inner or left join"),
        ("select sum(unnest(sizes)) from posts", "UNNEST"),
        ("select id from posts where unnest(tags) = 'a'", "UNNEST"),
        ("select id.x from posts", "no fields|x"),
        ("select tags[1:2:3] from posts", "not supported|step"),
    ],
)
def test_what_is_refused_of_lists(query: str, message: str) -> None:
    with timely.Worker() as worker, worker.dataflow(int) as scope, pytest.raises(SqlError, match=message):
        dd.sql(scope, query, posts=dd.table(scope, POSTS))
