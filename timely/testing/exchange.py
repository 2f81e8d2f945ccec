"""Workers that tell each other of progress, under any interleaving, and the check of every invariant after each step.

:class:`ExchangeRules` say what may happen next (the protocol of Naiad section 3.3); they drive the real ``ProgressExchange``
and the engine's real ``Tracker``. :class:`ExchangeSimulation` walks from state to state, by decisions. The invariant: after
each of them everything holds that :mod:`timely.testing.exchange_checks` lists, or the walk ends there. A message belongs to
nobody until a worker consumes it, so that every way of routing is covered; on a local edge to whom sent it. A caller may break
a rule on purpose, to see that somebody objects.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs

from timely.errors import InvariantViolation, ProgressError
from timely.order import linear_extension
from timely.progress import Location, ProgressExchange, Source, Target, Tracker, time_domain
from timely.testing.code import as_code, imports_for
from timely.testing.exchange_checks import ExchangeChecks, ViewTracker
from timely.testing.exchange_state import (
    EMPTY,
    Bag,
    Batch,
    Decision,
    Deliver,
    Do,
    ExchangeState,
    Flush,
    Queue,
    Statement,
    plus,
    replaced,
)
from timely.testing.graph import GraphSpec
from timely.testing.oracles import Change, Oracle, Pointstamp


class ExchangeRules:
    """What may happen among ``workers`` over a graph, and what must hold; ``times`` are those to which operators may go on.

    To break a rule on purpose, derive from it and override ``initial_count``, ``permit``, ``pack``, ``deliverable``,
    ``receive`` or ``tracker``; to see what comes of trackers that were told something else than the truth, give another graph
    as ``believed``.

    >>> from timely.testing import NodeSpec
    >>> rules = ExchangeRules(GraphSpec(int, (NodeSpec(0, 1, {}, ()),), ()), 2)
    >>> state = rules.after(rules.initial(), Do(0, ((Source(0, 0), 0, -1),)))
    >>> rules.check(state)
    >>> list(rules.quiet(state)), list(rules.statements(state, 0))
    ([Flush(0)], [])
    """

    def __init__(self, graph: GraphSpec, workers: int, times: Sequence[Any] = (), believed: GraphSpec | None = None) -> None:
        self.graph, self.workers = graph, workers
        self.times = linear_extension(times)
        self.oracle = Oracle(graph)
        self._local = {end for source, end, local in graph.edges if local}
        self._readers: dict[Location, list[Target]] = {}
        self._feeds: dict[Location, Source] = {}
        for source, target, _ in graph.edges:
            self._readers.setdefault(source, []).append(target)
            self._feeds[target] = source
        believed = graph if believed is None else believed
        self._tracked = ViewTracker(self.tracker(believed), self.oracle.locations)
        self._checks = ExchangeChecks(believed.observed(), workers, self.oracle, self._tracked)

    # -- the rules -------------------------------------------------------------------------------------------------------

    def initial_count(self) -> int:
        """Return how often every view counts the minimum at each output to begin with: once for each worker."""
        return self.workers

    def permit(self, state: ExchangeState, worker: int, statement: Statement) -> None:
        """Raise ``ProgressError`` unless a worker may say so: each increment needs a capability or a message (OC2, OC4)."""
        owned = dict(plus(state.held[worker], state.messages))
        for location, time, diff in statement:
            if diff > 0:
                self._permit(state, worker, statement, location, time)
            else:
                owned[location, time] = owned.get((location, time), 0) + diff
                if owned[location, time] < 0:
                    raise ProgressError(f"worker {worker} has no {as_code((location, time))} to let go of or to consume (OC4)")

    def pack(self, batch: Batch) -> Queue:
        """Return what is sent of a batch: all of it, as one."""
        return (batch,)

    def deliverable(self, queue: Queue) -> list[tuple[Batch, Queue]]:
        """Return which batches may arrive next, with what is left on the way: the oldest."""
        return [(queue[0], queue[1:])] if queue else []

    def receive(self, exchange: ProgressExchange[Pointstamp], batch: Batch) -> Iterable[tuple[Pointstamp, int]]:
        """Return what a worker counts of a batch that arrives: what the protocol says."""
        return exchange.receive(batch)

    def tracker(self, believed: GraphSpec) -> Tracker[Any]:
        """Return the tracker in which every view is counted: the engine's, for what it is told of the graph."""
        return believed.build()

    def _permit(self, state: ExchangeState, worker: int, statement: Statement, location: Location, time: Any) -> None:
        place = self._feeds.get(location) if isinstance(location, Target) else location
        for (held, at), count in state.held[worker]:
            if count > 0 and held == place and at <= time:
                return
        for consumed, at, diff in statement:
            if diff < 0 and isinstance(consumed, Target) and place is not None and consumed.node == place.node:
                for summary in self.graph.nodes[place.node].summaries.get((consumed.port, place.port), ()):
                    arrival = summary.results_in(at)
                    if arrival is not None and arrival <= time:
                        return
        raise ProgressError(f"worker {worker} has neither capability nor message for {as_code((location, time))} (OC2)")

    # -- what may happen -------------------------------------------------------------------------------------------------

    def initial(self) -> ExchangeState:
        """Return the state at the start: one capability at the minimum for every output and worker."""
        minimum = time_domain(self.graph.time).minimum
        start = [(location, minimum) for location in self.oracle.locations if isinstance(location, Source)]
        held: Bag = frozenset((pointstamp, 1) for pointstamp in start)
        view: Bag = frozenset((pointstamp, self.initial_count()) for pointstamp in start)
        k = self.workers
        exchanges = tuple(ProgressExchange[Pointstamp](w, k) for w in range(k))
        concluded = self._checks.conclude(frozenset(), view)
        return ExchangeState(
            (held,) * k, EMPTY, (EMPTY,) * k, ((),) * (k * k), (view,) * k, (0,) * k, (concluded,) * k, exchanges
        )

    def later(self, time: Any) -> list[Any]:
        """Return a time and those of ``times`` that are later."""
        return [time, *(other for other in self.times if time <= other and time != other)]

    def statements(self, state: ExchangeState, worker: int) -> Iterator[Statement]:
        """Return what a worker might do next, for each thing it holds and each message it might consume."""
        for location, time in self._ordered(state.held[worker]):
            if isinstance(location, Source):
                yield from self._with_capability(location, time)
        for location, time in self._ordered(plus(state.messages, state.held[worker])):
            if isinstance(location, Target):
                yield from self._with_message(location, time)

    def _ordered(self, bag: Bag) -> list[Pointstamp]:
        present: dict[Location, list[Any]] = {}
        for location, time in (pointstamp for pointstamp, count in bag if count > 0):
            present.setdefault(location, []).append(time)
        return [(place, t) for place in self.oracle.locations for t in linear_extension(sorted(present.get(place, ()), key=repr))]

    def _with_capability(self, source: Source, time: Any) -> Iterator[Statement]:
        """Drop it, send with it (and drop it), downgrade it, make another of it."""
        yield ((source, time, -1),)
        for later in self.later(time):
            for target in self._readers.get(source, ()):
                yield ((target, later, 1),)
                yield ((target, later, 1), (source, time, -1))
        for later in self.later(time):
            if later != time:
                yield ((source, later, 1), (source, time, -1))
        for later in self.later(time):
            yield ((source, later, 1),)

    def _with_message(self, target: Target, time: Any) -> Iterator[Statement]:
        """Consume it, and keep a capability, or send on at once, or neither."""
        yield ((target, time, -1),)
        for (i, o), summaries in self.graph.nodes[target.node].summaries.items():
            arrivals = [summary.results_in(time) for summary in summaries if i == target.port]
            source = Source(target.node, o)
            for later in dict.fromkeys(t for arrival in arrivals if arrival is not None for t in self.later(arrival)):
                for reader in self._readers.get(source, ()):
                    yield ((target, time, -1), (reader, later, 1))
                yield ((target, time, -1), (source, later, 1))

    def quiet(self, state: ExchangeState) -> Iterator[Decision]:
        """Return the decisions that only tell and hear."""
        for worker in range(self.workers):
            if state.unsaid[worker]:
                yield Flush(worker)
        for sender in range(self.workers):
            for receiver in range(self.workers):
                for which in range(len(self.deliverable(state.queues[sender * self.workers + receiver]))):
                    yield Deliver(sender, receiver, which)

    def after(self, state: ExchangeState, decision: Decision) -> ExchangeState:
        """Return the state after a decision; ``ProgressError`` if it is not one that may be taken."""
        if isinstance(decision, Do):
            self.permit(state, decision.worker, decision.statement)
            return self._do(state, decision.worker, decision.statement)
        if isinstance(decision, Flush):
            return self._flush(state, decision.worker)
        return self._deliver(state, decision)

    def _do(self, state: ExchangeState, worker: int, statement: Statement) -> ExchangeState:
        updates = [((location, time), diff) for location, time, diff in statement]
        private = [u for u in updates if isinstance(u[0][0], Source) or u[0][0] in self._local]
        shared = [u for u in updates if not (isinstance(u[0][0], Source) or u[0][0] in self._local)]
        exchange = copy.deepcopy(state.exchanges[worker])
        exchange.extend(updates)
        return attrs.evolve(
            state,
            held=replaced(state.held, worker, plus(state.held[worker], private)),
            messages=plus(state.messages, shared),
            unsaid=replaced(state.unsaid, worker, plus(state.unsaid[worker], updates)),
            exchanges=replaced(state.exchanges, worker, exchange),
        )

    def _flush(self, state: ExchangeState, worker: int) -> ExchangeState:
        exchange = copy.deepcopy(state.exchanges[worker])
        batch = exchange.flush()
        said = frozenset(batch.updates if batch is not None else ())
        if said != state.unsaid[worker]:
            raise InvariantViolation("X3", f"worker {worker} did {dict(state.unsaid[worker])}, but says {dict(said)}")
        if batch is None:
            return state
        queues = list(state.queues)
        for receiver in range(self.workers):
            if receiver != worker:
                queues[worker * self.workers + receiver] += self.pack(batch)
        said_so = attrs.evolve(
            state,
            unsaid=replaced(state.unsaid, worker, EMPTY),
            queues=tuple(queues),
            sent=replaced(state.sent, worker, state.sent[worker] + 1),
            exchanges=replaced(state.exchanges, worker, exchange),
        )
        return self._counted(said_so, worker, batch.updates)

    def _deliver(self, state: ExchangeState, decision: Deliver) -> ExchangeState:
        place, receiver = decision.sender * self.workers + decision.receiver, decision.receiver
        possible = self.deliverable(state.queues[place])
        if decision.which >= len(possible):
            raise ProgressError(f"nothing is on its way from worker {decision.sender} to worker {receiver}")
        batch, left = possible[decision.which]
        exchange = copy.deepcopy(state.exchanges[receiver])
        updates = self.receive(exchange, batch)
        heard = attrs.evolve(
            state,
            queues=replaced(state.queues, place, left),
            exchanges=replaced(state.exchanges, receiver, exchange),
        )
        return self._counted(heard, receiver, updates)

    def _counted(self, state: ExchangeState, worker: int, updates: Iterable[tuple[Pointstamp, int]]) -> ExchangeState:
        """Return the state in which a worker has counted some updates, and concluded what follows."""
        view = plus(state.views[worker], updates)
        concluded = self._checks.conclude(state.concluded[worker], view)
        return attrs.evolve(
            state, views=replaced(state.views, worker, view), concluded=replaced(state.concluded, worker, concluded)
        )

    # -- what must hold --------------------------------------------------------------------------------------------------

    def check(self, state: ExchangeState, before: ExchangeState | None = None) -> None:
        """Raise :class:`~timely.errors.InvariantViolation` unless all invariants hold of a state, and of the step to it."""
        for violation in self.violations(state, before):
            raise violation

    def violations(self, state: ExchangeState, before: ExchangeState | None = None) -> Iterator[InvariantViolation]:
        """Return all that does not hold of a state, and of the step to it: that which is nearest to the cause comes first."""
        return self._checks.violations(state, before)

    def frontiers(self, view: Bag) -> dict[Location, tuple[Any, ...]]:
        """Return the frontiers that the tracker shows of a view."""
        return self._tracked.frontiers(view)


