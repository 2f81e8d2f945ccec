"""State larger than the memory budget: the same results, from disk, and typed errors where that cannot be."""

from __future__ import annotations

import gc
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

import timely
from tests.support.collection_programs import CollectionProgram as P
from tests.support.collection_programs import programs
from timely import Product
from timely import differential as dd
from timely.errors import OperatorError, OutOfMemoryError, SpillError
from timely.memory import MemoryBudget
from timely.recovery import Recovery
from timely.testing.differential import (
    Case,
    Change,
    cases,
    check_changes,
    few_times,
    run,
    run_resumed,
    small_columns,
    tiny_memory,
)

PAIR: Any = Product[int, int]

# -- equal results ---------------------------------------------------------------------------------------------------------


@settings(max_examples=12)
@given(programs(), cases(2, few_times(int), size=5))
def test_random_programs_have_the_results_that_they_have_in_memory(program: P, case: Case) -> None:
    with tiny_memory():
        result = case.run(program.build, int)
    check_changes(result, case.inputs, lambda *held: program.evaluate(held), int)
    assert result == case.run(program.build, int)


@settings(max_examples=6)
@given(programs(), cases(2, few_times(PAIR), size=4))
def test_random_programs_at_partially_ordered_times(program: P, case: Case) -> None:
    with tiny_memory():
        result = case.run(program.build, PAIR)
    check_changes(result, case.inputs, lambda *held: program.evaluate(held), PAIR)


def changes(make: Callable[[int], Any], count: int = 60, seed: int = 1) -> list[Change]:
    """Return random changes of pairs at ten times, of which many cancel."""
    source = random.Random(seed)
    records = [(make(source.randrange(6)), make(source.randrange(4))) for _ in range(count)]
    return [(record, source.randrange(10), source.choice([1, 1, -1])) for record in records]


class Point:
    """An object that is only equal to itself, and cannot be pickled either if it holds a function."""

    def __init__(self, held: Any = None) -> None:
        self.held = held


NAN, ALONE, BARRED = float("nan"), Point(), Point(lambda: None)
KINDS: dict[str, Callable[[int], Any]] = {
    "integers": lambda n: n - 3,
    "texts": lambda n: f"name {n}",
    "mixed": lambda n: [n, float(n), "text", b"text", (n, "a"), True][n],
}
OPERATORS: dict[str, Callable[[Any], Any]] = {
    "join": lambda c: c.join_map(c.map(lambda pair: pair[::-1]), lambda key, one, other: (one, other)),
    "distinct": lambda c: c.distinct(),
    "count_by_key": lambda c: c.count_by_key(),
    "reduce": lambda c: c.reduce(lambda key, values: [(len(values), 1)]),
    "antijoin": lambda c: c.antijoin(c.map(lambda pair: pair[1]).distinct()),
}


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("kind", KINDS)
def test_any_kind_of_record(kind: str, operator: str) -> None:
    inputs = changes(KINDS[kind])
    with tiny_memory() as budget:
        result = run(OPERATORS[operator], inputs, one_by_one=True)
        assert budget.written > 0
    assert result == run(OPERATORS[operator], inputs, one_by_one=True)


@pytest.mark.parametrize("operator", ["count_by_key", "reduce", "join"])
def test_values_that_are_not_equal_to_their_pickles(operator: str) -> None:
    odd = [NAN, ALONE, BARRED, "text"]
    inputs = [((pair[0], odd[pair[1]]), time, diff) for pair, time, diff in changes(lambda n: n)]
    build = OPERATORS[operator] if operator != "join" else lambda c: c.join(c)
    with tiny_memory() as budget:
        result = run(build, inputs, one_by_one=True)
        assert budget.written > 0
    assert result == run(build, inputs, one_by_one=True)


@pytest.mark.parametrize("kind", ["integers", "texts"])
def test_a_checkpoint_of_state_on_disk_restores_under_a_budget(kind: str, tmp_path: Path) -> None:
    inputs = changes(KINDS[kind], 40)
    for number, operator in enumerate(("join", "count_by_key", "reduce")):
        build = OPERATORS[operator]
        with tiny_memory() as budget, small_columns():
            result = run_resumed(build, inputs, directory=tmp_path / str(number), workers=(1, 2), containers="mixed")
            assert budget.written > 0
        assert result == run(build, inputs)


