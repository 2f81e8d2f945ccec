"""Append-only tables: their views hold what DuckDB says, keep what can matter alone, and no row is ever taken away."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import timely
from tests.differential.beside_duckdb import RESTART, Epochs
from timely import ConfigurationError, OperatorError, SchemaError
from timely import differential as dd
from timely.server import Views

APPENDED = {b"timely.append_only": b""}
SCHEMAS = {
    "sales": pa.schema([("shop", pa.int64()), ("item", pa.string()), ("price", pa.int64()), ("share", pa.float64())], APPENDED),
    "shops": pa.schema([("shop", pa.int64()), ("city", pa.string())], APPENDED),
}
GROWING = [
    "select shop, min(price) as lo, max(price) as hi from sales group by shop",
    "select shop, max(price) as hi from sales where item <> 'a' group by shop",
    "select item, min(share), max(item), arg_min(price, -price) from sales group by item",
    "select max(price + 1), min(item) from sales",
    "select shop, first(item order by price, item), last(share order by price, item, share) from sales group by shop",
    "select * from sales order by price desc, share limit 5 offset 2",
    "select * from (select distinct shop, item from sales union from shops) order by 2 desc, 1 desc nulls last limit 3",
    "select shop, item from sales qualify row_number() over (partition by shop order by price, item) <= 2",
    "select city, max(price), count(*), sum(price) from (select * from sales join shops using (shop)) group by city",
    "select shop, max(price) from (select shop, unnest([price, -price]) as price from sales) group by shop",
]
OTHERS = [
    "select max(n), min(n) from (select shop, count(*) as n from sales group by shop)",
    "select max(price) from (select price from sales except select shop * 20 from shops)",
    "select s.shop, min(city) from sales s left join shops using (shop) group by all",
]
"""Rows of what they read come and go."""


def added(seed: int, epochs: int = 6) -> Epochs:
    """Return random rows that only come, some of them again."""
    source = random.Random(seed)

    def sale() -> Any:
        return source.choice([None, 1, 2, 3]), source.choice("abc"), source.randint(-9, 60), source.choice([None, -0.0, 0.5, 2.0])

    sales = [[(sale(), source.choice([1, 1, 2])) for _ in range(9)] for _ in range(epochs)]
    shops = [[((source.randint(1, 4), source.choice("xyz")), 1)] for _ in range(epochs)]
    return Epochs(SCHEMAS, [{"sales": one, "shops": other} for one, other in zip(sales, shops)])


@pytest.mark.parametrize("query", [*GROWING, *OTHERS])
def test_views_hold_what_duckdb_says(query: str, tmp_path: Path) -> None:
    epochs = added(1)
    expected = epochs.expected(query)
    assert epochs.views(query, lambda time: time % 2 == 1) == expected
    assert epochs.views_on_workers(query) == expected
    assert epochs.views_after_restart(query, tmp_path) == expected[RESTART:]


def growth(query: str, schema: pa.Schema, epochs: int) -> int:
    """Return how many objects more a view has after so many epochs than after a third of them."""
    sizes = []
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            sales = dd.table(scope, schema)
            probe = dd.sql(scope, query, sales=sales).collection.probe()
        for epoch in range(1, epochs + 1):
            for number in range(10):
                sales.session.insert((number % 3, "abc"[number % 3], 1000 + (epoch * 7919 + number) % 9973, 0.5))
            sales.session.advance_to(epoch)
            worker.step_while(partial(probe.less_than, epoch))
            if epoch in (epochs // 3, epochs):
                gc.collect()
                sizes.append(sys.getallocatedblocks())
        sales.session.close()
        worker.run()
    return sizes[1] - sizes[0]


BOUNDED = [query for query in GROWING if "shops" not in query]


@pytest.mark.parametrize("query", BOUNDED[::2])
def test_state_is_bounded(query: str) -> None:
    bounded = growth(query, SCHEMAS["sales"], 150)
    assert bounded < 300
    assert growth(query, SCHEMAS["sales"].remove_metadata(), 150) > 5 * bounded


@pytest.mark.soak
@pytest.mark.parametrize("query", BOUNDED)
def test_state_is_bounded_for_long(query: str) -> None:
    assert growth(query, SCHEMAS["sales"], 10_000) < 500


WAYS: list[Callable[[Any], object]] = [
    lambda session: session.remove((1, "x")),
    lambda session: session.update((1, "x"), -2),
    lambda session: session.update_at((1, "x"), 3, -1),
    lambda session: session.update_batch([((2, "y"), 1), ((1, "x"), -1)]),
    lambda session: session.insert_columns(pa.table({"shop": [1], "city": ["x"]}), diff=-1),
    lambda session: session.insert_columns(pa.table({"shop": [2, 1], "city": ["y", "x"]}), diff=[1, -1]),
]


@pytest.mark.parametrize("take", WAYS)
def test_no_row_is_removed(take: Callable[[Any], object]) -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            shops = dd.table(scope, "shop long, city string", name="shops", append_only=True)
            held = shops.output()
        shops.session.insert((1, "x"))
        with pytest.raises(SchemaError, match=r"'shops'.* is append-only, and row \(1, 'x'\) would be taken away"):
            take(shops.session)
        shops.session.close()
        assert held.at(0) == {(1, "x"): 1}


@pytest.mark.parametrize("rows", [[(1, "x")], pa.table({"shop": [1] * 50, "city": ["x"] * 50})])
def test_collections_take_no_row_away_either(rows: Any) -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            coming = dd.table(scope, "shop long, city string")
            dd.table(coming.collection, coming.schema, name="shops", append_only=True)
        coming.session.insert_columns(rows, diff=-1) if isinstance(rows, pa.Table) else coming.session.remove(rows[0])
        with pytest.raises(OperatorError, match=r"shops is append-only, and row \(1, 'x'\) would be taken away"):
            worker.step()


def test_tables_of_a_server_are_append_only(tmp_path: Path) -> None:
    script = "create table t (k bigint, n bigint) append only; create view v as select k, max(n) as n from t group by k"
    with Views(data=tmp_path) as views:
        views.run_script(script)
        views.write("t", insert=[(1, 5), (1, 7)])
        for change in ({"delete": [(1, 5)]}, {"upsert": [(1, 9)], "key": ["k"]}):
            with pytest.raises(SchemaError, match=r"table t is append-only, and row \(1, [57]\) would be taken away"):
                views.write("t", **change)
        with pytest.raises(ConfigurationError, match="already, which is append-only"):
            views.run_script("create table t (k bigint, n bigint)")
    with Views(data=tmp_path) as views:
        views.apply_script(script)
        views.write("t", insert=[(1, 6), (2, 1)])
        assert sorted(views.read("v").rows) == [((1, 7), 1), ((2, 1), 1)]
        with pytest.raises(SchemaError, match="append-only"):
            views.write("t", delete=[(1, 6)])
