"""Keys and values that are numbers inside: least and greatest values, and joins, are those of the values, by rows and columns.

White box: the order of values, by which results are compared, is that of the library.
"""

from __future__ import annotations

import datetime
import random
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import timely
from timely import differential as dd
from timely.operators.keyed.numbers import canonical, order_key

KINDS: Any = {
    "whole": (pa.int64(), lambda source: source.choice([2**63 - 1, -(2**63), 0, source.randint(-5, 5)])),
    "day": (
        pa.date32(),
        lambda source: datetime.date.fromordinal(source.choice([1, 719162, 719163, source.randint(1, 3_000_000)])),
    ),
    "moment": (
        pa.timestamp("us"),
        lambda source: datetime.datetime(1970, 1, 1) + datetime.timedelta(0, 0, source.randint(-9, 9)),
    ),
    "price": (pa.decimal128(12, 2), lambda source: Decimal(source.randint(-500, 500)).scaleb(-2)),
    "double": (
        pa.float64(),
        lambda source: source.choice([0.0, -0.0, -1.5, 1e300, float("inf"), float("-inf"), float("nan"), 0.5]),
    ),
}


def changes(source: random.Random, kinds: list[str], epochs: int = 5) -> Iterator[tuple[list[Any], list[Any]]]:
    """Yield the rows that go and those that come at each epoch; their keys are few."""
    held: list[Any] = []
    makers = [KINDS[kind][1] for kind in kinds]
    pool = [tuple(None if source.random() < 0.2 else make(source) for make in makers[:-1]) for _ in range(4)]
    for _ in range(epochs):
        source.shuffle(held)
        gone = [held.pop() for _ in range(len(held) // source.randint(1, 3))]
        new = [
            (*source.choice(pool), None if source.random() < 0.2 else makers[-1](source)) for _ in range(source.choice([3, 150]))
        ]
        held += new
        yield gone, new


def check(query: str, tables: dict[str, list[str]], seed: int, expected: Callable[..., Counter[Any]]) -> None:
    """Compare a view of random rows with ``expected(*rows of each table)`` at every epoch."""
    source = random.Random(seed)
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            schemas = [pa.schema([(f"c{n}", KINDS[kind][0]) for n, kind in enumerate(kinds)]) for kinds in tables.values()]
            made = {name: dd.table(scope, schema, name=name) for name, schema in zip(tables, schemas)}
            output = dd.sql(scope, query, **made).output()
        held: list[Counter[Any]] = [Counter() for _ in tables]
        same = random.Random(seed + 1).random()  # both tables have the same keys
        streams = [changes(random.Random(same), kinds) for kinds in tables.values()]
        rows_seen = 0
        for time, epoch in enumerate(zip(*streams)):
            for rows, table, schema, parts in zip(held, made.values(), schemas, epoch):
                for records, diff in zip(parts, (-1, 1)):
                    for record in records:
                        rows[tuple(map(canonical, record))] += diff
                    if records and source.random() < 0.6:
                        columns = [pa.array(column, field.type) for column, field in zip(zip(*records), schema)]
                        table.session.insert_columns(pa.Table.from_arrays(columns, schema=schema), diff=diff)
                    else:
                        for record in records:
                            table.session.update(record, diff)
                table.session.advance_to(time + 1)
            results = expected(*held)
            assert Counter(output.at(time)) == results, time
            rows_seen += len(results)
        assert rows_seen


@pytest.mark.parametrize("seed", range(12))
def test_least_and_greatest_values_of_groups(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timely.differential.tables.expressions.column_stages.FEW", 1)
    monkeypatch.setattr("timely.differential.outputs.MANY", 1)
    source = random.Random(seed)
    kinds = [*source.sample(list(KINDS), 1 + seed % 2), source.choice(list(KINDS))]
    keys, value = ", ".join(f"c{n}" for n in range(len(kinds) - 1)), f"c{len(kinds) - 1}"
    function, more = source.choice(["min", "max"]), seed % 3 == 0

    def expected(rows: Counter[Any]) -> Counter[Any]:
        groups: dict[Any, list[Any]] = {}
        for row in rows.elements():
            groups.setdefault(row[:-1], []).append(row[-1])
        results: Counter[Any] = Counter()
        for key, values in groups.items():
            there = sorted((other for other in values if other is not None), key=order_key)
            ends = (there[0], there[-1]) if there else (None, None)
            results[(*key, ends[function == "max"], *((len(values), ends[1]) if more else ()))] += 1
        return results

    rest = f", count(*) as n, max({value}) as most" if more else ""
    check(f"select {keys}, {function}({value}) as best{rest} from t group by {keys}", {"t": kinds}, seed, expected)


def test_not_a_number_is_the_greatest_of_many_groups_too() -> None:
    rows = pa.table({"k": [*range(200), *range(200)], "v": [float("nan")] * 200 + [1.0] * 200})
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            table = dd.table(scope, rows)
            chosen = dd.sql(scope, "select k from t group by k having max(v) > 5", t=table).output()
        assert chosen.at(0) == {(key,): 1 for key in range(200)}


def test_a_decimal_below_zero_that_is_zero_is_the_zero_of_doubles() -> None:
    schema = pa.schema([("d", pa.decimal128(8, 2)), ("v", pa.int64())])
    query = "select cast(d as double) as k, max(v) as v from t group by cast(d as double)"
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            table = dd.table(scope, schema, name="t")
            output = dd.sql(scope, query, t=table).output()
        for number, text in enumerate(["-0.00", "0.00"]):
            table.session.insert((Decimal(text), number))
        table.session.close()
        assert output.at(0) == {(0.0, 1): 1}


@pytest.mark.parametrize("seed", range(8))
def test_joins_on_values_of_several_kinds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timely.differential.tables.expressions.column_stages.FEW", 1)
    keys = random.Random(seed).sample(list(KINDS), 1 + seed % 3)
    width = len(keys)

    def expected(left: Counter[Any], right: Counter[Any]) -> Counter[Any]:
        results: Counter[Any] = Counter()
        for one, count in left.items():
            for other, times in right.items():
                if one[:width] == other[:width] and None not in one[:width]:
                    results[(*one, other[width])] += count * times
        return +results

    on = " and ".join(f"a.c{n} = b.c{n}" for n in range(width))
    check(f"select a.*, b.c{width} as v from a join b on {on}", {"a": [*keys, "whole"], "b": [*keys, "price"]}, seed, expected)
