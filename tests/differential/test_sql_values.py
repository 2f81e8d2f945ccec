"""Values of SQL beside DuckDB: texts and patterns, clocks of zones, decimals, literals; and what is refused, with its place."""

from __future__ import annotations

import contextlib
import datetime
import random
import re
import zoneinfo
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import timely
from tests.differential.beside_duckdb import database, plain, register
from timely import SqlError
from timely import differential as dd

duckdb = pytest.importorskip("duckdb")


def viewed(query: str, rows: list[Any], schema: pa.Schema) -> tuple[dd.Table, dict[Any, int]]:
    """Return the view of a query over the table ``t``, and its rows."""
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            table = dd.table(scope, schema, name="t")
            view = dd.sql(scope, query, t=table)
            output = view.output()
        for row in rows:
            table.session.insert(row)
        table.session.close()
        return view, dict(output.at(0))


def check(query: str, rows: list[Any] | None = None, schema: pa.Schema | None = None) -> None:
    """Check that a view has the rows, and the types of their values, that DuckDB gives."""
    rows, schema = rows or [(1,)], schema or pa.schema([("one", pa.int64())])
    view, counts = viewed(query, rows, schema)
    connection = database()
    register(connection, "t", rows, schema)
    result = connection.execute(query)
    types, expected = [str(column[1]) for column in result.description], {plain(row) for row in result.fetchall()}
    assert list(map(scale_of, view.schema.types)) == [scale_of_text(text) for text in types], types
    assert {plain(row) for row in counts} == expected


def scale_of(kind: Any) -> int | None:
    """Return the digits behind the point of a decimal of Arrow; the others of a table have 38 digits."""
    return int(kind.scale) if pa.types.is_decimal(kind) else None


def scale_of_text(kind: str) -> int | None:
    match = re.fullmatch(r"DECIMAL\([0-9]+,([0-9]+)\)", kind)
    return None if match is None else int(match[1])


def fails(expression: str, rows: list[Any] | None = None, schema: pa.Schema | None = None) -> str:
    """Return the error of an expression, which is a ``SqlError`` when it is built or when its row comes."""
    try:
        viewed(f"select {expression} as x from t", rows or [(1,)], schema or pa.schema([("one", pa.int64())]))
    except SqlError as error:
        return str(error)
    except timely.OperatorError as error:
        assert isinstance(error.__cause__, SqlError)
        return str(error.__cause__)
    raise AssertionError(f"{expression} is accepted")


# -- patterns and sizes --------------------------------------------------------------------------------------------


def test_server_2_like_takes_each_letter_once() -> None:
    check("select repeat('a', 3000) like '%a%a%a%a%a%a%a%a%b', repeat('a', 100000) like '%a%a_%a%a%a%a%b' from t")
    assert "too long" in fails("repeat('a', 40000) like '%' || repeat('a_', 9000) || 'b%'")
    assert "too long" in fails("regexp_matches(repeat('a', 100000), '(.{100}){9}.{1000}c')")
    assert "is no JSON" in fails("""('"' || repeat(chr(92) || '"', 100000))::json""")
    assert "too deeply" in fails("(repeat('[', 900) || repeat(']', 900))::json")


def test_like_beside_duckdb() -> None:
    source = random.Random(1)
    rows = [tuple("".join(source.choices(letters, k=source.randint(0, 7))) for letters in ("ab", "ab%_!")) for _ in range(600)]
    rows = [(text, pattern) for text, pattern in rows if not pattern.endswith("!")]
    check(
        "select a, b, a like b, a not like b, a ilike upper(b), a like b escape '!' from t",
        rows,
        pa.schema([("a", pa.string()), ("b", pa.string())]),
    )


@pytest.mark.parametrize(
    "expression",
    [
        "regexp_replace(repeat('a', 100000), 'a', repeat('b', 100000), 'g')",
        r"regexp_replace(repeat('a', 100000), '(a*)', repeat('\1', 1000))",
        "replace(repeat('a', 100000), 'a', repeat('b', 100000))",
        "repeat('a', 10000000) || repeat('a', 10000000)",
        "concat(repeat('a', 10000000), repeat('a', 10000000))",
        "concat_ws('', repeat('a', 10000000), repeat('a', 10000000))",
        "array_to_string([repeat('a', 10000000), repeat('a', 10000000)], '')",
        "repeat('a', 100000000000)",
        "lpad('a', 100000000000, 'b')",
        "format(repeat('{0:9999}', 2000), 1)",
        "json_array(repeat('a', 10000000), repeat('a', 10000000))",
        "to_json(repeat([repeat('a', 1000000)], 1000000))",
    ],
)
def test_server_4_a_text_that_is_too_long_is_not_made(expression: str) -> None:
    assert "is too long" in fails(f"length({expression})")


