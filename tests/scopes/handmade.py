"""Scopes written by hand, through nothing but the protocol, and the loops that drive them as a parent would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from timely import Antichain, ChangeBatch, Step
from timely.progress import PathSummary
from timely.scopes import Counts, Subgraph, SubgraphBuilder, Summaries


def through(*summaries: PathSummary[Any]) -> Antichain[PathSummary[Any]]:
    return Antichain(summaries)


STAY = through(Step(0))
NOWHERE: Antichain[PathSummary[Any]] = Antichain()


class HandMade:
    """A scope that reports in a pull what its test has set, and keeps what it receives."""

    def __init__(self, summaries: Summaries[Any], outputs: int, counts: Counts[Any] | None = None) -> None:
        self._summaries = summaries
        self._outputs = outputs
        self._counts = [[(0, 1)] for _ in range(outputs)] if counts is None else counts
        self.world: Summaries[Any] = ()
        self.frontiers: list[dict[Any, int]] = []
        self.pushes = 0
        self.pulls = 0
        self.busy = False
        self.script: list[tuple[list[tuple[int, Any, int]], ...]] = []

    @property
    def inputs(self) -> int:
        return len(self._summaries)

    @property
    def outputs(self) -> int:
        return self._outputs

    def get_internal_summary(self) -> tuple[Summaries[Any], Counts[Any]]:
        return self._summaries, self._counts

    def set_external_summary(self, summaries: Summaries[Any], external: Counts[Any]) -> None:
        self.world = summaries
        self.frontiers = [dict(counts) for counts in external]

    def push_external_progress(self, external: Sequence[ChangeBatch[Any]]) -> None:
        self.pushes += 1
        for frontier, changes in zip(self.frontiers, external, strict=True):
            for time, diff in changes:
                frontier[time] = frontier.get(time, 0) + diff
                if not frontier[time]:
                    del frontier[time]

    def pull_internal_progress(
        self,
        internal: Sequence[ChangeBatch[Any]],
        consumed: Sequence[ChangeBatch[Any]],
        produced: Sequence[ChangeBatch[Any]],
    ) -> bool:
        self.pulls += 1
        if self.script:
            for batches, result in zip((internal, consumed, produced), self.script.pop(0), strict=True):
                for port, time, diff in result:
                    batches[port].update(time, diff)
        return self.busy

    def report(
        self,
        internal: Sequence[tuple[int, Any, int]] = (),
        consumed: Sequence[tuple[int, Any, int]] = (),
        produced: Sequence[tuple[int, Any, int]] = (),
    ) -> None:
        """Report this in the next pull: ``(port, time, diff)``."""
        self.script.append((list(internal), list(consumed), list(produced)))


class Parent:
    """Drives one subgraph by hand, and adds up what it reports."""

    def __init__(self, builder: SubgraphBuilder[Any, Any]) -> None:
        self.builder = builder
        self.scope = builder.subgraph
        self.summaries, counts = builder.get_internal_summary()
        self.held = [dict(elements) for elements in counts]

    def set(self, world: Summaries[Any] | None = None, external: Counts[Any] | None = None) -> Parent:
        inputs, outputs = self.scope.inputs, self.scope.outputs
        world = [[NOWHERE] * inputs for _ in range(outputs)] if world is None else world
        self.builder.set_external_summary(world, [[(0, 1)]] * inputs if external is None else external)
        return self

    def push(self, *changes: tuple[int, Any, int]) -> None:
        external: list[ChangeBatch[Any]] = [ChangeBatch() for _ in range(self.scope.inputs)]
        for port, time, diff in changes:
            external[port].update(time, diff)
        self.scope.push_external_progress(external)

    def pull(self) -> tuple[bool, list[Any], list[Any]]:
        """Return ``(alive, consumed, produced)`` of one pull, the last two sorted per port; add the rest to ``held``."""
        internal: list[ChangeBatch[Any]] = [ChangeBatch() for _ in range(self.scope.outputs)]
        consumed: list[ChangeBatch[Any]] = [ChangeBatch() for _ in range(self.scope.inputs)]
        produced: list[ChangeBatch[Any]] = [ChangeBatch() for _ in range(self.scope.outputs)]
        alive = self.scope.pull_internal_progress(internal, consumed, produced)
        for held, changes in zip(self.held, internal, strict=True):
            for time, diff in changes:
                held[time] = held.get(time, 0) + diff
                if not held[time]:
                    del held[time]
        return alive, [sorted(batch) for batch in consumed], [sorted(batch) for batch in produced]

    def work(self) -> list[Antichain[Any]]:
        """Return, for each output, the minimal times of the work inside, as reported so far."""
        assert all(count > 0 for held in self.held for count in held.values())
        return [Antichain(held) for held in self.held]


def subgraph(inner: Any = int, outer: Any = int, **options: Any) -> SubgraphBuilder[Any, Any]:
    return SubgraphBuilder(Subgraph("sub", "/sub", outer, inner, **options))
