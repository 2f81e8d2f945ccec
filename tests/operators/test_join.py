"""``join`` against all pairs, for any times in any order, totally ordered or not, on any number of workers."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from tests.operators.feeding import run, seeds, sizes
from timely import LoopTime, Product, TimestampError, Unit
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
