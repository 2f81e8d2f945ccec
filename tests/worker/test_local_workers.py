"""Processes query each other on a control channel; a text says why there is no answer.

White box: which process asks which, and who does not answer, is decided here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from timely import Worker
from timely.monitor.local_workers import ControlChannel, LocalWorkers, control_channels, local_workers_of


def answer(members: Any, query: str) -> Any:
    if query == "raise":
        raise LookupError("nothing is known of that")
    return (lambda: None) if query == "send" else (len(members), query)  # a function cannot be pickled


@pytest.fixture
def processes() -> Iterator[list[LocalWorkers]]:
    """The local workers of three processes."""
    made = control_channels(3)
    copies: list[list[ControlChannel]] = [[(one.dup(), other.dup()) for one, other in made] for _ in made]
    yield [LocalWorkers(copy, place, 2, answer) for place, copy in enumerate(copies)]
    for channel in made:
        for end in channel:
            end.close()


def test_all_other_processes_answer(processes: list[LocalWorkers]) -> None:
    one, two, three = processes
    with one, two, three:
        two.add(Worker())
        assert one.ask("how many", 60) == {1: (1, "how many"), 2: (0, "how many")}
        assert [list(one.workers_at(place)) for place in range(3)] == [[0, 1], [2, 3], [4, 5]]
        assert one.reaches == 6
    assert not [thread for thread in threading.enumerate() if thread.name == "timely listener"]


def test_a_missing_answer_has_a_reason(processes: list[LocalWorkers]) -> None:
    one, two, three = processes
    with one, two:
        assert one.ask("raise", 0.1)[1] == "cannot say: nothing is known of that"
        assert one.ask("send", 0.1)[1].startswith("cannot say: ")
        assert one.ask("raise", 0.1)[2] == "does not answer within 0.1 s"
    with three:
        pass  # and is gone


def test_one_who_is_called_too_often_is_not_waited_for(processes: list[LocalWorkers]) -> None:
    one, two, three = processes
    with one, three:
        for _ in range(1000):
            assert one.ask("?", 0.0)[1] == "does not answer within 0 s"
    with two:
        pass


def test_a_worker_made_by_hand_is_in_no_local_workers() -> None:
    worker = Worker()
    with LocalWorkers() as local:
        assert local_workers_of(worker) is None
        local.add(worker)
        assert local_workers_of(worker) is local
    assert local_workers_of(worker) is None
