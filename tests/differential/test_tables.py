"""Tables: schemas, the method chain, and what is refused."""

from __future__ import annotations

import datetime
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("sqlglot")

from sqlglot import exp

import timely
from tests.differential.epochs import contents
from timely import GraphError, SchemaError, SqlError
from timely import differential as dd

PEOPLE = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("age", pa.int64())])
PETS = pa.schema([("id", pa.int64()), ("pet", pa.string())])
ADA, BOB, EVE, NO_NAME = (1, "ada", 36), (2, "bob", 17), (3, "eve", 36), (4, None, None)


def found(
    build: Callable[[Any, Any], Any], people: Any = (ADA, BOB, EVE, NO_NAME), pets: Any = ((1, "cat"), (1, "dog"), (9, "ant"))
) -> Any:
    return contents(
        lambda scope: build(dd.table(dd.collection(scope, people), PEOPLE), dd.table(dd.collection(scope, pets), PETS))
    )


def test_select_and_where() -> None:
    assert found(lambda people, pets: people.where("age > 20", "name <> 'eve'").select("id", "upper(name) as n")) == {
        (1, "ADA"): 1
    }
    assert found(lambda people, pets: people.select("id").where("id = 1")) == {(1,): 1}


def test_expressions_may_be_those_of_sqlglot() -> None:
    age = exp.column("age")
    assert found(lambda people, pets: people.where(exp.GT(this=age, expression=exp.Literal.number(20))).select(age)) == {(36,): 2}


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", {(1, "ada", 36, "cat"), (1, "ada", 36, "dog")}),
        ("left", {(1, "ada", 36, "cat"), (1, "ada", 36, "dog"), (*BOB, None), (*EVE, None), (*NO_NAME, None)}),
        ("right", {(1, "ada", 36, "cat"), (1, "ada", 36, "dog"), (9, None, None, "ant")}),
        ("semi", {ADA}),
        ("anti", {BOB, EVE, NO_NAME}),
    ],
)
def test_joins(how: str, expected: Any) -> None:
    assert found(lambda people, pets: people.join(pets, on="id", how=how)) == dict.fromkeys(expected, 1)
    assert found(lambda people, pets: people.join(pets, on=["id"], how=how)) == dict.fromkeys(expected, 1)


def test_a_full_join_and_a_condition() -> None:
    rows = found(lambda people, pets: people.join(pets, on="this.id = other.id and other.pet = 'cat'", how="full"))
    assert rows == {
        (*ADA, 1, "cat"): 1,
        **{(*row, None, None): 1 for row in (BOB, EVE, NO_NAME)},
        (None, None, None, 1, "dog"): 1,
        (None, None, None, 9, "ant"): 1,
    }


def test_groups() -> None:
    assert found(lambda people, pets: people.group_by("age").agg("count(*) as n", "min(name)")) == {
        (36, 2, "ada"): 1,
        (17, 1, "bob"): 1,
        (None, 1, None): 1,
    }
    assert found(lambda people, pets: people.group_by().agg("sum(age)"), people=()) == {(None,): 1}


def test_first_rows_whole_and_by_group() -> None:
    assert found(lambda people, pets: people.top(2, "age desc")) == {ADA: 1, EVE: 1}
    assert found(lambda people, pets: people.top(1, ["name desc"], by=["age"])) == {EVE: 1, BOB: 1, NO_NAME: 1}
    assert found(lambda people, pets: people.top(1, "name nulls first")) == {NO_NAME: 1}
    assert found(lambda people, pets: people.limit(1, "[-age, id][1] desc, length(name)")) == {BOB: 1}
    with pytest.raises(SqlError, match="'name limit 3' is not an order of SQL"):
        found(lambda people, pets: people.limit(1, "name limit 3"))
    with pytest.raises(GraphError):
        found(lambda people, pets: people.top(0, "age"))


def test_values_have_the_types_of_the_schema() -> None:
    schema = pa.schema(
        [("x", pa.float64()), ("d", pa.decimal128(4, 1)), ("day", pa.date32()), ("at", pa.timestamp("us")), ("b", pa.bool_())]
    )
    row = (1, Decimal("2.5"), datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1, 12), True)
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            table = dd.table(dd.collection(scope, [row]), schema)
            output = table.output()
        ((output_row, _),) = output.at(0).items()
        assert [type(value) for value in output_row] == [float, Decimal, datetime.date, datetime.datetime, bool]
        assert table.schema.names == schema.names


