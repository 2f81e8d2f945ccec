"""Runs of real dataflows in the simulator, recorded for the model: every statement, and what each worker counted when.

White box: it stands between the simulator's record of the truth and its callers, and reads how far a worker has received.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

import attrs

import timely
from tests.testing.programs import loops, rounds
from timely.progress import ProductSummary, ProgressExchange, Source, Step, strongly_connected
from timely.testing import simulate
from timely.testing.checker import SimulatedWorker
from timely.testing.flat_dataflow import FlatDataflow
from timely.testing.global_state import ChangeRecorder, GlobalState


@attrs.define
class Statement:
    """What one activation of a worker lost and gained, each a place and a pair as its time."""

    worker: int
    lost: list[Any] = attrs.field(factory=list)
    gained: list[Any] = attrs.field(factory=list)


@attrs.define
class Observation:
    """What a worker counted after so many statements, and how many of each worker it had received."""

    so_far: int
    cut: list[int]
    counts: list[Any]


@attrs.define
class Recording:
    """A run: the flat graph, the statements in their order, and what was observed."""

    name: str
    workers: int
    arcs: list[Any] = attrs.field(factory=list)
    owned: list[int] = attrs.field(factory=list)
    initial: list[Any] = attrs.field(factory=list)
    ranks: list[Any] = attrs.field(factory=list)
    statements: list[Statement] = attrs.field(factory=list)
    observations: list[Observation] = attrs.field(factory=list)

    def count_of(self, worker: int) -> int:
        """Return how many statements a worker has made."""
        return sum(statement.worker == worker for statement in self.statements)


def pair_of(time: Any) -> list[int]:
    return [time, 0] if isinstance(time, int) else [time[0], time[1]]


def _summary_of(summary: Any) -> list[Any]:
    if isinstance(summary, ProductSummary):
        outer, inner = summary.outer, summary.inner
        assert isinstance(outer, Step)
        assert isinstance(inner, Step)
        assert inner.limit is None
        return [outer.n, inner.n, outer.limit]
    assert isinstance(summary, Step)
    return [summary.n, 0, summary.limit]


def _describe(recording: Recording, flat: FlatDataflow) -> None:
    """Write down the flat graph. Scopes are nested once at most."""
    deep = [scope.domain.spec is not int for scope in flat.scopes]
    for number, (scope, location) in enumerate(flat.places):
        if isinstance(location, Source):
            recording.owned.append(number)
            for reader in flat.readers(scope, location):
                leaves = deep[scope] and not deep[flat.places[reader][0]]
                recording.arcs.append([number, "leave" if leaves else [0, 0, None], reader])
        else:
            row = flat.operators[scope, location.node].summaries[location.port]
            for output, summaries in enumerate(row):
                end = flat.numbers[scope, Source(location.node, output)]
                recording.arcs += [[number, _summary_of(summary), end] for summary in summaries]
    for (scope, child), operator in flat.operators.items():
        for output, counts in enumerate(operator.initial):
            recording.initial += [[flat.numbers[scope, Source(child, output)], pair_of(time)] for time in counts]
    recording.ranks = ranks(len(flat.places), recording.arcs)


def ranks(size: int, arcs: list[Any]) -> list[list[int]]:
    """Return the certificate that every cycle advances: a rank between scopes, and one within."""
    still = [(start, end) for start, summary, end in arcs if summary == "leave" or summary[0] == 0]
    ahead: list[list[int]] = [[] for _ in range(size)]
    for start, end in still:
        ahead[start].append(end)
    collected = [[0, 0] for _ in range(size)]
    for number, component in enumerate(strongly_connected(ahead)):
        for place in component:
            collected[place][0] = number
    stays = [(start, end) for start, summary, end in arcs if summary != "leave" and summary[:2] == [0, 0]]
    for _ in range(size):
        for start, end in stays:
            if collected[start][0] == collected[end][0]:
                collected[end][1] = max(collected[end][1], collected[start][1] + 1)
    return collected


@contextmanager
def _recording(recording: Recording) -> Iterator[None]:
    """Record all that happens meanwhile, in one dataflow."""
    current: list[Any] = [None]  # whose activation it is
    last: list[Any] = [None]
    truths: list[GlobalState] = []
    flushed: list[list[int]] = [[] for _ in range(recording.workers)]
    hold, note = ChangeRecorder.hold, ChangeRecorder.note
    init, change, send, read = GlobalState.__init__, GlobalState._change, GlobalState.send, GlobalState.read
    flush, step = ProgressExchange.flush, SimulatedWorker._step_once

    def statement(worker: int) -> Statement:
        key = (worker, *(current[0] or ("built",)))
        if last[0] != key:
            last[0] = key
            recording.statements.append(Statement(worker))
        return recording.statements[-1]

    def within(recorder: ChangeRecorder, call: Callable[[], None]) -> None:
        operator = recorder._operator
        current[0] = (id(recorder), operator.call if operator.running else object())
        try:
            call()
        finally:
            current[0] = None

    def initialize(self: GlobalState, *arguments: Any) -> None:
        init(self, *arguments)
        truths.append(self)
        _describe(recording, self.flat)

    def changed(self: GlobalState, worker: int, place: int, time: Any, diff: int) -> int:
        stamps = statement(worker).gained if diff > 0 else statement(worker).lost
        stamps += [[place, pair_of(time)]] * abs(diff)
        return change(self, worker, place, time, diff)

    def sent(self: GlobalState, state: Any, scope: int, location: Any, time: Any, diff: int) -> None:
        for place, arrival in self.flat.stamps(scope, location, time):
            statement(state.worker).gained += [[place, pair_of(arrival)]] * diff
        send(self, state, scope, location, time, diff)

    def has_read(self: GlobalState, worker: int, place: int, time: Any, diff: int) -> None:
        statement(worker).lost += [[place, pair_of(time)]] * diff
        read(self, worker, place, time, diff)

    def flushes(self: ProgressExchange[Any]) -> Any:
        batch = flush(self)
        if batch is not None:
            flushed[self.index].append(recording.count_of(self.index))
        return batch

    def steps(self: SimulatedWorker) -> None:
        step(self)
        for truth in truths:
            state = truth.states.get(self.index)
            if state is not None and state.exchange is not None:
                received = state.exchange._expected
                cut = [([0] + flushed[peer])[received[peer]] for peer in range(recording.workers)]
                cut[self.index] = recording.count_of(self.index)
                counts = [[place, pair_of(time), count] for (place, time), count in state.view().items()]
                recording.observations.append(Observation(len(recording.statements), cut, counts))

    with (
        patch.object(ChangeRecorder, "hold", lambda self, *change: within(self, lambda: hold(self, *change))),
        patch.object(ChangeRecorder, "note", lambda self, *change: within(self, lambda: note(self, *change))),
        patch.object(GlobalState, "__init__", initialize),
        patch.object(GlobalState, "_change", changed),
        patch.object(GlobalState, "send", sent),
        patch.object(GlobalState, "read", has_read),
        patch.object(ProgressExchange, "flush", flushes),
        patch.object(SimulatedWorker, "_step_once", steps),
    ):
        yield


def chain(worker: timely.Worker) -> Any:
    """Two epochs of each worker, exchanged, and delayed by one."""
    with worker.dataflow(int) as scope:
        numbers, stream = scope.new_input()
        seen = stream.exchange(lambda x: x).delay(lambda x, time: time + x % 2).map(lambda x: x + 1).capture()
    for epoch in range(2):
        numbers.send(epoch + worker.index)
        numbers.advance_to(epoch + 1)
    numbers.close()
    worker.run()
    return seen.extract()


PROGRAMS: Final = (chain, loops, rounds)


def record(program: Callable[[timely.Worker], Any], workers: int, seed: int) -> Recording:
    """Run a program of one dataflow under a random schedule, and return what happened."""
    recording = Recording(f"{program.__name__}, {workers} workers, seed {seed}", workers)
    with _recording(recording):
        simulate(program, workers, seed)
    recording.observations = recording.observations[:: 1 + len(recording.observations) // 60]
    return recording


def record_all() -> list[Recording]:
    """Return the recordings that the model is asked about."""
    return [record(program, workers, seed) for program in PROGRAMS for workers, seed in ((2, 1), (2, 2), (3, 3))]
