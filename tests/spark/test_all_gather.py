"""Workers that meet at worker 0: what each gets to know of the others, what all raise, and what the report has.

White box: the tasks of a stage are threads here, with an all-gather of their own, since Spark's takes a second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest

import timely.spark.rendezvous
from timely.errors import ConfigurationError, OperatorError, PeerLostError, SchemaError, SparkError
from timely.spark import WorkerMetrics, failure_of
from timely.spark.gathered_rendezvous import Attempt, GatheredRendezvous, mark
from timely.spark.registration import Registration
from timely.spark.stage_messages import Resumed

METRICS = WorkerMetrics(0, 7, 2, "here", 1, 3, None, {"x": 1}, {}, 1, 1, 4, 9, 0, 1, 1, 2.0, 1.5, 0.5, final=True)
"""The last report of a worker."""


class Stage:
    """The tasks of one attempt of a barrier stage, of which each has a thread."""

    def __init__(self, addresses: list[str]) -> None:
        self.addresses = addresses
        self._barrier = threading.Barrier(len(addresses))
        self._messages = [""] * len(addresses)

    def run(self, task: Callable[[Any, int], object], patience: float = 600.0) -> list[object]:
        """Return what came of each task: what it returned or raised."""
        plan = GatheredRendezvous(len(self.addresses), patience)

        def one(index: int) -> object:
            def all_gather(message: str = "") -> list[str]:
                self._messages[index] = message
                self._barrier.wait(600)
                return list(self._messages)

            infos = [SimpleNamespace(address=address) for address in self.addresses]
            context = SimpleNamespace(partitionId=lambda: index, getTaskInfos=lambda: infos, allGather=all_gather)
            try:
                with plan.attempt(cast(Any, context)) as attempt:
                    return task(attempt, index)
            except Exception as error:
                return error

        with ThreadPoolExecutor(len(self.addresses)) as pool:
            return list(pool.map(one, range(len(self.addresses))))


def register(attempt: Attempt, index: int) -> Registration:
    return Registration(attempt.invitation, index=index, generation=7, stage=2, timeout=600)


HERE = ["192.0.2.9:4000", "192.0.2.9:4000", "192.0.2.9:4000"]


def test_all_get_the_addresses_of_all_and_worker_0_has_the_report() -> None:
    def task(attempt: Attempt, index: int) -> object:
        with register(attempt, index) as registration:
            peers = registration.peers((registration.host, 4000 + index))
            if index == 0:
                registration.send(Resumed(5))
            time.sleep(0.1 * index)  # worker 0 waits for the others
            registration.send(attrs.evolve(METRICS, worker=index))
            registration.done()
        return peers, attempt.report()

    came = Stage(HERE).run(task)
    assert all(isinstance(each, tuple) for each in came), came
    peers, reports = zip(*cast(list[tuple[Any, Any]], came), strict=True)
    assert peers == ({index: ("127.0.0.1", 4000 + index) for index in range(3)},) * 3
    assert reports[1:] == (None, None)
    assert '"resumed": [5]' in reports[0]
    assert [f'"worker": {index}' in reports[0] for index in range(4)] == [True, True, True, False]


def test_what_one_raises_is_raised_by_all() -> None:
    def task(attempt: Attempt, index: int) -> object:
        with register(attempt, index) as registration:
            registration.peers((registration.host, 4000 + index))
            if index == 2:
                registration.report(OperatorError("it failed", "map", "/map#1", 2))
                raise ValueError
            error = registration.stopped(600.0)
            assert error is not None
            raise error

    came = Stage(HERE).run(task)
    assert [str(error) for error in came] == ["it failed", "it failed", ""]


@pytest.mark.parametrize("returns", [False, True])
def test_a_failure_is_final_until_a_worker_returns_rows(returns: bool) -> None:
    asked = threading.Barrier(3)

    def task(attempt: Attempt, index: int) -> object:
        with register(attempt, index) as registration:
            registration.peers((registration.host, 4000 + index))
            if returns and index == 1:
                registration.ask_to_return()
            asked.wait(600)
            if index == 2:
                registration.report(OperatorError("it failed", "map", "/map#1", 2))
            return registration.ends(600.0)

    assert Stage(HERE).run(task) == [not returns] * 3


def test_who_asks_to_return_rows_after_a_failure_gets_it() -> None:
    def task(attempt: Attempt, index: int) -> object:
        with register(attempt, index) as registration:
            registration.peers((registration.host, 4000 + index))
            if index == 2:
                registration.report(SchemaError("no column 'n'"))
            registration.stopped(600.0)
            registration.ask_to_return()
        return None

    assert [str(error) for error in Stage(HERE).run(task)] == ["no column 'n'"] * 3


def test_a_worker_that_goes_away_leaves_no_report() -> None:
    met = threading.Barrier(3)

    def task(attempt: Attempt, index: int) -> object:
        with register(attempt, index) as registration:
            registration.peers((registration.host, 4000 + index))
            met.wait(600)
            if index != 1:
                registration.send(attrs.evolve(METRICS, worker=index))
                registration.done()
        return attempt.report()

    first, *others = Stage(HERE).run(task)
    assert isinstance(first, PeerLostError) and str(first) == "worker 1 has gone away"
    assert others == [None, None]


def test_the_others_raise_when_worker_0_goes_away() -> None:
    seen: list[object] = []
    has_met = threading.Event()

    def task(attempt: Attempt, index: int) -> object:
        with register(attempt, index) as registration:
            registration.peers((registration.host, 4000 + index))
            if index == 0:
                assert has_met.wait(600)
                raise KeyboardInterrupt  # hidden from the test's own except clause
            has_met.set()
            seen.append(registration.stopped(600.0))
        return None

    with pytest.raises(KeyboardInterrupt):
        Stage(HERE[:2]).run(task)
    assert [f"{type(error).__name__}: {error}" for error in seen] == ["PeerLostError: worker 0 has gone away"]


def test_what_keeps_worker_0_from_serving_is_raised_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    came = Stage(["192.0.2.9:4000", "192.0.2.10:4000"]).run(lambda attempt, index: None)
    assert [type(error) for error in came] == [SparkError, SparkError]
    assert str(came[0]) == str(came[1])
    assert str(came[1]).startswith("worker 0 cannot listen at 192.0.2.9, which is where Spark has its executor: ")

    def missing(name: str) -> None:
        raise ConfigurationError("the package cryptography is missing here")

    monkeypatch.setattr(timely.spark.rendezvous, "make_identity", missing)
    came = Stage(HERE).run(lambda attempt, index: None)
    assert [f"{type(error).__name__}: {error}" for error in came] == [
        "FinalFailure: the package cryptography is missing here"
    ] * 3


def test_the_last_mark_of_an_exception_counts() -> None:
    first, last = SparkError("first"), OperatorError('no "x"\nin ü', "map", "/map#1", 2)
    for error in (first, last):
        mark(error, worker=1)
    text = "\n\tat java".join("\n".join([str(error), *error.__notes__]) for error in (first, last)) + "\n SQLSTATE: 38000"
    result = failure_of(RuntimeError(text))
    assert isinstance(result, OperatorError)
    assert (str(result), result.name, result.path, result.worker) == ('no "x"\nin ü', "map", "/map#1", 2)
