"""State stays bounded, compaction changes no answer, and times without ``glb`` are right as well.

White box: no program chooses the frontier up to which its traces are compacted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.differential import oracles
from tests.differential.test_graphs import hops as distances
from tests.differential.test_graphs import rows
from tests.differential.test_lattices import TALLIES, Tally
from tests.differential.test_loops import hops, strong_edges
from tests.differential.test_operators import ONE
from timely import Product
from timely import differential as dd
from timely.differential.trace.deltas import RowDelta
from timely.differential.trace.entries import accumulate
from timely.differential.trace.trace import Trace
from timely.errors import TimelyWarning
from timely.progress import lattice
from timely.testing.differential import Cluster, accumulated, check_operator, few_times, updates_in_traces

LIVE = 50
"""Records that each collection holds, whatever has changed."""

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "arrange": lambda c: c.arrange_by_key().as_collection(),
    **{name: ONE[name][0] for name in ("distinct", "count_by_key", "sum_by_key", "min_by_key")},
    "top_k": lambda c: c.top_k(3),
    "hot key": lambda c: c.map(lambda pair: (0, 20 * pair[0] + pair[1])).min_by_key(),
    "hot sum": lambda c: c.map(lambda pair: (0, 20 * pair[0] + pair[1])).sum_by_key(),
    "reduce": lambda c: c.reduce(oracles.least),
    "join": lambda c: c.join_map(c.map(lambda pair: pair[::-1]), lambda k, v, w: (v, w)),
    "antijoin": lambda c: c.antijoin(c.map(lambda pair: pair[1])),
    "degrees": lambda c: c.map(lambda pair: pair[0]).count().map(lambda pair: pair[1]).count(),
    "hops": lambda c: hops(c, dd.collection(c.scope, [1], on=0)),
    "strong": strong_edges,
}


@pytest.mark.parametrize(
    ("name", "settled"),
    [(name, settled) for name in PROGRAMS for settled in (True, False) if settled or name != "strong"],
)
def test_no_trace_grows_with_the_changes(name: str, settled: bool) -> None:
    changes = {"hops": 150, "strong": 20}.get(name, 300)
    assert most_entries(PROGRAMS[name], changes, 1, settled) <= 4 * LIVE + 100


@pytest.mark.parametrize("name", ["count_by_key", "join", "hops"])
def test_no_trace_of_three_workers_grows_with_the_changes(name: str) -> None:
    assert most_entries(PROGRAMS[name], 60, 3, True) <= 4 * LIVE + 100


def most_entries(build: Callable[[Any], Any], changes: int, workers: int, settled: bool) -> int:
    """Return the most updates that any trace keeps while records come and go, one of each in an epoch."""
    random = Random(1)
    cluster = Cluster(workers)
    sessions = []
    for worker in cluster.workers:
        with worker.dataflow(int) as scope:
            session, collection = dd.new_collection(scope)
            build(collection).probe()
        sessions.append(session)
    held = [(random.randrange(20), random.randrange(20)) for _ in range(LIVE)]
    for record in held:
        sessions[0].insert(record)
    largest = 0
    for time in range(1, changes):
        for session in sessions:
            session.advance_to(time)
        index = random.randrange(LIVE)
        sessions[time % workers].remove(held[index])
        held[index] = (random.randrange(20), random.randrange(20))
        sessions[time % workers].insert(held[index])
        if settled or 2 * time > changes:  # what was sent at once is compacted as more changes come
            cluster.settle()
            if settled and time % (changes // 3) == 0:
                largest = max(largest, *updates_in_traces())
    for session in sessions:
        session.advance_to(changes + 1)
    cluster.settle()
    largest = max(largest, *updates_in_traces())
    for session in sessions:
        session.close()
    cluster.settle()
    return largest


PAIR: Any = Product[int, int]


@pytest.mark.parametrize("time", [int, PAIR, Product[PAIR, int]], ids=["epochs", "pairs", "deep"])
def test_compaction_changes_no_accumulation_at_or_after_since(time: Any) -> None:
    times = lattice(time)
    updates = st.lists(st.tuples(st.tuples(st.integers(0, 1), st.integers(0, 2)), few_times(time), st.sampled_from([1, -1])))

    @settings(max_examples=60)
    @given(updates, st.lists(few_times(time), min_size=1, max_size=3), few_times(time))
    def unchanged(changes: list[Any], elements: list[Any], further: Any) -> None:
        since = times.lower_envelope(elements)
        trace: Trace[Any] = Trace(times, True, lambda: since)
        for record, when, diff in changes:
            trace.append(when, RowDelta([(record, diff)]))
        trace.compact()
        for element in since:
            later = times.lub(element, further)
            expected = accumulated(changes, later)
            from_trace = {(key, value): n for key in (0, 1) for value, n in accumulate(trace.history(key), later).items()}
            assert from_trace == expected

    unchanged()


def first(pair: Any) -> Any:
    return pair[0]


@pytest.mark.parametrize("name", ["reduce", "min_by_key", "distinct", "hops"])
def test_DD_A6_times_with_lub_alone_are_right(name: str) -> None:
    expected: dict[str, Callable[[Any], Any]] = {
        "reduce": lambda n: oracles.reduced(oracles.mixed, n),
        "min_by_key": lambda n: oracles.reduced(oracles.least, n),
        "distinct": oracles.distinct,
        "hops": lambda n: rows(distances(oracles.distinct(n), oracles.distinct(oracles.mapped(first, n)))),
    }
    builds = {
        **PROGRAMS,
        "reduce": lambda c: c.reduce(oracles.mixed),
        "hops": lambda c: hops(c.distinct(), c.map(first).distinct()),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TimelyWarning)
        check_operator(builds[name], expected[name], time=Tally, times=TALLIES, examples=20)
