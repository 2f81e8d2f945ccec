"""Columns: the runs that are to have them do, workers come to rest, and what is kept falls with what is live."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import timely
from tests.differential.epochs import changing
from tests.differential.test_operators import ONE
from timely import differential as dd
from timely.errors import ContainerError
from timely.testing.differential import Cluster, Containers, run, small_columns, updates_in_traces

NUMBERS = range(200)


@pytest.mark.parametrize(("containers", "kinds"), [("rows", {list}), ("columns", {"Updates"}), ("mixed", {list, "Updates"})])
@pytest.mark.parametrize("seed", [None, 5])
def test_runs_have_the_containers_that_they_are_to_have(containers: Containers, kinds: set[Any], seed: int | None) -> None:
    seen: set[Any] = set()

    def look(batch: Any) -> Any:
        seen.add(list if isinstance(batch, list) else type(batch).__name__)
        return batch

    changes = [((n % 3, n), time, 1) for n in range(12) for time in range(3)]
    expected = run(lambda c: c.count_by_key(), changes)
    result = run(lambda c: dd.from_updates(c.stream.map_batch(look)).count_by_key(), changes, containers=containers, seed=seed)
    assert result == expected
    assert seen == kinds


def test_a_worker_comes_to_rest_when_columns_of_several_times_cancel() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        session, numbers = dd.new_collection(scope)
        arranged = numbers.arrange_by_self()
        trace, probe = arranged.trace, arranged.as_collection().probe()
    for diff in (1, -1):
        for time in (0, 1):
            for n in NUMBERS:
                session.update_at(n, time, diff)
            worker.step()
    for _ in range(100):
        worker.step()
    assert worker.idle and sum(updates_in_traces()) == 0
    session.advance_to(2)
    worker.step_while(lambda: probe.less_than(2))
    assert dict(trace.items(at=1)) == {}
    session.close()


ENDS = [0, 1, -1, 5, -7, 2**31, -(2**31), 2**62, 2**63 - 1, -(2**63)]
COUNTS = [1, 1, 1, -1, 2**31 - 1, 2**31, 2**40, -(2**62)]

OPERATORS: dict[str, Callable[[Any], Any]] = {
    **{name: build for name, (build, _) in ONE.items() if name.endswith("_by_key") or name in ("top_k", "distinct", "count")},
    "join": lambda c: c.join_map(c, lambda k, v, w: (v, w), columns=lambda k, v, w: (v, w)),
    "antijoin": lambda c: c.antijoin(c.map(lambda pair: pair[1])),
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", OPERATORS)
def test_numbers_at_the_ends_of_64_bits_and_beyond(name: str, seed: int) -> None:
    random = Random(seed)
    changes = [((random.choice(ENDS), random.choice(ENDS)), random.randrange(3), random.choice(COUNTS)) for _ in range(12)]
    expected = run(OPERATORS[name], changes)
    conditions: Any = {"workers": 1 + 2 * (seed % 2), "compact": seed > 1}
    for containers in ("columns", "mixed"):
        assert run(OPERATORS[name], changes, containers=containers, **conditions) == expected


@pytest.mark.parametrize("name", OPERATORS)
def test_counts_leave_64_bits_also_where_rows_become_columns(name: str) -> None:
    pairs = [(n, n % 2) for n in range(8)]
    changes = [(pair, time, -2 if time == 3 else 1 << 62) for pair in pairs for time in range(4)]
    expected = run(OPERATORS[name], changes)
    with small_columns(1):
        assert run(OPERATORS[name], changes) == expected
        assert run(OPERATORS[name], changes, compact=True) == expected


MANY = 20_000
FEW = 500

KEPT: dict[str, Callable[[Any], Any]] = {
    "arrange": lambda c: c.arrange_by_key().as_collection(),
    **{name: ONE[name][0] for name in ("distinct", "count_by_key", "sum_by_key", "min_by_key")},
    "join": lambda c: c.join_map(
        c.map_columns(lambda keys, values: (values, keys)), lambda k, v, w: (v, w), columns=lambda k, v, w: (v, w)
    ),
    "loop": lambda c: c.iterate(lambda scope, x: x.map_columns(lambda keys, values: (keys, values // 2)).concat(x).distinct()),
}


@pytest.mark.parametrize(("name", "workers"), [*((name, 1) for name in KEPT), ("join", 3), ("distinct", 3)])
def test_traces_shrink_when_nearly_all_goes(name: str, workers: int) -> None:
    many = MANY // 8 if name == "loop" else MANY
    cluster = Cluster(workers)
    sessions, probes = [], []
    for worker in cluster.workers:
        with worker.dataflow(int) as scope:
            session, pairs = dd.new_collection(scope)
            probes.append(KEPT[name](pairs).probe())
        sessions.append(session)
    numbers = np.arange(many)
    keys, values = numbers % (many // 4), numbers

    def advance(time: int) -> None:
        for session in sessions:
            session.advance_to(time)
        cluster.settle()

    sessions[0].insert_columns(keys, values)
    advance(1)
    full = sum(updates_in_traces())
    assert full >= many
    for part, chosen in enumerate(np.array_split(numbers[FEW:], 8)):
        sessions[part % workers].insert_columns(keys[chosen], values[chosen], diff=-1)
        advance(2 + part)
    for time in range(10, 40):  # it goes on: a few rows come and go
        chosen = numbers[(time - 10) * 10 : (time - 9) * 10]
        sessions[time % workers].insert_columns(keys[chosen], values[chosen], diff=-1)
        sessions[time % workers].insert_columns(keys[chosen], values[chosen] + 1)
        advance(time + 1)
    per_record = 20 if name == "loop" else 4  # each has a row for every half of its value
    assert sum(updates_in_traces()) <= 4 * per_record * FEW + 1_000
    assert all(not probe.less_than(40) for probe in probes)
    for session in sessions:
        session.close()
    cluster.settle()


def test_missing_values_and_moments_of_other_libraries() -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    moment = datetime.datetime(2024, 1, 1, 0, 0, 0, 5)
    columns_and_values: dict[str, tuple[Any, list[Any]]] = {
        "masked": (np.ma.array([1, 2], mask=[False, True]), [1, None]),
        "nullable": (pandas.Series([2**53 + 1, None], dtype="Int64"), [2**53 + 1, None]),
        "floats": (pandas.Series([1.5, None]), [1.5, None]),
        "categories": (pandas.Series(["a", None], dtype="category"), ["a", None]),
        "nanoseconds": (np.array([moment, "NaT"], "datetime64[ns]"), [moment, None]),
        "pandas": (pandas.Series([moment, None]), [moment, None]),
        "polars": (polars.Series([2**53 + 1, None]), [2**53 + 1, None]),
        "polars' categories": (polars.Series(["a", None], dtype=polars.Categorical), ["a", None]),
    }
    frames = [kind({"k": [1, 2**53 + 1], "v": ["a", "b"]}) for kind in (polars.DataFrame, pandas.DataFrame, pa.table)]
    with changing() as (session, output):
        for time, (name, (column, _)) in enumerate(columns_and_values.items()):
            session.insert_columns([name] * 2, column)
            session.advance_to(time + 1)
            session.insert_columns([name] * 2, column, diff=-1)
        with pytest.raises(ContainerError, match="whole microseconds"):
            session.insert_columns(np.array([1], "datetime64[ns]"))
        no_columns: list[Any] = [None, 5, "abc", {"k": [1]}, iter([1]), np.zeros((2, 2))]
        for data in no_columns:
            with pytest.raises(ContainerError, match="takes columns of values, not "):
                session.insert_columns(data)
        for frame in frames:
            session.insert_columns(frame)
        session.close()
        for time, (name, (_, values)) in enumerate(columns_and_values.items()):
            assert output.at(time) == {(name, value): 1 for value in values}
        assert output.at(len(columns_and_values)) == {(1, "a"): 3, (2**53 + 1, "b"): 3}


@pytest.mark.parametrize("columns", [lambda *columns: (columns[0],) * 3, lambda *columns: (), lambda *columns: columns[0][1:]])
@pytest.mark.parametrize("name", ["map", "map_columns", "flat_map", "join_map"])
def test_number_16_other_numbers_of_columns_or_rows_are_refused(columns: Any, name: str) -> None:
    builds: dict[str, Any] = {
        "map": lambda pairs: pairs.map(lambda pair: pair, columns=columns),
        "map_columns": lambda pairs: pairs.map_columns(columns),
        "flat_map": lambda pairs: pairs.flat_map(lambda pair: [pair], columns=lambda *pair: [columns(*pair)]),
        "join_map": lambda pairs: pairs.join_map(pairs, lambda key, one, other: key, columns=columns),
    }
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            session, pairs = dd.new_collection(scope)
            builds[name](pairs).probe()
        session.insert_columns(range(2000), range(2000))
        session.close()
        with pytest.raises(timely.OperatorError, match="ContainerError: .*returns an array, or two for pairs, of 2,000 rows"):
            worker.run()


def test_numbers_that_a_kernel_refuses_are_left_to_rows() -> None:
    def doubled(key: Any, *values: Any) -> Any:
        if isinstance(key, np.ndarray) and (key >= 1 << 62).any():
            raise OverflowError
        return 2 * key

    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            session, pairs = dd.new_collection(scope)
            outputs = [
                pairs.map(lambda pair: doubled(*pair), columns=doubled).output(),
                pairs.flat_map(lambda pair: [doubled(*pair)], columns=lambda *pair: [doubled(*pair)]).output(),
                pairs.join_map(pairs, doubled, columns=doubled).output(),
            ]
        keys: list[int] = []
        for epoch, first in enumerate([0, (1 << 62) - 500]):
            session.insert_columns(range(first, first + 1000), range(1000))
            session.advance_to(epoch + 1)
            keys += range(first, first + 1000)
            assert [output.at(epoch) for output in outputs] == [{2 * key: 1 for key in keys}] * 3
        session.close()


def test_a_list_of_pairs_and_of_single_numbers_is_refused() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            session, pairs = dd.new_collection(scope)
            pairs.flat_map(lambda pair: [pair, 1], columns=lambda key, value: [(key, value), key]).probe()
        session.insert_columns(range(1000), range(1000))
        session.close()
        with pytest.raises(
            timely.OperatorError, match="flat_map: a function of columns returns a list of arrays, or one of pairs"
        ):
            worker.run()
