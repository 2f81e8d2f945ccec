"""Values of SQL beside DuckDB: texts and patterns, clocks of zones, decimals, literals; and what is refused, with its place."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import timely
from tests.differential.beside_duckdb import database, plain, register
from timely import SqlError
from timely import differential as dd

pytest.importorskip("duckdb")


def found(query: str, rows: list[Any], schema: pa.Schema) -> tuple[dd.Table, dict[Any, int]]:
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
    _, counts = found(query, rows, schema)
    connection = database()
    register(connection, "t", rows, schema)
    result = connection.execute(query)
    assert sorted(map(str, map(plain, counts))) == sorted(map(str, {plain(row) for row in result.fetchall()}))


def fails(expression: str) -> str:
    """Return the error of an expression, which is a ``SqlError`` when it is built or when its row comes."""
    try:
        found(f"select {expression} as x from t", [(1,)], pa.schema([("one", pa.int64())]))
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
        found(f"select * from {query}", [(1,)], pa.schema([("one", pa.int64())]))


def test_a_pattern_is_checked_alone() -> None:
    assert "unexpected )" in fails("regexp_full_match('xb', 'a)|(b')")
