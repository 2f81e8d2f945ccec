"""The exchange of progress: one worker's end of it, groups that are trees, and batches that reach every worker once and in order.

Workers that exchange batches in any order are in ``tests/proofs``, and whole dataflows in ``tests/testing/test_simulator.py``.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely.errors import ConfigurationError, ProgressError
from timely.progress import PROGRESS_MODES, ProgressAggregator, ProgressBatch, ProgressExchange, ProgressGroups, Target


def test_flush_sends_nothing_when_all_cancels() -> None:
    exchange: ProgressExchange[str] = ProgressExchange(0, 2)
    assert exchange.flush() is None
    exchange.changes.extend([("a", 1), ("b", 1), ("a", -1)])
    exchange.changes.update("b", -1)
    assert exchange.flush() is None
    exchange.changes.update("a", 2)
    assert exchange.flush() == ProgressBatch(0, 0, (("a", 2),))
    exchange.changes.update("b", -1)
    assert exchange.flush() == ProgressBatch(0, 1, (("b", -1),))


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        (ProgressBatch(0, 0, ()), "worker 1 expected progress batch 1 of worker 0 but got 0: it was delivered before"),
        (ProgressBatch(0, 2, ()), "worker 1 expected progress batch 1 of worker 0 but got 2: batches were lost"),
        (ProgressBatch(1, 0, ()), "worker 1 got its own progress batch 0: a worker counts its own"),
        (ProgressBatch(3, 0, ()), "worker 1 got a progress batch of worker 3, but the run's workers are 0 to 2"),
        (ProgressBatch(-1, 0, ()), "worker 1 got a progress batch of worker -1"),
    ],
)
def test_batches_out_of_place_are_refused(batch: ProgressBatch[str], says: str) -> None:
    exchange: ProgressExchange[str] = ProgressExchange(1, 3)
    assert exchange.receive(ProgressBatch(0, 0, (("a", 1),))) == (("a", 1),)
    with pytest.raises(ProgressError, match=says):
        exchange.receive(batch)
    assert exchange.receive(ProgressBatch(0, 1, (("a", -1),))) == (("a", -1),)
    assert exchange.receive(ProgressBatch(2, 0, (("b", 1),))) == (("b", 1),)


@pytest.mark.parametrize(("index", "peers"), [(0, 0), (2, 2), (-1, 2)])
def test_a_worker_is_one_of_its_peers(index: int, peers: int) -> None:
    with pytest.raises(ConfigurationError, match="there is no worker"):
        ProgressExchange(index, peers)
    assert (ProgressExchange(1, 2).index, ProgressExchange(1, 2).peers) == (1, 2)


def test_a_merged_batch_counts_as_many_as_it_was_made_of() -> None:
    first, second, third = (ProgressBatch(0, number, ((Target(1, 0), 1),)) for number in range(3))
    other: ProgressExchange[Any] = ProgressExchange(1, 2)
    assert other.receive(first.merged([second])) == ((Target(1, 0), 2),)
    with pytest.raises(ProgressError, match="expected progress batch 2 of worker 0 but got 1: it was delivered before"):
        other.receive(second)
    assert other.receive(third) == third.updates


def all_shapes(processes: int, each: int) -> list[ProgressGroups]:
    workers = processes * each
    named = [ProgressGroups.named(mode, workers, each) for mode in PROGRESS_MODES]
    return named + [ProgressGroups.tree(workers, fan_out, each) for fan_out in (2, 3, 5)]


@given(st.integers(1, 12), st.integers(1, 4))
def test_a_path_uses_each_group_at_most_once(processes: int, each: int) -> None:
    for groups in all_shapes(processes, each):
        for source in range(groups.workers):
            for target in range(groups.workers):
                path = groups.path(source, target)
                assert (path[0], path[-1]) == (source, target)
                used = [n for a, b in pairwise(path) for n, group in enumerate(groups.groups) if a in group and b in group]
                assert len(used) == len(path) - 1 == len(set(used))


@given(st.integers(1, 12), st.integers(1, 4))
def test_neighbours_are_the_others_in_the_groups_of_a_worker(processes: int, each: int) -> None:
    for groups in all_shapes(processes, each):
        for worker in range(groups.workers):
            around = groups.neighbours(worker)
            assert sorted(sorted([worker, *members]) for members in around) == sorted(
                sorted(group) for group in groups.groups if worker in group
            )


@given(st.integers(2, 6), st.integers(2, 4))
def test_only_the_first_worker_of_a_process_has_neighbours_outside(processes: int, each: int) -> None:
    for groups in all_shapes(processes, each)[1:]:
        for worker in range(groups.workers):
            mine = [worker // each * each + place for place in range(each)]
            inside, *outside = groups.neighbours(worker)
            assert sorted([*inside, worker]) == mine or groups.direct_only
            assert not outside or worker == mine[0] or groups.direct_only


@pytest.mark.parametrize(
    ("workers", "groups", "says"),
    [
        (3, [[0, 1]], "there is no path to some"),
        (4, [[0, 1], [2, 3]], "there is no path to some"),
        (3, [[0, 1], [1, 2], [0, 2]], "there is more than one path"),
        (3, [[0, 1, 2], [0, 1]], "there is more than one path"),
        (2, [[0, 1, 2]], "there is no worker 2 among 2"),
    ],
)
def test_groups_that_are_no_tree_are_refused(workers: int, groups: list[list[int]], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        ProgressGroups(workers, groups)


@pytest.mark.parametrize(("workers", "each"), [(4, 3), (4, 0)])
def test_a_number_of_workers_that_is_no_multiple_is_refused(workers: int, each: int) -> None:
    with pytest.raises(ConfigurationError, match="give a divisor"):
        ProgressGroups.process(workers, each)


def test_a_group_of_one_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="fan_out=1"):
        ProgressGroups.tree(4, 1)


def test_a_mode_that_does_not_exist_is_refused_with_those_that_do() -> None:
    wrong: Any = "ring"
    with pytest.raises(ConfigurationError, match="progress='ring': .* direct, process, central, tree"):
        ProgressGroups.named(wrong, 4)


# -- aggregation -------------------------------------------------------------------------------------------------------


@st.composite
def trees(draw: st.DrawFn) -> ProgressGroups:
    """Any tree of groups: each group after the first has one worker of those before it."""
    groups, workers = [], 1
    for size in draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)):
        groups.append([draw(st.integers(0, workers - 1)), *range(workers, workers + size)])
        workers += size
    return ProgressGroups(workers, groups)


class Run:
    """Workers that aggregate one dataflow, and the batches on their way; each batch of a worker is two changes of its own."""

    def __init__(self, groups: ProgressGroups) -> None:
        workers = range(groups.workers)
        self.aggregators = [ProgressAggregator(worker, groups) for worker in workers]
        self.exchanges = [ProgressExchange[Any](worker, groups.workers) for worker in workers]
        self.links: dict[tuple[int, int], deque[ProgressBatch[Any]]] = {}
        self.received: list[dict[Any, int]] = [{} for _ in workers]
        self.sent = [0] * groups.workers

    def add(self, worker: int) -> None:
        number = self.sent[worker]
        self.sent[worker] += 1
        updates = ((worker, number, "down"), -1), ((worker, number, "up"), 1)
        self.aggregators[worker].add(0, ProgressBatch(worker, number, updates))

    def flush(self, worker: int) -> None:
        for members, _, batch in self.aggregators[worker].flush():
            for member in members:
                self.links.setdefault((worker, member), deque()).append(batch)

    def deliver(self, link: tuple[int, int]) -> None:
        sender, worker = link
        batch = self.links[link].popleft()
        if not self.links[link]:
            del self.links[link]
        self.aggregators[worker].receive(sender, 0, batch)
        for key, diff in self.exchanges[worker].receive(batch):
            assert key not in self.received[worker], "received twice"
            self.received[worker][key] = diff

    def check(self) -> None:
        for worker, received in enumerate(self.received):
            for sender, sent in enumerate(self.sent):
                count = sum(key[0] == sender for key in received) // 2
                first = {(sender, number, what): diff for number in range(count) for what, diff in (("down", -1), ("up", 1))}
                assert {key: diff for key, diff in received.items() if key[0] == sender} == first
                assert count <= sent and (worker != sender or count == 0)


@given(trees(), st.data())
def test_a_worker_has_received_a_prefix_of_the_batches_of_each_other_worker(groups: ProgressGroups, data: st.DataObject) -> None:
    run, worker = Run(groups), st.integers(0, groups.workers - 1)
    for _ in range(data.draw(st.integers(0, 30))):
        action = data.draw(st.integers(0, 2))
        if action == 0:
            run.add(data.draw(worker))
        elif action == 1:
            run.flush(data.draw(worker))
        elif run.links:
            run.deliver(data.draw(st.sampled_from(sorted(run.links))))
        run.check()
    for _ in range(2 * groups.workers):
        for index in range(groups.workers):
            run.flush(index)
        while run.links:
            run.deliver(next(iter(run.links)))
    run.check()
    everything = 2 * sum(run.sent)
    assert [len(received) for received in run.received] == [everything - 2 * sent for sent in run.sent]


def star(leaves: int) -> ProgressAggregator:
    """Return worker 0 in the middle of so many others."""
    return ProgressAggregator(0, ProgressGroups.central(leaves + 1))


def test_changes_that_cancel_are_not_forwarded() -> None:
    middle = star(3)
    middle.receive(1, 0, ProgressBatch(1, 0, (("message", 1),)))
    middle.receive(2, 0, ProgressBatch(2, 0, (("message", -1),)))
    sent = {members[0]: batch.updates for members, _, batch in middle.flush()}
    assert sent == {1: (("message", -1),), 2: (("message", 1),)}
    assert middle.flush() == []


def test_groups_share_equal_batches() -> None:
    middle = star(4)
    for sender in (1, 2, 3):
        middle.receive(sender, 0, ProgressBatch(sender, 0, (("capability", -1),)))
    batches = {members[0]: batch for members, _, batch in middle.flush()}
    assert batches[1] is batches[2] is batches[3] is not batches[4]
    assert (batches[1].updates, batches[4].updates) == ((("capability", -2),), (("capability", -3),))


def test_each_group_has_sequence_numbers_of_its_own() -> None:
    middle, sequences = star(2), []
    for number in range(3):
        middle.receive(1, 0, ProgressBatch(1, number, (("a", 1),)))
        sequences += [(members, batch.sequence) for members, _, batch in middle.flush()]
    assert sequences == [([2], 0), ([2], 1), ([2], 2)]


def test_a_worker_in_one_group_forwards_nothing() -> None:
    end = ProgressAggregator(0, ProgressGroups.direct(3))
    end.receive(1, 0, ProgressBatch(1, 0, (("a", 1),)))
    assert end.flush() == [] and not end.forwarding


def test_a_complete_dataflow_is_forgotten_after_its_last_batch() -> None:
    middle = star(2)
    middle.receive(1, 7, ProgressBatch(1, 0, (("a", -1),)))
    assert middle.forwarding
    middle.complete(7)
    assert [members for members, _, _ in middle.flush()] == [[2]]
    assert not middle.forwarding


def test_a_sender_of_no_common_group_is_refused() -> None:
    end = ProgressAggregator(2, ProgressGroups.central(3))
    with pytest.raises(ProgressError, match=r"worker 1 sends worker 2 progress, which receives it from \[0\]: give all"):
        end.receive(1, 0, ProgressBatch(1, 0, ()))
    with pytest.raises(ProgressError):
        end.receive_mark(1, 0)


@given(st.permutations([1, 2, 3, 4]), st.integers(0, 4))
def test_a_group_gets_a_mark_once_the_worker_and_all_others_have_come_to_the_round(order: list[int], begins: int) -> None:
    groups = [[1], [2, 3], [4]]
    aggregator = ProgressAggregator(0, ProgressGroups(5, [[0, *members] for members in groups]))
    came, sent = set[int](), []
    for place, sender in enumerate([*order, None]):
        if place == begins:
            aggregator.begin_round(7)
        due = [list(mark.members) for mark in aggregator.marks()]
        assert due == [g for g in groups if begins <= place and came >= {1, 2, 3, 4} - set(g) and g not in sent]
        sent += due
        if sender is not None:
            assert aggregator.in_round(7) == (begins <= place)
            aggregator.receive_mark(sender, 7)
            came.add(sender)
    assert len(sent) == 3 and not aggregator.in_round(7)


def test_a_round_that_is_over_is_forgotten() -> None:
    middle = star(2)
    for _ in range(2):
        middle.begin_round(0)
        assert middle.in_round(0)
        for sender in (1, 2):
            middle.receive_mark(sender, 0)
        assert len(list(middle.marks())) == 2 and not middle.in_round(0)
        middle.end_round(0)


def test_the_direct_mode_needs_no_marks() -> None:
    worker = ProgressAggregator(0, ProgressGroups.direct(3))
    worker.begin_round(0)
    assert not worker.in_round(0) and list(worker.marks()) == []
