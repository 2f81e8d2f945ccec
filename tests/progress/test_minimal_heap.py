"""The order of what waits: many partially ordered times in a heap, alone and in the engine, and activations, against brute
force."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.progress.times import one_input
from timely.order import Product
from timely.progress import ActivationQueue, MinimalHeap, Target
from timely.testing import minimal

TIMES = st.builds(Product, st.integers(0, 7), st.integers(0, 7))
DIFFS = st.sampled_from([-1, 1, 1])


@given(st.lists(st.lists(st.tuples(TIMES, st.sampled_from([0, -1, 1])), max_size=30)))
def test_minimum_is_that_of_the_positive_counts(rounds: list[list[tuple[Any, int]]]) -> None:
    heap: MinimalHeap[Any] = MinimalHeap()
    counts: dict[Any, int] = {}
    for changes in rounds:
        for time, count in changes:
            counts[time] = count
            if count > 0:
                heap.add(time)
        present = {time for time, count in counts.items() if count > 0}
        result = heap.minimum(counts)
        assert set(result) == minimal(present)
        assert len(set(result)) == len(result)
        assert len(present) <= len(heap) <= len(counts)


@st.composite
def waves(draw: st.DrawFn) -> list[list[tuple[Any, int]]]:
    """Rounds of changes at one place, after which few or many times have a count."""
    rounds: list[list[tuple[Any, int]]] = []
    counts: Counter[Any] = Counter()
    for _ in range(draw(st.integers(1, 8))):
        changes = draw(st.lists(st.tuples(TIMES, DIFFS), max_size=40))
        kind = draw(st.sampled_from(["some", "all", "but few"]))
        for time, diff in changes:
            counts[time] += diff
        if kind != "some":
            spared = draw(st.sets(st.sampled_from(sorted(counts)), max_size=2)) if counts and kind == "but few" else ()
            leaving = [(time, -count) for time, count in counts.items() if count and time not in spared]
            for time, diff in leaving:
                counts[time] += diff
            changes = changes + leaving
        rounds.append(changes)
    return rounds


@given(waves())
def test_many_times_at_one_target(rounds: list[list[tuple[Any, int]]]) -> None:
    tracker = one_input(Product[int, int])
    counts: Counter[Any] = Counter()
    reported: Counter[Any] = Counter()
    for changes in rounds:
        for time, diff in changes:
            tracker.update(Target(0, 0), time, diff)
            counts[time] += diff
        for _, time, diff in tracker.propagate():
            reported[time] += diff
        frontier = minimal(time for time, count in counts.items() if count > 0)
        assert set(tracker.frontier(Target(0, 0))) == frontier
        assert {time: count for time, count in reported.items() if count} == dict.fromkeys(frontier, 1)


def test_only_what_changed_of_many_incomparable_times_is_reported() -> None:
    tracker = one_input(Product[int, int])
    place = Target(0, 0)

    def moved(*changes: tuple[int, int, int]) -> list[Any]:
        for outer, inner, diff in changes:
            tracker.update(place, Product(outer, inner), diff)
        return sorted((diff, tuple(time)) for _, time, diff in tracker.propagate())

    moved(*((10 * number, 200 - 10 * number, 1) for number in range(20)))
    assert moved((50, 150, -1)) == [(-1, (50, 150))]
    assert moved((50, 150, 1)) == [(1, (50, 150))]
    assert moved((0, 200, -1), (45, 152, 1), (52, 145, 1)) == [(-1, (0, 200)), (1, (45, 152)), (1, (52, 145))]
    assert moved((75, 105, 1)) == [(-1, (80, 120)), (-1, (90, 110)), (1, (75, 105))]
    assert moved((75, 105, -1)) == [(-1, (75, 105)), (1, (80, 120)), (1, (90, 110))]
    assert len(moved((0, 0, 1))) == 22
    assert len(tracker.frontier(place)) == 1


@pytest.mark.parametrize("size", [2, 3, 4, 7])
def test_what_stood_under_a_time_that_goes_is_not_lost_for_being_incomparable(size: int) -> None:
    first, beyond = Product(0, 0), [Product(1 + place, size - place) for place in range(size)]
    heap: MinimalHeap[Product[int, int]] = MinimalHeap([first, *beyond])
    counts = dict.fromkeys([first, *beyond], 1)
    assert heap.minimum(counts) == (first,)
    del counts[first]
    assert set(heap.minimum(counts)) == set(beyond)


SIZE = 6
Actions = list[tuple[str, int]]
numbers = st.integers(0, SIZE - 1)
actions = st.lists(st.tuples(st.sampled_from(["add", "remove"]), numbers), max_size=4)


def queue_of(size: int) -> ActivationQueue:
    queue = ActivationQueue()
    assert [queue.grow() for _ in range(size)] == list(range(size))
    return queue


@given(st.lists(st.tuples(actions, st.lists(actions, max_size=SIZE)), max_size=5))
@example([([("add", 1), ("add", 5), ("add", 3), ("remove", 1)], [])])  # the first of a heap goes
def test_a_pass_takes_what_waits_in_order_each_once(passes: list[tuple[Actions, list[Actions]]]) -> None:
    """``before`` is done before a pass, ``within[i]`` after the i-th number of the pass was taken."""
    queue, waiting = queue_of(SIZE), set[int]()

    def do(what: Actions) -> None:
        for action, number in what:
            if action == "add":
                queue.add(number)
                waiting.add(number)
            else:
                queue.remove(number)
                waiting.discard(number)
        assert queue.waits == [number in waiting for number in range(SIZE)]

    for before, within in passes:
        do(before)
        at = -1
        for what in [*within, *[[]] * SIZE]:
            still = sorted(number for number in waiting if number > at)
            assert bool(queue.ready) == bool(still)
            if still:
                at = queue.take()
                assert at == still[0]
                waiting.remove(at)
                do(what)
        assert queue.end_pass() == bool(waiting)
        assert sorted(queue.ready) == sorted(waiting)