@pytest.mark.parametrize("operator", ["count_by_key", "reduce"])
def test_columns_that_are_read_before_their_time_is_complete_are_in_a_checkpoint(operator: str, tmp_path: Path) -> None:
    """One input is far ahead of the other, and its columns go to the trace at once."""

    def program(worker: timely.Worker) -> list[Any]:
        with Recovery(worker, tmp_path) as recovery:
            with worker.dataflow(int) as scope:
                (ahead, one), (behind, other) = dd.new_collection(scope), dd.new_collection(scope)
                output = OPERATORS[operator](one.concat(other)).output()
            if recovery.time is None:
                ahead.advance_to(2)
                ahead.insert_columns(range(20), range(20))
                behind.advance_to(1)
                worker.step_while(lambda: not worker.idle)
                recovery.checkpoint(1)
                assert output.changes() == []
            ahead.close()
            behind.close()
            worker.run()
            changes: list[Any] = output.changes()
            return changes

    with tiny_memory(), small_columns():
        first, resumed = timely.execute(program), timely.execute(program)
    assert [sorted(changes) for changes in first + resumed] == [[((key, 1), 2, 1) for key in range(20)]] * 2


def test_a_group_that_becomes_large_leaves_nothing_on_disk(tmp_path: Path) -> None:
    """A checkpoint in full would have it twice."""
    fillers: list[Any] = [((f"key {n}", 1), 1) for n in range(120)]
    epochs = [[*fillers, *((("hot", n), 1) for n in range(3))], [(("hot", n), 1) for n in range(3, 9)], [(("hot", 1), -1)]]

    def program(worker: timely.Worker) -> list[Any]:
        with Recovery(worker, tmp_path, full_every=1) as recovery:
            with worker.dataflow(int) as scope:
                session, pairs = dd.new_collection(scope)
                sums = pairs.sum_by_key().output()
            start = recovery.time or 0
            session.advance_to(start)
            for time in range(start, start + 2 if start == 0 else len(epochs)):
                for record, diff in epochs[time]:
                    session.update(record, diff)
                session.advance_to(time + 1)
                sums.at(time)
                recovery.checkpoint(time + 1)
            session.close()
            worker.run()
            return [change for change in sums.changes() if change[0][0] == "hot"]

    with tiny_memory(), small_columns(), MemoryBudget(20_000) as budget:  # with room for a bag
        sent = [change for _ in range(2) for changes in timely.execute(program) for change in changes]
        assert budget.written > 0
    sums = [0, 3, 36, 35]
    expected = [(("hot", total), time, diff) for time in range(3) for total, diff in ((sums[time], -1), (sums[time + 1], 1))]
    assert sorted(sent) == sorted(change for change in expected if change[0][1])


@pytest.mark.parametrize("kind", ["integers", "texts"])
def test_merges_are_under_way_while_times_advance(kind: str) -> None:
    source = random.Random(4)
    held = Counter[Any]()
    with small_columns(), tiny_memory(), timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            session, pairs = dd.new_collection(scope)
            counts = pairs.count_by_key().output()
            doubled = pairs.join_map(pairs.distinct(), lambda key, one, other: (one, other)).output()
        for time in range(24):
            gone = source.sample(list(held.elements()), min(6, held.total()))
            come = [(source.randrange(15), source.randrange(5)) for _ in range(12)]
            for sign, records in ((-1, gone), (1, come)):
                for record in records:
                    held[record] += sign
                    session.update(record if kind == "integers" else (f"key {record[0]}", record[1]), sign)
            session.advance_to(time + 1)
            totals = Counter[Any]()
            for (key, _), count in held.items():
                totals[key if kind == "integers" else f"key {key}"] += count
            assert counts.at(time) == {(key, total): 1 for key, total in totals.items() if total}
            expected = Counter[Any]()
            for (key, one), count in held.items():
                for (other, two), present in held.items():
                    expected[one, two] += count if key == other and present else 0
            assert doubled.at(time) == +expected
            for output in (counts, doubled):
                output.forget(time)


ITEMS = pa.schema([("id", pa.int64()), ("part", pa.int64()), ("name", pa.string()), ("price", pa.decimal128(8, 2))])
PRICED = "select id, part, name, price * 2 as paid from items"  # which becomes numbers without a type of Arrow's
PARTS = pa.schema([("part", pa.int64()), ("kind", pa.string())])


