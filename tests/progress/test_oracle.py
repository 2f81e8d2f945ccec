"""The compiled engines against brute force, on random graphs and random changes of counts (T5, G9, G10).

White box: results do not show which of the two engines ran.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.progress.times import Clock, Moment, Shift, Tick, TotalMoment
from timely.order import Product
from timely.progress import Antichain, Location, ProductSummary, Step, Tracker, Unit, UnitSummary, time_domain
from timely.progress.engine import PartialTracker, TotalTracker
from timely.testing import Change, GraphSpec, Oracle, TimeKit, scenarios

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
