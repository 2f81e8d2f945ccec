"""SQL over tables: a corpus compared with DuckDB at every epoch, random queries, what is refused, and J4."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import timely
from tests.differential.beside_duckdb import RESTART
from tests.differential.sql_epochs import (
    QUERIES,
    SCHEMAS,
    check_random_query,
    stream,
)
from timely import SqlError
from timely import differential as dd


@pytest.mark.parametrize("number", range(len(QUERIES)), ids=QUERIES.__getitem__)
def test_a_query_gives_what_duckdb_gives_at_every_epoch(number: int) -> None:
    query, seed = QUERIES[number], 1 + number % 2
    assert stream(seed).views(query) == stream(seed).expected(query)


@pytest.mark.parametrize("number", range(0, len(QUERIES), 8), ids=QUERIES.__getitem__)  # all of them when soaking
def test_columns_and_rows_in_turn_give_what_duckdb_gives(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timely.differential.tables.expressions.column_stages.FEW", 1)  # a few rows go by columns too
    query, seed = QUERIES[number], 2 - number // 8 % 2
    assert stream(seed).views(query, lambda time: time % 3 != 1) == stream(seed).expected(query)


@pytest.mark.parametrize("query", QUERIES[::12])
def test_three_workers_give_the_same(query: str) -> None:
    assert stream(3).views_on_workers(query) == stream(3).expected(query)


@pytest.mark.parametrize("query", QUERIES[5::24])
def test_a_query_resumes_from_a_checkpoint_on_another_number_of_workers(query: str, tmp_path: Path) -> None:
    assert stream(1).views_after_restart(query, tmp_path) == stream(1).expected(query)[RESTART:]


# -- random queries ------------------------------------------------------------------------------------------------


def test_random_queries_give_what_duckdb_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timely.differential.tables.expressions.column_stages.FEW", 1)  # a few rows go by columns too
    refused_once = [170_120]  # a clause was taken to stand before FROM, by a word of another query
    assert sum(check_random_query(number) for number in [*range(11), *refused_once]) > 9


# -- what is refused -----------------------------------------------------------------------------------------------


def built(query: str) -> Any:
    with timely.Worker() as worker, worker.dataflow(int) as scope:
        tables = {name: dd.table(scope, schema, name=name) for name, schema in SCHEMAS.items()}
        return dd.sql(scope, query, **tables)


REFUSED = {
    "select id, now() from orders": ("NOW", "line 1, column 12", "no view can keep it"),
    "select id\nfrom orders where amount > random()": ("RANDOM", "line 2, column 28", "no view can keep it"),
    "select current_date": ("CURRENT_DATE", "line 1, column 8", "no view"),
    "select uuid()": ("UUID", "line 1", "no view"),
    "select id from orders limit 3": ("LIMIT", "line 1, column 23", "need ORDER BY"),
    "select id from orders offset 3": ("OFFSET", "line 1", "need ORDER BY"),
    "select id from orders order by id limit 10%": ("LIMIT", "line 1", ""),
    "select id from orders order by id limit amount": ("LIMIT", "line 1", "literal"),
    "select row_number() over () from orders": ("ROW_NUMBER", "line 1, column 8", "needs ORDER BY"),
    "select lag(id) over (partition by id) from orders": ("LAG", "line 1", "needs ORDER BY"),
    "select first_value(id) over () from orders": ("FIRST_VALUE", "line 1", "needs ORDER BY"),
    "select ntile(2) over () from orders": ("NTILE", "line 1", "needs ORDER BY"),
    "select string_agg(customer, ',') over () from orders": ("OVER", "line 1", "needs ORDER BY"),
    "select sum(id) over (rows 1 preceding) from orders": ("ROWS", "line 1", "needs ORDER BY"),
    "select sum(id) over (order by id rows between unbounded following and current row) from orders": ("OVER", "", "start"),
    "select sum(id) over (order by id rows amount preceding) from orders": ("OVER", "line 1", "literal whole numbers"),
    "select sum(id) over (order by customer range 1 preceding) from orders": ("OVER", "line 1", "literal distances"),
    "select sum(id) over (order by id, amount range 1 preceding) from orders": ("OVER", "line 1", "one expression"),
    "select sum(id) over (order by id range interval 1 day preceding) from orders": ("OVER", "line 1", "literal distances"),
    "select ntile(0) over (order by id) from orders": ("NTILE", "line 1", "at least 1"),
    "select lag(id, amount) over (order by id) from orders": ("LAG", "line 1", "literal whole number"),
    "select sum(id) over nowhere from orders": ("nowhere", "line 1", "no window"),
    "select sum(id) over (w order by id) from orders window w as (order by id)": ("w", "line 1", "ORDER already"),
    "select sum(rank() over (order by id)) over () from orders": ("RANK", "line 1", "cannot stand in another"),
    "select id from orders where rank() over (order by id) = 1": ("RANK", "line 1", "QUALIFY"),
    "select id from orders where id = $1": ("$1", "line 1, column 34", "parameters"),
    "select id from orders where id = ?": ("?", "line 1, column 34", "parameters"),
    "select * from read_csv('orders.csv')": ("READ_CSV", "line 1", "in FROM; files become tables"),
    "select * from 'orders.csv'": ("orders.csv", "line 1, column 15", "cannot be parsed"),
    "select * from missing": ("missing", "line 1, column 15", "no table"),
    "select missing from orders": ("missing", "line 1, column 8", "no column"),
    "select id from orders a, orders b": ("id", "line 1, column 8", "ambiguous"),
    "select id + customer from orders": ("id + ", "line 1, column 8", "cast"),
    "select id from orders where customer": ("customer", "line 1, column 29", "BOOLEAN"),
    "select id from orders where customer = 3": ("customer", "line 1, column 29", "cast one"),
    "select id from orders where id = 'x'": ("'x'", "line 1", "whole number"),
    "select id, count(*) from orders": ("id", "line 1, column 8", "GROUP BY"),
    "select foo(id) from orders": ("FOO", "line 1, column 8", "no function foo"),
    "select distinct on (customer) * from orders": ("DISTINCT", "line 1", "needs ORDER BY"),
    "select count(distinct id, amount) from orders": ("DISTINCT", "line 1", "one expression"),
    "select string_agg(customer, ',') from orders": ("STRING_AGG", "line 1, column 8", "needs ORDER BY"),
    "select string_agg(customer, ',' order by id) filter (where id > 1), string_agg(distinct customer order by id) from orders": (
        "DISTINCT",
        "line 1",
        "ordered by its argument",
    ),
    "select any_value(amount) from orders": ("ANY_VALUE", "line 1", "needs ORDER BY"),
    "select first(amount), last(amount) from orders": ("FIRST", "line 1", "needs ORDER BY"),
    "select approx_count_distinct(id) from orders": ("APPROX_COUNT_DISTINCT", "line 1", "write count(distinct value)"),
    "select quantile_cont(fee, 0.5) from lines": ("QUANTILE_CONT", "line 1", "quantile_disc"),
    "select quantile_disc(id, amount) from orders": ("QUANTILE_DISC", "line 1", "literal number from 0 to 1"),
    "select quantile_disc(id, repeat([0.5], 1001)) from orders": ("QUANTILE_DISC", "line 1", "list of up to 1,000"),
    "select sum(customer) from orders": ("SUM", "line 1", "takes numbers"),
    "select kurtosis(id) from orders": ("KURTOSIS", "line 1", "no function kurtosis"),
    "select unnest(id) from orders": ("id", "line 1, column 15", "takes a list"),
    "select id from orders where unnest([id]) = 1": ("UNNEST", "line 1", "not supported"),
    "select * from orders full join unnest([id]) u(x) on true": ("UNNEST", "line 1", "inner or left join"),
    "select * from orders left join unnest([id]) u(x) on x > 2": ("UNNEST", "line 1", "is ON TRUE"),
    "select list(id) from orders": ("LIST", "line 1", "list needs ORDER BY"),
    "select lag(id, 1, 0.5) over (order by id) from orders": ("0.5", "line 1", "where BIGINT is expected"),
    "select * from orders tablesample 10%": ("sample", "line 1", "not supported"),
    "select * from orders asof join lines on id = order_id": ("", "line 1", "one inequality"),
    "select * from orders asof join lines on amount >= n and id > order_id": ("", "line 1", "one inequality"),
    "select * from orders asof join lines on amount >= n and id + order_id = 3": ("", "line 1", "expression of each side"),
    "select * from orders asof right join lines on amount >= n": ("ASOF RIGHT", "line 1", "not supported"),
    "select 1 from orders right join lateral (select n from lines where order_id = id) x on true": ("", "", "LATERAL"),
    "select e.src from edges e join edges f on e.w = f.w join edges g using (src)": ("src", "line 1", "ambiguous"),
    "select o.id from orders o natural join lines l": ("JOIN", "line 1", "needs columns of one name"),
    "select (select max(o.amount)) from orders o": ("MAX", "line 1", "belongs to the query around"),
    "select customer from orders group by rollup (1)": ("1", "line 1", "name the column"),
    f"select 1 from orders group by cube ({', '.join(['id'] * 25)})": ("GROUP BY", "line 1", "33,554,432 sets of keys"),
    f"select 1 from orders group by {', '.join(['rollup (id, amount, customer)'] * 6)}": ("", "line 1", "4,096 sets of keys"),
    "select grouping(id) from orders group by customer": ("GROUPING", "line 1", "keys of GROUP BY"),
    "select id from orders o where (id, amount) in (select n from lines)": ("IN", "line 1", "2 expressions"),
    "select id as x, amount as x from orders union by name select 1 as x": ("BY NAME", "line 1", "different names"),
    "select (with x as (select o.id) select id from x) from orders o": ("x", "line 1", "put the query into FROM"),
    "select * from orders positional join lines": ("", "line 1", "not supported"),
    "select (select id, amount from orders) from lines": ("SELECT", "line 1", "one column"),
    "select id from orders where id > all (select src, dst from edges)": ("SELECT", "line 1", "one column"),
    "select id from orders where (id, 1) <> any (select src, dst from edges)": ("SELECT", "line 1", "one column"),
    "select customer from orders union select id from orders": ("UNION", "line 1", "cast one"),
    "select id from orders union select id, amount from orders": ("UNION", "line 1", "columns"),
    "delete from orders": ("DELETE", "", "a view is a query"),
    "select 1; select 2": ("2", "", "one query"),
    "select from where": ("", "", "parsed"),
    "with recursive r as (select src from edges union select max(src) + 1 from r) select * from r": (
        "r",
        "line 1, column 75",
        "aggregates is no plain recursion: WITH MUTUALLY RECURSIVE takes it",
    ),
    "with recursive r as (select src from edges union select a.src from r a join r b on a.src = b.src) select * from r": (
        "r",
        "line 1, column 77",
        "with each other",
    ),
    "with recursive r as (select src from edges union (select dst from edges except select src from r)) select * from r": (
        "r",
        "line 1, column 96",
        "EXCEPT",
    ),
    "with recursive r as (select src from edges union select 1 from edges where not exists (select 1 from r)) select * from r": (
        "r",
        "line 1",
        "EXISTS",
    ),
    "with recursive r as (select src from edges union select dst from edges left join r on r.src = dst) select * from r": (
        "r",
        "line 1",
        "optional side",
    ),
    "with recursive r as (select src from edges union all select distinct src + 1 from r where src < 3) select * from r": (
        "r",
        "line 1",
        "DISTINCT",
    ),
    "with recursive r as (select src from edges union select rank() over (order by src) from r) select * from r": (
        "r",
        "line 1",
        "window",
    ),
    "with recursive r as (select src from edges union (select distinct on (dst) dst from r join edges e on e.src = r.src"
    " order by dst)) select * from r": ("r", "", "DISTINCT ON"),
    "with recursive r as (select src from edges union select n from lines asof join r on r.src < n) select * from r": (
        "r",
        "line 1",
        "ASOF",
    ),
    "with recursive r as (select src from edges union select n from lines where n = any (select src from r)) select * from r": (
        "r",
        "line 1",
        "ANY",
    ),
    "with recursive r as (select src from edges union select n from lines where n <> all (select src from r)) select * from r": (
        "r",
        "line 1",
        "ALL",
    ),
    "with recursive r as (select src from edges union select price from r join lines on src = n) select * from r": (
        "price",
        "line 1",
        "cast one",
    ),
    "with recursive r as (select src from edges union (with x as (select src from r) select x.src from x, x y)) select * from r"
    "": ("r", "line 1", "with each other"),
    "with recursive r as (select 1 as a union (with recursive s as (select 1 as b union select b from s, r) select b from s))"
    " select * from r": ("r", "line 1", "with each other"),
}


@pytest.mark.parametrize("query", REFUSED)
def test_what_is_refused_says_what_and_where(query: str) -> None:
    construct, position, why = REFUSED[query]
    with pytest.raises(SqlError) as caught:
        built(query)
    text = str(caught.value)
    assert construct.lower() in text.lower() and position in text and why in text


def test_a_subquery_that_stands_for_a_value_has_one_row() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            tables = {name: dd.table(scope, schema, name=name) for name, schema in SCHEMAS.items()}
            query = "select id, (select price from lines l where l.order_id = o.id) as price from orders o"
            output = dd.sql(scope, query, **tables).output()
        tables["orders"].session.insert((1, "ada", 3))
        tables["lines"].session.insert((1, 2.5, None, None, None))
        tables["lines"].session.update((2, 2.5, None, None, None), 2)  # nobody asks for these
        for table in tables.values():
            table.session.advance_to(1)
        assert output.at(0) == {(1, 2.5): 1}
        tables["lines"].session.insert((1, 3.5, None, None, None))
        for table in tables.values():
            table.session.close()
        with pytest.raises(timely.OperatorError) as caught:
            output.at(1)
        assert isinstance(caught.value.__cause__, SqlError)
        assert "more than one row" in str(caught.value) and "line 1, column" in str(caught.value)


# -- J4 ------------------------------------------------------------------------------------------------------------

SEGMENTS = pa.schema([("id", pa.int64()), ("segment", pa.string())])
SALES = pa.schema([("id", pa.int64()), ("price", pa.int64())])
SEGMENTED = [((1, "A"), 0, 1), ((2, "A"), 0, 1), ((3, "B"), 0, 1)]
SOLD = [((1, 10), 0, 1), ((1, 20), 0, 1), ((2, 5), 0, 1), ((3, 7), 0, 1), ((1, 10), 1, -1), ((3, 7), 2, -1), ((3, 8), 3, 2)]
REVENUE = [
    (("A", 35, 3), 0, 1),
    (("B", 7, 1), 0, 1),
    (("A", 25, 2), 1, 1),
    (("A", 35, 3), 1, -1),
    (("B", 7, 1), 2, -1),
    (("B", 16, 2), 3, 1),
]


def by_sql(orders: Any, lines: Any) -> Any:
    query = (
        "select o.segment, sum(l.price) as revenue, count(*) as n from orders o join lines l on o.id = l.id group by o.segment"
    )
    return dd.sql(orders.scope, query, orders=dd.table(orders, SEGMENTS), lines=dd.table(lines, SALES)).collection


def by_table(orders: Any, lines: Any) -> Any:
    joined = dd.table(orders, SEGMENTS).join(dd.table(lines, SALES), on="id")
    return joined.group_by("segment").agg("sum(price) as revenue", "count(*) as n").collection


@pytest.mark.parametrize("build", [by_sql, by_table])
def test_DD_J4_revenue_by_segment(run: Callable[..., Any], build: Any) -> None:
    assert sorted(run(build, SEGMENTED, SOLD), key=lambda change: (change[1], change[0])) == REVENUE


# -- values --------------------------------------------------------------------------------------------------------


def test_integer_sums_are_exact_beyond_64_bits() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            rows = dd.table(scope, pa.schema([("n", pa.int64())]))
            output = dd.sql(scope, "select sum(n) as s from rows", rows=rows).output()
        rows.session.update((2**63 - 1,), 4)
        rows.session.close()
        assert output.at(0) == {(4 * (2**63 - 1),): 1}


def test_what_has_no_value_is_an_error() -> None:
    for query in (
        "select n // 0 from rows",
        "select n % 0 from rows",
        "select sqrt(-n) from rows",
        "select cast('nan'::double as int) from rows",
        "select cast(n as tinyint) from rows",
    ):
        with timely.Worker() as worker:
            with worker.dataflow(int) as scope:
                rows = dd.table(scope, pa.schema([("n", pa.int64())]))
                output = dd.sql(scope, query, rows=rows).output()
            rows.session.insert((1000,))
            rows.session.close()
            with pytest.raises(timely.OperatorError) as caught:
                output.at(0)
            assert isinstance(caught.value.__cause__, SqlError)
