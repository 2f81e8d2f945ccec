"""Names that a selected column and one of FROM share, or that are selected twice, mean what they do in DuckDB."""

from __future__ import annotations

import itertools

import duckdb
import pyarrow as pa
import pytest

import timely
from tests.differential.beside_duckdb import register
from timely import SqlError
from timely import differential as dd

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.int64())])
ROWS = [*itertools.product([1, 2, 3], [-2, 1], [0, 4]), (1, None, 4)]

QUERIES = [
    "select a, -b as b from t order by b + 0, a, c limit 3",  # the column: the output stands alone
    "select a, -b as b from t order by (b), a limit 3",
    "select -a as b, c from t order by abs(t.b), b, c limit 3",
    "select distinct on (-b) -a as b, c from t order by -b, a, c",
    "select c as b, sum(a) as y from t group by c having max(b + 1) > 2",
    "select count(*) as c from t group by c having c > 1",
    "select -a as a, max(b) as b from t group by a + 1, a having a + 1 > 2 and b > 0",
    "select count(*) as a from t group by rollup (a) having a > 1",
    "select c as a, max(b) as b from t group by 1 having a > 0",
    "select -b as b, rank() over (order by a, b, c) as r from t qualify b > 0",
    "select max(b) as c from t group by c order by c + 1 limit 1",
    "select s.a, (select -max(b) as b from t u where u.a = s.a group by c order by max(b) limit 1) as m from t s",
    "select a as x, b as x from t order by x, 1 - a, c limit 2",  # the last alias
    "select *, -a as a from t order by a, b, c limit 2",
    "select -a as a, a from t order by a, b, c limit 2",
    "select x from (select a as x, b as x from t) q",  # the first column
    "with q as (select a as x, b as x from t) select x, count(*) from q group by x having x > 1",
    "select c as b, b as x, -c as x, b as x from t order by x, a, c limit 3",
    "select x, y from (select a as x, -a as y from t order by y, b, c limit 2) t(y, x)",  # renamed after they are ordered
    "with t(y, x) as (select a as x, -a as y from t order by y, b, c limit 2) select x, y from t",
    # Two columns of one item of FROM have one name.
    "select a_1 from (select a, b as a_1, c as a from t) q",  # the third column is a_2
    "select a_1 from (select a, b as a, c as a_1 from t) q",
    "select * from (select a, b as a, c as a_1 from t) q",
    "select u.b from t u join (select c, b as c, a as c_1 from t) q on u.a = q.c_1",
    "select u.b from t u natural join (select a, b as a, c from t) q",
    "select x_1, x_1_1 from t v(x, x, x_1)",
    "select x_1 from (values (1, 2, 3)) v(x, x, x_1)",
    "select t.b from t, lateral (select t.a, t.b as a, t.c as a_1) q where a_1 = 4",
    "with q as (select a, b as a from t) select a_1 from q",
    "select * replace (-b as b) rename (a as x) from t order by x, b, c limit 3",
    "select a as x, (select x + 1) as y from t where exists (select 1 from t u where u.a = x)",
    "select a as x, b from t union all select b, c as y from t order by y, x limit 3",
    "select s.a, u.a from (t s join t u using (b, c)) join t v using (b)",
    "select b from (t s join t u using (b, c)) natural join (select b, -b as z from t) v",
    "select * exclude (a), * from t",
    "select * from t u join t v using (a, b), (select 1 as a) w",
    "select v.*, u.* exclude (b) from (select a, b from t) v full join t u using (a)",
    "select * exclude (a) from t u join t v using (a)",
    "select * replace (a + 1 as a) from t u join t v using (a, b)",
    "select x, c from (t u join (select 7 as x, 4 as c) v using (c)) as w",
    # Columns of USING have the type of one side, and texts show it.
    "select a::varchar as x from t left join (select distinct a::double as a from t where a > 1) u using (a)",
    "select a::varchar as x from t natural right join (select distinct b::double as a from t) u",
    "select a from (select distinct a::double as a from t) u right join t using (a) group by a having a::varchar = '2'",
    "select a::varchar as x from t join (select 1 as a) v using (a) full join (select 2.5::double as a) w using (a)",
    "select coalesce(t.a, u.a)::varchar as x from t join (select 1.0::double as a) u using (a)",
]


def test_names_mean_what_they_do_in_duckdb() -> None:
    with duckdb.connect() as connection, timely.Worker() as worker:
        register(connection, "t", ROWS, SCHEMA)
        with worker.dataflow(int) as scope:
            table = dd.table(dd.collection(scope, ROWS), SCHEMA)
            outputs = [dd.sql(scope, query, t=table).output() for query in QUERIES]
        for query, output in zip(QUERIES, outputs, strict=True):
            rows = sorted(itertools.chain.from_iterable([row] * count for row, count in output.at(0).items()), key=str)
            assert rows == sorted(connection.execute(query).fetchall(), key=str), query


REFUSED = {
    "select c as b, count(*) as a from t group by c order by -a limit 2": r"a at line 1, column 58: no such column here",
    "select distinct c as b from t order by -b limit 2": r"b at line 1, column 41: no such column here",
    "select b from t where exists (select 1 from t u join t v on u.a = v.b where c = 1)": "ambiguous: write u.c or v.c",
    "select -u.a as a from t u, t v where a > 0": "the name is ambiguous: write u.a or v.a",
    "select -u.a as a from t u, t v order by abs(a), 1 limit 2": "the name is ambiguous: write u.a or v.a",
    "select b from t order by 2": "2 at line 1, column 26: there are only 1 columns",
    "select u.b from t u semi join t v on u.a = v.a where v.b = 1": "v.b at line 1, column 54: there is no table v in FROM",
    "select u.* exclude (v.a) from t u, t v": r"v\.a at line 1, column 21: \* has no column of this name",
}


def test_a_name_that_means_nothing_or_several_columns_is_refused() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            table = dd.table(dd.collection(scope, ROWS), SCHEMA)
            for query, message in REFUSED.items():
                with pytest.raises(SqlError, match=message):
                    dd.sql(scope, query, t=table)
        worker.run()
