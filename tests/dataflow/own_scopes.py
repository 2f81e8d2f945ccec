"""Scopes of one's own, written from the protocol, for tests to put into a dataflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from timely import (
    Antichain,
    ChangeBatch,
    MutableAntichain,
    Step,
)

Batches = Sequence[ChangeBatch[Any]]


class Own:
    """A scope with one output; each input leads there unchanged. It keeps the frontiers and the external summary."""

    def __init__(self, inputs: int = 1, stay: Any = None, held: Sequence[Any] = ()) -> None:
        self.inputs = inputs
        self.outputs = 1
        self.pulls = 0
        self.world: Any = None
        self.frontiers = [MutableAntichain[Any]() for _ in range(inputs)]
        self._stay = Step(0) if stay is None else stay
        self._held = held

    def connect(self, inlets: Any, outlets: Any, activate: Callable[[], None]) -> None:
        self.inlets, (self.outlet,), self.activate = inlets, outlets, activate

    def get_internal_summary(self) -> Any:
        return [[Antichain([self._stay])] for _ in range(self.inputs)], [[(time, 1) for time in self._held]]

    def set_external_summary(self, summaries: Any, external: Any) -> None:
        self.world = summaries
        for frontier, counts in zip(self.frontiers, external, strict=True):
            frontier.update_iter(counts)

    def push_external_progress(self, external: Batches) -> None:
        for frontier, changes in zip(self.frontiers, external, strict=True):
            frontier.update_iter(changes.drain())

    def pull_internal_progress(self, internal: Batches, consumed: Batches, produced: Batches) -> bool:
        self.pulls += 1
        return self.work(internal[0], consumed, produced[0])

    def work(self, held: ChangeBatch[Any], consumed: Batches, produced: ChangeBatch[Any]) -> bool:
        return False

    def send(self, time: Any, batch: list[Any], produced: ChangeBatch[Any]) -> None:
        self.outlet.send(time, batch)
        produced.update(time, len(batch))


class Doubler(Own):
    """Doubles what comes, one message a pull."""

    def work(self, held: ChangeBatch[Any], consumed: Batches, produced: ChangeBatch[Any]) -> bool:
        for port, inlet in enumerate(self.inlets):
            for time, batch in inlet:
                consumed[port].update(time, len(batch))
                self.send(time, [2 * x for x in batch], produced)
                break
        return False


class Total(Own):
    """Adds up what comes at each time on any input, and sends the sum when the time is complete on all of them."""

    def __init__(self, inputs: int = 1, stay: Any = None) -> None:
        super().__init__(inputs, stay)
        self.sums: dict[Any, int] = {}

    def work(self, held: ChangeBatch[Any], consumed: Batches, produced: ChangeBatch[Any]) -> bool:
        for port, inlet in enumerate(self.inlets):
            for time, batch in inlet:
                if time not in self.sums:
                    held.update(time, 1)
                self.sums[time] = self.sums.get(time, 0) + sum(batch)
                consumed[port].update(time, len(batch))
        for time in [time for time in self.sums if not any(frontier.less_equal(time) for frontier in self.frontiers)]:
            self.send(time, [self.sums.pop(time)], produced)
            held.update(time, -1)
        return False


class Stubborn:
    """Nothing but the protocol: no data, no capability; says that it is busy for a number of pulls."""

    inputs = outputs = 0

    def __init__(self, pulls: int) -> None:
        self.left = pulls

    def get_internal_summary(self) -> Any:
        return [], []

    def set_external_summary(self, summaries: Any, external: Any) -> None:
        pass

    def push_external_progress(self, external: Batches) -> None:
        pass

    def pull_internal_progress(self, internal: Batches, consumed: Batches, produced: Batches) -> bool:
        self.left -= 1
        return self.left > 0
