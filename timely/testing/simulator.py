"""The simulator: all workers of a program in one process, under a schedule that decides which worker runs and what arrives.

A run is a function of its decisions, so any run can be repeated and shrunk. A program must depend on nothing else: no clock, no
unseeded random numbers, no order of a set of strings. Garbage cycles are not collected during a run, as that is not repeatable.
"""

from __future__ import annotations

import functools
import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from random import Random
from typing import Any, Generic, TypeAlias, TypeVar

import attrs
from hypothesis import strategies as st

from timely import Worker
from timely.errors import ConfigurationError, InvariantViolation, StalledError, WorkerError
from timely.execution.threads import first_failure, run_worker
from timely.progress import ProgressGroups
from timely.testing.checker import InvariantChecker, SimulatedWorker
from timely.testing.simulated_network import Network

T = TypeVar("T")

_PATIENCE = 10_000  # steps in which nothing happens, until a run has stalled
_PATIENCE_AT_REST = 1_000  # where all programs wait, and only their own clocks go on
_WORTH_PRINTING = 60
_SHOWN = 6  # of what is still there in a run that has stalled


@attrs.frozen
class Resume:
    """The decision that ``worker`` runs until it would receive messages again, or wait.

    Of the dataflows that have something to do it runs the ``dataflow``-th, modulo their number; all of them if ``None``.

    >>> Resume(1)
    Resume(worker=1, dataflow=None)
    """

    worker: int
    dataflow: int | None = None


@attrs.frozen
class Delivery:
    """The decision that the oldest messages from worker ``source`` to worker ``target`` arrive: at most ``count`` of them.

    >>> Delivery(1, 0)
    Delivery(source=1, target=0, count=1)
    """

    source: int
    target: int
    count: int = 1


Decision: TypeAlias = Resume | Delivery


def schedules(workers: int = 3, *, max_size: int = 60) -> st.SearchStrategy[list[Decision]]:
    """Return a strategy for decisions to give to ``simulate``, which shrink to few and simple ones.

    >>> from hypothesis import find
    >>> find(schedules(2), lambda decisions: len(decisions) > 1)
    [Resume(worker=0, dataflow=None), Resume(worker=0, dataflow=None)]
    """
    index = st.integers(0, workers - 1)
    resumes: st.SearchStrategy[Decision] = st.builds(Resume, index, st.none() | st.integers(0, 2))
    if workers < 2:
        return st.lists(resumes, max_size=max_size)
    pairs = st.permutations(range(workers))
    deliveries = st.builds(lambda pair, count: Delivery(pair[0], pair[1], count), pairs, st.sampled_from([1, 2, 1000]))
    return st.lists(resumes | deliveries, max_size=max_size)


class CoroutineExit(BaseException):
    """Raised inside a function that is to end; no ``Exception``, so that a program does not catch it."""


class Coroutine:
    """A function on a thread of its own, which may pause anywhere until it is resumed: only one runs at any time."""

    def __init__(self, work: Callable[[], object], name: str) -> None:
        self.started = False
        self.ended = False
        self._closed = False
        self._work = work
        self._resumed = threading.Lock()
        self._paused = threading.Lock()
        self._resumed.acquire()
        self._paused.acquire()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def resume(self) -> None:
        """Run the function until it pauses or ends."""
        if not self.started:
            self.started = True
            self._thread.start()
        self._resumed.release()
        self._paused.acquire()
        if self.ended:
            self._thread.join()

    def pause(self) -> None:
        """Return control to the caller of :meth:`resume`; called by the function itself."""
        if not self._closed:
            self._paused.release()
            self._resumed.acquire()
        if self._closed:
            raise CoroutineExit

    def close(self) -> None:
        """End the function where it stands; its ``finally`` clauses run."""
        self._closed = True
        if self.started and not self.ended:
            self.resume()

    def _run(self) -> None:
        self._resumed.acquire()
        try:
            self._work()
        except CoroutineExit:
            pass
        finally:
            self.ended = True
            self._paused.release()


