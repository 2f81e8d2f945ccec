"""``join`` against all pairs, for any times in any order, totally ordered or not, on any number of workers."""

from __future__ import annotations

import datetime
import gc
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timely
from tests.operators.feeding import run, seeds, sizes
from tests.recovery.cutting import Phase
from timely import GraphError, LoopTime, OperatorError, Product, TimestampError, Unit
from timely.progress import lattice

record = st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 3))
sends = st.lists(st.tuples(st.integers(0, 5), record), max_size=15)
product_sends = st.lists(st.tuples(st.builds(Product, st.integers(0, 2), st.integers(0, 2)), record), max_size=12)


def all_pairs(left: list[Any], right: list[Any], bound: Any) -> Counter[Any]:
    return Counter((bound(one, two), (key, (a, b))) for one, (key, a) in left for two, (other, b) in right if key == other)


@given(sends, sends, sizes, seeds)
def test_join_gives_every_pair_once_at_the_later_time(left: Any, right: Any, workers: int, seed: int | None) -> None:
    [outputs] = run(lambda one, two: one.join(two), left, right, workers=workers, seed=seed)
    assert outputs == all_pairs(left, right, max)


@given(product_sends, product_sends, sizes, seeds)
def test_join_at_least_upper_bounds(left: Any, right: Any, workers: int, seed: int | None) -> None:
    def bound(one: Any, two: Any) -> Any:
        return Product(max(one.outer, two.outer), max(one.inner, two.inner))

    times: Any = Product[int, int]
    [outputs] = run(lambda one, two: one.join(two), left, right, time=times, workers=workers, seed=seed)
    assert outputs == all_pairs(left, right, bound)


@given(sends, sizes)
def test_join_with_itself_and_with_another_routing_key(sent: Any, workers: int) -> None:
    [outputs] = run(lambda one: one.join(one, key=len), sent, workers=workers)
    assert outputs == all_pairs(sent, sent, max)


class Thing:
    """Something whose end one can see."""


@pytest.mark.parametrize("first", [0, 1])
def test_a_side_is_stored_until_the_other_has_ended(first: int) -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        (left, lefts), (right, rights) = scope.new_input(), scope.new_input()
        probe = lefts.join(rights).probe()
    keeper, other = (left, right) if first == 0 else (right, left)
    thing = Thing()
    seen = weakref.ref(thing)
    keeper.send((0, thing))
    del thing
    for epoch in range(1, 4):
        keeper.advance_to(epoch)
        other.advance_to(epoch)
        worker.step_while(lambda: probe.less_than(epoch))  # noqa: B023  # called at once
    gc.collect()
    assert seen() is not None
    other.close()
    for _ in range(3):
        worker.step()
    gc.collect()
    assert seen() is None
    keeper.send((0, Thing()))
    keeper.close()
    worker.run()


class Set(frozenset[str]):
    """Times that are sets, with no least upper bound that anyone has told of."""

    @classmethod
    def minimum(cls) -> Set:
        return Set()

    identity = minimum

    def results_in(self, time: Set, /) -> Set | None:
        return Set(self | time)

    followed_by = results_in


class Bounded(Set):
    """The same, and it has been told."""

    @classmethod
    def minimum(cls) -> Bounded:
        return Bounded()

    identity = minimum

    def results_in(self, time: Set, /) -> Bounded | None:
        return Bounded(self | time)

    followed_by = results_in

    def lub(self, other: Bounded) -> Bounded:
        return Bounded(self | other)


@pytest.mark.parametrize("time", [Set, Product[int, Set]])
def test_times_without_least_upper_bounds_are_refused_when_building(time: Any) -> None:
    worker = timely.Worker()
    refused = pytest.raises(TimestampError, match="times of type Set have none: give the type a method lub")
    with refused, worker.dataflow(time) as scope:
        scope.empty().join(scope.empty())


def test_a_custom_type_has_its_own_upper_bound() -> None:
    left, right = [(Bounded("a"), (0, "left"))], [(Bounded("b"), (0, "right")), (Bounded("ac"), (0, "later"))]
    [outputs] = run(lambda one, two: one.join(two), left, right, time=Bounded)
    assert outputs == Counter([(Bounded("ab"), (0, ("left", "right"))), (Bounded("ac"), (0, ("left", "later")))])


