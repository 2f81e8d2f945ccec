"""The queries of TPC-H over small data that changes: each holds what DuckDB says, at every epoch."""

from __future__ import annotations

import datetime
import functools
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.differential.beside_duckdb import RESTART, Changes, Epochs

TEXT = Path(__file__).with_name("tpch.sql").read_text()
QUERIES = {part.split("-- ")[-1].split()[0]: part for part in TEXT.split("\n\n")[1:]}
MONEY = pa.decimal128(12, 2)
SCHEMAS = {
    "region": {"r_regionkey": pa.int64(), "r_name": pa.string()},
    "nation": {"n_nationkey": pa.int64(), "n_name": pa.string(), "n_regionkey": pa.int64()},
    "supplier": {
        "s_suppkey": pa.int64(),
        **dict.fromkeys(("s_name", "s_address"), pa.string()),
        "s_nationkey": pa.int64(),
        "s_phone": pa.string(),
        "s_acctbal": MONEY,
        "s_comment": pa.string(),
    },
    "customer": {
        "c_custkey": pa.int64(),
        **dict.fromkeys(("c_name", "c_address"), pa.string()),
        "c_nationkey": pa.int64(),
        "c_phone": pa.string(),
        "c_acctbal": MONEY,
        **dict.fromkeys(("c_mktsegment", "c_comment"), pa.string()),
    },
    "part": {
        "p_partkey": pa.int64(),
        **dict.fromkeys(("p_name", "p_mfgr", "p_brand", "p_type"), pa.string()),
        "p_size": pa.int64(),
        "p_container": pa.string(),
    },
    "partsupp": {**dict.fromkeys(("ps_partkey", "ps_suppkey", "ps_availqty"), pa.int64()), "ps_supplycost": MONEY},
    "orders": {
        **dict.fromkeys(("o_orderkey", "o_custkey"), pa.int64()),
        "o_orderstatus": pa.string(),
        "o_totalprice": MONEY,
        "o_orderdate": pa.date32(),
        "o_orderpriority": pa.string(),
        "o_shippriority": pa.int64(),
        "o_comment": pa.string(),
    },
    "lineitem": {
        **dict.fromkeys(("l_orderkey", "l_partkey", "l_suppkey", "l_linenumber"), pa.int64()),
        **dict.fromkeys(("l_quantity", "l_extendedprice", "l_discount", "l_tax"), MONEY),
        **dict.fromkeys(("l_returnflag", "l_linestatus"), pa.string()),
        **dict.fromkeys(("l_shipdate", "l_commitdate", "l_receiptdate"), pa.date32()),
        **dict.fromkeys(("l_shipinstruct", "l_shipmode"), pa.string()),
    },
}
ARROW = {name: pa.schema([pa.field(*column, nullable=False) for column in columns.items()]) for name, columns in SCHEMAS.items()}
NATIONS = ["FRANCE", "GERMANY", "KENYA"]
KEYS = {"supplier": 6, "customer": 20, "part": 12, "orders": 25}