class Simulation(Generic[T]):
    """One run of a program. ``simulate`` makes and runs one; make one by hand to inspect a run that fails.

    ``results`` are what the programs returned, in worker order; ``decisions`` are all that were taken.

    >>> run = simulate(lambda worker: worker.index, workers=2)
    >>> run.results, [worker.peers for worker in run.workers]
    ([0, 1], [2, 2])
    """

    def __init__(
        self,
        program: Callable[[Worker], T],
        workers: int = 3,
        seed: int = 0,
        *,
        decisions: Sequence[Decision] | None = None,
        network: Callable[[int], Network] = Network,
        groups: ProgressGroups | None = None,
        liveness: bool = False,
    ) -> None:
        if workers < 1:
            raise ConfigurationError(f"workers={workers!r}: there must be at least one")
        self.results: list[T] = []
        self.decisions: list[Decision] = []
        self.network = network(workers)
        self._checker = InvariantChecker(self.network, groups, liveness)
        transports = [self.network.transport(w, functools.partial(self.pause, w)) for w in range(workers)]
        self.workers = [SimulatedWorker(transport, self, self._checker) for transport in transports]
        self._program = program
        self._outcomes: list[tuple[bool, Any]] = [(False, WorkerError(f"worker {w} has not ended")) for w in range(workers)]
        self._coroutines = [Coroutine(functools.partial(self._work, w), f"simulated worker {w}") for w in range(workers)]
        self._waits = [False] * workers
        self._dataflow: int | None = None
        self._current = self.workers[0]
        self._schedule = chain(self._random(seed) if decisions is None else decisions, self._round_robin())

    def pause(self, worker: int, waits: bool) -> None:
        """Pause a worker's program until it is resumed."""
        self._waits[worker] = waits
        self._coroutines[worker].pause()

    def choose(self, active: Sequence[int]) -> Sequence[int]:
        """Return which dataflows run in this step: a simulation is the scheduler of its workers."""
        return active if self._dataflow is None else [active[self._dataflow % len(active)]]

    def park(self, timeout: float | None) -> None:
        """Let the current worker wait; its own clock advances by the timeout."""
        self._current.transport.wait(timeout)
        self._current.elapsed += timeout or 0.0

    def run(self) -> Simulation[T]:
        """Run to the end; return this run, or raise what ``timely.execute`` would, or an ``InvariantViolation``."""
        try:
            with _no_collection():
                self._run_all()
        except BaseException as error:
            self._annotate(error)
            raise
        finally:
            for coroutine in self._coroutines:
                coroutine.close()
        failure = first_failure(self._outcomes)
        if failure is not None:
            self._annotate(failure)
            raise failure
        self.results = [result for _, result in self._outcomes]
        return self

    def _run_all(self) -> None:
        idle = 0
        while self._waiting():
            idle = idle + 1 if self._decide(next(self._schedule)) else 0
            if idle > _PATIENCE or (idle > _PATIENCE_AT_REST and self._rests()):
                names = ", ".join(f"worker {index}" for index in self._waiting())
                held = self._checker.holders()
                there = f"there is still {'; '.join(held[:_SHOWN])}{' ...' * (len(held) > _SHOWN)}" if held else "nothing is left"
                nothing = f"in {idle} steps nothing was sent and nothing done, and {there}"
                raise StalledError(f"the programs of {names} wait for something that never comes: {nothing}")
        if all(succeeded for succeeded, _ in self._outcomes):
            self._checker.check_end()

    def _rests(self) -> bool:
        """Return whether every program waits, and nothing is on its way, due or activated."""
        workers = [self.workers[index] for index in self._waiting()]
        still = all(self._waits[worker.index] and worker.idle and not worker.expects for worker in workers)
        return still and self.network.quiet

    def _decide(self, decision: Decision) -> bool:
        """Take a decision, if it can be taken; return whether it was a step in which nothing happened."""
        if isinstance(decision, Delivery):
            pair = (decision.source, decision.target)
            if pair in self.network.sent and self.network.deliver(*pair, decision.count):
                self.decisions.append(decision)
            return False
        if not 0 <= decision.worker < len(self.workers) or self._coroutines[decision.worker].ended:
            return False
        self.decisions.append(decision)
        return self._resume(decision)

    def _resume(self, decision: Resume) -> bool:
        """Resume a worker; return whether nothing happened."""
        index = decision.worker
        worker, coroutine = self.workers[index], self._coroutines[index]
        busy = bool(self.network.inboxes[index]) or not worker.idle or not coroutine.started
        sent = self.network.count
        self._dataflow, self._current = decision.dataflow, worker
        coroutine.resume()
        if coroutine.ended and not self._outcomes[index][0]:
            self._checker.disable()
        busy = busy or coroutine.ended or not worker.idle or self.network.count != sent
        self._checker.raise_fault()
        return not busy

    def _work(self, index: int) -> None:
        try:
            self._outcomes[index] = run_worker(self._program, self.workers[index])
        except CoroutineExit:
            raise
        except BaseException as error:  # KeyboardInterrupt ends the run as it would without threads
            self._outcomes[index] = (False, error)

    def _runnable(self, index: int) -> bool:
        """Return whether a worker can go on without having waited in vain."""
        return not self._coroutines[index].ended and (not self._waits[index] or bool(self.network.inboxes[index]))

    def _waiting(self) -> list[int]:
        """Return the workers whose programs have not ended, whether they can go on or not."""
        return [index for index, coroutine in enumerate(self._coroutines) if not coroutine.ended]

    def _random(self, seed: int) -> Iterator[Decision]:
        """A seeded schedule: for a while some workers are slow and some messages late, and then others."""
        random, network, left = Random(seed), self.network, 0
        slow, late = set[int](), set[tuple[int, int]]()
        while True:
            left -= 1
            if left < 0:
                left = random.choice([3, 10, 30, 100])
                slow = {index for index in range(network.peers) if random.random() < 0.2}
                share = random.choice([0.0, 0.3, 0.8])
                late = {pair for pair in network.sent if random.random() < share}
            in_flight = network.waiting()
            deliveries = [pair for pair in in_flight if pair not in late]
            ready = list(filter(self._runnable, self._waiting()))
            workers = [index for index in ready if index not in slow]
            if not workers and not deliveries:
                left = 0
                workers, deliveries = ready, in_flight
            if (not workers and not deliveries) or random.random() < 0.02:
                workers = self._waiting()  # one of them has waited long enough
            if deliveries and (not workers or random.random() < 0.5):
                source, target = random.choice(deliveries)
                yield Delivery(source, target, random.choice([1, 1, 1, 2, 5, 1000]))
            else:
                yield Resume(random.choice(workers), random.choice([None, None, None, 0, 1, 2]))

    def _round_robin(self) -> Iterator[Decision]:
        """The schedule when there are no more decisions: everything arrives, and all workers run in turn."""
        while True:
            for source, target in self.network.waiting():
                yield Delivery(source, target, len(self.network.sent[source, target]))
            ready = [index for index in self._waiting() if self._runnable(index)]
            for index in ready or self._waiting():
                yield Resume(index)

    def _annotate(self, error: BaseException) -> None:
        """Add a note to the error that says how to repeat the run."""
        decided = tuple(self.decisions)
        if isinstance(error, InvariantViolation):
            error.decisions = decided
        if len(decided) <= _WORTH_PRINTING:
            how = f"simulate(program, workers={len(self.workers)}, decisions={list(decided)!r}) runs into it again"
        else:
            how = f"after {len(decided)} decisions; Hypothesis finds fewer with timely.testing.schedules({len(self.workers)})"
        error.add_note(f"in a simulation: {how}")


