"""Tables fed with Arrow batches: kernels and rows agree on odd values, and traces of columns hold what traces of rows do."""

from __future__ import annotations

import datetime
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import timely
from timely import differential as dd
from timely.recovery import Recovery
from timely.testing.differential import small_columns

VALUES = pa.schema(
    [
        ("i", pa.int64()),
        ("j", pa.int32()),
        ("u", pa.uint64()),
        ("x", pa.float64()),
        ("y", pa.float64()),
        ("d", pa.decimal128(38, 10)),
        ("e", pa.decimal128(12, 2)),
        ("f", pa.decimal128(18, 4)),
        ("s", pa.string()),
        ("t", pa.string()),
        ("b", pa.bool_()),
        ("c", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
    ]
)

ODD: dict[str, list[Any]] = {
    "i": [None, 0, 1, -1, 7, 2**31, 2**62, 2**63 - 1, -(2**63)],
    "j": [None, 0, 3, -5, 2**31 - 1, -(2**31)],
    "u": [None, 0, 9, 2**63, 2**64 - 1],
    "x": [None, 0.0, -0.0, 0.1, -2.5, 1e300, float("inf"), float("nan"), 2.0**53 + 2],
    "y": [None, 0.0, 0.3, 3.0, -1e300, 1e300, 5e-324, 1.7976931348623157e308, -2.2250738585072014e-308],
    "d": [None, Decimal(0), Decimal("0.0000000001"), Decimal("12.5"), Decimal("-9999999999999999999999999999")],
    "e": [None, Decimal("0.00"), Decimal("1.25"), Decimal("-1.20"), Decimal("9999999999.99")],
    "f": [None, Decimal("0.0000"), Decimal("0.0123"), Decimal("-99999999999.9999")],
    "s": [None, "", "a", "Ab", "a%b", "a_b", "a\nb", "zoë", "ß", "日本語", "a.b", "(x"],
    "t": [None, "", "b", "ab", "\\"],
    "b": [None, True, False],
    "c": [None, True, False],
    "day": [None, datetime.date(1, 1, 1), datetime.date(2024, 2, 29), datetime.date(9999, 12, 31)],
    "at": [None, datetime.datetime(2024, 2, 29, 13, 5, 1, 17), datetime.datetime(1969, 12, 31, 23, 59)],
}

EXPRESSIONS = """
    i + 1; i - j; i + j; i * 3; -i; i * j + 2; u + 1; i / 2; i / j; x / y; x + y; x * y; x - 0.5e0; -x; x - i; -d; -e; d * e;
    e * (1 - e); d + e - 1.5; e * 3; e + i; e - f; e * f; f * i; e = 1.2; d < e; e > i; e < f; f = i; x > i; x = y; x < 0;
    x >= 1.5; x <= y; x > y; i = x; i = j; i <> j; s < t; s = 'a'; s <> t; s like 'a%'; s like '%b'; s like '%b%'; s like 'a_b';
    s like 'a.b'; s like '%'; s like ''; s not like 'a%'; s not like '%a%b'; s like 'a!%b' escape '!'; s like t;
    s in ('a', 'zoë', t); i in (1, 7, null); i in (1, j, null); e in (1.25, 3); f in (e, 1.5); i between -1 and j;
    i between j and 2; b and i > 0; b or x > 1; not b; b is true; b is not false; b = c; b < c; i is null; s is not null;
    i + 1 > j * 2 and (x < y or s = t); case when i > 0 then e when b then 0 else 1.555 end;
    case s when 'a' then 1 when 'Ab' then 2 end; if(b, x, y); case when i > 0 then f when b then e else i end;
    case i when 1 then s when j then t end; if(b, x, i); coalesce(i, j, 7); coalesce(e, i); coalesce(e, f);
    coalesce(s, t, 'none'); coalesce(x, y); year(day); extract(month from at); day(day); substring(s, 1, 2); substring(s, 2, 1);
    substring(t, 1, 0); day >= '2024-02-29'; day < at; day < date '2000-01-01'; at > '2024-01-01';
    day <= cast('2024-03-01' as date) - interval 1 day; u > 9223372036854775807; i < 9223372036854775808; i = 0.5; upper(s);
    s || t; round(e); cast(i as double); i % 3; 1.5; i // 3; i % j; j // -1; i // -1; i // j; u % 10; mod(j, -7); x % 2;
    case when j <> 0 then i // j end; case when i > 0 then 7 % i end; coalesce(j, 1 // i); i > 0 and 7 // i > 1;
    date_trunc('year', at); date_trunc('quarter', at); date_trunc('month', day); date_trunc('week', at); date_trunc('day', day);
    date_trunc('decade', at); date_trunc('hour', at); date_trunc('minute', at); date_trunc('s', at); date_trunc('ms', at);
    date_trunc('microseconds', at); time_bucket(interval '10 seconds', at); time_bucket(interval '3 days', at);
    time_bucket(interval '700 days', at); time_bucket(interval '5 months', at); time_bucket(interval '1 week', day);
    time_bucket(interval '1 day', at, timestamp '1970-01-01 07:00:00'); cast(i as varchar); cast(s as integer);
    try_cast(s as integer); cast(x as integer); try_cast(x as integer); cast(e as double); cast(at as date); cast(at as varchar);
    try_cast(d as decimal(12, 2)); cast(b as integer); length(s); regexp_replace(s, 'a', t); lower(s) = t; abs(j) % 3 = 1;
    greatest(i, j); dayname(day); null is null
"""

GROUPS = [
    "select {} as g, count(*), count(i) from v group by g",
    "select {} as g, sum(e), avg(d), sum(j) from v group by g",
    "select count(*) filter (where {} is not null), sum(i), sum(j) filter (where b), min(e), max(s), sum(x) from v where y > -5",
    "select {} as g, sum(y), avg(y), sum(y + 0.1e0) filter (where b), sum(x), avg(x) from v group by g",
    "select sum(y), avg(y) from v where {} is not null",
    "select count(*), avg(j), sum(f), avg(f), sum(e * f), sum(i * 2 + j), count(x), count(s) from v group by x, b, {}",
    "select avg(j), sum(f), sum(i * 2 + 1), sum(e * f), count(*) filter (where i > j and {} is not null) from v",
]


def rows(seed: int, count: int) -> list[tuple[Any, ...]]:
    """Return random rows of odd values."""
    source = random.Random(seed)
    return [tuple(source.choice(ODD[name]) for name in VALUES.names) for _ in range(count)]


def fits(record: tuple[Any, ...]) -> bool:
    """Return whether the values fit into columns of 64 bits: a batch with another value, or NaN, becomes rows."""
    unsigned, number, wide = (record[VALUES.names.index(name)] for name in "uxd")
    return (unsigned is None or unsigned < 2**63) and number == number and (wide is None or abs(wide) < 10**8)


def batch_of(records: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    """Return rows as an Arrow table."""
    columns = [pa.array(values, field.type) for values, field in zip(zip(*records), schema)]
    return pa.Table.from_arrays(columns, schema=schema)


def shown(view: Any) -> Any:
    """Return what a view holds, with the types of all values, and with how decimals are equal."""
    counts: Counter[Any] = Counter()
    for row, count in view.items():
        counts[tuple((type(value).__name__, str(value) if type(value) is float else value) for value in row)] += count
    return counts


def result_of(query: str, records: list[tuple[Any, ...]], columns: bool, times: int = 1, schema: pa.Schema = VALUES) -> Any:
    """Return what a query of ``records``, each of them so many times, gives, and of every second one, or the message of the error
    that it ends with.
    """
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            table = dd.table(scope, schema)
            output = dd.sql(scope, query, v=table).output()
        for time, (some, diff) in enumerate(((records, times), (records[::2], -times))):
            if columns:
                table.session.insert_columns(batch_of(some, schema), diff=diff)
            else:
                for record in some:
                    table.session.update(record, diff)
            table.session.advance_to(time + 1)
        table.session.close()
        try:
            return [shown(output.at(time)) for time in range(2)]
        except timely.OperatorError as error:
            return str(error.__cause__)


@pytest.mark.parametrize("expression", [expression.strip() for expression in EXPRESSIONS.split(";")])
def test_an_expression_gives_the_same_by_columns_as_by_rows(expression: str) -> None:
    records = rows(1, 60)
    plain = [record for record in records if fits(record)]
    query = f"select {expression} as r, i from v"
    assert result_of(query, records, True) == result_of(query, records, False)
    for some in (plain[0::2], plain[1::2], [record for record in plain if record[0] is not None and abs(record[0]) < 100]):
        assert result_of(query, some, True) == result_of(query, some, False)


@pytest.mark.parametrize("query", GROUPS)
def test_groups_give_the_same_by_columns_as_by_rows(query: str) -> None:
    records = rows(2, 80)
    plain = [record for record in records if fits(record)]
    small = [record for record in plain if record[0] is None or abs(record[0]) < 100]
    for key in ("s", "e", "day", "b", "x", "i > 1", "i"):
        for some in (records, plain, small):
            assert result_of(query.format(key), some, True) == result_of(query.format(key), some, False)


LISTS = pa.schema([("g", pa.int64()), ("l", pa.list_(pa.int32())), ("w", pa.list_(pa.string()))])
OF_LISTS = """
    select g, a from v, unnest(l) as u(a); select g, a, n from v, unnest(w) with ordinality as u(a, n);
    select g, a from v left join unnest(l) as u(a) on true; select l, w, unnest(l) as a, unnest(w) as b from v;
    select p, count(*) from (select unnest(string_split(array_to_string(w, ' '), 'a')) as p from v) group by p;
    select l, count(*) from v group by l; select distinct w, len(l) as n from v where l is not null;
    select a.g, b.w from v a join v b on a.g = b.g where a.l = b.l;
    select g, sum(a), min(t) from (select g, unnest(l) as a, w as t from v) group by g; select unnest(w) as a, l[1] as b from v;
    select a, w from (select unnest(l) as a, w from v) where a > 1 union all select g, w from v;
    select case when g = 1 then l end as l, coalesce(w, string_split('a b', ' ')) as w from v; select * from v
"""


@pytest.mark.parametrize("query", [query.strip() for query in OF_LISTS.split(";")])
def test_lists_give_the_same_by_columns_as_by_rows(query: str) -> None:
    source = random.Random(query)

    def drawn(values: list[Any]) -> Any:
        return source.choice([None, tuple(source.choices([*values, None], k=source.randrange(4)))])

    records = [(source.randrange(3), drawn([1, 2]), drawn(["a", "ba"])) for _ in range(40)]
    assert result_of(query, records, True, 1, LISTS) == result_of(query, records, False, 1, LISTS)


SALES = pa.schema([("g", pa.int64()), ("i", pa.int64()), ("e", pa.decimal128(12, 2)), ("s", pa.string())])


@pytest.mark.parametrize("largest", [7, 2**55, 2**62])
@pytest.mark.parametrize("times", [1, 2])
def test_groups_of_large_numbers_and_of_rows_that_come_several_times(times: int, largest: int) -> None:
    """A sum of columns must not leave 64 bits, and counts each row as often as it is there."""
    source = random.Random(largest)
    choices: list[list[Any]] = [[1, 2, None], [largest, largest // 2, 5, None], [Decimal("1.25"), None], ["a", None]]
    records = [tuple(map(source.choice, choices)) for _ in range(300)]
    for where in ("true", "i + 1 is not null", "e is not null"):
        query = f"select g, count(*), sum(i), sum(e), count(s), sum(i) filter (where s = 'a') from v where {where} group by g"
        by_columns, by_rows = (result_of(query, records, columns, times, SALES) for columns in (True, False))
        assert by_columns == by_rows
        assert len(by_rows[0]) == 3


# -- traces --------------------------------------------------------------------------------------------------------

ITEMS = pa.schema([("id", pa.int64()), ("part", pa.int64()), ("price", pa.decimal128(12, 2)), ("name", pa.string())])
PARTS = pa.schema([("part", pa.int64()), ("kind", pa.string())])
QUERIES = {
    "join": "select id, kind, price from items join parts using (part)",
    "left": "select id, kind from items left join parts using (part)",
    "semi": "select id from items where part in (select part from parts)",
    "anti": "select id from items i where not exists (select 1 from parts p where p.part = i.part)",
    "two keys": "select a.id, b.name from items a join items b on a.id = b.id and a.part = b.part where a.price > b.price - 1",
}


def item(source: random.Random) -> tuple[Any, ...]:
    """Return a random item; some have no part."""
    part = None if source.random() < 0.05 else source.randrange(-50, 400)
    return source.randrange(3_000), part, Decimal(source.randrange(10_000)) / 100, source.choice(["a", "b", None])


def expected(query: str, items: Counter[Any], parts: Counter[Any]) -> Counter[Any]:
    """Return what a query of ``QUERIES`` gives."""
    by_part: dict[Any, list[tuple[str, int]]] = {}
    for (part, kind), count in parts.items():
        by_part.setdefault(part, []).append((kind, count))
    counts: Counter[Any] = Counter()
    if query == "two keys":
        same: dict[Any, list[Any]] = {}
        for one, count in items.items():
            same.setdefault(one[:2], []).append((one, count))
        for (_, part), group in same.items():
            for one, count in group:
                for other, more in group:
                    if part is not None and one[2] > other[2] - 1:
                        counts[one[0], other[3]] += count * more
        return +counts
    for one, count in items.items():
        matches = by_part.get(one[1], [])
        if query == "join" or (query == "left" and matches):
            for kind, more in matches:
                counts[(one[0], kind, one[2]) if query == "join" else (one[0], kind)] += count * more
        elif query == "left":
            counts[one[0], None] += count
        elif bool(matches) == (query == "semi"):
            counts[(one[0],)] += count
    return +counts


@pytest.mark.parametrize("query", QUERIES)
def test_a_trace_of_columns_holds_what_comes_and_goes(query: str) -> None:
    source = random.Random(3)
    items: Counter[Any] = Counter()
    parts: Counter[Any] = Counter()
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            tables = {"items": dd.table(scope, ITEMS), "parts": dd.table(scope, PARTS)}
            output = dd.sql(scope, QUERIES[query], **tables).output()
        session, kinds = tables["items"].session, tables["parts"].session
        time = 0

        def advance() -> None:
            nonlocal time
            time += 1
            session.advance_to(time)
            kinds.advance_to(time)
            assert output.at(time - 1) == expected(query, +items, +parts)
            output.forget(time - 1)

        for _ in range(4):  # several batches, at times of their own
            for _ in range(2):
                many = [item(source) for _ in range(700)]
                items.update(many)
                session.insert_columns(batch_of(many, ITEMS))
            few = [(number, source.choice("xyz")) for number in source.sample(range(350), 40)]
            parts.update(few)
            kinds.insert_columns(batch_of(few, PARTS))
            advance()
        for number in range(12):  # nearly all rows go, some as columns, and others come
            gone = source.sample(list((+items).elements()), 450)
            items.subtract(gone)
            if number % 3:
                for record in gone:
                    session.remove(record)
            else:
                session.insert_columns(batch_of(gone, ITEMS), diff=-1)
            for record in [item(source) for _ in range(30)]:
                items[record] += 2
                session.update(record, 2)
            if number == 5:
                kinds.insert_columns(batch_of([(60, "z"), (-1, "z"), (0, "z")], PARTS))
                parts.update([(60, "z"), (-1, "z"), (0, "z")])
            advance()


def test_keys_beyond_64_bits_stay_beside_the_columns() -> None:
    large = [(2**62 + number, str(number)) for number in range(50)]
    with small_columns(), timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            items = dd.table(scope, PARTS)
            parts = dd.table(scope, pa.table({"k": [4, 8]}))
            output = dd.sql(
                scope, "select kind from items join parts on items.part * 4 = parts.k", items=items, parts=parts
            ).output()
        items.session.insert_columns(batch_of([(number, str(number)) for number in range(10)], PARTS))
        items.session.advance_to(1)
        worker.step()
        items.session.insert_columns(batch_of(large, PARTS))
        items.session.close()
        worker.run()
        assert output.at(0) == output.at(1) == {("1",): 1, ("2",): 1}


def share(worker: timely.Worker, where: Path, stop: int | None) -> Any:
    """Load this worker's share as columns and make a checkpoint, or go on from there, with changes; return what it holds."""
    source = random.Random(5)
    items, parts = [item(source) for _ in range(900)], [(number, "k") for number in range(0, 300, 2)]
    with Recovery(worker, where) as recovery:
        with worker.dataflow(int) as scope:
            tables = {"items": dd.table(scope, ITEMS, name="items"), "parts": dd.table(scope, PARTS, name="parts")}
            outputs = [dd.sql(scope, query, **tables).output() for query in QUERIES.values()]
        start = recovery.time or 0
        for table, records in zip(tables.values(), (items, parts)):
            mine = records[worker.index :: worker.peers]
            table.session.advance_to(start)
            if start == 0:
                table.session.insert_columns(batch_of(mine, ITEMS if len(records[0]) == 4 else PARTS))
            else:
                for record in mine[::3]:
                    table.session.remove(record)
            table.session.advance_to(start + 1)
        if stop is not None:
            recovery.checkpoint(stop)
        for table in tables.values():
            table.session.close()
        worker.run()
        return None if stop is not None else [list(output.at(start).items()) for output in outputs]


def test_columns_are_exchanged_and_resume_from_a_checkpoint(tmp_path: Path) -> None:
    source = random.Random(5)
    items, parts = [item(source) for _ in range(900)], [(number, "k") for number in range(0, 300, 2)]
    timely.execute(lambda worker: share(worker, tmp_path, 1), workers=3)
    shares = timely.execute(lambda worker: share(worker, tmp_path, None), workers=2)
    left: list[Counter[Any]] = []
    for records in (items, parts):
        gone = Counter(record for index in range(2) for record in records[index::2][::3])
        left.append(Counter(records) - gone)
    for number, query in enumerate(QUERIES):
        counts: Counter[Any] = Counter()
        for part in shares:
            for row, count in part[number]:
                counts[row] += count
        assert +counts == expected(query, *left)


def test_numbers_beyond_64_bits_join_beside_columns() -> None:
    schema = pa.schema([("u", pa.uint64())])
    batch, large = pa.table([pa.array(range(8), pa.uint64())], schema=schema), (2**63 + 1,)
    with timely.Worker() as worker, small_columns():
        with worker.dataflow(int) as scope:
            left, right = dd.table(scope, schema, name="l"), dd.table(scope, schema, name="r")
            output = dd.sql(scope, "select l.u, r.u as v from l full join r on l.u = r.u", l=left, r=right).output()
        sessions = left.session, right.session
        for time, rows in enumerate([[large], [], [(n,) for n in range(8)], [], []]):
            for session in sessions:
                for row in rows:
                    session.insert(row)
                if not rows:
                    session.insert_columns(batch)
                session.advance_to(time + 1)
                worker.step()
        for session in sessions:
            session.close()
        worker.run()
        assert output.at(4) == {(n, n): 16 for n in range(8)} | {large * 2: 1}


@pytest.mark.parametrize("columns", [False, True])
def test_try_cast_is_exact_where_both_sides_of_a_join_change_in_one_epoch(columns: bool) -> None:
    schemas = {"t": pa.schema([("n", pa.int64())]), "u": pa.schema([("n", pa.int64()), ("x", pa.float64())])}
    changes: list[dict[str, list[tuple[tuple[Any, ...], int]]]] = [
        {"t": [((10,), 1)], "u": [((n, 1.0), 1) for n in range(5, 15)]},
        {
            "t": [((10,), -1), ((6,), 1)],
            "u": [((n, 1e10), 1) for n in range(7, 12)],
        },  # those below 10 fit nothing, nor are below 6
    ]
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            tables = {name: dd.table(scope, schema, name=name) for name, schema in schemas.items()}
            query = "select u.n, try_cast(u.x as decimal(12, 4)) as y from u join t on u.n < t.n"
            output = dd.sql(scope, query, **tables).output()
        for time, epoch in enumerate(changes):
            for name, updates in epoch.items():
                session = tables[name].session
                for record, diff in updates:
                    if columns:
                        session.insert_columns(batch_of([record] * 4, schemas[name]), diff=diff)
                    else:
                        session.update(record, 4 * diff)
                session.advance_to(time + 1)
        for table in tables.values():
            table.session.close()
        assert output.at(0) == {(n, Decimal(1)): 16 for n in range(5, 10)}
        assert output.at(1) == {(5, Decimal(1)): 16}


@pytest.mark.parametrize("order", [range(9), range(8, -1, -1), [4, 0, 8, 0, 4]])
def test_rows_come_in_any_order_of_their_keys(order: Any) -> None:
    schemas = [pa.schema([("k", pa.int64()), (name, pa.string())]) for name in "lr"]
    with small_columns(), timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            left, right = (dd.table(scope, schema) for schema in schemas)
            output = dd.sql(scope, "select k, l, r from t1 join t2 using (k)", t1=left, t2=right).output()
        for table, schema in zip((left, right), schemas, strict=True):
            table.session.insert_columns(pa.table([list(order), [f"{n}" for n in order]], schema=schema))
            table.session.close()
        assert output.at(0) == Counter({(n, f"{n}", f"{n}"): list(order).count(n) ** 2 for n in order})
