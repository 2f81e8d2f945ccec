"""The invariants of progress exchange in every state, and the model that ``timely.testing.explore`` takes.

The checks know nothing of the protocol, and take frontiers and could-result-in from the oracle.

Sources: Naiad section 3.3 (S0); Abadi, McSherry, Murray and Rodeheffer, *Formal Analysis of a Distributed Algorithm for Tracking
Progress* (X); Brun, Decova, Lattuada and Traytel, *Verified Progress Tracking for Timely Dataflow* (I, G).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import attrs

from tests.support.exchange_rules import EMPTY, Bag, Decision, Do, ExchangeRules, ExchangeState, minus, plus
from timely.errors import InvariantViolation
from timely.progress import Location
from timely.testing import Change, GraphSpec, Pointstamp

Frontiers: TypeAlias = dict[Location, tuple[Any, ...]]

Found: TypeAlias = Iterator[tuple[str, str]]
"""The id of each violated invariant, with what was found."""


class StateChecks:
    """The invariants of the exchange; ``believed`` is the graph that the tracker gets, by default the true one.

    Override ``check`` to check other invariants. A value that passed is not checked again.
    """

    def __init__(self, rules: ExchangeRules, believed: GraphSpec | None = None) -> None:
        graph = rules.graph if believed is None else believed
        self._workers = rules.workers
        self._oracle = rules.oracle
        self._observed = graph.observed()
        self._tracker = rules.tracker(graph)
        self._counted: Bag = EMPTY
        self._shown: dict[Bag, Frontiers] = {}
        self._passed: set[Hashable] = set()

    def check(self, state: ExchangeState, before: ExchangeState | None = None) -> None:
        """Raise ``InvariantViolation`` unless all invariants hold of a state, and of the step to it."""
        for invariant, result in self.violations(state, before):
            raise InvariantViolation(invariant, result)

    def violations(self, state: ExchangeState, before: ExchangeState | None = None) -> Found:
        """Yield what does not hold of a state, and of the step to it, causes first."""
        yield from self._once(self._of_state, state)
        if before is not None:
            if before.held != state.held or before.messages != state.messages:
                yield from self._once(self._stays_vacant, before.truth(), state.truth())
            for worker, (old, new) in enumerate(zip(before.views, state.views, strict=True)):
                if old != new:
                    yield from _of(worker, self._once(self._step, old, new))

    def frontiers(self, view: Bag) -> Frontiers:
        """Return the frontiers that the tracker shows of a view."""
        result = self._shown.get(view)
        if result is None:
            self._count(view)
            result = {location: self._tracker.frontier(location).elements for location in self._oracle.locations}
            self._shown[view] = result
        return result

    def _count(self, view: Bag) -> list[Change]:
        """Take the tracker from the view that it was at last to another; return the changes that it reports."""
        for (location, at), diff in minus(view, self._counted):
            self._tracker.update(location, at, diff)
        self._counted = view
        return list(self._tracker.propagate())

    def _once(self, check: Callable[..., Found], *values: Hashable) -> Found:
        key = (check.__name__, values)
        if key not in self._passed:
            passed = True
            for result in check(*values):
                passed = False
                yield result
            if passed:
                self._passed.add(key)

    def _reached(self, starts: Iterable[Pointstamp], place: Pointstamp) -> bool:
        return any(self._oracle.leads(start, place) for start in starts)

    def _before(self, starts: Iterable[Pointstamp], place: Pointstamp) -> bool:
        return any(start != place and self._oracle.leads(start, place) for start in starts)

    # -- of a state ------------------------------------------------------------------------------------------------------

    def _of_state(self, state: ExchangeState) -> Found:
        truth = state.truth()
        for bag in (truth, *state.held):
            yield from self._once(self._natural, bag)
        for worker in range(self._workers):
            yield from _of(worker, self._of_worker(state, worker, truth))

    def _of_worker(self, state: ExchangeState, worker: int, truth: Bag) -> Found:
        view, held = state.views[worker], state.held[worker]
        yield from self._conserved(state, worker, truth)
        yield from self._once(self._upright, "X1", held, state.unsent[worker])
        yield from self._once(self._justified, held, state.unsent[worker])
        for receiver in range(self._workers):
            for coming in state.coming(worker, receiver, self._workers)[1:]:
                yield from self._once(self._upright, "X2", held, coming)
                yield from self._once(self._justified, held, coming)
        for sender in range(self._workers):
            for batch in state.queues[sender * self._workers + worker]:
                yield from self._once(self._expected, view, batch.updates)
        yield from self._once(self._vacant, view, truth)
        yield from self._once(self._positive, view)
        yield from self._once(self._exact, view)
        yield from self._once(self._safe, view, truth)

    def _natural(self, bag: Bag) -> Found:
        for place, count in bag:
            if count < 0:
                yield "I1", f"there are {count} of {place}"

    def _conserved(self, state: ExchangeState, worker: int, truth: Bag) -> Found:
        total = state.views[worker]
        for sender in range(self._workers):
            total = plus(total, state.coming(sender, worker, self._workers)[-1])
        if total != truth:
            yield "X3", f"has received and will receive {dict(total)}, but there is {dict(truth)}"

    def _upright(self, invariant: str, held: Bag, coming: Bag) -> Found:
        counts = minus(coming, held)
        losses = [place for place, count in counts if count < 0]
        for place, count in counts:
            if count > 0 and not self._before(losses, place):
                yield invariant, f"sends {place}, and neither holds nor takes away what it could come of"

    def _justified(self, held: Bag, coming: Bag) -> Found:
        holds = dict(held)
        starts = [place for place, count in coming if count < 0] + [place for place, count in held if count > 0]
        for place, count in coming:
            if count > 0 and count >= holds.get(place, 0) and not self._before(starts, place):
                yield "I3", f"sends {place} without a right to it"

    def _expected(self, view: Bag, updates: tuple[tuple[Pointstamp, int], ...]) -> Found:
        positive = [place for place, count in view if count > 0]
        for place, _ in updates:
            if not self._reached(positive, place):
                yield "I6", f"has still to receive {place}, which nothing that it counts could result in"

    def _vacant(self, view: Bag, truth: Bag) -> Found:
        for place, _ in truth:
            if not self._reached((start for start, _ in view), place):
                yield "X4", f"counts nothing that {place} could come of, but there it is"

    def _positive(self, view: Bag) -> Found:
        positive = [place for place, count in view if count > 0]
        for place, count in view:
            if count < 0 and not self._reached(positive, place):
                yield "I4", f"counts {count} of {place}, and nothing that it could come of"

    def _exact(self, view: Bag) -> Found:
        shown = self.frontiers(view)
        for location, times in self._oracle.frontiers(dict(view)).items():
            if set(shown[location]) != times or len(shown[location]) != len(times):
                yield "G9", f"shows {shown[location]} at {location}, not {times}, where it counts {dict(view)}"

    def _safe(self, view: Bag, truth: Bag) -> Found:
        shown = self.frontiers(view)
        for location, times in self._oracle.frontiers(dict(truth)).items():
            for arrival in times:
                if not any(element <= arrival for element in shown[location]):
                    yield "S0", f"has passed {arrival} at {location}, which may still come; its frontier is {shown[location]}"

    # -- of a step -------------------------------------------------------------------------------------------------------

    def _stays_vacant(self, before: Bag, truth: Bag) -> Found:
        for place, _ in truth:
            if not self._reached((start for start, _ in before), place):
                yield "X6", f"there is {place}, which nothing could result in of what there was: {dict(before)}"

    def _step(self, before: Bag, view: Bag) -> Found:
        old = self.frontiers(before)
        self._count(before)
        reported = self._count(view)
        new = self.frontiers(view)
        for location, times in new.items():
            for at in times:
                if not any(shown <= at for shown in old[location]):
                    yield "I5", f"has its frontier at {location} go back to {at} from {old[location]}"
        gone = [(target, at, -1) for target in self._observed for at in old[target] if at not in new[target]]
        come = [(target, at, 1) for target in self._observed for at in new[target] if at not in old[target]]
        if set(reported) != {*gone, *come} or len(reported) != len(gone + come):
            yield "G10", f"reports the changes {reported}, but its frontiers changed by {gone + come}"


def _of(worker: int, faults: Found) -> Found:
    return ((invariant, f"worker {worker} {message}") for invariant, message in faults)


Node: TypeAlias = tuple[ExchangeState, int]
"""A state, and how many statements may still be made."""


@attrs.frozen(slots=False)
class Configuration:
    """A model for ``explore``: ``statements`` of all workers together, at the minimum and what follows from it, and at ``times``.

    ``believed`` is the graph that the trackers get, if it is another one. ``rules`` and ``checks`` are those in force.

    >>> from timely.progress import Source, Target
    >>> from tests.support.model_checker import explore
    >>> from timely.testing import NodeSpec
    >>> feed, sink = NodeSpec(0, 1, {}), NodeSpec(1, 0, {}, (0,))
    >>> line = GraphSpec(int, (feed, sink), ((Source(0, 0), Target(1, 0), False),))
    >>> explore(Configuration(line, workers=2, statements=2))
    Explored(states=342, steps=560, deep=6, complete=True)
    """

    graph: GraphSpec
    workers: int
    statements: int
    times: Sequence[Any] = ()
    believed: GraphSpec | None = None
    rules: type[ExchangeRules] = ExchangeRules
    checks: type[StateChecks] = StateChecks

    @cached_property
    def _rules(self) -> ExchangeRules:
        return self.rules(self.graph, self.workers, self.times)

    @cached_property
    def _checks(self) -> StateChecks:
        return self.checks(self._rules, self.believed)

    def initial(self) -> Node:
        """Return the state at the start."""
        return self._rules.initial(), self.statements

    def decisions(self, node: Node) -> Iterator[Decision]:
        """Yield what may be decided next."""
        state, left = node
        yield from self._rules.exchanges(state)
        for worker in range(self.workers if left else 0):
            for statement in self._rules.statements(state, worker):
                yield Do(worker, statement)

    def after(self, node: Node, decision: Decision) -> Node:
        """Return the state after a decision."""
        return self._rules.after(node[0], decision), node[1] - isinstance(decision, Do)

    def check(self, node: Node, before: Node | None) -> None:
        """Raise ``InvariantViolation`` unless all invariants hold."""
        self._checks.check(node[0], before and before[0])
