"""The moment of a checkpoint: nothing is in flight then, however late messages are, and however deep the loop they are in.

White box: ``execute`` makes the transports itself, and the one here delivers late.
"""

from __future__ import annotations

import random
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import timely
from tests.recovery.programs import Stopped, expected, program, restless
from timely.dataflow import OperatorInfo
from timely.errors import PeerLostError
from timely.execution.threads import first_failure, run_worker  # white box: execute takes no transport of a test's own
from timely.progress import ProgressGroups
from timely.recovery import Recovery
from timely.worker import PeerTransport, Worker, thread_transports


class Late:
    """A transport on which messages of each peer come in order, and as late as chance will have it."""

    def __init__(self, inner: PeerTransport, seed: int) -> None:
        self.inner = inner
        self.index, self.peers = inner.index, inner.peers
        self.send, self.flush, self.wake, self.close = inner.send, inner.flush, inner.wake, inner.close
        self.crowded = inner.crowded
        self._choose = random.Random(seed)
        self._held: list[deque[Any]] = [deque() for _ in range(inner.peers)]

    def receive(self) -> Sequence[tuple[int, Any]]:
        """Some of what has arrived."""
        for sender, message in self.inner.receive():
            self._held[sender].append(message)
        some = []
        for sender, held in enumerate(self._held):
            for _ in range(self._choose.randint(0, min(2, len(held)))):
                some.append((sender, held.popleft()))
        return some

    def wait(self, timeout: float | None = None) -> None:
        """Wait, unless something is held."""
        if not any(self._held):
            self.inner.wait(timeout)


def run_late(one: Callable[[Worker], Any], workers: int, seed: int, routes: ProgressGroups | None = None) -> list[Any]:
    """As ``timely.execute``, with messages that come late."""
    outcomes: list[Any] = [None] * workers
    transports = [Late(inner, seed + inner.index) for inner in thread_transports(workers)]

    def run(transport: Late) -> None:
        outcomes[transport.index] = run_worker(one, Worker(transport, groups=routes))

    threads = [threading.Thread(target=run, args=(transport,)) for transport in transports]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failure = first_failure(outcomes)
    if failure is not None:
        raise failure
    return [result for _, result in outcomes]


@pytest.mark.parametrize("seed", range(6))
def test_messages_that_come_late_are_waited_for(tmp_path: Path, seed: int) -> None:
    for stop in (2, 5, None):
        try:
            results = run_late(lambda worker, stop=stop: program(worker, tmp_path, 8, stop=stop), 3, seed)  # type: ignore[misc]
        except (Stopped, PeerLostError):
            assert stop is not None
    assert results[0][0] == 5
    assert Counter(record for _, came, _ in results for record in came) == expected(8)


def test_several_dataflows_are_saved_together_and_a_complete_one_stays_complete(tmp_path: Path) -> None:
    def one(worker: Worker, stop: int | None) -> list[Any]:
        with Recovery(worker, tmp_path) as recovery:
            with worker.dataflow(int, name="once") as scope:
                done = scope.to_stream([1, 2, 3]).exchange(lambda x: x).capture()
            with worker.dataflow(timely.Product[int, int], name="other times") as wide:
                other, stream = wide.new_input()
                stream.capture()
            with worker.dataflow(int, name="dropped") as scope:
                scope.new_input()
            worker.drop_dataflow(scope)
            other.advance_to(timely.Product(0, 3))
            recovery.checkpoint((recovery.time or 0) + 1)
            if stop:
                raise Stopped
            other.close()
            worker.run()
        return [x for _, batch in done.messages for x in batch]

    with pytest.raises(Stopped):
        timely.execute(lambda worker: one(worker, 1), workers=2)
    assert timely.execute(lambda worker: one(worker, None), workers=2) == [[], []]


def test_a_dataflow_built_after_the_recovery_is_closed_is_not_saved(tmp_path: Path) -> None:
    def undeclared(capability: Any, info: OperatorInfo) -> Callable[..., object]:
        return lambda output: capability.drop()

    def one(worker: Worker) -> None:
        with worker.dataflow() as scope:
            scope.source("before", undeclared)
        worker.run()
        with Recovery(worker, tmp_path) as recovery:
            recovery.checkpoint(1)
        with worker.dataflow() as scope:
            scope.source("after", undeclared)

    timely.execute(one, workers=2)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("again", ["by itself", "by its activator", "by the clock"])
def test_an_operator_that_never_rests_does_not_stand_in_the_way(tmp_path: Path, workers: int, again: str) -> None:
    ended: list[int] = []

    def one(worker: Worker) -> list[Any]:
        with Recovery(worker, tmp_path) as recovery:
            with worker.dataflow() as scope:
                handle, stream = scope.new_input()
                seen = stream.unary(timely.Pipeline, "restless", restless(again, ended)).exchange(lambda x: x).capture()
            handle.send_batch(list(range(5)))
            handle.advance_to(1)
            recovery.checkpoint(1)
            came = sum(len(batch) for _, batch in seen.messages)
            assert sum(recovery.agree(came)) == 5 * workers  # all of it has come out
            ended.append(worker.index)
            handle.close()
            worker.run()
            return seen.extract()

    timely.execute(one, workers=workers)


def test_one_worker_may_be_far_ahead(tmp_path: Path) -> None:
    """Inputs beyond the boundary are allowed, as long as nothing was sent there."""

    def one(worker: Worker) -> list[Any]:
        with Recovery(worker, tmp_path) as recovery:
            with worker.dataflow() as scope:
                handle, stream = scope.new_input()
                seen = stream.exchange(lambda x: x).capture()
            handle.send(worker.index + 1)
            handle.advance_to(10 * worker.index + 1)
            result = recovery.checkpoint(1)
            assert (result.time, result.generation) == (1, 1)
            assert result.bytes > 0
            handle.close()
            worker.run()
            return seen.extract()

    assert timely.execute(one, workers=2) == [[(0, [2])], [(0, [1])]]