def test_server_4_a_long_text_that_fits_is_made() -> None:
    check("select length(regexp_replace(repeat('ab', 100000), 'a', repeat('c', 50), 'g')) from t")
    check("select md5(replace(repeat('ab', 1000), 'a', repeat('c', 500))) from t")


def test_server_2_whole_numbers_do_not_grow_beyond_hugeint() -> None:
    query = "one"
    for _ in range(30):
        query = f"(select x * x as x from (select x + 1 as x from {query}))" if query != "one" else "(select one as x from t)"
    with pytest.raises(timely.OperatorError, match="does not fit HUGEINT"):
        viewed(f"select * from {query}", [(1,)], pa.schema([("one", pa.int64())]))


def test_a_pattern_is_checked_alone() -> None:
    assert "unexpected )" in fails("regexp_full_match('xb', 'a)|(b')")


# -- decimals ------------------------------------------------------------------------------------------------------

DECIMALS = pa.schema([("p", pa.decimal128(8, 2)), ("q", pa.decimal128(38, 18)), ("n", pa.int64())])
DECIMAL_ROWS = [(Decimal("2.50"), Decimal("3e-18"), 5), (Decimal("-9.99"), Decimal("123.000000000000000001"), -1), (None,) * 3]


@pytest.mark.parametrize(
    "select",
    [
        "min(q), max(q), sum(q), sum(p), sum(p::decimal(28, 2)), min(p), sum(p + q), sum(p * p), sum(n * 0.1)",
        "p + p, p + 1, p + n, n + p, p * p, p * n, p - 0.005, p % 2, -p, abs(p), sign(p), p / 4, q + p, q * n, 1.5 * 1.25",
        "round(p), round(p, 1), round(p, -1), round(p, 5), round(q, 17), floor(p), ceil(p), trunc(p), round(n, -1)",
        "round(1.0, -2147483648), round(1.55, 2147483647), round(p, -39), round(1.25, (1)), round(-1.25, -(-1))",
        "case when n > 1 then p else 0 end, coalesce(p, 1), coalesce(p, 0.12345), greatest(p, 1.5), least(p, n), nullif(q, 1)",
        "[p, 1.23456], {'a': q}, [q][1], {'a': p}.a, list_sum([p]), list_max([p, 0.123]), [1.5, 2]::decimal(9, 4)[]",
        "p::decimal(38, 36), p::decimal, p::numeric(4), n::decimal(20, 10), '2.345'::decimal(5, 2), true::decimal(3, 1)",
        "p::varchar, (p * p)::varchar, (p + n)::varchar, concat(q + 0.125), q::varchar, round(q, 2)::varchar, [p]::varchar[]",
        "0.5, 00012.500, 123456789012345678901234567890.5, 1234567890123456789012345678901234567890.5, .5, 5.",
        "p = '2.504', p > '2.5', p in (2.5, 1), p between 2.499 and 2.5001, p = 2.5000",
        "first_value(p) over w, lag(p, 1, 0.12345) over w, sum(q) over w, max(q) over w from t window w as (order by n)",
        "arg_max(p, n), mode(q), quantile_disc(q, 0.5), any_value(p order by n), list(q order by n)",
    ],
)
def test_number_13_decimals_have_the_values_and_scales_of_duckdb(select: str) -> None:
    check(f"select {select}{'' if ' from ' in select else ' from t'}", DECIMAL_ROWS, DECIMALS)