PAIRS: Any = Product[int, int]
KINDS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, st.integers(0, 5)),
    (Unit, st.just(Unit())),
    (Product[int, PAIRS], st.builds(Product, st.integers(0, 2), st.builds(Product, st.integers(0, 2), st.integers(0, 2)))),
    (LoopTime, st.builds(LoopTime, st.integers(0, 2), st.lists(st.integers(0, 2), max_size=2).map(tuple))),
    (Bounded, st.frozensets(st.sampled_from("abc")).map(Bounded)),
]


@given(st.data())
@pytest.mark.parametrize(("time", "values"), KINDS)
def test_a_least_upper_bound_is_one(time: Any, values: st.SearchStrategy[Any], data: st.DataObject) -> None:
    one, two, other = data.draw(values), data.draw(values), data.draw(values)
    bound = lattice(time).lub(one, two)
    assert one <= bound
    assert two <= bound
    assert bound == lattice(time).lub(two, one)
    if one <= other and two <= other:
        assert bound <= other


COLUMN_KINDS: dict[str, tuple[pa.DataType, pa.DataType, list[Any]]] = {
    "int": (pa.int64(), pa.int32(), [0, 1, -(2**31), 2**31 - 1]),
    "wide": (pa.int64(), pa.int64(), [0, 1 << 62, -(1 << 63), (1 << 63) - 1]),
    "uint64": (pa.uint64(), pa.uint64(), [0, 2**64 - 1, 2**63, 1]),
    "float": (pa.float64(), pa.float64(), [0.0, -0.0, 0.5, float("nan")]),
    "text": (pa.dictionary(pa.int32(), pa.string()), pa.large_string(), ["", "plumless", "buckeroo", "é"]),
    "instant": (pa.timestamp("ns"), pa.timestamp("ns"), [0, 1, 999, 1000]),
}
"""Types of a key on both sides and values, some of which differ and are routed alike."""

row_sends = st.lists(
    st.tuples(st.integers(0, 3), st.tuples(st.integers(0, 4), st.integers(0, 1), st.integers(0, 9))), max_size=15
)


def to_batch(kind: pa.DataType, values: list[Any], name: str) -> Callable[[list[Any]], pa.RecordBatch]:
    """What makes a batch of rows: a number of a key, another key, a value."""

    def made(rows: list[Any]) -> pa.RecordBatch:
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        keys = pa.array([[*values, None][row[0]] for row in rows], plain).cast(kind)
        columns = [keys, pa.array([row[1] for row in rows]), pa.array([row[2] for row in rows])]
        return pa.RecordBatch.from_arrays(columns, ["k", "j", name])

    return made


@pytest.mark.parametrize("kind", COLUMN_KINDS)
@settings(max_examples=12)
@given(row_sends, row_sends, sizes, seeds, st.booleans())
def test_every_pair_of_rows_once_at_the_later_time(
    kind: str, left: Any, right: Any, workers: int, seed: int | None, swapped: bool
) -> None:
    one, two, values = COLUMN_KINDS[kind]

    def build(lefts: Any, rights: Any) -> Any:
        on = ["j", "k"] if swapped else ["k", "j"]
        joined = lefts.map_batch(to_batch(one, values, "l")).join(rights.map_batch(to_batch(two, values, "r")), on=on)
        return joined.map(lambda row: row[2:])

    [outputs] = run(build, left, right, workers=workers, seed=seed)
    choices = [*values, None]
    assert outputs == Counter(
        (max(time, other_time), (number, other_number))
        for time, (k, j, number) in left
        for other_time, (other, other_j, other_number) in right
        if choices[k] == choices[other] is not None and j == other_j
    )


pair_sends = st.lists(st.tuples(st.builds(Product, st.integers(0, 2), st.integers(0, 2)), st.integers(0, 2)), max_size=9)


