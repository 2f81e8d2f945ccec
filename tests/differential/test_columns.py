"""Columns: the runs that are to have them do, workers come to rest, and what is kept falls with what is live."""

from __future__ import annotations

from typing import Any

import pytest

import timely
from timely import differential as dd
from timely.testing.differential import Containers, run, updates_in_traces

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
    found = run(
        lambda c: dd.from_updates(c.stream.map_batch(look)).count_by_key(), changes, containers=containers, seed=seed
    )
    assert found == expected
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