def test_number_13_sets_of_rows_have_the_scale_of_both_sides() -> None:
    for query in (
        "select p from t union all select q from t",
        "select p from t union select n from t",
        "select x + 1 from (values (1.5), (2), (2.25)) v(x)",
        "with recursive r as (select 1.25 as x union select x + 1 from r where x < 5) select * from r",
        "select p::varchar from (select sum(q) as p from t group by n)",
    ):
        check(query, DECIMAL_ROWS, DECIMALS)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("q * q * q", "54 digits behind the point"),
        ("p::decimal(39, 1)", "1 to 38 digits"),
        ("p::decimal(5, 6)", "1 to 38 digits"),
        ("p::decimal(0, 0)", "1 to 38 digits"),
        ("p::decimal(3.2)", "two whole numbers"),
        ("p::decimal(10, 2, 3)", "two whole numbers"),
        ("p::decimal(99999999999999999999, 2)", "two whole numbers"),
        ("'1e-999999999'::decimal", "too small"),
        ("'1e999999999'::decimal(38, 2)", "too large"),
        ("'1e40'::decimal(38, 2)", "does not fit DECIMAL(38, 2)"),
        ("repeat('9', 38)::decimal(38, 0) + 1", "does not fit DECIMAL(38, 0)"),
        ("repeat('9', 38)::decimal(38, 0) * 2", "does not fit DECIMAL(38, 0)"),
        ("repeat('9', 38)::decimal(38, 0) + p", "does not fit DECIMAL(38, 2)"),
        ("sum(repeat('9', 38)::decimal(38, 0))", "does not fit DECIMAL(38, 0)"),
        ("list_sum([repeat('9', 38)::decimal(38, 0), 1])", "does not fit DECIMAL(38, 0)"),
        ("9" * 5000, "too large"),
    ],
)
def test_number_13_number_15_what_no_decimal_holds_is_refused(expression: str, why: str) -> None:
    assert why in fails(expression, DECIMAL_ROWS, DECIMALS)


# -- clocks --------------------------------------------------------------------------------------------------------

ZONE_NAMES = (
    "Europe/Berlin US/Pacific America/St_Johns Australia/Lord_Howe Asia/Kathmandu Pacific/Apia Antarctica/Troll "
    "America/Caracas Africa/Monrovia Asia/Tehran Europe/Dublin Europe/London America/New_York Asia/Pyongyang "
    "Pacific/Kiritimati Asia/Kolkata Etc/GMT+5 EST5EDT UTC Europe/Lisbon Pacific/Chatham America/Scoresbysund"
)
ZONES = ZONE_NAMES.split()


def changes_of(zone: zoneinfo.ZoneInfo, first: int, last: int) -> list[datetime.datetime]:
    """Return the instants, to the second, at which the clocks of a zone change."""
    changes, step = [], datetime.timedelta(days=20)
    moment = datetime.datetime(first, 1, 1, tzinfo=datetime.UTC)
    while moment.year < last:
        low, high = moment, moment + step
        offset = low.astimezone(zone).utcoffset()
        while high.astimezone(zone).utcoffset() != offset and high - low > datetime.timedelta(seconds=1):
            middle = low + (high - low) // datetime.timedelta(seconds=2) * datetime.timedelta(seconds=1)
            low, high = (middle, high) if middle.astimezone(zone).utcoffset() == offset else (low, middle)
        changes += [high] if high - low <= datetime.timedelta(seconds=1) else []
        moment += step
    return changes


def around_changes(source: random.Random, name: str) -> list[datetime.datetime]:
    """Return what clocks of a zone show, or skip, near some of their changes."""
    zone = zoneinfo.ZoneInfo(name)
    changes = changes_of(zone, 1970, 2025) or [datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)]
    shown = [change.astimezone(zone).replace(tzinfo=None, fold=0) for change in source.sample(changes, min(4, len(changes)))]
    seconds = (-7200, -3600, -1801, -1, 0, 1, 899, 1800, 3599, 3600, 7200, -86400, 86400, source.randint(-90000, 90000))
    return [moment + datetime.timedelta(seconds=shift) for moment in shown for shift in seconds]


def test_clock_1_clock_2_hours_that_come_twice_or_never() -> None:
    source = random.Random(1)
    rows = [
        (source.choice((name, name.lower(), name.upper())), shown, shown.replace(tzinfo=datetime.UTC))
        for name in ZONES
        for shown in around_changes(source, name)
    ]
    schema = pa.schema([("x", pa.string()), ("m", pa.timestamp("us")), ("z", pa.timestamp("us", "UTC"))])
    check("select x, m, m at time zone x, z at time zone x, (m at time zone x) at time zone x from t", rows, schema)
    check(
        "select z, date_trunc('hour', z at time zone x) at time zone x, date_trunc('day', z at time zone x) from t", rows, schema
    )
    check("select x, m, cast(m::varchar || ' ' || x as timestamptz), (m::varchar || ' ' || x)::date from t", rows, schema)