class ExchangeSimulation:
    """A walk from state to state by decisions; every invariant is checked after each, and every decision is recorded.

    Test T6: what happened is a function of ``decisions``, and ``repr`` is a program that does it again. A worker is a number.

    >>> from timely.progress import Step
    >>> from timely.testing import NodeSpec
    >>> feed, sink = NodeSpec(0, 1, {}, ()), NodeSpec(1, 0, {}, (0,))
    >>> simulation = ExchangeSimulation(GraphSpec(int, (feed, sink), ((Source(0, 0), Target(1, 0), False),)), workers=2)
    >>> simulation.do(0, [(Target(1, 0), 3, +1), (Source(0, 0), 0, -1)])
    >>> simulation.flush(0)
    >>> simulation.do(1, [(Source(0, 0), 0, -1)])
    >>> simulation.flush(1)
    >>> simulation.frontiers(1)[Target(1, 0)]  # worker 1 has not heard of worker 0
    (0,)
    >>> simulation.deliver(0, 1)
    >>> simulation.frontiers(1)[Target(1, 0)], len(simulation.decisions)
    ((3,), 5)
    """

    def __init__(
        self, graph: GraphSpec, workers: int = 2, times: Sequence[Any] = (), *, rules: type[ExchangeRules] = ExchangeRules
    ) -> None:
        self.rules = rules(graph, workers, times)
        self.state = self.rules.initial()
        self.decisions: list[Decision] = []
        self.rules.check(self.state)

    def do(self, worker: int, statement: Iterable[Change]) -> None:
        """Let a worker do something, all at once; ``ProgressError`` if it has no right to."""
        self.decide(Do(worker, tuple(statement)))

    def flush(self, worker: int) -> None:
        """Let a worker tell all the others what it has done, and count it itself."""
        self.decide(Flush(worker))

    def deliver(self, sender: int, receiver: int) -> None:
        """Let the oldest batch from one worker to another arrive; ``ProgressError`` if there is none."""
        self.decide(Deliver(sender, receiver))

    def decide(self, decision: Decision) -> None:
        """Take a decision and check all that must hold: an :class:`~timely.errors.InvariantViolation` if it does not."""
        before, self.state = self.state, self.rules.after(self.state, decision)
        self.decisions.append(decision)
        self.rules.check(self.state, before)

    def statements(self, worker: int) -> list[Statement]:
        """Return what a worker might do next, as the times given allow."""
        return list(self.rules.statements(self.state, worker))

    def possible(self) -> list[Decision]:
        """Return every decision that might be taken next."""
        found: list[Decision] = list(self.rules.quiet(self.state))
        for worker in range(self.rules.workers):
            found += [Do(worker, statement) for statement in self.statements(worker)]
        return found

    def settle(self) -> None:
        """Let everyone say and hear everything."""
        while quiet := next(self.rules.quiet(self.state), None):
            self.decide(quiet)

    def finish(self) -> None:
        """Let everyone consume and drop everything and say so; then every frontier must be empty (Z5)."""
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
        return self.rules.frontiers(self.state.views[worker])

    def __repr__(self) -> str:
        return run_of(self.rules, self.decisions)