@pytest.mark.parametrize(
    "row",
    [
        (None, "ada", 1),
        ("1", "ada", 1),
        (True, "ada", 1),
        (1, b"ada", 1),
        (1, "ada"),
        [1, "ada", 1],
        (2**63, "ada", 1),
        (1, "ada", 1.0),
        {"id": 1, "name": "ada"},
    ],
    ids=str,
)
def test_other_rows_are_refused(row: Any) -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            people = dd.table(scope, PEOPLE)
            output = people.output()
        for send in (people.session.insert, people.session.remove, lambda row: people.session.insert_batch([row])):
            with pytest.raises(SchemaError, match=r"^input 'table' "):  # at the line that has the row
                send(row)
        people.session.close()
        assert output.at(0) == {}
        with worker.dataflow(int) as scope:
            output = dd.table(dd.collection(scope, [row]), PEOPLE).output()
        with pytest.raises(timely.OperatorError) as caught:
            output.at(0)
        assert isinstance(caught.value.__cause__, SchemaError)


def test_rows_by_name() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            people = dd.table(scope, pa.schema([("Full Name", pa.string()), ("age", pa.float64())]))
            output = people.output()
        people.session.insert({"age": 36, "full name": "ada"})
        people.session.update_at({"FULL NAME": "bob", "AGE": None}, 1, 2)
        for row in ({"age": 1}, {"full name": "x", "age": 1, "more": 2}, {"full name": 7, "age": 1}):
            with pytest.raises(SchemaError, match="full name"):
                people.session.insert(row)
        people.session.close()
        assert output.at(1) == {("ada", 36.0): 1, ("bob", None): 2}


@pytest.mark.filterwarnings("ignore::timely.TimelyWarning")
def test_what_cannot_be_built() -> None:
    with timely.Worker() as worker, worker.dataflow(int) as scope:
        people = dd.table(scope, PEOPLE)
        for kind in (pa.list_(pa.uuid()), pa.month_day_nano_interval(), pa.null()):
            with pytest.raises(SchemaError):
                dd.table(scope, pa.schema([("x", kind)]))
        with pytest.raises(SchemaError, match="a field twice"):
            dd.table(scope, pa.schema([("x", pa.struct([("a", pa.int64()), ("A", pa.int64())]))]))
        with pytest.raises(SchemaError, match="twice"):
            dd.table(scope, pa.schema([("x", pa.int64()), ("X", pa.int64())]))
        with pytest.raises(GraphError, match="no column|is computed"):
            _ = people.select("id").session
        with pytest.raises(GraphError, match="reads tables"):
            dd.sql(scope, "select 1 from x", x=people.collection)
        with pytest.raises(GraphError, match="how is"):
            people.join(people, on="id", how="outer apply")
        for bad in ("id, age", "id from people", "", "1 +"):
            with pytest.raises(SqlError):
                people.select(bad)


def test_importing_collections_loads_neither_sqlglot_nor_arrow() -> None:
    program = (
        "import sys, timely.differential; print({name.split('.')[0] for name in sys.modules} & {'sqlglot', 'pyarrow', 'numpy'})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# -- tables as edges -----------------------------------------------------------------------------------------------

GRAPHS: Any = [dd.graphs.connected_components, dd.graphs.triangle_count, lambda edges: dd.graphs.k_core(edges, 1)]


@pytest.mark.filterwarnings("ignore::timely.TimelyWarning")
def test_algorithms_of_graphs_ask_for_the_collection_of_a_table() -> None:
    with timely.Worker() as worker, worker.dataflow(int) as scope:
        edges = dd.table(scope, pa.table({"src": ["a"], "dst": ["b"]}))
        for algorithm in (*GRAPHS, lambda edges: dd.graphs.breadth_first_search(edges, edges.collection)):
            with pytest.raises(GraphError, match=r"not Table\(.*\): use table.collection"):
                algorithm(edges)


@pytest.mark.parametrize("algorithm", GRAPHS)
def test_an_edge_without_an_end_is_named(algorithm: Any) -> None:
    edges = pa.table({"src": ["a", "a"], "dst": ["b", None]})
    with pytest.raises(
        timely.OperatorError, match=r"(components|count|core): edge \('a', None\) has no end: leave such edges out"
    ):
        timely.example(lambda scope: algorithm(dd.table(scope, edges).collection).stream)


FIRST_VIEW = """
import sys
import timely
from timely import differential as dd

with timely.Worker() as worker:
    with worker.dataflow(int) as scope:
        words = dd.table(scope, "word string, n long")
        totals = dd.sql(scope, "select word, sum(n) as n from words where n > 3 group by word", words=words).output()
    words.session.insert(("a", 4))
    words.session.close()
    assert totals.at(0) == {("a", 4): 1}
print(sorted({"pandas", "pyarrow.dataset"} & sys.modules.keys()))
"""


def test_a_first_view_of_rows_does_not_import_pandas() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_VIEW], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