def test_arrow_rows_come_and_go() -> None:
    source = random.Random(3)
    items, parts = Counter[Any](), Counter[Any]()
    with tiny_memory() as budget, timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            tables = {"items": dd.table(scope, ITEMS), "parts": dd.table(scope, PARTS)}
            output = dd.sql(scope, f"select id, kind, name, paid from ({PRICED}) join parts using (part)", **tables).output()
        sessions = [table.session for table in tables.values()]
        for time in range(6):
            if time != 3:
                numbers = [(source.randrange(300), source.randrange(20), source.choice(["a", None])) for _ in range(80)]
                rows = [(*row, source.choice([None, Decimal(row[0]) / 100])) for row in numbers]
                items.update(rows)
                sessions[0].insert_columns(pa.table(dict(zip(ITEMS.names, zip(*rows), strict=True)), schema=ITEMS))
                more = [(number, source.choice("xyz")) for number in source.sample(range(20), 8)]
                parts.update(more)
                sessions[1].insert_columns(pa.table(dict(zip(PARTS.names, zip(*more), strict=True)), schema=PARTS))
            else:
                for gone in source.sample(list(items.elements()), 150):
                    items[gone] -= 1
                    sessions[0].remove(gone)
            for session in sessions:
                session.advance_to(time + 1)
            expected = Counter[Any]()
            for (number, part, name, price), count in items.items():
                for (other, kind), times in parts.items():
                    paid = None if price is None else 2 * price
                    expected[number, kind, name, paid] += count * times if part == other else 0
            assert output.at(time) == +expected
            output.forget(time)
        assert budget.on_disk > 0


# -- a budget of some size -------------------------------------------------------------------------------------------------


def counted(records: int, budget: MemoryBudget, kind: str) -> tuple[dict[Any, Any], int, int]:
    """Return the result of a join that is counted, and the most bytes that were counted and on disk."""
    source = np.random.default_rng(2)
    with budget, timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            opened = [dd.new_collection(scope) for _ in range(2)]
            left, right = (collection for _, collection in opened)
            joined = left.join_map(right, lambda key, a, b: (a, b), columns=lambda key, a, b: (a, b))
            output = joined.map(lambda pair: (pair[0], pair[1])).count_by_key().output()
        used = disk = 0
        for time in range(4):
            for session, _ in opened:
                keys, values = source.integers(0, records, records // 4), source.integers(0, 50, records // 4)
                if kind == "columns":
                    session.insert_columns(keys, values)
                else:
                    for key, value in zip(keys.tolist(), values.tolist(), strict=True):
                        session.insert((f"key {key}", f"value {value}"))
                session.advance_to(time + 1)
            result = dict(output.at(time))
            used, disk = max(used, budget.used), max(disk, budget.on_disk)
    return result, used, disk


@pytest.mark.parametrize(("kind", "records", "limit"), [("columns", 80_000, 500_000), ("rows", 8_000, 500_000)])
def test_state_in_memory_stays_about_within_the_budget_and_disk_is_given_back(kind: str, records: int, limit: int) -> None:
    budget = MemoryBudget(limit)
    result, used, disk = counted(records, budget, kind)
    assert result == counted(records, MemoryBudget(), kind)[0]
    assert used <= 1.5 * limit
    assert disk > 0
    gc.collect()
    assert (budget.used, budget.on_disk) == (0, 0)


# -- what cannot go on -----------------------------------------------------------------------------------------------------


def test_a_key_with_more_values_than_the_budget_is_an_error_that_says_what_to_set() -> None:
    with MemoryBudget("1MB"), timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            session, pairs = dd.new_collection(scope)
            pairs.reduce(lambda key, values: [(len(values), 1)]).output()
        with pytest.raises(OperatorError, match=r"one key has .* entries on disk.* memory=.*built at test_larger") as caught:
            for time in range(20):
                for number in range(2_000):
                    session.insert(("the only key", f"value {2_000 * time + number}"))
                session.advance_to(time + 1)
                while not worker.idle:
                    worker.step()
    assert isinstance(caught.value.__cause__, OutOfMemoryError)


def test_memory_that_runs_out_is_an_error_that_says_what_to_set() -> None:
    def greedy(key: Any, values: Any) -> Any:
        raise MemoryError

    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            dd.collection(scope, [("a", 1)]).reduce(greedy)
        with pytest.raises(OperatorError, match="memory ran out, with 1 update, 1 key of input") as caught:
            worker.run()
    assert isinstance(caught.value.__cause__, OutOfMemoryError)
    assert isinstance(caught.value.__cause__, MemoryError)


def test_a_full_disk_is_an_error_that_names_the_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with tiny_memory(), MemoryBudget(1, tmp_path), timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            session, pairs = dd.new_collection(scope)
            pairs.count_by_key().output()
        session.insert(("a", 1))
        session.advance_to(1)
        worker.step()
        monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: open("/dev/full", "r+b", buffering=0))  # noqa: SIM115
        session.insert(("a", 2))
        session.close()
        with pytest.raises(OperatorError, match=str(tmp_path)) as caught:
            worker.run()
    assert isinstance(caught.value.__cause__, SpillError)
