"""B: updates of equal records and times add up, and what adds up to nothing is gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.differential.test_loops import MANAGES
from timely.differential import from_updates
from timely.testing.differential import Cluster

Run = Callable[..., Any]


def consolidated(run: Run, changes: list[Any]) -> list[Any]:
    """Return every single update that comes after ``consolidate``."""
    seen: list[Any] = []
    run(lambda c: c.consolidate().inspect(lambda *update: seen.append(update)), changes)
    return sorted(seen, key=lambda update: (update[1], update[0]))


def test_DD_B1_equal_records_add_up(run: Run) -> None:
    assert consolidated(run, [("a", 0, -1), ("b", 0, -2), ("a", 0, 1)]) == [("b", 0, -2)]


@pytest.mark.parametrize(
    "changes",
    [[("a", 0, -1), ("b", 0, 0), ("a", 0, 1)], [("a", 0, 0)], [("a", 0, 0), ("b", 0, 0)]],
    ids=["pair", "zero", "zeros"],
)
def test_DD_B2_what_adds_up_to_nothing_is_gone(run: Run, changes: list[Any]) -> None:
    assert consolidated(run, changes) == []


def test_DD_B3_different_records_stay(run: Run) -> None:
    assert consolidated(run, [("a", 0, 1), ("b", 0, 1)]) == [("a", 0, 1), ("b", 0, 1)]


def test_DD_B4_equal_records_at_different_times_stay_apart(run: Run) -> None:
    assert consolidated(run, [("a", 1, -1), ("b", 1, -2), ("a", 1, 1)]) == [("b", 1, -2)]
    assert consolidated(run, [("a", 1, 1), ("b", 2, 1)]) == [("a", 1, 1), ("b", 2, 1)]
    assert consolidated(run, [("a", 1, 1), ("a", 2, -1)]) == [("a", 1, 1), ("a", 2, -1)]


def test_DD_B5_before_and_after_consolidate(run: Run) -> None:
    before: list[Any] = []
    after: list[Any] = []

    def both(pairs: Any) -> Any:
        twice = pairs.concat(pairs.map(lambda pair: pair[::-1])).inspect(lambda *update: before.append(update))
        return twice.consolidate().inspect(lambda *update: after.append(update))

    run(both, MANAGES)
    assert sum(diff for record, _, diff in before if record == (0, 0)) == 2
    assert [update for update in after if update[0] == (0, 0)] == [((0, 0), 0, 2)]
    assert len(after) == 19


def test_DD_B6_a_time_passes_though_nothing_is_left_of_it() -> None:
    cluster = Cluster()
    (worker,) = cluster.workers
    seen: list[Any] = []
    with worker.dataflow(int) as scope:
        (handle, capability), stream = scope.new_unordered_input()
        probe = from_updates(stream).consolidate().inspect(lambda *update: seen.append(update)).probe()
    handle.session(capability).give_batch([("a", 1), ("a", -1)])
    capability.downgrade(1)
    cluster.settle()
    assert seen == [] and not probe.less_than(1)
    capability.drop()
    cluster.settle()
    assert probe.done()
