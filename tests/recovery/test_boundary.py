"""The moment of a checkpoint, at times of any type: nothing is in flight then, however late messages are, and however deep the
loop.

White box: ``execute`` makes the transports itself, and the one here delivers late.
"""

from __future__ import annotations

import enum
import random
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timely
from tests.recovery.cutting import Phase
from tests.recovery.programs import Stopped, expected, program, restless
from tests.recovery.test_operators_state import UNARY
from timely.errors import CheckpointError, PeerLostError, StateError
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


class Stage(enum.Enum):
    """A part of a time."""

    DRAFT = 0
    FINAL = 1


@attrs.frozen(order=False)
class Later:
    """So many steps, at the same stage."""

    steps: int = 0

    def results_in(self, time: Revision) -> Revision:
        return attrs.evolve(time, number=time.number + self.steps)

    def followed_by(self, other: Later) -> Later:
        return Later(self.steps + other.steps)

    def __le__(self, other: Later) -> bool:
        return self.steps <= other.steps


@attrs.frozen(order=False)
class Revision:
    """A stage and a number, each of which only grows: of two revisions neither need come first."""

    stage: Stage
    number: int

    def __le__(self, other: Revision) -> bool:
        return self.stage.value <= other.stage.value and self.number <= other.number

    def __lt__(self, other: Revision) -> bool:
        return self <= other and self != other

    @classmethod
    def minimum(cls) -> Revision:
        return cls(Stage.DRAFT, 0)

    @classmethod
    def identity(cls) -> Later:
        return Later()


class Locked(Revision):
    """A time that cannot be pickled."""

    def __reduce__(self) -> Any:
        raise TypeError("it is locked")


class Unreadable(Revision):
    """A time whose pickle cannot be read."""

    def __reduce__(self) -> Any:
        return Unreadable, (1,)


class Forgetful(Revision):
    """A time that is pickled without its number."""

    def __reduce__(self) -> Any:
        return Forgetful, (self.stage, 0)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Locked, r"has a time, Locked\(.*=3\), that cannot be pickled: TypeError: it is locked"),
        (Unreadable, r"has a time, Unreadable\(.*=3\), that cannot be pickled: TypeError"),
        (Forgetful, r"has a time, Forgetful\(.*=3\), that becomes Forgetful\(.*=0\) when"),
    ],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_time_that_does_not_come_back_as_it_was_is_refused(tmp_path: Path, kind: Any, message: str, workers: int) -> None:
    """As otherwise the next run could not begin; or would begin before what the checkpoint has, and count that twice."""

    def program(worker: timely.Worker) -> None:
        with Recovery(worker, tmp_path) as recovery:
            with worker.dataflow(kind) as scope:
                handle, stream = scope.new_input()
                stream.count().probe()
            handle.advance_to(kind(Stage.FINAL, 3))
            with pytest.raises(StateError, match=message):
                recovery.checkpoint(kind(Stage.FINAL, 3))
            handle.close()

    timely.execute(program, workers=workers)
    assert not list(tmp_path.glob("*.state"))


class Shy:
    """Notes that can be pickled and not be read."""

    def __reduce__(self) -> Any:
        return Revision, (1,)


def test_notes_that_cannot_be_read_again_are_refused(tmp_path: Path) -> None:
    worker = timely.Worker()
    with Recovery(worker, tmp_path) as recovery:
        with worker.dataflow(int) as scope:
            scope.empty().probe()
        with pytest.raises(StateError, match="notes that cannot be pickled"):
            recovery.checkpoint(1, notes=Shy())
        recovery.checkpoint(1)
    assert len(list(tmp_path.glob("*.state"))) == 1


names = ["aggregate", "distinct", "loop", "unary_notify"]
steps = st.tuples(st.integers(0, 1), st.integers(0, 2))
cuts = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), min_size=1, max_size=2).map(sorted)
sends = st.lists(st.lists(st.tuples(steps, st.tuples(st.integers(0, 2), st.integers(0, 3))), max_size=4), min_size=3, max_size=3)


def moved(time: Revision, step: tuple[int, int]) -> Revision:
    return Revision(Stage(max(time.stage.value, step[0])), time.number + step[1])


@pytest.mark.parametrize("name", names)
@given(sends=sends, on=st.lists(steps, min_size=3, max_size=3), cuts=cuts, workers=st.integers(1, 3))
@settings(max_examples=12)
def test_a_run_that_is_cut_at_times_of_ones_own(name: str, sends: Any, on: Any, cuts: list[Any], workers: int) -> None:
    """Each boundary is at or after the one before it, and what is sent at times beside it is complete there."""
    build = UNARY[name]
    boundaries = [Revision.minimum()]
    for step in on:
        boundaries.append(moved(boundaries[-1], step))

    def run(cuts: Any, workers: int) -> Any:
        counts: Counter[Any] = Counter()
        start: Any = ()
        begin = 0
        for end, size in [*cuts, (len(sends), workers)]:
            phase = Phase(build, 1, size, start, Revision)
            phase.advance_to(boundaries[begin])
            for place in range(begin, end):
                for number, (later, record) in enumerate(sends[place]):
                    phase.send(0, number, moved(boundaries[place], later), record)
                phase.advance_to(boundaries[place + 1])
            start, begin = phase.snapshots(), end
            counts += phase.outputs()
        phase = Phase(build, 1, workers, start, Revision)
        phase.end()
        return counts + phase.outputs()

    assert run(cuts, workers) == run([], 1)


def test_a_capability_at_a_time_that_cannot_be_compared_is_in_the_way(tmp_path: Path) -> None:
    """A run that resumes at the boundary could not hold it: it is neither before nor after."""
    worker, held = timely.Worker(), list[Any]()
    recovery = Recovery(worker, tmp_path)
    with worker.dataflow(Revision) as scope:

        def constructor(capability: Any, info: timely.OperatorInfo) -> Any:
            info.register_state(list, lambda items: list(items))
            held.append(capability.delayed(Revision(Stage.DRAFT, 5)))
            capability.drop()
            return lambda output: None

        scope.source("holder", constructor).probe()
    with pytest.raises(CheckpointError, match="a capability of .*holder.* at .*number=5"):
        recovery.checkpoint(Revision(Stage.FINAL, 1))
    held.pop().drop()
    assert recovery.checkpoint(Revision(Stage.FINAL, 1)).bytes > 0