@settings(max_examples=25)
@given(pair_sends, pair_sends, sizes, seeds)
def test_at_least_upper_bounds(left: Any, right: Any, workers: int, seed: int | None) -> None:
    def build(one: Any, two: Any) -> Any:
        lefts, rights = (stream.map_batch(lambda keys: pa.record_batch({"k": keys})) for stream in (one, two))
        return lefts.join(rights, on="k").map(lambda row: row[0])

    times: Any = Product[int, int]
    [outputs] = run(build, left, right, time=times, workers=workers, seed=seed)
    bounds = [
        (Product(max(one.outer, two.outer), max(one.inner, two.inner)), key)
        for one, key in left
        for two, other in right
        if key == other
    ]
    assert outputs == Counter(bounds)


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        ({"k": [1]}, {"k": ["a"]}, "'k' is int64 on the left and string on the right: cast one of them with map_batch"),
        ({"k": [1]}, {"k": pa.array([1], pa.uint64())}, "'k' is int64 on the left and uint64 on the right"),
        ({"k": [1], "a": [1]}, {"k": [1], "a": [1]}, "both sides have .'a'.: rename them on one side with map_batch"),
        ({"k": [1]}, {"a": [1]}, "no column 'k'"),
    ],
)
def test_columns_that_cannot_be_joined(left: Any, right: Any, message: str) -> None:
    def build(scope: timely.ScopeBuilder[int]) -> timely.Stream[int, Any]:
        (one, lefts), (two, rights) = scope.new_input(), scope.new_input()
        one.send_batch(pa.record_batch(left))
        two.send_batch(pa.record_batch(right))
        return lefts.join(rights, on="k")

    with pytest.raises(timely.TimelyError, match=message):
        timely.example(build)


@pytest.mark.parametrize("day", range(1, 5))
def test_types_of_keys_that_never_meet(day: int) -> None:
    """Each side has one row, which two workers may have apart."""

    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int) as scope:
            (left, lefts), (right, rights) = scope.new_input(), scope.new_input()
            lefts.join(rights, on="k").probe()
        if worker.index == 0:
            left.send_batch(pa.record_batch({"k": [datetime.date(2024, 1, day)]}))
            right.send_batch(pa.record_batch({"k": pa.array([datetime.datetime(2024, 1, day)], pa.timestamp("us"))}))

    with pytest.raises(OperatorError, match="'k' is date32.day. on the left and timestamp.us. on the right: cast one of them"):
        timely.execute(program, workers=2)


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("day", range(1, 5))
def test_types_of_keys_that_never_meet_in_a_resumed_run(day: int, workers: int) -> None:
    """The left side has come before the snapshot."""

    def build(scope: Any, lefts: Any, rights: Any) -> Any:
        return lefts.join(rights, on="k")

    before = Phase(build, 2, 2, ())
    before.send(0, 0, 0, pa.record_batch({"k": [datetime.date(2024, 1, day)]}))
    before.advance_to(1)
    after = Phase(build, 2, workers, before.snapshots())
    after.advance_to(1)
    after.send(1, 0, 1, pa.record_batch({"k": pa.array([datetime.datetime(2024, 1, day)], pa.timestamp("us"))}))
    with pytest.raises(OperatorError, match="'k' is date32.day. on the left and timestamp.us. on the right: cast one of them"):
        after.end()


def test_a_column_without_values_joins_any() -> None:
    def build(scope: timely.ScopeBuilder[int]) -> timely.Stream[int, Any]:
        (one, lefts), (two, rights) = scope.new_input(), scope.new_input()
        one.send_batch(pa.record_batch({"k": [None, None]}))
        two.send_batch(pa.record_batch({"k": [1, None]}))
        return lefts.join(rights, on="k")

    assert timely.example(build) == []


def test_batches_of_one_side_that_differ() -> None:
    def build(scope: timely.ScopeBuilder[int]) -> timely.Stream[int, Any]:
        one, lefts = scope.new_input()
        one.send_batch(pa.record_batch({"k": [1], "a": [1]}))
        one.send_batch(pa.record_batch({"k": [1], "a": ["x"]}))
        return lefts.join(scope.empty(), on="k")

    with pytest.raises(OperatorError, match="the left differ in their columns, k int64, a int64 and then k int64, a s"):
        timely.example(build)


def test_records_are_no_batches() -> None:
    with pytest.raises(OperatorError, match=r"join\(on=...\) is for Arrow record batches, and what came on the left is a nd"):
        timely.example(lambda scope: _sent(scope, [1]).join(scope.empty(), on="k"))


def _sent(scope: Any, values: list[int]) -> Any:
    import numpy as np

    handle, stream = scope.new_input()
    handle.send_batch(np.array([(value,) for value in values], [("k", int)]))
    return stream


@pytest.mark.parametrize("on", [[], [1], ["a", "a"], 5])
def test_what_names_no_columns(on: Any) -> None:
    with pytest.raises(GraphError, match="join takes on= as the name of a column, or a list of different names, not"):
        timely.example(lambda scope: scope.empty().join(scope.empty(), on=on))
    join: Any = timely.operators.join
    with pytest.raises(GraphError, match="not both"):
        timely.example(lambda scope: join(scope.empty(), scope.empty(), len, on="k"))
