"""What is passed on is made of whole batches, those of each worker in order, and everybody hears everything once."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely.progress import ProgressBatch, ProgressExchange, Relay, Routes


@st.composite
def routes(draw: st.DrawFn) -> Routes:
    """Any tree of groups: each group after the first has one worker of those before it."""
    groups, workers = [], 1
    for size in draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)):
        groups.append([draw(st.integers(0, workers - 1)), *range(workers, workers + size)])
        workers += size
    return Routes(workers, groups)


class Played:
    """Relays and what is on its way between them; each statement of a worker is two changes of its own."""

    def __init__(self, shape: Routes) -> None:
        self.shape = shape
        workers = range(shape.workers)
        self.relays: list[Relay[Any]] = [Relay(worker, shape.around(worker)) for worker in workers]
        self.ends = [ProgressExchange[Any](worker, shape.workers) for worker in workers]
        self.links: dict[tuple[int, int], deque[ProgressBatch[Any]]] = {}
        self.heard: list[dict[Any, int]] = [{} for _ in workers]
        self.said = [0] * shape.workers

    def say(self, worker: int) -> None:
        name = worker, self.said[worker]
        self.said[worker] += 1
        self.relays[worker].say([((*name, "down"), -1), ((*name, "up"), 1)])

    def flush(self, worker: int) -> None:
        for members, batch in self.relays[worker].flush():
            for member in members:
                self.links.setdefault((worker, member), deque()).append(batch)

    def deliver(self, link: tuple[int, int]) -> None:
        sender, worker = link
        batch = self.links[link].popleft()
        if not self.links[link]:
            del self.links[link]
        self.relays[worker].hear(sender, batch.updates)
        for key, diff in self.ends[worker].receive(batch):
            assert key not in self.heard[worker], "nothing is heard twice"
            self.heard[worker][key] = diff

    def check(self) -> None:
        for worker, heard in enumerate(self.heard):
            for sender, said in enumerate(self.said):
                count = sum(key[0] == sender for key in heard) // 2
                first = {(sender, number, what): diff for number in range(count) for what, diff in (("down", -1), ("up", 1))}
                assert {key: diff for key, diff in heard.items() if key[0] == sender} == first
                assert count <= said and (worker != sender or count == 0)


@given(routes(), st.data())
def test_at_any_moment_a_worker_has_heard_the_first_so_many_batches_of_each_other_one(shape: Routes, data: st.DataObject) -> None:
    played, worker = Played(shape), st.integers(0, shape.workers - 1)
    for _ in range(data.draw(st.integers(0, 30))):
        deed = data.draw(st.integers(0, 2))
        if deed == 0:
            played.say(data.draw(worker))
        elif deed == 1:
            played.flush(data.draw(worker))
        elif played.links:
            played.deliver(data.draw(st.sampled_from(sorted(played.links))))
        played.check()
    for _ in range(2 * shape.hops + 1):
        for index in range(shape.workers):
            played.flush(index)
        while played.links:
            played.deliver(next(iter(played.links)))
    played.check()
    everything = 2 * sum(played.said)
    assert [len(heard) for heard in played.heard] == [everything - 2 * said for said in played.said]


def test_what_cancels_is_not_passed_on() -> None:
    relay: Relay[str] = Relay(0, [[1], [2], [3]])
    relay.hear(1, (("message", 1),))
    relay.hear(2, (("message", -1),))
    told = {members[0]: batch.updates for members, batch in relay.flush()}
    assert told == {1: (("message", -1),), 2: (("message", 1),)}
    assert relay.flush() == []


def test_groups_that_hear_the_same_are_told_the_same_batch() -> None:
    relay: Relay[str] = Relay(0, [[1], [2], [3], [4]])
    for sender in (1, 2, 3):
        relay.hear(sender, (("capability", -1),))
    batches = {members[0]: batch for members, batch in relay.flush()}
    assert batches[1] is batches[2] is batches[3] is not batches[4]
    assert (batches[1].updates, batches[4].updates) == ((("capability", -2),), (("capability", -3),))


@pytest.mark.parametrize("groups", [[[0], [2]], [[0, 2]]])
def test_each_group_has_a_count_of_batches_of_its_own(groups: list[list[int]]) -> None:
    relay: Relay[str] = Relay(1, groups)
    found = []
    for _ in range(3):
        relay.hear(0, (("a", 1),))
        found += [(members, batch.sequence) for members, batch in relay.flush()]
    assert found == ([([2], 0), ([2], 1), ([2], 2)] if len(groups) == 2 else [])
