"""Who tells whom of progress: whatever the shape, there is one way from each worker to each other one."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely.errors import ConfigurationError
from timely.progress import Routes
from timely.progress.routes import MODES


def all_shapes(processes: int, each: int) -> list[Routes]:
    workers = processes * each
    return [*(Routes.named(mode, workers, each) for mode in MODES), *(Routes.tree(workers, k, each) for k in (2, 3, 5))]


@given(st.integers(1, 12), st.integers(1, 4))
def test_from_each_worker_to_each_other_there_is_a_way_over_groups_that_each_occur_once(processes: int, each: int) -> None:
    for routes in all_shapes(processes, each):
        longest = 0
        for source in range(routes.workers):
            for target in range(routes.workers):
                way = routes.way(source, target)
                assert (way[0], way[-1]) == (source, target)
                used = [n for a, b in pairwise(way) for n, group in enumerate(routes.groups) if a in group and b in group]
                assert len(used) == len(way) - 1 == len(set(used))
                longest = max(longest, len(way) - 1)
        assert routes.hops == longest


@given(st.integers(1, 12), st.integers(1, 4))
def test_those_around_a_worker_are_the_others_in_its_groups(processes: int, each: int) -> None:
    for routes in all_shapes(processes, each):
        for worker in range(routes.workers):
            around = routes.around(worker)
            assert sorted(sorted([worker, *members]) for members in around) == sorted(
                sorted(group) for group in routes.groups if worker in group
            )


@given(st.integers(2, 6), st.integers(2, 4))
def test_the_workers_of_a_process_tell_each_other_and_only_the_first_of_them_tells_others(processes: int, each: int) -> None:
    for routes in all_shapes(processes, each)[1:]:
        for worker in range(routes.workers):
            mine = [worker // each * each + place for place in range(each)]
            inside, *outside = routes.around(worker)
            assert sorted([*inside, worker]) == mine or routes.direct_only
            assert not outside or worker == mine[0] or routes.direct_only


@pytest.mark.parametrize(
    ("workers", "groups", "says"),
    [
        (3, [[0, 1]], "there is no way to some"),
        (4, [[0, 1], [2, 3]], "there is no way to some"),
        (3, [[0, 1], [1, 2], [0, 2]], "there is more than one way"),
        (3, [[0, 1, 2], [0, 1]], "there is more than one way"),
        (2, [[0, 1, 2]], "there is no worker 2 among 2"),
    ],
)
def test_groups_that_are_no_tree_are_refused(workers: int, groups: list[list[int]], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Routes(workers, groups)


@pytest.mark.parametrize(("workers", "each"), [(4, 3), (4, 0)])
def test_workers_that_cannot_be_dealt_to_processes_are_refused(workers: int, each: int) -> None:
    with pytest.raises(ConfigurationError, match="give a divisor"):
        Routes.process(workers, each)


def test_a_group_of_one_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="fan_out=1"):
        Routes.tree(4, 1)


def test_a_mode_that_does_not_exist_is_refused_with_those_that_do() -> None:
    wrong: Any = "ring"
    with pytest.raises(ConfigurationError, match="progress='ring': .* direct, process, central, tree"):
        Routes.named(wrong, 4)
