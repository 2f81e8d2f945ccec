"""Functions of a program's own in SQL: by rows and by columns, at every epoch, and what is refused."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import timely
from tests.differential.beside_duckdb import Epochs
from tests.differential.sql_epochs import stream
from timely import ConfigurationError, OperatorError, SqlError
from timely import differential as dd
from timely.errors import CollectionMismatch, GraphError
from timely.testing import check_function

FUNCTIONS = {
    "shout": dd.function(lambda text: f"{text.upper()}!", returns="varchar", takes=["varchar"]),
    "Half": dd.function(lambda number: number / 2 if number % 5 else None, returns="double"),
    "plus": dd.function(returns="integer", takes=["bigint", "bigint"], columns=lambda one, other: pc.add(one, other)),
    "either": dd.function(max, returns="bigint", columns=lambda one, other: pc.max_element_wise(one, other)),
    "letters": dd.function(list, returns="varchar[]"),
    "fee": dd.function(lambda fee: fee * 2, returns="decimal(9, 2)"),
}
QUERIES = {
    "select id, shout(customer) from orders": "select id, upper(customer) || '!' from orders",
    "select half(amount), count(*) from orders group by 1": (
        "select if(amount % 5 = 0, null, amount / 2), count(*) from orders group by 1"
    ),
    "select plus(id, 2), sum(either(id, amount)) from orders where plus(amount, 1) > 3 group by 1": (
        "select (id + 2)::int, sum(if(id is null or amount is null, null, greatest(id, amount))) from orders"
        " where amount + 1 > 3 group by 1"
    ),
    "select a.id, b.n from orders a join lines b on plus(a.id, 0) = b.order_id where letters(customer)[1] = 'a'": (
        "select a.id, b.n from orders a join lines b on a.id = b.order_id where customer[1] = 'a'"
    ),
    "select o.id, (select max(fee(fee)) from lines where order_id = o.id) from orders o where o.id = either(2, o.id)": (
        "select o.id, (select max(fee * 2)::decimal(9, 2) from lines where order_id = o.id) from orders o where o.id >= 2"
    ),
    "select plus(id, 1) over_, sum(plus(id, 1)) over (partition by shout('a') order by id) from orders": (
        "select id + 1, sum(id + 1) over (order by id) from orders"
    ),
}


def built(query: str) -> Callable[..., Any]:
    return lambda **tables: dd.sql(next(iter(tables.values())).scope, query, functions=FUNCTIONS, **tables)


@pytest.mark.parametrize("query", QUERIES)
def test_a_view_with_functions_holds_what_the_same_expression_of_duckdb_gives(query: str) -> None:
    for number in (1, 2):
        epochs: Epochs = stream(number)
        expected = epochs.expected(QUERIES[query])
        assert epochs.held(built(query)) == expected
        assert epochs.held(built(query), lambda time: time % 3 != 1) == expected
    assert epochs.held_on_workers(built(query)) == expected


def test_columns_are_computed_at_once() -> None:
    sizes: list[int] = []

    def doubled(numbers: Any) -> Any:
        sizes.append(len(numbers))
        return pc.multiply(numbers, 2)

    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            numbers = dd.table(scope, pa.table({"n": [*range(99), None]}))
            function = dd.function(returns="bigint", columns=doubled)
            output = dd.sql(scope, "select doubled(n) from numbers", functions={"doubled": function}, numbers=numbers).output()
        worker.run()
        assert output.at(0) == dict.fromkeys([(None,), *((2 * number,) for number in range(99))], 1)
    assert sizes == [100]


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (dd.function(lambda number: 1 // number, returns="bigint"), "f(0): ZeroDivisionError"),
        (dd.function(str, returns="bigint"), "f(0): SchemaError: column 'result': it is BIGINT, and '0' came"),
        (
            dd.function(lambda number: 300 + number, returns="tinyint"),
            "f(0): SqlError: 300 does not fit a whole number of 8 bits",
        ),
        (dd.function(lambda number: Decimal(1) / 8, returns="decimal(4, 2)"), "does not fit DECIMAL"),
        (dd.function(returns="bigint", columns=lambda numbers: [1]), "f(0): SqlError: columns= returns an Arrow array"),
        (dd.function(returns="tinyint", columns=lambda numbers: pc.add(numbers, 300)), "300 does not fit"),
        (dd.function(returns="date", columns=lambda numbers: pc.equal(numbers, 1)), "f(0): ArrowNotImplementedError"),
    ],
)
def test_an_error_names_the_function_and_its_arguments(function: dd.UserFunction, why: str) -> None:
    for count in (1, 100):
        with timely.Worker() as worker:
            with worker.dataflow(int) as scope:
                dd.sql(scope, "select f(n) from t", functions={"f": function}, t=dd.table(scope, pa.table({"n": [0] * count})))
            with pytest.raises(OperatorError, match="test_user_functions.py") as caught:
                worker.run()
        assert why in str(caught.value)


@pytest.mark.parametrize("name", ["lower", "Sum", "row_number", "a b", "case", "extract", "coalesce", "", "1f", "cast", "unnest"])
def test_a_name_that_sql_has_is_refused(name: str) -> None:
    with timely.Worker() as worker, worker.dataflow(int) as scope, pytest.raises((ConfigurationError, SqlError)):
        dd.sql(scope, "select 1", functions={name: FUNCTIONS["shout"]})


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("select shout(1) from orders", "it does not take (BIGINT)"),
        ("select shout(customer, 1) from orders", "it does not take (VARCHAR, BIGINT)"),
        ("select plus(id) from orders", "it does not take (BIGINT)"),
        ("select half(interval 1 month) from orders", "months have no fixed length"),
        ("select shouted(customer) from orders", "there is no function shouted"),
    ],
)
def test_a_call_is_checked_when_the_view_is_built(query: str, why: str) -> None:
    with pytest.raises(SqlError) as caught:
        stream(1).held(built(query))
    assert why in str(caught.value) and "at line 1, column 8" in str(caught.value)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(GraphError, match="columns="):
        dd.function(returns="bigint")
    with pytest.raises(GraphError, match="cannot be called"):
        dd.function("lower", returns="bigint")  # type: ignore[arg-type]
    for kind in ("nonsense", "map(bigint)", "bigint; select 1"):
        with pytest.raises(SqlError):
            dd.function(len, returns=kind)
    with timely.Worker() as worker, worker.dataflow(int) as scope, pytest.raises(ConfigurationError, match="dd.function"):
        dd.sql(scope, "select 1", functions={"f": len})  # type: ignore[dict-item]
    with timely.Worker() as worker, worker.dataflow(int) as scope, pytest.raises(ConfigurationError, match="another function f"):
        dd.sql(scope, "select 1", functions={"f": FUNCTIONS["fee"], "F": FUNCTIONS["shout"]})


def test_a_table_may_be_called_functions() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            numbers = dd.table(scope, pa.table({"n": [1]}))
            output = dd.sql(scope, "select n + 1 from functions", functions=numbers).output()
        assert output.at(0) == {(2,): 1}


def test_what_is_not_deterministic_is_found() -> None:
    source = random.Random(1)
    rows = [("a", 1.0), ("b", math.nan), (None, 2.0), ("", -3.5)]
    check_function(
        dd.function(lambda text, number: (text, number), returns="struct(a varchar, b double)"), "a string, b double", rows
    )
    check_function(dd.function(returns="double", columns=lambda text, number: pc.negate(number)), "a string, b double", rows)
    whole = dd.function(lambda text, number: 0.0, returns="double", columns=lambda text, number: pc.add(number, 0.0))
    for function in (dd.function(lambda text, number: source.random(), returns="double"), whole):
        with pytest.raises(CollectionMismatch):
            check_function(function, "a string, b double", [rows[0], rows[3]])


def test_a_server_has_functions_in_views_and_queries_and_after_a_restart(tmp_path: Path) -> None:
    from timely.server import Views

    for _ in range(2):
        with Views(data=tmp_path, functions=FUNCTIONS) as views:
            views.table("t", "name string", [("ada",)])
            views.view("loud", "select shout(name) as name from t")
            assert [row for row, _ in views.read("loud").rows] == [("ADA!",)]
            with views.query("select shout(name) as twice from loud") as query:
                assert [row for row, _ in views.read(query.name).rows] == [("ADA!!",)]
    with pytest.raises(ConfigurationError, match="lower already"):
        Views(functions={"lower": FUNCTIONS["shout"]})
