"""Counts and frontiers: exact results on small graphs (R1 to R3); the engines against brute force on random ones (T5, G9, G10).

White box: results do not show which of the two engines ran.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Self
from weakref import WeakSet

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.progress.times import Clock, Moment, Shift, Tick, TotalMoment, one_input
from timely.errors import GraphError, ProgressError, TimestampError
from timely.order import Product
from timely.progress import (
    Antichain,
    GraphBuilder,
    Location,
    ProductSummary,
    Source,
    Step,
    Target,
    Tracker,
    Unit,
    UnitSummary,
    time_domain,
)
from timely.progress.engine import PartialTracker, TotalTracker
from timely.testing import Change, GraphSpec, Oracle, TimeKit, scenarios


def ring(*, local: bool = False, observes: list[int] | None = None) -> Tracker[int]:
    """Graph R: three nodes in a ring, the last of which advances time by one."""
    graph: GraphBuilder[int] = GraphBuilder(int)
    for node, advance in enumerate((0, 0, 1)):
        graph.add_node(node, 1, 1, [[Antichain([Step(advance)])]], observes=observes)
    for node in range(3):
        graph.add_edge(Source(node, 0), Target((node + 1) % 3, 0), local=local)
    return graph.build()


@pytest.mark.parametrize("local", [False, True])
def test_R1_ring(local: bool) -> None:
    tracker = ring(local=local)
    tracker.update(Source(0, 0), 17, +1)
    assert sorted(tracker.propagate()) == [(Target(0, 0), 18, +1), (Target(1, 0), 17, +1), (Target(2, 0), 17, +1)]


@pytest.mark.parametrize("local", [False, True])
def test_R2_ring_retracted(local: bool) -> None:
    tracker = ring(local=local)
    tracker.update(Source(0, 0), 17, +1)
    tracker.propagate()
    tracker.update(Source(0, 0), 17, -1)
    assert sorted(tracker.propagate()) == [(Target(0, 0), 18, -1), (Target(1, 0), 17, -1), (Target(2, 0), 17, -1)]
    assert tracker.is_empty()


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("observes", [None, []])
def test_R3_ring_sources(local: bool, observes: list[int] | None) -> None:
    tracker = ring(local=local, observes=observes)
    tracker.update(Source(0, 0), 17, +1)
    tracker.propagate()
    assert [tracker.frontier(Source(node, 0)).elements for node in range(3)] == [(17,), (17,), (18,)]


def test_counts_that_come_and_go_beyond_a_held_time_leave_nothing_behind() -> None:
    for time in (int, Product[int, int]):
        tracker = one_input(time)
        at: list[Any] = [n if time is int else Product(n, n) for n in range(5001)]
        tracker.update_at(0, at[0], 1)
        for n in range(1, 5001):
            tracker.update_at(0, at[n], 1)
            tracker.propagate_observed()
            tracker.update_at(0, at[n], -1)
            tracker.propagate_observed()
        assert len(tracker._counts[0]) <= 200
        assert tracker.frontier(Target(0, 0)) == Antichain([at[0]])


class Event(Moment):
    """A moment that one can tell to be forgotten, and whose comparisons are counted."""

    compared = 0

    def __lt__(self, other: Self, /) -> bool:
        Event.compared += 1
        return super().__lt__(other)


class TotalEvent(Event, TotalMoment):
    """The same, totally ordered."""


@pytest.mark.parametrize("time", [Event, TotalEvent])
def test_times_that_are_gone_are_forgotten(time: type[Event]) -> None:
    tracker = one_input(time)
    known = WeakSet[Event]()
    for at in range(10):
        event = time(at)
        known.add(event)
        for diff in (+1, -1):
            tracker.update_at(0, event, diff)
            assert len(tracker.propagate_observed()) == 1
    del event
    tracker.propagate_observed()
    assert len(known) == 0


def test_a_thousand_outstanding_times_take_a_heap_and_not_a_search() -> None:
    tracker = one_input(TotalEvent)
    Event.compared = 0
    for at in range(1000):
        tracker.update_at(0, TotalEvent(at), 1)
    assert Event.compared < 10_000, "to rebuild the heap each time would take half a million"


def test_many_outstanding_times_survive_compaction() -> None:
    tracker = one_input(int)
    times = [(n * 7919) % 5003 for n in range(5003)]
    for time in times:
        tracker.update(Target(0, 0), time, 1)
        tracker.update(Target(0, 0), time + 6000, 1)
        tracker.update(Target(0, 0), time + 6000, -1)
    for time in range(5003):
        tracker.propagate()
        assert tracker.frontier(Target(0, 0)) == Antichain([time])
        tracker.update(Target(0, 0), time, -1)
    tracker.propagate()
    assert tracker.is_empty()


def test_what_is_owed_survives_compaction() -> None:
    """Counts below zero are kept among many times that come and go, until they are made up for."""
    tracker = one_input(int)
    tracker.update(Target(0, 0), 0, +1)
    for time in range(1, 2001):
        tracker.update(Target(0, 0), time, +1)
        tracker.update(Target(0, 0), time, -2 if time % 100 == 0 else -1)
    tracker.update(Target(0, 0), 0, -1)
    tracker.propagate()
    assert tracker.frontier(Target(0, 0)) == Antichain()
    assert tracker.counts() == {(Target(0, 0), time): -1 for time in range(100, 2001, 100)}
    for time in range(100, 2001, 100):
        tracker.update(Target(0, 0), time, +1)
    assert (tracker.propagate(), tracker.is_empty()) == ([], True)


@pytest.mark.parametrize("exchanged", [0, 1])
def test_counts_are_not_added_to_those_of_an_exchange(exchanged: int) -> None:
    """Of the two ends of a path through a node only the one at the local edge is promised not to go below zero."""
    graph: GraphBuilder[int] = GraphBuilder(int)
    graph.add_node("in", 0, 1, [])
    graph.add_node("relay", 1, 1, [[Antichain([Step(0)])]], observes=[])
    graph.add_node("out", 1, 0, [()])
    graph.add_edge(Source("in", 0), Target("relay", 0), local=exchanged != 0)
    graph.add_edge(Source("relay", 0), Target("out", 0), local=exchanged != 1)
    tracker = graph.build()
    ends: list[Location] = [Target("relay", 0), Source("relay", 0)]
    tracker.update(ends[exchanged], 3, -1)
    tracker.update(ends[1 - exchanged], 3, +1)
    assert tracker.propagate() == [(Target("out", 0), 3, 1)]


def test_unknown_locations_and_times_are_refused() -> None:
    tracker = ring()
    for act in (tracker.index, tracker.frontier, tracker.explain, tracker.summaries_from):
        with pytest.raises(GraphError, match=r"Source\(7, 0\) is not a location"):
            act(Source(7, 0))
    with pytest.raises(GraphError, match=r"Target\(0, 1\)"):
        tracker.summary(Source(0, 0), Target(0, 1))
    with pytest.raises(TimestampError, match="int"):
        tracker.update(Source(0, 0), -1, 1)


@pytest.mark.parametrize("diff", ["x", 1.5, None, 1.0])
def test_what_is_no_count_is_refused(diff: Any) -> None:
    tracker = ring()
    with pytest.raises(ProgressError, match=f"by a whole number, as in .*, not by {diff!r}$"):
        tracker.update(Source(0, 0), 1, diff)
    assert tracker.counts() == {} and tracker.propagate() == []


def test_a_count_may_be_a_number_of_numpy() -> None:
    tracker = ring()
    tracker.update(Source(0, 0), 1, np.int64(2))
    tracker.update(Source(0, 0), 1, True)
    assert [(count, type(count)) for count in tracker.counts().values()] == [(3, int)]


Scenario = tuple[GraphSpec, list[list[Change]]]

LIMITS = st.none() | st.integers(0, 9)
STEPS = st.builds(Step, st.integers(0, 2), LIMITS)
FORWARD_STEPS = st.builds(Step, st.integers(1, 3), LIMITS)
NUMBERS = st.integers(0, 8)

INT = TimeKit(int, NUMBERS, FORWARD_STEPS, STEPS)
PRODUCT = TimeKit(
    Product[int, int],
    st.builds(Product, st.integers(0, 3), st.integers(0, 3)),
    st.builds(ProductSummary, STEPS, FORWARD_STEPS) | st.builds(ProductSummary, FORWARD_STEPS, STEPS),
    st.builds(ProductSummary, STEPS, STEPS),
)
UNIT = st.builds(Unit)
SAME = st.builds(UnitSummary)
NARROW = TimeKit(
    Product[Unit, int],
    st.builds(Product, UNIT, NUMBERS),
    st.builds(ProductSummary, SAME, FORWARD_STEPS),
    st.builds(ProductSummary, SAME, STEPS),
)
# No cycle of six nodes can go back by as much as one of its inputs advances.
SHIFTS = st.builds(Shift, st.integers(-2, 2), st.integers(0, 6))
FORWARD_SHIFTS = st.builds(Shift, st.integers(12, 14), st.integers(0, 20))
MOMENTS = TimeKit(Moment, st.builds(Moment, st.integers(0, 20)), FORWARD_SHIFTS, SHIFTS)
TOTAL_MOMENTS = TimeKit(TotalMoment, st.builds(TotalMoment, st.integers(0, 20)), FORWARD_SHIFTS, SHIFTS)
FEW = st.integers(0, 2)
CLOCK = TimeKit(
    Clock,
    st.builds(Clock, FEW, FEW, FEW),
    st.builds(Tick, FEW, FEW, st.just(1)) | st.builds(Tick, FEW, st.just(1), FEW),
    st.builds(Tick, FEW, FEW, FEW),
)

KITS = {
    "int": INT,
    "product": PRODUCT,
    "unit": NARROW,
    "moment": MOMENTS,
    "total-moment": TOTAL_MOMENTS,
    "clock": CLOCK,
}
ANY_KIT = st.sampled_from(list(KITS.values()))
ANY_SCENARIO = ANY_KIT.flatmap(scenarios)


def apply(tracker: Tracker[Any], changes: list[Change]) -> None:
    for location, time, diff in changes:
        tracker.update(location, time, diff)


def sums(rounds: list[list[Change]]) -> dict[tuple[Location, Any], int]:
    counts: Counter[tuple[Location, Any]] = Counter()
    for changes in rounds:
        for location, time, diff in changes:
            counts[location, time] += diff
    return {key: count for key, count in counts.items() if count}


def frontiers(tracker: Tracker[Any], spec: GraphSpec) -> Mapping[Location, set[Any]]:
    return {location: set(tracker.frontier(location)) for location in spec.locations()}


def test_engines() -> None:
    def engine(spec: Any) -> type:
        return type(GraphSpec(spec, (), ()).build())

    assert [engine(spec) for spec in (int, Unit, Product[Unit, int], TotalMoment)] == [TotalTracker] * 4
    assert [engine(spec) for spec in (Product[int, int], Moment, Clock)] == [PartialTracker] * 3


@pytest.mark.parametrize("kit", KITS.values(), ids=KITS)
@given(data=st.data())
def test_T5_G9_frontiers_are_exact(kit: TimeKit, data: st.DataObject) -> None:
    spec, rounds = data.draw(scenarios(kit))
    tracker, oracle = spec.build(), Oracle(spec)
    for number, changes in enumerate(rounds):
        apply(tracker, changes)
        tracker.propagate()
        assert frontiers(tracker, spec) == oracle.frontiers(sums(rounds[: number + 1]))


@pytest.mark.parametrize("kit", KITS.values(), ids=KITS)
@given(data=st.data())
def test_G10_changes_add_up_to_the_difference_of_frontiers(kit: TimeKit, data: st.DataObject) -> None:
    spec, rounds = data.draw(scenarios(kit))
    tracker = spec.build()
    assert sorted(tracker.observed) == spec.observed()
    seen: Counter[tuple[Location, Any]] = Counter()
    for changes in rounds:
        apply(tracker, changes)
        reported = tracker.propagate()
        assert len({(target, time) for target, time, _ in reported}) == len(reported)
        for target, time, diff in reported:
            assert diff in (-1, 1)
            seen[target, time] += diff
        assert {key for key, count in seen.items() if count == 1} == {
            (target, time) for target in spec.observed() for time in tracker.frontier(target)
        }
        assert set(seen.values()) <= {0, 1}
        assert not tracker.dirty
        assert tracker.propagate() == []


@given(ANY_SCENARIO)
def test_counts(scenario: Scenario) -> None:
    spec, rounds = scenario
    tracker = spec.build()
    for number, changes in enumerate(rounds):
        apply(tracker, changes)
        expected = sums(rounds[: number + 1])
        assert tracker.counts() == expected
        assert tracker.is_empty() == (not expected)
        tracker.propagate()
        assert tracker.counts() == expected
        assert tracker.is_empty() == (not expected)


@given(ANY_SCENARIO)
def test_explain(scenario: Scenario) -> None:
    """Each blocker's path is a path of the graph and has its summary, and their arrivals are the frontier exactly."""
    spec, rounds = scenario
    tracker, steps = spec.build(), spec.steps()
    for changes in rounds:
        apply(tracker, changes)
    tracker.propagate()
    counts = tracker.counts()
    for location in spec.locations():
        blockers = tracker.explain(location)
        assert {blocker.arrives_at for blocker in blockers} == set(tracker.frontier(location))
        for blocker in blockers:
            assert blocker.count == counts[blocker.location, blocker.time] > 0
            assert (blocker.path[0], blocker.path[-1]) == (blocker.location, location)
            assert blocker.summary.results_in(blocker.time) == blocker.arrives_at
            assert blocker.summary in set(tracker.summary(blocker.location, location))
            composed: set[Any] = {time_domain(spec.time).identity}
            for start, end in zip(blocker.path, blocker.path[1:]):
                onwards = [step for to, step in steps[start] if to == end]
                composed = {so_far.followed_by(step) for so_far in composed for step in onwards} - {None}
            assert blocker.summary in composed


@given(ANY_SCENARIO)
def test_G3_summaries(scenario: Scenario) -> None:
    spec, _ = scenario
    tracker, oracle = spec.build(), Oracle(spec)
    for start in spec.locations():
        expected = {end: Antichain(summaries) for end, summaries in oracle.summaries[start].items()}
        assert tracker.summaries_from(start) == expected
        assert tracker.summary(start, start) == Antichain([time_domain(spec.time).identity])
        for end in spec.locations():
            assert tracker.summary(start, end) == expected.get(end, Antichain())


@given(ANY_SCENARIO)
def test_plan_is_numbered_upwards(scenario: Scenario) -> None:
    plan = scenario[0].build()._plan
    assert all(start < cell for cell, before in enumerate(plan.predecessors) for start, _ in before)
    assert sorted(observer for observer in plan.observers if observer >= 0) == list(range(len(plan.topology.observed)))
