"""Groups as arrays: exact sums of any size, groups that go and come again, and checkpoints with and without a memory limit."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import timely
from tests.differential.beside_duckdb import Epochs, as_batches, typed, view
from timely import differential as dd
from timely.memory import MemoryBudget
from timely.recovery import Recovery

SCHEMA = pa.schema([("k", pa.string()), ("d", pa.decimal128(6, 2)), ("v", pa.int64()), ("price", pa.decimal128(12, 2))])
LIMIT = 1 << 63
BY_ONE = "select k, count(*) as n, sum(v) as v, avg(v) as mean, sum(price) as price from t group by k"
BY_TWO = "select k, d, count(v) as n, sum(v) as v, sum(price) as price, avg(price) as mean from t group by k, d"
IN_ALL = "select count(*) as n, sum(v) as v, sum(price) as price from t"


def changes(seed: int, epochs: int = 8) -> Epochs:
    """Return random rows that come and go; now and then some hold all that 64 bits do."""
    source, held, stream = random.Random(seed), list[Any](), []
    for epoch in range(epochs):
        source.shuffle(held)
        gone = held[: len(held) * (3 if epoch % 4 == 3 else 1) // 4]
        held = held[len(gone) :]
        new = []
        for _ in range(8):
            key = source.choice(["a", "b", "c", None])
            number = source.choice([None, 0, source.randint(-9, 9), source.choice([LIMIT - 1, -LIMIT, LIMIT >> 5, -LIMIT >> 5])])
            price = source.choice([None, Decimal(source.randint(-(10**11), 10**11)).scaleb(-2)])
            new.append((key, source.choice([None, Decimal("0.00"), Decimal("1.50")]), number, price))
        held += new
        stream.append({"t": [(row, -1) for row in gone] + [(row, 1) for row in new]})
    return Epochs({"t": SCHEMA}, stream)


def growing() -> Epochs:
    """Return rows of one group whose sums leave 64 bits only when they are added to those of earlier epochs, and come back."""
    rows = [("a", None, LIMIT >> 2, None), ("a", Decimal("1.50"), -5, Decimal("0.01"))]
    return Epochs({"t": SCHEMA}, [{"t": [(row, diff) for row in rows]} for diff in (1, 1, 1, 1, -2, 1, 2, -5)])


def by_hand(epochs: Epochs, group: Callable[[Any], Any], result: Callable[[list[Any]], Any], all_rows: bool) -> list[Any]:
    rows: Counter[Any] = Counter()
    results = []
    for epoch in epochs.changes:
        for row, diff in epoch["t"]:
            rows[row] += diff
        groups: dict[Any, list[Any]] = {(): []} if all_rows else {}
        for row in rows.elements():
            groups.setdefault(group(row), []).append(row)
        results.append(typed((key + result(members), 1) for key, members in groups.items()))
    return results


def total(values: list[Any]) -> Any:
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None


def mean(values: list[Any]) -> Any:
    numbers = [value for value in values if value is not None]
    return float(sum(numbers)) / len(numbers) if numbers else None


def one(rows: list[Any]) -> Any:
    values = [row[2] for row in rows]
    return len(rows), total(values), mean(values), total([row[3] for row in rows])


def two(rows: list[Any]) -> Any:
    values, prices = [row[2] for row in rows], [row[3] for row in rows]
    return sum(value is not None for value in values), total(values), total(prices), mean(prices)


def in_all(rows: list[Any]) -> Any:
    return len(rows), total([row[2] for row in rows]), total([row[3] for row in rows])


EXPECTED: Any = {
    BY_ONE: lambda epochs: by_hand(epochs, lambda row: row[:1], one, False),
    BY_TWO: lambda epochs: by_hand(epochs, lambda row: row[:2], two, False),
    IN_ALL: lambda epochs: by_hand(epochs, lambda row: (), in_all, True),
}


@pytest.mark.parametrize("query", EXPECTED)
@pytest.mark.parametrize("by_columns", [lambda time: True, lambda time: time % 3 != 1, lambda time: False])
def test_sums_are_exact_however_rows_come(query: str, by_columns: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timely.differential.tables.expressions.column_stages.FEW", 1)
    monkeypatch.setattr("timely.differential.outputs.MANY", 1)  # the output adds columns up when it is read
    for epochs in (changes(1), growing()):
        expected = EXPECTED[query](epochs)
        assert epochs.held(view(query), by_columns) == expected
        assert epochs.held_on_workers(view(query)) == expected


def test_counts_below_zero_and_beyond_64_bits_come_back_by_rows_and_columns() -> None:
    rows = [("a", None, number, None) for number in range(6)]
    many = [("b", None, None, None)] * 4
    steps: list[Any] = [[(row, -1) for row in rows], [(rows[0], 1)], [(row, 2) for row in rows], [(row, 1 << 70) for row in many]]
    held = Epochs({"t": SCHEMA}, [{"t": step} for step in steps]).held(view(BY_ONE), lambda time: time != 1)
    mean_of_all = ("a", 7, 15, 15 / 7, None)
    assert held == [
        typed((row, 1) for row in result)
        for result in (
            [("a", -6, -15, 2.5, None)],
            [("a", -5, -15, 3.0, None)],
            [mean_of_all],
            [mean_of_all, ("b", 4 << 70, None, None, None)],
        )
    ]


def phase(worker: timely.Worker, where: Path, query: str, epochs: Epochs, stop: int) -> list[Any]:
    """Go on from a checkpoint up to ``stop``, where another is made; return what each epoch holds."""
    with Recovery(worker, where) as recovery:
        with worker.dataflow(int) as scope:
            table = dd.table(scope, SCHEMA, name="t")
            output = dd.sql(scope, query, t=table).output()
        start = recovery.time or 0
        table.session.advance_to(start)
        for time in range(start, stop):
            for batch, diff in as_batches(epochs.changes[time]["t"], SCHEMA):
                share = batch.take(list(range(worker.index, len(batch), worker.peers)))
                table.session.insert_columns(share, diff=diff)
            table.session.advance_to(time + 1)
        recovery.checkpoint(stop)
        table.session.close()
        worker.run()
        return [list(output.at(time).items()) for time in range(start, stop)]


@pytest.mark.parametrize("query", EXPECTED)
@pytest.mark.parametrize("limited", [(True, False, True), (False, True, False)])
def test_a_checkpoint_goes_on_with_another_memory_limit(query: str, limited: Any, tmp_path: Path) -> None:
    epochs, held = changes(3, 9), list[Any]()
    for number, limit in enumerate(limited):
        around: AbstractContextManager[Any] = MemoryBudget(10_000) if limit else nullcontext()
        with around:
            run = timely.execute(lambda worker: phase(worker, tmp_path, query, epochs, 3 * number + 3), workers=1 + number % 2)  # noqa: B023
        held += [typed(item for share in run for item in share[epoch]) for epoch in range(3)]
    assert held == EXPECTED[query](epochs)