@pytest.mark.parametrize(
    "expressions",
    [
        "timestamp '2024-10-27 02:30' at time zone 'Europe/Berlin', timestamp '2024-03-31 02:30' at time zone 'europe/BERLIN'",
        "cast('2024-10-27 02:30 Europe/Berlin' as timestamptz), timestamptz '2024-10-27 02:30 us/pacific'",
        "timestamptz '2024-04-07 01:45 australia/lord_howe', timestamptz '2011-12-30 12:00 Pacific/Apia'",
        "timestamptz '1890-01-01 00:00 Europe/Paris', date '2024-10-27' at time zone 'uct'",
        "timestamptz '2024-06-01 12:00 Etc/GMT+5', timestamptz '2024-06-01 12:00 EST5EDT'",
        "timestamptz '2024-06-01 12:00+05:30:15', timestamptz '2024-06-01 12:00-03'",
        "try_cast('2024-06-01 12:00  Europe/Berlin' as timestamptz), try_cast('2024-06-01 12:00+5' as timestamptz)",
    ],
)
def test_clock_1_clock_2_clock_3_as_they_are_written(expressions: str) -> None:
    check(f"select {expressions} from t")


def test_clock_3_a_zone_that_is_none() -> None:
    for name in ("Europe/Berlln", "europe/berlln", "", " UTC", "localtime", "posix/UTC", "../UTC", "UTC\0", "x" * 300):
        assert "there is no time zone" in fails(f"timestamp '2024-01-01 00:00:00' at time zone '{name}'")
        assert "there is no time zone" in fails(f"timestamp '2024-01-01 00:00:00' at time zone ('{name}' || '')")
    assert "; did you mean Europe/Berlin?" in fails("timestamptz '2024-01-01 00:00:00 Europe/Berlln'")
    for moment in ("0001-01-01 00:00:00", "9999-12-31 23:59:59"):
        for zone in ("Asia/Tokyo", "America/New_York"):
            query = (
                f"select m at time zone '{zone}' from (select timestamp '{moment}' + (one - 1)::int * interval 1 day as m from t)"
            )
            try:
                viewed(query, [(1,)], pa.schema([("one", pa.int64())]))
            except timely.OperatorError as error:
                assert isinstance(error.__cause__, SqlError)


# -- functions and literals ----------------------------------------------------------------------------------------

WORDS = pa.schema([("day", pa.string()), ("m", pa.timestamp("us")), ("l", pa.list_(pa.int64())), ("n", pa.int64())])
WORD_ROWS = [
    ("hour", datetime.datetime(2024, 2, 29, 10, 20, 30), (1, None, 2), 5),
    ("month", datetime.datetime(1969, 12, 31, 23, 59, 59, 999999), (), -7),
    (None, None, None, None),
]


