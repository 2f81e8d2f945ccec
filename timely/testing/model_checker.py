"""A bounded model checker: every interleaving of a small configuration, and every invariant in every state.

:func:`explore` visits the states breadth first, so no shorter run leads to a violation than the one that it reports. The checks
know nothing of the protocol, and take frontiers and could-result-in from the oracle.

Sources: Naiad section 3.3 (S0); Abadi, McSherry, Murray and Rodeheffer, *Formal Analysis of a Distributed Algorithm for Tracking
Progress* (X); Brun, Decova, Lattuada and Traytel, *Verified Progress Tracking for Timely Dataflow* (I, G).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import attrs

from timely.errors import InvariantViolation, ProgressError
from timely.progress import Location
from timely.testing.exchange_rules import EMPTY, Bag, Decision, Do, ExchangeRules, ExchangeState, minus, plus
from timely.testing.graph import GraphSpec
from timely.testing.oracles import Change, Pointstamp

Frontiers: TypeAlias = dict[Location, tuple[Any, ...]]

Found: TypeAlias = Iterator[tuple[str, str]]
"""The id of each invariant that does not hold, with what was found."""


class StateChecks:
    """The invariants of the exchange; ``believed`` is the graph that the tracker is given, by default the true one.

    To look at other invariants, override ``check``. Values that passed are not looked at again.

    >>> from timely.testing import NodeSpec
    >>> rules = ExchangeRules(GraphSpec(int, (NodeSpec(0, 1, {}),), ()), workers=1)
    >>> list(StateChecks(rules).violations(rules.initial()))
    []
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
        """Raise :class:`~timely.errors.InvariantViolation` unless all invariants hold of a state, and of the step to it."""
        for invariant, found in self.violations(state, before):
            raise InvariantViolation(invariant, found)

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
        found = self._shown.get(view)
        if found is None:
            self._count(view)
            found = {location: self._tracker.frontier(location).elements for location in self._oracle.locations}
            self._shown[view] = found
        return found

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
            for found in check(*values):
                passed = False
                yield found
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


def _of(worker: int, found: Found) -> Found:
    return ((invariant, f"worker {worker} {message}") for invariant, message in found)


@attrs.frozen
class Configuration:
    """What is explored: ``statements`` of all workers together, at the minimum and what follows from it, and at ``times``.

    ``believed`` is the graph that the trackers are given, if it is another one; ``rules`` and ``checks`` are those in force.

    >>> Configuration(GraphSpec(int, (), ()), workers=2, statements=3).statements
    3
    """

    graph: GraphSpec
    workers: int
    statements: int
    times: Sequence[Any] = ()
    believed: GraphSpec | None = None
    rules: type[ExchangeRules] = ExchangeRules
    checks: type[StateChecks] = StateChecks


@attrs.frozen
class Explored:
    """What a search has seen: the number of ``states`` and of ``steps`` between them, and the depth of the last state.

    ``complete`` says that these were all.

    >>> explore(Configuration(GraphSpec(int, (), ()), workers=2, statements=3))
    Explored(states=1, steps=0, deep=0, complete=True)
    """

    states: int
    steps: int
    deep: int
    complete: bool


_Node: TypeAlias = tuple[ExchangeState, int]
_Trace: TypeAlias = tuple[_Node, Decision] | None


def explore(configuration: Configuration, *, max_states: int | None = None, max_seconds: float | None = None) -> Explored:
    """Visit every state of a configuration, up to ``max_states`` or for ``max_seconds``, and check all invariants in each.

    Raises the :class:`~timely.errors.InvariantViolation` with the fewest ``decisions``. Source of the approach: the TLA+ model of
    Naiad's protocol by Abadi and others.

    >>> from timely.progress import Source, Target
    >>> from timely.testing import NodeSpec
    >>> feed, sink = NodeSpec(0, 1, {}), NodeSpec(1, 0, {}, (0,))
    >>> line = GraphSpec(int, (feed, sink), ((Source(0, 0), Target(1, 0), False),))
    >>> explore(Configuration(line, workers=2, statements=2))
    Explored(states=342, steps=560, deep=6, complete=True)
    """
    rules = configuration.rules(configuration.graph, configuration.workers, configuration.times)
    checks = configuration.checks(rules, configuration.believed)
    first = rules.initial(), configuration.statements
    traces: dict[_Node, _Trace] = {first: None}
    queue: deque[tuple[_Node, int]] = deque([(first, 0)])
    steps = deep = 0
    end = None if max_seconds is None else time.monotonic() + max_seconds
    checks.check(first[0])
    while queue:
        if end is not None and time.monotonic() > end:
            return Explored(len(traces), steps, deep, complete=False)
        node, deep = queue.popleft()
        for decision in _decisions(rules, node):
            steps += 1
            try:
                following = rules.after(node[0], decision), node[1] - isinstance(decision, Do)
                if following not in traces:
                    if max_states is not None and len(traces) >= max_states:
                        return Explored(len(traces), steps, deep, complete=False)
                    traces[following] = node, decision
                    queue.append((following, deep + 1))
                checks.check(following[0], node[0])
            except ProgressError as error:
                raise _violation("protocol", str(error), traces, node, decision) from error
            except InvariantViolation as violation:
                raise _violation(violation.invariant, violation.message, traces, node, decision) from None
    return Explored(len(traces), steps, deep, complete=True)


def _decisions(rules: ExchangeRules, node: _Node) -> Iterator[Decision]:
    state, left = node
    yield from rules.exchanges(state)
    for worker in range(rules.workers if left else 0):
        for statement in rules.statements(state, worker):
            yield Do(worker, statement)


def _violation(invariant: str, message: str, traces: dict[_Node, _Trace], node: _Node, last: Decision) -> InvariantViolation:
    """Return the violation with the decisions that lead to it."""
    decisions = [last]
    while (trace := traces[node]) is not None:
        node = trace[0]
        decisions.append(trace[1])
    decisions.reverse()
    listing = "\n".join(f"  {decision}" for decision in decisions)
    return InvariantViolation(invariant, f"{message}; after\n{listing}", decisions)
