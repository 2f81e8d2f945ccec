"""Random queries with few names for many things: columns of FROM, selected columns, both, and several of one name."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import timely
from tests.differential.beside_duckdb import register, typed
from timely import SqlError
from timely import differential as dd

pytestmark = pytest.mark.soak

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.int64())])
ROWS = [*itertools.product([1, 2, 3], [-2, 1], [0, 4]), (1, None, 4), (None, 3, 0)]

SOURCES = [
    "t",
    "(select -b as a, c as b, a as c from t order by -b, a, b, c limit 6) t",
    "t join (select c as d, a as e from t) u on t.a = u.e",
    "(select a, b, c, count(*) as n from t group by a, b, c having b > -2) t",
    "(select b as a, -a as b, sum(c) as c from t group by all having a > -3) t",
    "t join (select a, c as d from t) u using (a)",
    "t left join (select b as a, c as b, a as c from t) u using (a, b)",
    "t full join (select a + 1 as a, b as x from t) u using (a)",
    "t natural right join (select a + 1 as a, b as y from t) u",
    "t join (select a, b as x, c as a from t) u on t.a = a_1",
    "t join t u using (b, c) join (select 1 as a, 2 as y) v on u.a = v.a",
    "(t join t u using (a, b)) join (select 4 as c, 5 as x) v using (c)",
    "(t semi join t u using (a, c)) join (t v(x, y, z) join t w(x, b, y) using (x)) on t.a = v.x",
    "t, (select t.a + 1 as x, t.b as y, u.c as d from t u where u.a = t.a) v",
    "(select * exclude (a) replace (-b as b) from t) u join t using (b)",
    "(select * from t join (select a, b as x from t) u using (a)) t",
    "(select *, -a as a from t) t",
]


class Names:
    """A source of random queries."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def query(self) -> str:
        """Return a query."""
        names = [self._pick("abcxyxyb") for _ in range(self._random.randint(1, 3))]
        grouped = self._random.random() < 0.5
        keys = [self._value() for _ in range(self._random.randint(1, 2))]
        outputs = [self._pick([self._pick(keys), self._sum(), self._sum()]) if grouped else self._output() for _ in names]
        named = [value if self._random.random() < 0.15 else f"{value} as {name}" for value, name in zip(outputs, names)]
        text = f"select {', '.join(named)} from {self._pick(SOURCES)}"
        if self._random.random() < 0.4:
            text += f" where {self._value()} > {self._pick(['0', self._name()])}"
        if grouped:
            text += f" group by {self._pick([', '.join(keys), ', '.join(keys), 'all', '1', f'rollup ({keys[0]})'])}"
            if self._random.random() < 0.5:
                text += f" having {self._pick([self._sum(), self._name(), self._value()])} > 0"
        elif self._random.random() < 0.15:
            text += f" qualify {self._pick([self._name(), f'rank() over (order by {self._name()})'])} <= 2"
        if self._random.random() < 0.5:
            order = self._pick([self._value(), self._name(), self._pick(names), self._sum() if grouped else self._value()])
            places = ", ".join(str(place + 1) for place in range(len(names)))
            text += f" order by {order}{self._pick(['', ' desc'])}, {places} limit {self._random.randint(1, 3)}"
        return text

    def _pick(self, options: Any) -> str:
        return str(self._random.choice(options))

    def _name(self) -> str:
        return self._pick(["a", "b", "c", "a", "b", "x", "y", "t.a", "t.b"])

    def _value(self) -> str:
        name = self._name()
        return self._pick([name, f"{name} + 1", f"-{name}", f"abs({name})", f"({name})", f"{name} * {self._name()}"])

    def _sum(self) -> str:
        return self._pick([f"sum({self._value()})", "count(*)", f"max({self._value()})", f"count(distinct {self._name()})"])

    def _output(self) -> str:
        inner = f"(select max(c) as a from t u where u.a = {self._name()})"
        return self._pick([self._value(), self._value(), inner, f"rank() over (order by {self._value()})"])


def test_random_names_mean_what_they_do_in_duckdb(soak_seconds: float, cover: Callable[[int, str], None]) -> None:
    end, seed, compared = time.monotonic() + soak_seconds, random.randrange(10**9), 0
    with duckdb.connect() as connection, timely.Worker() as worker:
        register(connection, "t", ROWS, SCHEMA)
        while time.monotonic() < end:
            seed += 1
            query = Names(seed).query()
            try:
                expected = connection.execute(query).fetchall()
            except duckdb.Error:
                continue
            with worker.dataflow(int) as scope:
                table = dd.table(dd.collection(scope, ROWS), SCHEMA)
                try:
                    output = dd.sql(scope, query, t=table).output()
                except SqlError:
                    continue  # such as by numbers of columns of one name
            worker.run()
            assert typed(output.at(0).items()) == typed((row, 1) for row in expected), query
            compared += 1
    cover(compared, "queries")
