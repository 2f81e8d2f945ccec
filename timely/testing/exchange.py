"""Workers that tell each other of progress, under any interleaving, and the check of every invariant after each step.

An :class:`ExchangeState` is all there is at one moment: who holds what, what is in flight, what was not said yet, what is on
its way, and each worker's view. :class:`ExchangeRules` say what may happen next and what must hold; they drive the real
``ProgressExchange`` and the engine's real ``Tracker``, and compare both with the truth, by path summaries found by brute force.
:class:`ExchangeSimulation` walks from state to state, by decisions. The checks know nothing of the protocol:

* X3, I2 *conservation*: a worker's view, all that is on its way to it, and all that nobody has said yet, are the truth.
* X1, X2, I3 *justification*: whatever a worker has not said yet, and every end of what it said that was not heard yet, adds only
  what it holds itself, or what something that it takes away or holds could result in.
* X4, S0, Z1 *safety*: what is there could not be anywhere before the frontiers that any worker's tracker shows.
* X5, X6, I5, I7 *stability*: no frontier of any worker ever goes back; what is safe once is safe for ever.
* I1: no true count is negative, and nobody lets go of what it does not hold. I4, I6: what is on its way to a worker lies beyond
  its frontiers as well.
* G9, G10 *exactness*: a tracker's frontiers are those of the view by definition, and its changes add up to their difference.

Sources: Naiad section 3.3; Abadi, McSherry, Murray and Rodeheffer, *Formal Analysis of a Distributed Algorithm for Tracking
Progress* (X); Brun, Decova, Lattuada and Traytel, *Verified Progress Tracking for Timely Dataflow* (I, G, Z). A message
belongs to nobody until a worker consumes it, so that every way of routing is covered; on a local edge to whom sent it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import attrs

from timely.errors import InvariantViolation, ProgressError
from timely.order import linear_extension
from timely.progress import Location, ProgressBatch, ProgressExchange, Source, Target, time_domain
from timely.testing.code import Described, as_code, imports_for
from timely.testing.graph import GraphSpec
from timely.testing.oracles import Change, Oracle, Pointstamp

Statement: TypeAlias = tuple[Change, ...]
"""What one activation did, atomically: ``(place, time, by how much its count changed)``."""

Bag: TypeAlias = frozenset[tuple[Pointstamp, int]]
"""Counts that are not zero."""

Batch: TypeAlias = ProgressBatch[Pointstamp]
Queue: TypeAlias = tuple[Batch, ...]

_EMPTY: Bag = frozenset()


def _plus(bag: Bag, updates: Iterable[tuple[Pointstamp, int]]) -> Bag:
    counts = dict(bag)
    for pointstamp, diff in updates:
        counts[pointstamp] = counts.get(pointstamp, 0) + diff
    return frozenset(item for item in counts.items() if item[1])


@attrs.frozen(repr=False)
class Do(Described):
    """The decision that a worker does something: one atomic statement."""

    worker: int
    statement: Statement


@attrs.frozen(repr=False)
class Flush(Described):
    """The decision that a worker tells the others what it has done since it last did."""

    worker: int


@attrs.frozen(repr=False)
class Deliver(Described):
    """The decision that a worker hears a batch of another one; ``which`` of those that the rules allow (FIFO: the oldest)."""

    sender: int
    receiver: int
    which: int = 0


Decision: TypeAlias = Do | Flush | Deliver


@attrs.frozen(cache_hash=True)
class ExchangeState:
    """All there is at one moment: an immutable value, equal to others by what is in it.

    ``held[w]`` are the capabilities (and the messages of local edges) of worker ``w``, ``messages`` those in flight,
    ``unsaid[w]`` what it did since its last batch, ``queues[s * workers + r]`` the batches on their way from ``s`` to ``r``,
    ``views[w]`` what it counts, and ``exchanges[w]`` its end of the protocol, which is a function of the rest and of how many
    batches it ``sent``.
    """

    held: tuple[Bag, ...]
    messages: Bag
    unsaid: tuple[Bag, ...]
    queues: tuple[Queue, ...]
    views: tuple[Bag, ...]
    sent: tuple[int, ...]
    exchanges: tuple[ProgressExchange[Pointstamp], ...] = attrs.field(eq=False, repr=False)

    def truth(self) -> Bag:
        """Return the true counts of all pointstamps."""
        found = self.messages
        for held in self.held:
            found = _plus(found, held)
        return found


def _at(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])


class ExchangeRules:
    """What may happen among ``workers`` over a graph, and what must hold; ``times`` are those to which operators may go on.

    To break a rule on purpose, derive from it and override ``initial_count``, ``permit``, ``pack``, ``deliverable`` or
    ``receive``; to see what comes of trackers that were told something else than the truth, give another graph as
    ``believed``.

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
        self._believed = graph if believed is None else believed
        self._tracker = self._believed.build()
        self._counted: Bag = _EMPTY
        self._frontiers: dict[Bag, dict[Location, tuple[Any, ...]]] = {_EMPTY: {}}
        self._moved: set[tuple[Bag, Bag]] = set()
        self._fine: set[tuple[str, Bag, Bag]] = set()  # what was checked before: (invariant, what it holds of, and by what)

    # -- the rules -------------------------------------------------------------------------------------------------------

    def initial_count(self) -> int:
        """Return how often every view counts the minimum at each output to begin with: once for each worker."""
        return self.workers

    def permit(self, state: ExchangeState, worker: int, statement: Statement) -> None:
        """Raise ``ProgressError`` unless a worker may say so: each increment needs a capability or a message (OC2, OC4)."""
        owned = dict(_plus(state.held[worker], state.messages))
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
        return ExchangeState((held,) * k, _EMPTY, (_EMPTY,) * k, ((),) * (k * k), (view,) * k, (0,) * k, exchanges)

    def later(self, time: Any) -> list[Any]:
        """Return a time and those of ``times`` that are later."""
        return [time, *(other for other in self.times if time <= other and time != other)]

    def statements(self, state: ExchangeState, worker: int) -> Iterator[Statement]:
        """Return what a worker might do next, for each thing it holds and each message it might consume."""
        for location, time in self._ordered(state.held[worker]):
            if isinstance(location, Source):
                yield from self._with_capability(location, time)
        for location, time in self._ordered(_plus(state.messages, state.held[worker])):
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
            held=_at(state.held, worker, _plus(state.held[worker], private)),
            messages=_plus(state.messages, shared),
            unsaid=_at(state.unsaid, worker, _plus(state.unsaid[worker], updates)),
            exchanges=_at(state.exchanges, worker, exchange),
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
        return attrs.evolve(
            state,
            unsaid=_at(state.unsaid, worker, _EMPTY),
            queues=tuple(queues),
            views=_at(state.views, worker, _plus(state.views[worker], batch.updates)),
            sent=_at(state.sent, worker, state.sent[worker] + 1),
            exchanges=_at(state.exchanges, worker, exchange),
        )

    def _deliver(self, state: ExchangeState, decision: Deliver) -> ExchangeState:
        place, receiver = decision.sender * self.workers + decision.receiver, decision.receiver
        possible = self.deliverable(state.queues[place])
        if decision.which >= len(possible):
            raise ProgressError(f"nothing is on its way from worker {decision.sender} to worker {receiver}")
        batch, left = possible[decision.which]
        exchange = copy.deepcopy(state.exchanges[receiver])
        updates = self.receive(exchange, batch)
        return attrs.evolve(
            state,
            queues=_at(state.queues, place, left),
            views=_at(state.views, receiver, _plus(state.views[receiver], updates)),
            exchanges=_at(state.exchanges, receiver, exchange),
        )

    # -- what must hold --------------------------------------------------------------------------------------------------

    def check(self, state: ExchangeState, before: ExchangeState | None = None) -> None:
        """Raise :class:`~timely.errors.InvariantViolation` unless all invariants hold of a state, and of the step to it."""
        truth = state.truth()
        if any(count < 0 for bag in (truth, *state.held) for _, count in bag):
            raise InvariantViolation("I1", f"a true count is negative: {dict(truth)}")
        for worker in range(self.workers):
            self._check_conservation(state, worker, truth)
            self._check_justified(state, worker)
            if before is None or before.views[worker] != state.views[worker]:
                self._check_step(state.views[worker], state.views[worker] if before is None else before.views[worker])
            self._check_safety(state, worker, truth)

    def _check_conservation(self, state: ExchangeState, worker: int, truth: Bag) -> None:
        total = state.views[worker]
        for sender in range(self.workers):
            for batch in state.queues[sender * self.workers + worker]:
                total = _plus(total, batch.updates)
            total = _plus(total, state.unsaid[sender])
        if total != truth:
            message = f"worker {worker} has heard and will hear {dict(total)}, but there is {dict(truth)}"
            raise InvariantViolation("X3", message)

    def _check_justified(self, state: ExchangeState, worker: int) -> None:
        if any(count > 0 for _, count in state.unsaid[worker]):
            self._justify(state, worker, state.unsaid[worker])
        for receiver in range(self.workers):
            coming = state.unsaid[worker]
            for batch in reversed(state.queues[worker * self.workers + receiver]):
                coming = _plus(coming, batch.updates)
                self._justify(state, worker, coming)

    def _justify(self, state: ExchangeState, worker: int, coming: Bag) -> None:
        if ("I3", coming, state.held[worker]) in self._fine:
            return
        held = dict(state.held[worker])
        for place, count in coming:
            if count > max(0, held.get(place, 0)):
                below = [start for start, n in coming if n < 0] + list(held)
                if not any(start != place and self.oracle.leads(start, place) for start in below):
                    raise InvariantViolation("I3", f"worker {worker} tells of {as_code(place)} without a right to it")
        self._fine.add(("I3", coming, state.held[worker]))

    def _check_safety(self, state: ExchangeState, worker: int, truth: Bag) -> None:
        view = state.views[worker]
        if ("S0", truth, view) not in self._fine:
            for (location, time), _ in truth:
                self._check_reached(worker, view, location, time)
            self._fine.add(("S0", truth, view))
        for sender in range(self.workers):
            for batch in state.queues[sender * self.workers + worker]:
                for (location, time), _ in batch.updates:
                    if not any(shown <= time for shown in self.frontiers(view)[location]):
                        stamp = as_code((location, time))
                        raise InvariantViolation("I6", f"{stamp} is on its way to worker {worker}, which takes it for gone")

    def _check_reached(self, worker: int, view: Bag, location: Location, time: Any) -> None:
        """Check that what is there, and all that it could result in, lies beyond the frontiers that a worker is shown."""
        frontiers = self.frontiers(view)
        for end, summaries in self.oracle.summaries[location].items():
            for arrival in (summary.results_in(time) for summary in summaries):
                if arrival is not None and not any(shown <= arrival for shown in frontiers[end]):
                    raise InvariantViolation(
                        "S0",
                        f"worker {worker} takes {as_code((end, arrival))} for gone, but there is {as_code((location, time))}; "
                        f"its frontier is {as_code(frontiers[end])}",
                    )

    def _check_step(self, view: Bag, before: Bag) -> None:
        """Check that no frontier went back from one view to the next, and that the tracker gets from the one to the other."""
        if (before, view) in self._moved:
            return
        self._moved.add((before, view))
        old = self.frontiers(before)
        changes = self._count(view, before)
        new = self.frontiers(view)
        for location, times in new.items():
            for time in times:
                if not any(shown <= time for shown in old[location]):
                    message = f"the frontier at {location} went back to {as_code(time)} from {as_code(old[location])}"
                    raise InvariantViolation("I5", message)
        told = frozenset((target, time, diff) for target, time, diff in changes)
        observed = self._believed.observed()
        gone = {(target, t, -1) for target in observed for t in old[target] if t not in new[target]}
        come = {(target, t, 1) for target in observed for t in new[target] if t not in old[target]}
        if told != gone | come:
            raise InvariantViolation("G10", f"the tracker tells of {set(told)}, but its frontiers changed by {gone | come}")

    def frontiers(self, view: Bag) -> dict[Location, tuple[Any, ...]]:
        """Return the frontiers that the tracker shows of a view, once they are known to be exact (G9)."""
        found = self._frontiers.get(view)
        if not found:
            self._count(view, self._counted)
            found = {location: self._tracker.frontier(location).elements for location in self.oracle.locations}
            if self._believed is self.graph:
                for location, times in self.oracle.frontiers(dict(view)).items():
                    if set(found[location]) != times:
                        message = f"the frontier at {location} is {found[location]}, not {times}, in {dict(view)}"
                        raise InvariantViolation("G9", message)
            self._frontiers[view] = found
        return found

    def _count(self, view: Bag, before: Bag) -> list[Change]:
        """Take the tracker from wherever it is to one view and then to the next; return the changes of the latter step."""
        changes: list[Change] = []
        for start, end in ((self._counted, before), (before, view)):
            for (location, time), diff in _plus(end, ((pointstamp, -count) for pointstamp, count in start)):
                self._tracker.update(location, time, diff)
            changes = list(self._tracker.propagate())
        self._counted = view
        return changes


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
    from timely.progress.location import Source
    from timely.testing.exchange import Do, ExchangeSimulation, Flush
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
