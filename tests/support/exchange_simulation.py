"""A walk from state to state of the exchange of progress, by decisions; every invariant is checked after each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tests.support.code_printing import imports_for
from tests.support.exchange_checks import StateChecks
from tests.support.exchange_rules import Decision, Deliver, Do, ExchangeRules, Flush, Statement
from timely.errors import InvariantViolation
from timely.progress import Location
from timely.testing import Change, GraphSpec
from timely.testing.random_dataflows import as_code


class ExchangeSimulation:
    """Workers that exchange progress (test T6): a run is a function of its ``decisions``; ``repr`` is a program that repeats it.

    >>> from timely.progress import Source, Target
    >>> from timely.testing import NodeSpec
    >>> feed, sink = NodeSpec(0, 1, {}), NodeSpec(1, 0, {}, (0,))
    >>> simulation = ExchangeSimulation(GraphSpec(int, (feed, sink), ((Source(0, 0), Target(1, 0), False),)), workers=2)
    >>> simulation.do(0, [(Target(1, 0), 3, +1), (Source(0, 0), 0, -1)])
    >>> simulation.flush(0)
    >>> simulation.do(1, [(Source(0, 0), 0, -1)])
    >>> simulation.flush(1)
    >>> simulation.frontiers(1)[Target(1, 0)]  # worker 1 has received nothing of worker 0
    (0,)
    >>> simulation.deliver(0, 1)
    >>> simulation.frontiers(1)[Target(1, 0)], len(simulation.decisions)
    ((3,), 5)
    """

    def __init__(
        self,
        graph: GraphSpec,
        workers: int = 2,
        times: Sequence[Any] = (),
        *,
        rules: type[ExchangeRules] = ExchangeRules,
        checks: type[StateChecks] = StateChecks,
    ) -> None:
        self.rules = rules(graph, workers, times)
        self.checks = checks(self.rules)
        self.state = self.rules.initial()
        self.decisions: list[Decision] = []
        self.checks.check(self.state)

    def do(self, worker: int, statement: Iterable[Change]) -> None:
        """Let a worker do something, all at once; ``ProgressError`` if it has no right to."""
        self.decide(Do(worker, tuple(statement)))

    def flush(self, worker: int) -> None:
        """Let a worker send all others what it has done, and count it itself."""
        self.decide(Flush(worker))

    def deliver(self, sender: int, receiver: int) -> None:
        """Let the oldest batch from one worker to another arrive; ``ProgressError`` if there is none."""
        self.decide(Deliver(sender, receiver))

    def decide(self, decision: Decision) -> None:
        """Take a decision and check all that must hold."""
        before, self.state = self.state, self.rules.after(self.state, decision)
        self.decisions.append(decision)
        self.checks.check(self.state, before)

    def possible(self) -> list[Decision]:
        """Return every decision that might be taken next."""
        result: list[Decision] = list(self.rules.exchanges(self.state))
        for worker in range(self.rules.workers):
            result += [Do(worker, statement) for statement in self.statements(worker)]
        return result

    def statements(self, worker: int) -> list[Statement]:
        """Return what a worker might do next, as the times given allow."""
        return list(self.rules.statements(self.state, worker))

    def settle(self) -> None:
        """Flush and deliver everything."""
        while decision := next(self.rules.exchanges(self.state), None):
            self.decide(decision)

    def finish(self) -> None:
        """Let all workers consume and drop everything; then every view must be empty (Z5)."""
        for worker in range(self.rules.workers):
            while gone := self._leftover(worker):
                self.do(worker, [gone])
        self.settle()
        if any(self.state.views):
            raise InvariantViolation("Z5", f"all is done, but workers still count {[dict(view) for view in self.state.views]}")

    def _leftover(self, worker: int) -> Change | None:
        for (location, time), count in (*self.state.messages, *self.state.held[worker]):
            if count > 0:
                return location, time, -1
        return None

    def frontiers(self, worker: int) -> dict[Location, tuple[Any, ...]]:
        """Return what a worker's tracker shows at each location."""
        return self.checks.frontiers(self.state.views[worker])

    def __repr__(self) -> str:
        needed = imports_for(ExchangeSimulation, self.rules.graph, self.rules.times, self.decisions)
        made = f"simulation = ExchangeSimulation({as_code(self.rules.graph)}, {self.rules.workers}, {as_code(self.rules.times)})"
        return "\n".join([*needed, "", made, *(f"simulation.decide({as_code(decision)})" for decision in self.decisions)])
