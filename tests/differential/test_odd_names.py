"""Columns with any text as a name: queries over them give what DuckDB gives for the same queries over plain names."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
import sqlglot
from sqlglot import exp

import timely
from tests.differential.beside_duckdb import Epochs
from tests.differential.sql_epochs import QUERIES, SCHEMAS, stream
from timely import SqlError
from timely import differential as dd

ODD = {
    name: f'{name} (É. "-{number})'
    for number, name in enumerate(sorted({each for one in SCHEMAS.values() for each in one.names}))
}
"""An odd name for each column; no two of them are equal up to the first blank."""


def renamed(query: str) -> str:
    """Return a query with the odd names, in upper case; everything else stays, character by character."""
    odd_names = {
        (name.meta["start"], name.meta["end"] + 1): ODD[name.name.lower()]
        for tree in sqlglot.parse(query, read="duckdb")
        if tree is not None
        for name in tree.find_all(exp.Identifier)
        if name.name.lower() in ODD and "start" in name.meta and not isinstance(name.parent, exp.Table)
    }
    for (start, end), name in sorted(odd_names.items(), reverse=True):
        query = query[:start] + '"{}"'.format(name.upper().replace('"', '""')) + query[end:]
    return query


def with_odd_names(seed: int) -> Epochs:
    schemas = {table: pa.schema([field.with_name(ODD[field.name]) for field in schema]) for table, schema in SCHEMAS.items()}
    return Epochs(schemas, stream(seed).changes)


def check(query: str) -> None:
    assert with_odd_names(1).views(renamed(query)) == stream(1).expected(query), renamed(query)


@pytest.mark.parametrize("query", QUERIES[::20])
def test_a_query_over_odd_names_gives_what_duckdb_gives(query: str) -> None:
    check(query)


@pytest.mark.soak
def test_all_queries_over_odd_names_give_what_duckdb_gives() -> None:
    for query in QUERIES:
        check(query)


SALES = pa.table(
    {"Order Country": ["x", "y", "x"], "amount-eur": [1, 2, 3], "a.b": [7, 8, 9], 'q"--q': [1, 1, 1], "select": [5, 6, 7]}
)


def held(build: Any) -> Any:
    """What the table of ``build(sales)`` holds, and its names."""
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            table = build(dd.table(scope, SALES))
            output = table.output()
        return table.schema.names, dict(output.at(0))


METHODS = {
    "select": (
        lambda t: t.select("Order Country", '"amount-eur" + 1 as n'),
        ["order country", "n"],
        {("x", 2): 1, ("y", 3): 1, ("x", 4): 1},
    ),
    "star": (lambda t: t.where('"a.b" > 8'), [name.lower() for name in SALES.column_names], {("x", 3, 9, 1, 7): 1}),
    "rename": (
        lambda t: t.rename({"Order Country": "My Country"}).select("my country").distinct(),
        ["my country"],
        {("x",): 1, ("y",): 1},
    ),
    "agg": (
        lambda t: t.group_by("order country").agg('max("a.b") as "b max"'),
        ["order country", "b max"],
        {("x", 9): 1, ("y", 8): 1},
    ),
    "drop": (lambda t: t.drop("order country", "amount-eur", "A.B", "select"), ['q"--q'], {(1,): 3}),
    "cast": (lambda t: t.cast({"a.b": "varchar"}).select("a.b"), ["a.b"], {("7",): 1, ("8",): 1, ("9",): 1}),
    "join": (
        lambda t: t.join(t.select("a.b", '"select" as s'), on="a.b").select("a.b", "s"),
        ["a.b", "s"],
        {(7, 5): 1, (8, 6): 1, (9, 7): 1},
    ),
    "top": (lambda t: t.top(1, "a.b", by=["order country"]).select("a.b"), ["a.b"], {(7,): 1, (8,): 1}),
    "limit": (lambda t: t.limit(1, '"a.b" desc').select("a.b"), ["a.b"], {(9,): 1}),
    "sessions": (
        lambda t: t.sessions("a.b", gap=1, by="order country").group_by("order country", "window_start").agg("count(*) as n"),
        ["order country", "window_start", "n"],
        {("x", 7, 1): 1, ("x", 9, 1): 1, ("y", 8, 1): 1},
    ),
    "reserved": (lambda t: t.select('"select"').limit(1, '"select"'), ["select"], {(5,): 1}),
    "quotes": (lambda t: t.select('"q""--Q" as "from"').distinct(), ["from"], {(1,): 1}),
}


@pytest.mark.parametrize("name", METHODS)
def test_methods_take_the_name_of_a_column_as_it_is(name: str) -> None:
    build, names, rows = METHODS[name]
    assert held(build) == (names, rows)


@pytest.mark.filterwarnings("ignore::timely.TimelyWarning")  # of dataflows without a table
def test_a_text_that_is_a_column_and_an_expression_of_others_is_refused() -> None:
    both = pa.table({"a-b": [1], "a": [5], "b": [2]})
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            table = dd.table(scope, both)
            with pytest.raises(SqlError, match='write "a-b", or the expression in parentheses'):
                table.select("a-b")
            one, other = table.select('"a-b"').output(), table.select("(a-b) as d").output()
        assert (one.at(0), other.at(0)) == ({(1,): 1}, {(3,): 1})


@pytest.mark.filterwarnings("ignore::timely.TimelyWarning")  # of dataflows without a table
def test_only_letters_of_ascii_are_equal_in_both_cases() -> None:
    data = pa.table({"Änderung": [1], "GRÖSSE": [2]})
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            output = dd.sql(scope, 'select "Änderung", "grÖsse" from t', t=dd.table(scope, data)).output()
        assert output.at(0) == {(1, 2): 1}
        with worker.dataflow(int) as scope, pytest.raises(SqlError, match="änderung"):
            dd.sql(scope, 'select "änderung" from t', t=dd.table(scope, data)).output()


def test_computed_columns_are_called_what_they_are() -> None:
    def build(table: Any) -> Any:
        return table.select("count(*)", 'sum("amount-eur")', "sum(\"amount-eur\") filter (where 'A' = 'B')", "1 + 1", "1 + 1")

    names, rows = held(build)
    assert names == [
        "count(*)",
        'sum("amount-eur")',
        "sum(\"amount-eur\") filter(where 'a' = 'b')",
        "1 + 1",
        "1 + 1_1",
    ]
    assert rows == {(3, 6, None, 2, 2): 1}
    assert held(lambda t: t.group_by().agg("count(*)").select('"count(*)" + 1 as n')) == (["n"], {(4,): 1})


WRONG_NAMES = {
    "select contry from orders": "contry at line 1, column 8: there is no column of this name; orders has",
    "select country from order_s": "order_s at line 1, column 21: there is no table order_s; there are: orders",
    "select x.country from orders": "x.country at line 1, column 8: there is no table x in FROM; there are: orders",
    "select x.* from orders": "x.* at line 1, column 8: there is no table x in FROM; there are: orders",
    "select country from orders a, orders b": "country at line 1, column 8: the name is ambiguous: write a.country or b.country",
    "select id from orders a join orders b using (contry)": "contry at line 1, column 46: there is no column of this name",
    "select 1\nfrom orders where (select max(n) from nope) > 1": "nope at line 2, column 39: there is no table nope",
}


@pytest.mark.filterwarnings("ignore::timely.TimelyWarning")
@pytest.mark.parametrize("query", WRONG_NAMES)
def test_a_name_that_is_not_there_is_named_with_those_that_are(query: str) -> None:
    with timely.Worker() as worker, worker.dataflow(int) as scope:
        orders = dd.table(scope, pa.table({"id": [1], "country": ["x"]}))
        with pytest.raises(SqlError) as raised:
            dd.sql(scope, query, orders=orders)
        orders.output()
    assert str(raised.value).startswith(WRONG_NAMES[query])
    assert ("orders has id, country; did you mean country?" in str(raised.value)) is ("select contry" in query)
