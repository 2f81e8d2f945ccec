"""Naiad's scheduler of occurrence and precursor counts, and our tracker: the same frontiers after every event."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.exchange_rules import histories
from tests.support.naiad_scheduler import NaiadScheduler
from tests.testing.kits import KITS
from tests.testing.test_custom_timestamps import NESTED
from timely.errors import ProgressError
from timely.progress import LoopTime, Product, Source, Step, Target, time_domain
from timely.testing import GraphSpec, NodeSpec, Oracle, TimeKit, graphs, times

NESTED_LOOPS = st.just(NESTED)
"""Leaving a loop goes back in time: random graphs do not have that, these loops do."""


@pytest.mark.parametrize(
    ("kit", "made"),
    [*((kit, graphs(kit, max_nodes=4)) for kit in KITS.values()), (KITS["naiad_loop_time"], NESTED_LOOPS)],
    ids=[*KITS, "nested loops"],
)
@given(data=st.data())
def test_T5_the_frontiers_of_naiads_scheduler_are_the_trackers(
    kit: TimeKit, made: st.SearchStrategy[GraphSpec], data: st.DataObject
) -> None:
    graph = data.draw(made)
    scheduler, tracker = NaiadScheduler(graph), graph.build()
    minimum: Any = time_domain(kit.spec).minimum
    for location in graph.locations():
        if isinstance(location, Source):
            scheduler.notify_at(location, minimum)
            tracker.update(location, minimum, 1)
    for statement in data.draw(histories(kit, graph)):
        for location, time, diff in sorted(statement, key=lambda change: -change[2]):
            scheduler.update(location, time, diff)
            tracker.update(location, time, diff)
        tracker.propagate()
        assert scheduler.occurrences == tracker.counts()
        for location in graph.locations():
            assert scheduler.frontier_at(location) == tracker.frontier(location)


@pytest.mark.parametrize("spec", [int, LoopTime, Product[LoopTime, int]], ids=["int", "loop_time", "product"])
@given(data=st.data())
def test_precursor_counts_are_those_of_the_definition(spec: Any, data: st.DataObject) -> None:
    graph = data.draw(graphs(spec, max_nodes=3))
    scheduler, oracle = NaiadScheduler(graph), Oracle(graph)
    places = graph.locations()
    for location in data.draw(st.lists(st.sampled_from(places), max_size=8)) if places else []:
        pointstamp = location, data.draw(times(spec))
        scheduler.update(*pointstamp, -1 if data.draw(st.booleans()) and pointstamp in scheduler.occurrences else 1)
    active = set(scheduler.occurrences)
    for pointstamp in active:
        precursors = {other for other in active - {pointstamp} if oracle.leads(other, pointstamp)}
        assert scheduler.precursors[pointstamp] == len(precursors)
    assert scheduler.frontier() == {pointstamp for pointstamp in active if not scheduler.precursors[pointstamp]}


def test_what_was_not_sent_cannot_be_received() -> None:
    scheduler = NaiadScheduler(GraphSpec(int, (NodeSpec(1, 0, {}, ()),), ()))
    with pytest.raises(ProgressError, match=r"nothing is outstanding at \(Target\(0, 0\), 3\)"):
        scheduler.on_recv(Target(0, 0), 3)


def test_a_loop_holds_back_what_comes_round_it() -> None:
    body = NodeSpec(1, 1, {(0, 0): (Step(1),)}, (0,))
    graph = GraphSpec(int, (body,), ((Source(0, 0), Target(0, 0), False),))
    scheduler = NaiadScheduler(graph)
    scheduler.send_by(Target(0, 0), 1)
    scheduler.send_by(Target(0, 0), 2)
    scheduler.notify_at(Source(0, 0), 2)
    assert scheduler.precursors == {(Target(0, 0), 1): 0, (Target(0, 0), 2): 2, (Source(0, 0), 2): 1}
    assert Oracle(graph).leads((Source(0, 0), 2), (Target(0, 0), 2))