@pytest.mark.parametrize(
    "expressions",
    [
        "1e6-1, 1e3+5, 2*1e6-1e3+n, -1e-3-1E+2-.5e1+n, 1e6 -1, '1e6-1', n > 1e3+5, 1.5e3-1.5",  # sql-6
        "epoch_ms(m), epoch_ms(m) + epoch_ms(m), epoch_ms(n), make_timestamp(n)",  # sql-7
        "timestamp '2024-05-05 10:20:00'::date, date '2024-01-31'::varchar, time '10:00:00'::varchar || '!'",  # sql-8
        "timestamptz '2024-05-05 10:20:00+02'::varchar::varchar, decimal(5, 2) '3.256'::varchar, date '2024-01-31' + 1",
        "(date '2024-01-31')::varchar, timestamp '2024-05-05 10:20:00' at time zone 'UTC', integer '7'::double / 4",
        "date_trunc(day, m), date_trunc('day', m), date_trunc(upper(day), m), datetrunc(day, m::date)",  # sql-9
        "date_diff(day, m, timestamp '2024-05-05 10:20:00'), datediff('day', m, date '2024-05-05'), date_trunc(NULL, m)",
        "array_to_string(l, NULL), array_to_string(l, ''), array_to_string(NULL::int[], ',')",  # sql-13
        "string_split(day, NULL), string_split(NULL, ','), string_split(NULL, NULL), string_split('a,b', nullif(day, 'hour'))",
        "try_cast('1234e567890123456789012345678901' as int), try_cast('1e-56789012345678901234' as decimal(5, 2))",  # sql-14
        "try_cast('1e567890123456789012345678901' as double), ' 11:11:11 '::time, try_cast('1e999999' as decimal(38, 2))",
        "try_cast('2024-02-29 10:20:30 junk' as timestamp), try_cast('epoch' as date), ' EPOCH '::timestamptz",
        "try_cast('10:20:30 junk' as time), try_cast('10:20 UTC' as time), try_cast('epoch' as time)",
        "'10:20:30+01'::time, '2024-02-29 10:20 UTC'::time",
        "try_cast('0000-00-00' as date), try_cast('-5' as date), try_cast('55555-1234' as date), try_cast('10000-13-01' as date)",
        "regexp_extract(day, 'o', NULL), regexp_extract(NULL, 'o', NULL), regexp_extract(day, NULL, 0)",
        "+ n, + + n, - + n, + - n, 3 + + n, +(n), + 2.5, + (n / 2), [1, 2][+1], round(2.55, +1)",
        "5., .5, 1_000, 1e999, round(1e-308, 2147483647), round(2.5e10, -2147483648), round(n, -2147483648)",
    ],
)
def test_sql_6_sql_7_sql_8_sql_9_sql_13_sql_14_beside_duckdb(expressions: str) -> None:
    check(f"select {expressions} from t", WORD_ROWS, WORDS)


PATTERNS = r"a b [^a] . \d \b \B ^ $ (a) (b|c) (?:ab) a|b + * ? {2} (?i)A \w+ (?m)^b"


def test_regular_expressions_match_what_they_match_in_duckdb() -> None:
    source, connection, rows = random.Random(3), duckdb.connect(), [("aaa", r"\B\w+")]
    while len(rows) < 400:
        pattern = "".join(source.choice(PATTERNS.split()) for _ in range(source.randint(1, 4)))
        with contextlib.suppress(duckdb.Error):
            connection.execute("select regexp_matches('', ?)", [pattern])
            rows.append(("".join(source.choice("aabbc,.1 A\n") for _ in range(source.randint(0, 8))), pattern))
    functions = ("matches(a, p)", "full_match(a, p)", "extract(a, p)", "replace(a, p, '<\\0>')", "replace(a, p, '<\\0>', 'g')")
    query = f"select a, p, {', '.join(f'regexp_{function}' for function in functions)} from t"
    check(query, rows, pa.schema([("a", pa.string()), ("p", pa.string())]))


def test_sql_14_moments_of_other_years_are_errors() -> None:
    for text in ("inf", " -Infinity", "10000-01-01", "0000/1/1 10:20", "1-1-1 (BC)", "-0044-03-15"):
        for kind in ("date", "timestamp", "timestamptz"):
            assert all("is not of the years 1 to 9999" in fails(f"{cast}('{text}' as {kind})") for cast in ("cast", "try_cast"))


def test_a_default_of_38_digits() -> None:
    schema = pa.schema([("p", pa.decimal128(38, 2))])
    rows = [(Decimal("1.25"),), (Decimal("9" * 36 + ".99"),), (None,)]
    check(f"select lag(p, 1, {'9' * 35}.125) over (order by p), lead(p, 1, -{'9' * 36}) over (order by p) from t", rows, schema)
    with pytest.raises(timely.OperatorError, match="DECIMAL"):
        viewed(f"select lag(p, 1, {'9' * 37}) over (order by p) from t", rows, schema)


def test_sql_7_one_text_is_read_twice() -> None:
    for _ in range(3):
        check("select epoch_ms(m) as a, epoch_ms(m) as b from t where epoch_ms(m) > 0", WORD_ROWS, WORDS)