class Rows:
    """Random rows, with values such that each query has some to find."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def money(self, least: int, most: int) -> Decimal:
        return Decimal(self._random.randint(100 * least, 100 * most)) / 100

    def day(self) -> datetime.date:
        return datetime.date(1994, 1, 1) + datetime.timedelta(self._random.randint(0, 1000))

    def key(self, name: str) -> int:
        return self._random.randint(1, KEYS[name])

    def phone(self) -> str:
        return f"{self._random.choice([13, 31, 23])}-{self._random.randint(100, 999)}"

    def supplier(self, key: int) -> Any:
        comment = self._random.choice(["slow", "Customer bad Complaints"])
        return key, f"Supplier{key}", "street", self._random.randrange(3), self.phone(), self.money(-99, 999), comment

    def customer(self, key: int) -> Any:
        segment = self._random.choice(["BUILDING", "MACHINERY"])
        return key, f"Customer{key}", "road", self._random.randrange(3), self.phone(), self.money(-99, 999), segment, "none"

    def part(self, key: int) -> Any:
        choose = self._random.choice
        name = f"{choose(['forest', 'plain'])} {choose(['green', 'red'])}"
        kind = choose(["PROMO BRASS", "SMALL BRASS", "MEDIUM POLISHED TIN"])
        brand = choose(["Brand#12", "Brand#23", "Brand#45"])
        return key, name, "Mfgr", brand, kind, choose([9, 14, 19]), choose(["SM CASE", "SM BOX", "MED BAG", "MED BOX"])

    def partsupp(self) -> Any:
        return self.key("part"), self.key("supplier"), self._random.randint(1, 100), self.money(1, 9)

    def orders(self, key: int) -> Any:
        choose = self._random.choice
        comment = choose(["special x requests", "usual"])
        priority = choose(["1-URGENT", "2-HIGH", "5-LOW"])
        return key, self.key("customer"), choose("FOP"), self.money(10, 999), self.day(), priority, 0, comment

    def lineitem(self) -> Any:
        choose = self._random.choice
        prices = Decimal(self._random.randint(1, 40)), self.money(10, 99), Decimal(self._random.randint(0, 10)) / 100
        shipped = self.day()
        days = [shipped, *(shipped + datetime.timedelta(self._random.randint(-3, 20)) for _ in range(2))]
        keys = self.key("orders"), self.key("part"), self.key("supplier"), self._random.randint(1, 7)
        how = choose(["DELIVER IN PERSON", "NONE"]), choose(["AIR", "MAIL", "SHIP"])
        return *keys, *prices, Decimal("0.05"), choose("RNA"), choose("OF"), *days, *how


@functools.cache
def epochs(seed: int) -> Epochs:
    """Return epochs in which rows of all tables but two come and go; keys stay unique."""
    rows, source = Rows(seed), random.Random(seed)
    held: dict[str, list[Any]] = {name: [] for name in ARROW}
    by_epoch: list[Changes] = []
    for epoch in range(5):
        changes: dict[str, list[tuple[Any, int]]] = {}
        for name, records in held.items():
            if name in ("region", "nation"):
                fixed = [(0, "EUROPE"), (1, "AFRICA")] if name == "region" else [(i, n, i // 2) for i, n in enumerate(NATIONS)]
                changes[name] = [(row, 1) for row in fixed] if epoch == 0 else []
                continue
            source.shuffle(records)
            changes[name] = [(records.pop(), -1) for _ in range(len(records) // 5)]
            make = getattr(rows, name)
            if name in KEYS:
                used = {row[0] for row in records}
                new = [make(key) for key in range(1, KEYS[name] + 1) if key not in used and source.random() < 0.8]
            else:
                new = [make() for _ in range(60 if epoch == 0 else 12)]
            records.extend(new)
            changes[name] += [(row, 1) for row in new]
        by_epoch.append(changes)
    return Epochs(ARROW, by_epoch)


def check(result: list[Any], expected: list[Any]) -> None:
    assert len(set(map(str, expected))) > 1  # the data are such that the result changes
    assert result == expected


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_of_tpch_holds_what_duckdb_says(name: str) -> None:
    check(epochs(1).views(QUERIES[name]), epochs(1).expected(QUERIES[name]))


@pytest.mark.parametrize("name", ["Q2", "Q13", "Q15", "Q20", "Q21"])
def test_three_workers_hold_the_same(name: str) -> None:
    check(epochs(2).views_on_workers(QUERIES[name]), epochs(2).expected(QUERIES[name]))


@pytest.mark.parametrize("name", ["Q4", "Q17", "Q18"])
def test_a_query_of_tpch_goes_on_after_a_restart(name: str, tmp_path: Path) -> None:
    check(epochs(1).views_after_restart(QUERIES[name], tmp_path), epochs(1).expected(QUERIES[name])[RESTART:])


@pytest.mark.soak
@pytest.mark.parametrize("name", QUERIES)
def test_every_query_of_tpch_on_workers_and_after_a_restart(name: str, tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        assert epochs(seed).views(QUERIES[name]) == epochs(seed).expected(QUERIES[name])
    assert epochs(2).views_on_workers(QUERIES[name]) == epochs(2).expected(QUERIES[name])
    assert epochs(1).views_after_restart(QUERIES[name], tmp_path) == epochs(1).expected(QUERIES[name])[RESTART:]