@contextmanager
def _no_collection() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def simulate(
    program: Callable[[Worker], T],
    workers: int = 3,
    seed: int = 0,
    *,
    decisions: Sequence[Decision] | None = None,
    network: Callable[[int], Network] = Network,
    groups: ProgressGroups | None = None,
    liveness: bool = False,
) -> Simulation[T]:
    """Return the run of ``program(worker)`` on simulated workers, as by ``timely.execute``, with every invariant checked.

    The schedule follows from ``seed``, or from ``decisions``; after the last one everything arrives and all workers run in turn.
    ``network`` makes the network between the workers; ``groups`` are those of progress messages. With ``liveness``, no operator
    may hold a capability when its inputs have passed it and all is at rest: L1, with the name of the operator and its worker.

    Raises what ``timely.execute`` raises, :class:`~timely.errors.InvariantViolation` for a violated invariant, and
    ``StalledError`` for programs that wait for what never comes.

    >>> def program(worker):
    ...     with worker.dataflow() as scope:
    ...         seen = scope.to_stream([1, 2, 3]).exchange(lambda x: x).capture()
    ...     worker.run()
    ...     return seen.extract()
    >>> run = simulate(program, workers=2, seed=7)
    >>> run.results
    [[(0, [2, 2])], [(0, [1, 1, 3, 3])]]
    >>> simulate(program, workers=2, decisions=run.decisions).decisions == run.decisions
    True
    """
    return Simulation(program, workers, seed, decisions=decisions, network=network, groups=groups, liveness=liveness).run()
