"""Runs that are cut: up to a boundary on some workers, and on from a snapshot of these on others, as if nothing had been.

Records are sent at their epoch or at later times, so that at a boundary operators have what is not due yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from tests.support.memory_registry import MemoryStateRegistry, settle
from timely import Worker
from timely.dataflow import records_of
from timely.testing import Network

Sends = Sequence[Sequence[tuple[int, Any]]]
"""For each epoch ``(how much later, record)``."""

Build = Callable[..., Any]
"""``build(scope, stream, ...)`` returns a stream, or several."""

Cut = tuple[int, int]
"""``(epoch, workers)``: so far on this many workers."""

EPOCHS = 4

pairs = st.tuples(st.integers(0, 2) | st.just("x"), st.integers(0, 3))
sends = st.lists(st.lists(st.tuples(st.integers(0, 3), pairs), max_size=4), min_size=EPOCHS, max_size=EPOCHS)
cuts = st.lists(st.tuples(st.integers(0, EPOCHS), st.integers(1, 3)), min_size=1, max_size=2).map(sorted)


class Phase:
    """Workers that go on from a snapshot, stepped by hand, with an input for each of ``inputs``."""

    def __init__(self, build: Build, inputs: int, workers: int, start: Sequence[Any], time: Any = int) -> None:
        self.network = Network(workers)
        self.workers = [Worker(self.network.transport(index)) for index in range(workers)]
        self.state_registries = [MemoryStateRegistry(worker, start) for worker in self.workers]
        self.handles: list[list[Any]] = []
        self.captures: list[list[Any]] = []
        for worker in self.workers:
            with worker.dataflow(time) as scope:
                made = [scope.new_unordered_input() for _ in range(inputs)]
                built = build(scope, *(stream for _, stream in made))
                streams = built if isinstance(built, tuple) else (built,)
                self.captures.append([stream.capture() for stream in streams])
            self.handles.append([handle for handle, _ in made])

    def advance_to(self, epoch: Any) -> None:
        """Send nothing before ``epoch`` any more."""
        for handles in self.handles:
            for _, capability in handles:
                capability.downgrade(epoch)

    def send(self, input: int, number: int, time: Any, record: Any) -> None:
        """Send the ``number``-th record of an input, or Arrow batch."""
        handle, capability = self.handles[number % len(self.handles)][input]
        handle.session(capability.delayed(time)).give_batch(record if hasattr(record, "schema") else [record])

    def settle(self) -> None:
        """Step until nothing moves."""
        settle(self.workers, self.network)

    def end(self) -> None:
        """Close the inputs, and run to the end."""
        for handles in self.handles:
            for _, capability in handles:
                capability.drop()
        self.settle()
        assert not any(worker.dataflows for worker in self.workers)

    def snapshots(self, *, compact: bool = False) -> list[Any]:
        """The snapshot of each worker."""
        self.settle()
        return [keeper.snapshot(compact=compact) for keeper in self.state_registries]

    def outputs(self) -> Counter[Any]:
        """How often each ``(stream, time, record)`` has come out, on any worker."""
        return Counter(
            (number, time, repr(record))
            for captures in self.captures
            for number, capture in enumerate(captures)
            for time, batch in capture.messages
            for record in records_of(batch)
        )


def run(build: Build, *sends: Sends, cuts: Sequence[Cut] = (), workers: int = 1, compact: bool = False) -> Counter[Any]:
    """What comes out of all phases of a run together; ``workers`` is how many there are after the last cut."""
    counts: Counter[Any] = Counter()
    start: list[Any] = []
    begin = 0
    for end, size in cuts:
        phase = Phase(build, len(sends), size, start)
        feed(phase, sends, begin, end)
        start, begin = phase.snapshots(compact=compact), end
        counts += phase.outputs()
    last = Phase(build, len(sends), workers, start)
    feed(last, sends, begin, EPOCHS)
    last.end()
    return counts + last.outputs()


def feed(phase: Phase, sends: Sequence[Sends], begin: int, end: int) -> None:
    """Send what belongs to the epochs from ``begin`` on and before ``end``, and step a little."""
    phase.advance_to(begin)
    for epoch in range(begin, end):
        for input, sent in enumerate(sends):
            for number, (later, record) in enumerate(sent[epoch]):
                phase.send(input, number, epoch + later, record)
        phase.advance_to(epoch + 1)
        phase.workers[epoch % len(phase.workers)].step()
