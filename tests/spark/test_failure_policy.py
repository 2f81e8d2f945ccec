"""A stage is ended early for what cannot be, or for what has happened twice; never for a worker that was lost.

White box: whether a stage is tried again follows from errors of several attempts, which no local session makes.
"""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyspark.errors.exceptions import captured

from timely.errors import CycleError, OperatorError, PeerLostError, SchemaError, TimelyError, WorkerError
from timely.spark.batch import FailurePolicy, note_failure, raise_typed_errors
from timely.spark.stage_messages import describe
from timely.spark.task import _reason


class Listening:
    """A run as far as a policy looks at one."""

    def listen(self, kind: Any, callback: Any) -> None:
        self.kind = kind


@pytest.fixture
def policy() -> FailurePolicy:
    return FailurePolicy(cast(Any, None), cast(Any, Listening()))


def raised(what: str, worker: int = 0, name: str = "map") -> OperatorError:
    return OperatorError(f"operator {name!r} (/d/{name}#1) on worker {worker} raised {what}", name, f"/d/{name}#1", worker)


def finals(policy: FailurePolicy, *failures: tuple[TimelyError, int, int]) -> list[bool]:
    """What is said of ``(error, stage, generation)``, one after the other."""
    received = []
    for error, stage, generation in failures:
        worker = error.worker if isinstance(error, OperatorError) else 0
        received.append(policy.is_final(error, describe(error, worker), stage, generation))
    return received


def test_what_cannot_be_is_not_tried_again(policy: FailurePolicy) -> None:
    assert finals(policy, (SchemaError("no column"), 1, 5), (CycleError("no"), 2, 7)) == [True, True]


def test_the_same_error_twice_is_final_whichever_worker_has_it(policy: FailurePolicy) -> None:
    assert finals(policy, (raised("ValueError: x", 0), 1, 5), (raised("ValueError: x", 2), 1, 9)) == [False, True]


def test_two_workers_of_one_attempt_are_not_two_attempts(policy: FailurePolicy) -> None:
    assert finals(policy, (raised("ValueError: x", 0), 1, 5), (raised("ValueError: x", 1), 1, 5)) == [False, False]


@pytest.mark.parametrize(
    "second", [(raised("ValueError: y"), 1, 9), (raised("ValueError: x", name="filter"), 1, 9), (raised("ValueError: x"), 2, 9)]
)
def test_another_error_another_operator_or_another_stage_is_tried_again(policy: FailurePolicy, second: Any) -> None:
    assert finals(policy, (raised("ValueError: x"), 1, 5), second) == [False, False]


def test_a_lost_worker_is_never_final(policy: FailurePolicy) -> None:
    gone = PeerLostError("worker 1 has gone")
    assert finals(policy, *((gone, 1, generation) for generation in range(4))) == [False] * 4


def test_what_follows_a_lost_worker_is_compared_with_what_came_before_it(policy: FailurePolicy) -> None:
    broken = WorkerError("worker 0 raised KeyError: 1")
    assert finals(policy, (broken, 1, 1), (PeerLostError("gone"), 1, 2), (broken, 1, 3)) == [False, False, True]


def test_reports_of_others_do_not_hide_that_an_error_happened_twice(policy: FailurePolicy) -> None:
    broken = WorkerError("worker 1 raised KeyError: 1")
    received = [policy.is_final(broken, describe(broken, worker), 1, generation) for generation in (3, 7) for worker in (1, 0)]
    assert received == [False, False, True, False]


class Registered:
    """A worker's connection to a driver that says what the run has failed of."""

    def __init__(self, stopped: TimelyError | None) -> None:
        self.stop = stopped
        self.told: list[TimelyError] = []

    def stopped(self, wait: float = 0.0) -> TimelyError | None:
        return self.stop

    def report(self, error: TimelyError) -> None:
        self.told.append(error)


def test_what_the_driver_raises_is_not_sent_back_as_an_error_of_a_worker() -> None:
    first = raised("ValueError: x", 1)
    registered = Registered(first)
    assert _reason(cast(Any, registered), 0, first) is first
    assert registered.told == []


def test_an_error_of_ones_own_is_reported() -> None:
    mine = raised("ValueError: y")
    for first in (None, raised("ValueError: x", 1)):
        registered = Registered(first)
        assert _reason(cast(Any, registered), 0, mine) is mine
        assert registered.told == [mine]


class ReadWhileOthersFail(str):
    """The text of an exception of Java, which another worker fails beside whenever a quote is looked for."""

    def __str__(self) -> str:
        return self

    def __contains__(self, quote: str) -> bool:  # type: ignore[override]
        note_failure(PeerLostError("worker 1 has gone away"), describe(PeerLostError("worker 1 has gone away"), 2))
        return super().__contains__(quote)

    def toString(self) -> str:
        return self


def test_an_action_raises_its_error_while_and_after_hundreds_of_other_workers_fail() -> None:
    raise_typed_errors()
    first = SchemaError("there is no column 'looked_for'")
    note_failure(first, describe(first, 0))
    for worker in range(1, 300):
        lost = PeerLostError(f"worker 0 has gone away from {worker}")
        note_failure(lost, describe(lost, worker))
    text: Any = ReadWhileOthersFail(f"Job aborted: SchemaError: {first}\n\tat org.apache.spark")
    error: object = captured.convert_exception(text)
    assert isinstance(error, SchemaError) and str(error) == str(first)


def test_what_another_library_makes_of_exceptions_stays_when_more_runs_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    raise_typed_errors()
    theirs: Any = ValueError("of another library")
    monkeypatch.setattr(captured, "convert_exception", lambda e: theirs)
    raise_typed_errors()
    converted: object = captured.convert_exception(cast(Any, None))
    assert converted is theirs
