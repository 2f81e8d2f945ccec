"""Processes ask each other beside the mesh; who does not answer, or cannot, is said."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from timely import Worker
from timely.inspect import capability_holders
from timely.worker.local_workers import LocalWorkers, company_of, lines


@pytest.fixture
def companies() -> Iterator[list[LocalWorkers]]:
    """Three companies on one set of lines, as three processes have them."""
    made = lines(3)
    copies = [[(ear.dup(), called.dup()) for ear, called in made] for _ in made]
    yield [LocalWorkers(copy, place, workers=2) for place, copy in enumerate(copies)]
    for line in made:
        for end in line:
            end.close()


def test_all_others_are_asked_and_answer(companies: list[LocalWorkers], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capability_holders, "answer", lambda members, question: (len(members), question))
    one, two, three = companies
    with one, two, three:
        two.admit(Worker())
        assert one.ask("how many", 60) == {1: (1, "how many"), 2: (0, "how many")}
        assert [list(one.workers_at(place)) for place in range(3)] == [[0, 1], [2, 3], [4, 5]]
        assert one.reaches == 6
    assert not [thread for thread in threading.enumerate() if thread.name == "timely listener"]


def test_why_there_is_no_answer_is_said(companies: list[LocalWorkers], monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(members: Any, question: str) -> Any:
        if question == "raise":
            raise LookupError("nothing is known of that")
        return lambda: None  # which cannot be pickled

    monkeypatch.setattr(capability_holders, "answer", answer)
    one, two, three = companies
    with one, two:
        assert one.ask("raise", 0.1)[1] == "cannot say: nothing is known of that"
        assert one.ask("send", 0.1)[1].startswith("cannot say: ")
        assert one.ask("raise", 0.1)[2] == "does not answer within 0.1 s"
    with three:
        pass  # and is gone


def test_one_who_is_called_too_often_is_not_waited_for(companies: list[LocalWorkers]) -> None:
    one, two, three = companies
    with one, three:
        for _ in range(1000):
            assert one.ask("?", 0.0)[1] == "does not answer within 0 s"
    with two:
        pass


def test_a_worker_made_by_hand_is_in_no_company() -> None:
    worker = Worker()
    with LocalWorkers() as company:
        assert company_of(worker) is None
        company.admit(worker)
        assert company_of(worker) is company
    assert company_of(worker) is None
