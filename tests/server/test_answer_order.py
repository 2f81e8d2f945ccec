"""Answers are in the order of ``ORDER BY``, as DuckDB has it; views have none, and say so."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import timely
from tests.server.client import ask
from timely import TimelyWarning
from timely import differential as dd
from timely.server import Limits, Views, ViewServer

ROWS = [("ada", 3, None), ("bob", 1, 2.5), ("eve", 2, 0.5), ("Ann", 3, 1.5), ("bob", 1, 2.5), (None, 5, 4.0)]
SCHEMA = pa.schema([("who", pa.string()), ("n", pa.int64()), ("x", pa.float64())])


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    views = Views(Limits(rows=5))
    views.table("t", SCHEMA, ROWS)
    with ViewServer(views) as server:
        yield server.port


def answer(port: int, query: str) -> Any:
    return ask(port, "/query", "POST", query, Accept="application/json")


QUERIES = [
    "select who, n from t where who is not null and n > 1 order by n desc, who",
    "select who from t where n > 1 order by n, x",
    "select who as n from t where n > 1 order by n desc",
    "select who as w from t where n > 1 order by upper(w) || 'z' desc",
    "select * from t where n < 4 and x > 0 order by x desc nulls first, n",
    "select who, -n as n from t where n > 1 order by abs(n), (n), who",
    "select *, upper(who) as who from t where n < 3 order by who, n",
    "select who, sum(n) from t group by who order by sum(n) desc, 1",
    "select who, sum(n) as s from t group by all order by max(x) desc nulls last, s",
    "select distinct n from t order by n desc",
    "(select n from t where n > 2) union all (select 7) order by 1 desc",
    "select who, n from t where n between 2 and 4 order by all",
    "select who from t order by n desc, who limit 3",
    "with a as (select who, n + 1 as m from t where n > 1) select a.who from a order by a.m desc, a.who",
    "select t.who, (select count(*) from t u where u.n < t.n) as c from t where n > 1 order by t.n + 1 desc, who",
]


@pytest.mark.parametrize("query", QUERIES)
def test_an_answer_is_in_the_order_that_duckdb_has(port: int, query: str) -> None:
    result = answer(port, query)
    assert result.status == 200, result.content
    t = pa.table(list(zip(*ROWS, strict=True)), schema=SCHEMA)
    assert t.num_rows == len(ROWS)
    assert [tuple(row.values()) for row in result.content["rows"]] == duckdb.execute(query).fetchall()
    assert not result.content["more"]


def test_a_bounded_answer_has_the_first_rows(port: int) -> None:
    result = answer(port, "select n, who from t order by n desc, who").content
    assert [row["n"] for row in result["rows"]] == [5, 3, 3, 2, 1] and result["more"]
    result = answer(port, "select n from t order by n").content
    assert [row["n"] for row in result["rows"]] == [1, 1, 2, 3, 3] and result["more"]


@pytest.mark.parametrize(
    ("query", "column", "why"),
    [
        ("select distinct n from t order by n + 1", 35, "select this too"),
        ("select n from t union select 1 order by n + 1", 41, "select this too"),
        ("select who, count(*) from t group by all order by n", 51, "next to aggregates it must stand in GROUP BY"),
    ],
)
def test_an_order_by_what_is_not_there_is_refused(port: int, query: str, column: int, why: str) -> None:
    result = answer(port, query)
    assert result.status == 400 and (result.content["line"], result.content["column"]) == (1, column)
    assert why in result.content["error"]


def test_a_view_says_that_it_has_no_order() -> None:
    message = r"a view has no order: ORDER BY at line 1, column 17 has no effect without LIMIT; sort when you read"
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            t = dd.table(scope, pa.table({"n": [2, 1]}))
            with pytest.warns(TimelyWarning, match=f"^{message}") as shown:
                dd.sql(scope, "select n from t order by n", t=t).output()
            with warnings.catch_warnings(action="error"):
                dd.sql(scope, "select n from t order by n limit 1", t=t).output()
                dd.sql(scope, "select distinct on (n) n from t order by n", t=t).output()
        worker.run()
    assert [one.filename for one in shown] == [__file__]
    views = Views()
    views.table("t", SCHEMA, ROWS)
    with pytest.warns(TimelyWarning, match=f"^view sorted: {message}"):
        views.view("sorted", "select n from t order by n")
