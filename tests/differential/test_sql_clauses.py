"""What SQL says is meant or refused: each clause and each argument of a query, and what the parser would let pass.

White box: the parser offers arguments that no text of a test has, so they are put into its trees. Each hint of a table is tried.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from sqlglot import exp

import timely
from tests.differential.sql_epochs import QUERIES, SCHEMAS, stream
from timely import SqlError
from timely import differential as dd
from timely.dataflow import declared_schema
from timely.differential.tables.names.hints import FUNCTION_HINTS, TYPE_HINTS
from timely.differential.tables.names.queries import query_of, relation_of
from timely.differential.tables.table_class import relations

MEANT = {
    "sql-2 having": "select -amount as amount, count(*) from orders group by all having -amount > -9",
    "sql-1": "select id from orders union by name select id from orders order by id",
    "sql-2": "select id, (select count(*) from (select o.id from lines group by grouping sets ((o.id), ())) s) from orders o",
    "sql-10": "select distinct(id) from orders order by id limit 2",
    "sql-11": "select o.id, l.n from orders o left join (lines l join edges e on e.src = l.n) on o.id = l.order_id",
    "sql-12": "with recursive r(a) as (select src from edges union (with recursive s(b) as (select a from r union"
    " select dst from s join edges on src = b) select b from s)) select * from r",
    "sql-17": "with recursive r as (select src from edges union (with x as (select dst from edges) select dst from x))"
    " select * from r",
    "sql-17 hidden": "with recursive r as (select src from edges union all (with r as (select 9) from r)) from r",
    "sql-19": "select customer::varchar(9) as \"left\", amount as offset, [1, 1][1], interval '1 hour' from orders",
    "sql-20": "select id from orders where amount in ((select n from lines order by n desc) limit 1)",
    "sql-20 any": "select id from orders where amount = any((select n from lines order by n desc) limit 1)",
    "sql-20 scalar": "select ((select max(n) from lines) limit 0) from orders",
    "sql-21": "select * from (values (1, 2)) as v(x)",
    **{
        f"sql-23 {join}": f"select id, (select count(*) from edges {join} (select n from lines where n < amount) on src = n)"
        " from orders"
        for join in ("semi join", "anti join")
    },
    "sql-23 asof": "select id, (select sum(e.src + l.n) from edges e asof left join (select * from lines where n < amount) l"
    " on e.dst = l.order_id and e.src >= l.n) from orders",
    "sql-22": "select quantile_disc((select percentile_disc(0.5) within group (order by n desc) from lines), 0.3) from orders",
}


@pytest.mark.parametrize("number", MEANT)  # their neighbours are in the corpus
def test_sql_clauses_mean_what_they_mean_in_duckdb(number: str) -> None:
    assert stream(1).views(MEANT[number]) == stream(1).expected(MEANT[number])


REFUSED = {
    "sql-3": {
        "select list_transform(id, lambda x: x) from orders": "it takes a list, and here is BIGINT",
        "select list_transform([1], x -> x) from orders": "a list and a lambda, such as lambda x: x + 1",
        "select list_filter([1], lambda x, x: x) from orders": "its lambda has 1 different parameters",
        "select list_transform([1], lambda x: x + sum(id)) from orders": "an aggregate cannot stand here",
        "select list_transform([1], lambda x: (select 1)) from orders": "a lambda has no subqueries",
        "select [x + id for x, id in [5] if id > 1] from orders": "a condition comes without numbers of elements",
        "select list_reduce([1], lambda a, x: 'y') from orders": "VARCHAR, is no element of the list: cast it",
        "select list_transform([id], lambda x: x + amount) from orders group by id": "amount",
        "select id << 170141183460469231731687303715884105728 from orders": "whole numbers have up to 128 bits",
        "select id::decimal(3, 3) from orders": "one at least is before the point",
        "select quantile_cont(id, 0.8 order by id desc) from orders": "its order stands in WITHIN GROUP",
        "select quantile_disc(id, 0.8 order by amount) from orders": "its order stands in WITHIN GROUP",
        "select date '2020-01-01' + interval '1 month ago'": "each behind a number: -1 month",
        "select count(*) export_state from orders": "this is a word of SQL",
        "select mode(amount order by id) from orders": "mode(amount order by id) at line 1, column 8: mode takes no ORDER BY",
        "select arg_max(id, id order by amount) from orders": "column 8: arg_max takes no ORDER BY",
        "select mode() within group (order by id) from orders": "column 8: mode takes no WITHIN GROUP",
    },
    "sql-4": {
        "select count(distinct *) from orders": "count(distinct *) at line 1, column 8: DISTINCT in an aggregate takes one",
        "select count(* exclude (id)) from orders": "id at line 1, column 25: EXCLUDE is not supported here",
        "select sum(distinct *) from orders": "column 8: DISTINCT in an aggregate takes one",
    },
    "sql-5": {
        "select * exclude (salery) from orders": "salery at line 1, column 19: * has no column of this name",
        "select * replace (0 as salery) from orders": "salery at line 1, column 24: * has no column of this name",
        "select * replace (id + 1) from orders": "REPLACE takes a value AS a name",
        "select * rename (salery as pay) from orders": "salery at line 1, column 18: * has no column of this name",
        "select * exclude (id, id) from orders": "id at line 1, column 23: there is no other column of this name",
        "select * exclude (id) replace (1 as id) from orders": "column 37: there is no other column of this name",
        "select o.* exclude (l.n) from orders o, lines l": "l.n at line 1, column 21: * has no column of this name",
        "select * exclude (id) from orders where exists (select * exclude (m) from lines)": "m at line 1, column 67",
        "select * replace (a.src + 1 as src) from edges a, edges b": "src at line 1, column 32: the name is ambiguous",
    },
    "sql-16": {
        "insert into r values (1)": "insert into r values (1) at line 1, column 1: a view is a query, not INSERT",
        "select 1;\nselect 2": "select 2 at line 2, column 1: a view is one query, and here are 2",
        "select 'abc": "' at line 1, column 8: the query cannot be parsed: what this opens is not closed",
        "select '\n',\n 'abc": "' at line 3, column 2: the query cannot be parsed: what this opens is not closed",
        "select 1 /* abc": "/ at line 1, column 10: the query cannot be parsed: what this opens is not closed",
        "": "at line 1, column 1: it has no query",
        "if(true, 1)": "if(true, 1) at line 1, column 1: a view is a query, not IF",
    },
    "sql-17": {
        "select (sum(amount)) over () from orders": "'(' at line 1, column 27: the query cannot be parsed",
        "select abs(amount) over () from orders": "column 8: OVER is supported behind aggregates and window functions",
        "select distinct on ('[') id from orders order by id": "'[' at line 1, column 21: DISTINCT ON takes names",
        "select quantile_disc(id, . 0.25) from orders": "this is not a number",
        "select date() from orders": "date() at line 1, column 8: there is no function date here; write moment::date",
        "select id, time() x from orders": "time() at line 1, column 12: ",
        "select id, n orders full join lines using (id)": "a join needs FROM before it",
        "1 a union select 2": "1 a at line 1, column 1: a set operation stands between queries",
        "(select id from orders) join edges on true": "a join is not supported here",
        "(select id from orders), edges": "edges at line 1, column 26: a join is not supported here",
        "with c as ((select id from orders) join edges on false) select * from c": "column 36: a join is not supported here",
        "select id from orders where id in ((select src from edges) cross join lines)": "column 66: a join is not supported here",
        "select * from orders, lateral ((select src from edges) join lines on false) x": "a join is not supported here",
        "select count(*) from orders group by all id": "a list is not supported here",
        "select " + "(" * 4000 + "1" + ")" * 4000: "the query at line 1, column 1: it is nested too deeply",
        "select 1" + " + 1" * 6000: "at line 1, column 1: it is nested too deeply",
    },
    "sql-19 words": {
        "select id from orders offset where id > 1": "offset at line 1, column 23: this is a word of SQL: as a name it needs",
        "select id offset from orders": "offset at line 1, column 11: this is a word of SQL",
        "select count(*) from orders group": "group at line 1, column 29: this is a word of SQL",
        "select * from orders as order(a)": "order at line 1, column 25: this is a word of SQL",
        "select a from orders o(natural)": "natural at line 1, column 24: this is a word of SQL",
        "select id as, amount from orders": "as at line 1, column 11: the query cannot be parsed: what",
        "select (id as) from orders": "as at line 1, column 12: the query cannot be parsed: what belongs after it is missing",
        "select id as 1 from orders": "as at line 1, column 11: the query cannot be parsed",
        "select count(*) from orders group by": "group by at line 1, column 29: the query cannot be parsed: what belongs",
        "select sum(id) over (partition by order by id) from orders": "partition by at line 1, column 22: the query cannot",
        "select floor(price, from lines": "( at line 1, column 13: the query cannot be parsed: it is not closed",
        "select quantile_disc(id, 0.25, id from orders": "( at line 1, column 21: the query cannot be parsed: it is not closed",
        "select left(customer, 1, 2) from orders": "column 8: it does not take (VARCHAR, BIGINT, BIGINT)",
        "select arg_min(id) from orders": "arg_min(id) at line 1, column 8: arg_min takes two arguments",
        "select {bit 'a': id} from orders": "column 16: the query cannot be parsed: one name stands before it",
        "select {1: id} from orders": "column 10: the query cannot be parsed: one name stands before it",
        "select [id][1:2:] from orders": "column 16: the query cannot be parsed: a step is missing behind it",
        "select extract('year', day) from lines": "extract takes a unit FROM a value",
        "select position('a', customer) from orders": "position takes a part IN a text",
        "select lpad(customer, 3) from orders": "lpad(customer, 3) at line 1, column 8: it does not take (VARCHAR, BIGINT)",
        "select if(id > 1, 1) from orders": "if(id > 1, 1) at line 1, column 8: if takes a condition and two values",
        "select nvl(id, 1) from orders": "there is no function nvl here",
        "select mod(id, 2, 3) from orders": "column 8: it does not take (BIGINT, BIGINT, BIGINT)",
        "select quantile_disc(id, 0.5, 0.25) from orders": "column 8: quantile_disc takes two arguments",
        "select string_agg(customer, ',', 'x' order by id) from orders": "column 8: string_agg takes one or two arguments",
        "select strftime(day, '%d', n) from lines": "column 8: it does not take (DATE, VARCHAR, BIGINT)",
        "select 1 from orders left join lines where false": "join lines at line 1, column 27: a join needs ON or USING",
        "select 1 from orders semi join lines": "join lines at line 1, column 27: a join needs ON or USING",
    },
    "sql-18": {
        "select now()": "now() at line 1, column 8: this is not supported here: its value changes",
        "select current_date": "current_date at line 1, column 8: this is not supported here: its value changes",
        "select nope from orders": "nope at line 1, column 8: there is no column of this name",
        "select * from orders o join orders o on true": "o at line 1, column 36: there are two of this table here: rename one",
        "select string_agg(customer, ',') from orders": "(customer, ',') at line 1, column 8: string_agg needs ORDER BY",
        "select list(id) over () from orders": "list(id) over () at line 1, column 8: list needs ORDER BY",
        "select lag(id, 1, 2, 3) over (order by id) from orders": "column 8: lag takes one to three arguments",
        "select rank(id) over (order by id) from orders": "column 8: rank takes no argument",
        "select row_number() from orders": "column 8: row_number is no aggregate: it stands right before OVER",
        "select id\nfrom (lines\n join orders using (n))": "n at line 3, column 21: there is no column of this name in orders",
        "select (id + amount) * nope(1, (2)) from orders": "nope(1, (2)) at line 1, column 24: there is no function nope here",
    },
    "sql-19": {
        "bare select": "'select' at line 1, column 6: the query cannot be parsed",
        "select": "select at line 1, column 1: SELECT needs columns",
        "select from": "'from' at line 1, column 8: the query cannot be parsed",
        "select , id from orders": ", at line 1, column 8: the query cannot be parsed",
        "select 'a' 'b'": "'b' at line 1, column 12: the query cannot be parsed",
        "select id from orders limit 1 order by id": "limit 1 at line 1, column 23: it belongs behind order by id",
        "select id from orders group by id where id > 1": "it belongs behind where id > 1",
        "select id from orders order by id limit 1 union select n from lines": "it belongs behind the set operation",
        "select sum(id) over (w) from orders window w as (order by id rows 1 preceding)": "the window 'w' has a frame",
        "select sum(id) over v from orders window w as (order by id rows 1 preceding), v as (w)": "the window 'w' has a frame",
        "select sum(id) over w from orders window w as (order by id), w as ()": "there are two of this window here",
        "with x as (select 1), x as (select 2) select * from x": "x at line 1, column 23: there are two of this WITH here",
        "select id in from orders": "IN needs values",
        "select rank() ignore nulls over (order by id) from orders": "rank takes no IGNORE NULLS",
        "select id from orders order by 'id' limit 1": "ORDER BY of this value has no effect",
        "select id from orders order by 0 limit 1": "0 at line 1, column 32: the numbers of columns begin with 1",
        "select id from orders group by (-1)": "1 at line 1, column 34: the numbers of columns begin with 1",
        "select id from orders order by id, all(id) limit 1": "all at line 1, column 36: the query cannot be parsed",
        "select id from orders order by all(id) limit 1": "all at line 1, column 32: the query cannot be parsed",
        'select id as "all", id from orders order by "all" limit 1': '"all" at line 1, column 45: the query cannot be parsed',
        "select (select coalesce(sum(n), l.n) from lines l where l.n = o.id) from orders o": "l.n at line 1, column 33: no such",
    },
    "sql-19 parts": {
        "select id from orders order by id(1)": "id(1) at line 1, column 32: there is no function id",
        "select distinct id from orders order by upper(id)": "upper(id) at line 1, column 41: ",
        "select sum(id) as n from orders order by id": "id at line 1, column 42: no such column here",
        "select ifnull(id, 1, null) from orders": "column 8: it does not take (BIGINT, BIGINT, NULL)",
        "select coalesce(mod(id, 2, null)) from orders": "column 17: it does not take (BIGINT, BIGINT, NULL)",
        "select [id][mod(id, 2, 3)] from orders": "column 13: it does not take (BIGINT, BIGINT, BIGINT)",
        "select [id][1, id] from orders": "column 9: [] takes one number",
        "select [id][1:2:3] from orders": "3 at line 1, column 17: STEP is not supported here",
        "select 1 from orders join lines on id * n": "id * n at line 1, column 36: a value of BIGINT stands where BOOLEAN is",
        "select time_bucket('dow', day) from lines": "column 8: it does not take (VARCHAR, DATE)",
        "select sum(order by id) from orders": "sum(order by id) at line 1, column 8: something is missing in it",
        "select *, count(*) from orders": "* at line 1, column 8: no such column here; next to aggregates it must stand in",
        "select array() from orders": "array() at line 1, column 8: there is no function array here",
        "select max(id, all) from orders": "all at line 1, column 16: the query cannot be parsed: this is one too many here",
        "select id from orders where id between 1 5": "'5' at line 1, column 42: the query cannot be parsed: AND is missing",
        "select id from orders order by id asc desc": "desc at line 1, column 39: the query cannot be parsed: this is one",
        "select id from orders 'x'": "\"'x'\" at line 1, column 23: the query cannot be parsed",
        "select * from orders as o(1)": "1 at line 1, column 27: this is a word of SQL",
        "select src from edges join edges e using (src())": "src()) at line 1, column 23: these are names",
        "select src from edges join edges e using ()": "')' at line 1, column 43: the query cannot be parsed: a join needs ON",
        "select * exclude (src(1)) from edges": "these are names",
        **{
            f"select * rename ({part}) from edges": "these are names"
            for part in ("src", "src as (z)", "(src, dst)", "src + 1 as z")
        },
        "select * exclude () from edges": "column 21: the query cannot be parsed: names are missing after EXCLUDE",
        "select * exclude, src from edges": "column 17: the query cannot be parsed: names are missing after EXCLUDE",
        "select * replace from edges": "column 18: the query cannot be parsed: names are missing after REPLACE",
        "select src::varchar(x) from edges": "column 8: this type has no parameters here",
        "select sum(id) over (order by id rows between between 1 preceding and current row) from orders": "column 47: the query",
        "select id, () in (select order_id, n from lines) from orders": "these parentheses have no value",
        "select (id as x) from orders": "id as x at line 1, column 9: AS gives names to columns only",
        "select if(true, id as x, 2) from orders": "id as x at line 1, column 17: AS gives names to columns only",
        "as select 1": "as at line 1, column 1: the query cannot be parsed: this is one too many here",
        "select id filter, customer from orders": "filter at line 1, column 11: this is a word of SQL",
        "select {('a'): id} from orders": "column 14: the query cannot be parsed: one name stands before it",
        "select as id from orders": "as at line 1, column 8: the query cannot be parsed: this is one too many",
        "with o as (as select 1) select * from o": "as at line 1, column 12: the query cannot be parsed: this is one",
        "select 1 from (lines, orders)": "column 16: parentheses in FROM are around a query or a join",
        "select l.* from (lines) l": "(lines) l at line 1, column 18: parentheses in FROM are around a query or a join",
        "select a.src from edges a join edges b": "'b' at line 1, column 38: the query cannot be parsed: a join needs ON",
        "select 1 from edges a join edges b join edges c on a.src = b.src": "'join' at line 1, column 36: the query cannot be",
        "select 1 from edges a cross join edges b on true": "CROSS and NATURAL joins have no condition",
        "select 1 from edges a natural join edges b on true": "CROSS and NATURAL joins have no condition",
        "select sum(id) over (order by id rows between 2 preceding and 1) from orders": "1 at line 1, column 63: PRECEDING or",
        "select sum(id) over (order by id rows 2) from orders": "2 at line 1, column 39: PRECEDING or FOLLOWING is missing",
        "select sum(id) over (order by id rows) from orders": "over (order by id rows) at line 1, column 8: PRECEDING or",
    },
    "sql-20": {
        "(select id from orders order by id limit 2) order by id limit 1": "these parentheses have a LIMIT already",
        "select id from orders where exists ((select 1 from lines) limit 0)": "column 29: there is no function exists here",
    },
    "sql-21": {
        "select x from orders v(x, b, c, d)": "d at line 1, column 33: the names are more than the 3 columns",
        "select x from (values (1)) v(x, y)": "y at line 1, column 33: the names are more than the 1 columns",
        "select x from (select 1) v(x, y)": "y at line 1, column 31: the names are more than the 1 columns",
        "with v(x, y) as (select 1) select x from v": "y at line 1, column 11: the names are more than the 1 columns",
        "select * from (values (1, 2), (3)) v": "its rows have different numbers of columns",
    },
    "sql-22": {
        "select count(*) from orders group by distinct id": "column 29: GROUP BY DISTINCT is not supported",
        "select sum(id) within group (order by id) from orders": "sum takes no WITHIN GROUP",
        "select array_agg(id order by id) within group (order by amount) from orders": "array_agg takes no WITHIN GROUP",
    },
}


@pytest.mark.parametrize(("number", "query"), [(number, query) for number, queries in REFUSED.items() for query in queries])
def test_sql_that_is_not_meant_is_refused_where_it_stands(number: str, query: str) -> None:
    with pytest.raises(SqlError) as caught, timely.Worker() as worker, worker.dataflow(int) as scope:
        dd.sql(scope, query, **{name: dd.table(scope, schema, name=name) for name, schema in SCHEMAS.items()})
    assert REFUSED[number][query] in str(caught.value) and " at line " in str(caught.value)


SLIPS = {
    'select text from t where text = "Berlin"': "there is no column of this name; t has day, moment, text, part, number, value,"
    " whole, condition, texts; a text has single quotes: 'Berlin'",
    "select text from t where text = \u201cBerlin\u201d": "; a text has single quotes: 'Berlin'",
    "select datediff(month, day, day) from t": "month at line 1, column 17: there is no column of this name; t has day, moment,"
    " text, part, number, value, whole, condition, texts; a unit is a text: 'month'",
    "select strftime('%Y', day) from t": "it does not take (VARCHAR, DATE), but (DATE, VARCHAR): write them in this order",
    "select lpad(text, 3) from t": "it does not take (VARCHAR, BIGINT): it takes (VARCHAR, BIGINT, VARCHAR)",
    "select top 5 text from t": "'5' at line 1, column 12: the query cannot be parsed: this does not fit here; write ORDER BY",
    "select `text` from t": "the query cannot be parsed: this does not fit here; a name has double quotes",
    "selct text from t": "the query cannot be parsed: this does not fit here; did you mean SELECT?",
    "select text form t": "did you mean FROM?",
    "select text from t were value > 1": "did you mean WHERE?",
    "select text from t group text": "write GROUP BY",
    "select uper(text) from t": "there is no function uper here; did you mean upper?",
    "select getdate() from t": "its value changes while the data does not",
    "select text from t where day = 2025-12-31": "DATE and BIGINT do not go together: cast one (a date is a text: '2025-12-31')",
    "select * from read_csv('t.csv')": "there is no function read_csv in FROM; files become tables by --input",
    "select text from t fetch first 5 rows only": "FETCH is not supported here: write LIMIT",
    "explain select text from t": "a view is a query, not EXPLAIN",
}


@contextlib.contextmanager
def views() -> Iterator[Callable[[str], object]]:
    """What makes a view of a query over a table whose columns are called as the words of hints."""
    columns = "day date, moment timestamp_ntz, text string, part string, number double, value long, whole long, condition boolean"
    texts = pa.field("texts", pa.list_(pa.string()))
    with timely.Worker().dataflow(int) as scope:
        yield partial(dd.sql, scope, t=dd.table(scope, declared_schema(columns, "t").append(texts)))


def refused(view: Callable[[str], object], query: str) -> str:
    with pytest.raises(SqlError) as caught:
        view(query)
    return str(caught.value)


def test_what_other_databases_have_is_refused_with_what_to_write_here() -> None:
    with views() as view:
        for name, instead in FUNCTION_HINTS.items():
            assert f"there is no function {name} here; write {instead}" in refused(view, f"select {name}(value) from t")
        for name, instead in TYPE_HINTS.items():
            assert f"there is no type {name} here; write {instead}" in refused(view, f"select text::{name} from t")
        for instead in {*FUNCTION_HINTS.values(), *(f"text::{instead}" for instead in TYPE_HINTS.values())}:
            view(f"select {instead} from t")


def test_a_slip_is_refused_with_what_was_meant() -> None:
    with views() as view:
        assert [query for query, message in SLIPS.items() if message not in refused(view, query)] == []


SAYS_NOTHING = {
    (exp.Array, "bracket_notation"),
    (exp.CTE, "materialized"),
    (exp.Cast, "safe"),
    (exp.Subquery, "order"),
}
"""What changes no result, or is read and set by no query of the corpus."""


def test_no_argument_of_the_parser_is_ignored() -> None:
    examples: dict[Any, str] = {}
    known: defaultdict[Any, set[str]] = defaultdict(set)
    for query in QUERIES:
        for node in query_of(query).walk():
            examples.setdefault(type(node), query)
            known[type(node)].update(name for name, value in node.args.items() if value is not None and value != [])
    ignored = []
    for kind, query in examples.items():
        for name in set(kind.arg_types) - known[kind]:
            tree = query_of(query)
            next(node for node in tree.walk() if type(node) is kind).set(name, exp.Var(this="surplus"))
            with contextlib.suppress(SqlError), timely.Worker() as worker:
                with worker.dataflow(int) as scope:
                    tables = {name: dd.table(scope, schema, name=name) for name, schema in SCHEMAS.items()}
                    relation_of(scope, tree, relations(tables))
                for table in tables.values():
                    table.session.close()
                worker.run()
                ignored.append((kind, name))
    assert {*ignored} <= SAYS_NOTHING and len(examples) > 80