def run_of(rules: ExchangeRules, decisions: Iterable[Decision]) -> str:
    """Return a program that takes the decisions, on a line each, after the imports that it needs.

    >>> from timely.testing import NodeSpec
    >>> rules = ExchangeRules(GraphSpec(int, (NodeSpec(0, 1, {}, ()),), ()), 2)
    >>> print(run_of(rules, [Do(0, ((Source(0, 0), 0, -1),)), Flush(0)]))
    from timely.progress import Source
    from timely.testing.exchange import ExchangeSimulation
    from timely.testing.exchange_state import Do, Flush
    from timely.testing.graph import GraphSpec, NodeSpec
    <BLANKLINE>
    simulation = ExchangeSimulation(GraphSpec(int, (NodeSpec(0, 1, {}, ()),), ()), 2, [])
    simulation.do(0, ((Source(0, 0), 0, -1),))
    simulation.flush(0)
    """
    decisions = list(decisions)
    honest = type(rules) is ExchangeRules
    kind = "" if honest else f", rules={type(rules).__name__}"
    needed = imports_for(ExchangeSimulation, rules.graph, rules.times, decisions, *([] if honest else [type(rules)]))
    lines = [*needed, "", f"simulation = ExchangeSimulation({rules.graph!r}, {rules.workers}, {as_code(rules.times)}{kind})"]
    for decision in decisions:
        if isinstance(decision, Do):
            lines.append(f"simulation.do({decision.worker}, {as_code(decision.statement)})")
        elif isinstance(decision, Flush):
            lines.append(f"simulation.flush({decision.worker})")
        elif decision.which == 0:
            lines.append(f"simulation.deliver({decision.sender}, {decision.receiver})")
        else:
            lines.append(f"simulation.decide({decision!r})")
    return "\n".join(lines)