@pytest.mark.parametrize("kind", ["bigint", "double", "boolean", "date", "time", "timestamp", "timestamptz", "decimal(9, 3)"])
def test_sql_14_texts_are_cast_as_in_duckdb(kind: str) -> None:
    source = random.Random(kind)
    words = [
        "5",
        "-12.5",
        "1e3",
        "true",
        "2024-02-29",
        "10:20:30",
        "10:20",
        "2024-02-29 10:20:30.5",
        "2024-02-29T10:20",
        "f",
        "0x1F",
    ]
    words += ["inf"] if kind == "double" else []
    spaces = ["", " ", "\t", "\n", "\x0b\x0c\r", "\xa0", "\u2003", "\x85", "\x1c", "x", "١", "_", "Z", "+02", " UTC", " A", "e9"]
    made = [source.choice(spaces) + source.choice(words) + source.choice(spaces) + source.choice(["", " "]) for _ in range(300)]
    check(f"select a, try_cast(a as {kind}) from t", [(text,) for text in made], pa.schema([("a", pa.string())]))


@pytest.mark.parametrize(
    ("expression", "column", "why"),
    [
        ("strftime(m, '%U')", 20, "%U in the format '%U' is not supported"),
        ("strftime(m, '%')", 20, "is not supported"),
        ("strptime(day, '%Q')", 22, "is not supported"),
        ("strptime(day, '%d %d')", 22, "twice"),
        ("m at time zone 'Europe/Berlln'", 23, "no time zone"),
        ("regexp_matches(day, '(')", 28, "missing )"),
        ("day ~ '['", 14, "missing ]"),
        ("day similar to '*'", 23, "no argument for repetition"),
        ("regexp_matches(day, 'a', 'q')", 33, "'q' of a regular expression"),
        ("regexp_replace(day, '(?<', 'b')", 28, "invalid"),
        ("regexp_replace(day, 'a', 'b', 'gz')", 38, "'z' of a regular expression"),
        ("regexp_full_match(day, 'a)|(b')", 31, "unexpected )"),
        ("regexp_extract(day, 'a**')", 28, "bad repetition operator"),
        ("date_trunc('days off', m)", 19, "no unit of date_trunc"),
        ("date_diff('nope', m, m)", 18, "no unit of date_diff"),
        ("day like 'a!' escape '!'", 17, "ends in its escape character"),
        ("date_trunc(m, m)", 8, "does not take (TIMESTAMP, TIMESTAMP)"),
        ("date_diff(m, m, m)", 8, "does not take"),
        ("date '2024-13-01'", 13, "month"),
        ("'2024-02-30'::date", 8, "day"),
        ("timestamptz '2024-01-01 00:00 Nowhere/City'", 20, "no time zone"),
        ("'x'::int", 8, "not a whole number"),
        ("date()", 8, ""),
        ("1e", 8, "not a number"),
        ("epoch_ms()", 8, ""),
        ("9" * 5000, 8, "too large"),
        ("integer 7", 18, "followed by a text"),
        ("to_json(1.5)", 8, "does not take (DECIMAL): cast its arguments"),
        ("day -> 'a' = '1'", 8, "stands in parentheses"),
        ("day -> '$.a[*]'", 15, "the path '$.a[*]' is not supported from '[*]' on"),
        ("'{a: 1}'::json", 8, "is no JSON"),
        ("'[1,]'::json", 8, "which JSON has not"),
        ("format('{:q}', n)", 15, "is not supported from"),
        ("ceil(n", 12, "not closed"),
        ("try_cast(day as time", 16, "not closed"),
        ("[n", 16, "Expected ]"),
        ("(n]", 10, ") is missing"),
        ("case when n > 1 day else 'low' end", 13, "THEN is missing"),
        ("n {'a': 1}", 10, "one too many"),
        ("least(all, 5)", 17, "one too many"),
        ("least(5, all)", 17, "one too many"),
        ("+ l", 10, "arithmetic on BIGINT[] is not supported"),
        ("+ day", 10, "arithmetic on VARCHAR is not supported"),
    ],
)
def test_sql_6_sql_15_what_is_written_is_checked_when_the_view_is_built(expression: str, column: int, why: str) -> None:
    with pytest.raises(SqlError) as caught, timely.Worker() as worker, worker.dataflow(int) as scope:
        dd.sql(scope, f"select {expression} as x from t", t=dd.table(scope, WORDS, name="t"))
    assert f"at line 1, column {column}:" in str(caught.value) and why in str(caught.value)
