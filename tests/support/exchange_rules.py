"""The protocol by which workers exchange progress, as states and the decisions between them (Naiad section 3.3).

:class:`ExchangeRules` drives the real ``ProgressExchange``. A message belongs to no worker until one consumes it, which covers
every routing; a message on a local edge stays with its sender.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import attrs
from hypothesis import strategies as st

from timely.errors import InvariantViolation, ProgressError
from timely.order import linear_extension
from timely.progress import ChangeBatch, Location, ProgressBatch, ProgressExchange, Source, Target, Tracker, time_domain
from timely.testing import Change, GraphSpec, Oracle, Pointstamp, times

Statement: TypeAlias = tuple[Change, ...]
"""What one activation did, atomically: ``(location, time, by how much its count changed)``."""

Bag: TypeAlias = frozenset[tuple[Pointstamp, int]]
"""Counts that are not zero."""

Batch: TypeAlias = ProgressBatch[Pointstamp]
Queue: TypeAlias = tuple[Batch, ...]

EMPTY: Bag = frozenset()


def plus(bag: Bag, updates: Iterable[tuple[Pointstamp, int]]) -> Bag:
    """Return the counts of a bag after some changes."""
    if not updates:
        return bag
    counts = dict(bag)
    for pointstamp, diff in updates:
        counts[pointstamp] = counts.get(pointstamp, 0) + diff
    return frozenset(item for item in counts.items() if item[1])


def minus(bag: Bag, other: Bag) -> Bag:
    """Return by how much the counts of one bag are above those of another."""
    return plus(bag, ((pointstamp, -count) for pointstamp, count in other))


def copied(exchange: ProgressExchange[Pointstamp]) -> ProgressExchange[Pointstamp]:
    """Return a copy that shares what is immutable: a deep copy took a third of a search."""
    twin = copy.copy(exchange)
    twin.changes = ChangeBatch(exchange.changes)
    twin._expected = exchange._expected.copy()
    return twin


def replaced(values: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    """Return ``values`` with another value at ``index``."""
    return (*values[:index], value, *values[index + 1 :])


@attrs.frozen
class Do:
    """The decision that a worker makes one atomic statement.

    >>> from timely.progress import Source
    >>> Do(0, ((Source(0, 0), 3, -1),)).worker
    0
    """

    worker: int
    statement: Statement


@attrs.frozen
class Flush:
    """The decision that a worker sends all others what it has done since its last flush.

    >>> Flush(1)
    Flush(worker=1)
    """

    worker: int


@attrs.frozen
class Deliver:
    """The decision that a batch arrives; ``which`` of those that the rules allow (FIFO: the oldest).

    >>> Deliver(0, 1)
    Deliver(sender=0, receiver=1, which=0)
    """

    sender: int
    receiver: int
    which: int = 0


Decision: TypeAlias = Do | Flush | Deliver


@attrs.frozen(cache_hash=True)
class ExchangeState:
    """All there is at one moment: an immutable value, so that a search recognises where it has been.

    ``held[w]`` are the capabilities (and the messages of local edges) of worker ``w``, ``messages`` those in flight,
    ``unsent[w]`` what it did since its last batch, ``queues[s * workers + r]`` the batches in flight from ``s`` to ``r``,
    ``views[w]`` what it counts. ``exchanges[w]`` is its end of the protocol: a function of the rest and of the batches ``sent``.
    """

    held: tuple[Bag, ...]
    messages: Bag
    unsent: tuple[Bag, ...]
    queues: tuple[Queue, ...]
    views: tuple[Bag, ...]
    sent: tuple[int, ...]
    exchanges: tuple[ProgressExchange[Pointstamp], ...] = attrs.field(eq=False, repr=False)

    def truth(self) -> Bag:
        """Return the true counts of all pointstamps."""
        result = self.messages
        for held in self.held:
            result = plus(result, held)
        return result

    def coming(self, sender: int, receiver: int, workers: int) -> list[Bag]:
        """Return what ``receiver`` has still to receive from ``sender``: what is unsent, and with it ever older batches."""
        collected = [self.unsent[sender]]
        for batch in reversed(self.queues[sender * workers + receiver]):
            collected.append(plus(collected[-1], batch.updates))
        return collected


class ExchangeRules:
    """What may happen among ``workers`` over a graph; ``times`` are those to which operators may advance.

    To break a rule on purpose, override ``initial_count``, ``permit``, ``pack``, ``deliverable``, ``receive`` or ``tracker``.

    >>> from timely.testing import NodeSpec
    >>> rules = ExchangeRules(GraphSpec(int, (NodeSpec(0, 1, {}),), ()), 2)
    >>> state = rules.after(rules.initial(), Do(0, ((Source(0, 0), 0, -1),)))
    >>> list(rules.exchanges(state)), list(rules.statements(state, 0))
    ([Flush(worker=0)], [])
    """

    def __init__(self, graph: GraphSpec, workers: int, times: Sequence[Any] = ()) -> None:
        self.graph, self.workers = graph, workers
        self.times = linear_extension(times)
        self.oracle = Oracle(graph)
        self._local = {end for source, end, local in graph.edges if local}
        self._readers: dict[Location, list[Target]] = {}
        self._feeds: dict[Location, Source] = {}
        for source, target, _ in graph.edges:
            self._readers.setdefault(source, []).append(target)
            self._feeds[target] = source

    # -- the rules -------------------------------------------------------------------------------------------------------

    def initial_count(self) -> int:
        """Return how often every view counts the minimum at each output to begin with: once for each worker."""
        return self.workers

    def permit(self, state: ExchangeState, worker: int, statement: Statement) -> None:
        """Raise ``ProgressError`` if an increment has no capability or message (OC2), or a decrement goes below zero (OC4)."""
        owned = dict(plus(state.held[worker], state.messages))
        for location, time, diff in statement:
            if diff > 0:
                self._permit(state, worker, statement, location, time)
            else:
                owned[location, time] = owned.get((location, time), 0) + diff
                if owned[location, time] < 0:
                    raise ProgressError(f"worker {worker} has no {(location, time)} to drop or consume (OC4)")

    def pack(self, batch: Batch) -> Queue:
        """Return what is sent of a batch: all of it, as one."""
        return (batch,)

    def deliverable(self, queue: Queue) -> list[tuple[Batch, Queue]]:
        """Return which batches may arrive next, each with those left in flight: the oldest."""
        return [(queue[0], queue[1:])] if queue else []

    def receive(self, exchange: ProgressExchange[Pointstamp], batch: Batch) -> Iterable[tuple[Pointstamp, int]]:
        """Return what a worker counts of a batch that arrives."""
        return exchange.receive(batch)

    def tracker(self, believed: GraphSpec) -> Tracker[Any]:
        """Return the tracker that counts every view; ``believed`` is the graph that it is given."""
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
        raise ProgressError(f"worker {worker} has neither capability nor message for {(location, time)} (OC2)")

    # -- what may happen -------------------------------------------------------------------------------------------------

    def initial(self) -> ExchangeState:
        """Return the state at the start: one capability at the minimum for every output and worker."""
        minimum = time_domain(self.graph.time).minimum
        start = [(location, minimum) for location in self.oracle.locations if isinstance(location, Source)]
        held: Bag = frozenset((pointstamp, 1) for pointstamp in start)
        view: Bag = frozenset((pointstamp, self.initial_count()) for pointstamp in start)
        k = self.workers
        exchanges = tuple(ProgressExchange[Pointstamp](w, k) for w in range(k))
        return ExchangeState((held,) * k, EMPTY, (EMPTY,) * k, ((),) * (k * k), (view,) * k, (0,) * k, exchanges)

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

    def exchanges(self, state: ExchangeState) -> Iterator[Decision]:
        """Return the decisions that only send or deliver batches."""
        for worker in range(self.workers):
            if state.unsent[worker]:
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
        exchange = copied(state.exchanges[worker])
        exchange.changes.extend(updates)
        return attrs.evolve(
            state,
            held=replaced(state.held, worker, plus(state.held[worker], private)),
            messages=plus(state.messages, shared),
            unsent=replaced(state.unsent, worker, plus(state.unsent[worker], updates)),
            exchanges=replaced(state.exchanges, worker, exchange),
        )

    def _flush(self, state: ExchangeState, worker: int) -> ExchangeState:
        exchange = copied(state.exchanges[worker])
        batch = exchange.flush()
        flushed = frozenset(batch.updates if batch is not None else ())
        if flushed != state.unsent[worker]:
            raise InvariantViolation("X3", f"worker {worker} did {dict(state.unsent[worker])}, but sends {dict(flushed)}")
        if batch is None:
            return state
        queues = list(state.queues)
        for receiver in range(self.workers):
            if receiver != worker:
                queues[worker * self.workers + receiver] += self.pack(batch)
        after = attrs.evolve(
            state,
            unsent=replaced(state.unsent, worker, EMPTY),
            queues=tuple(queues),
            sent=replaced(state.sent, worker, state.sent[worker] + 1),
            exchanges=replaced(state.exchanges, worker, exchange),
        )
        return self._counted(after, worker, batch.updates)

    def _deliver(self, state: ExchangeState, decision: Deliver) -> ExchangeState:
        place, receiver = decision.sender * self.workers + decision.receiver, decision.receiver
        possible = self.deliverable(state.queues[place])
        if decision.which >= len(possible):
            raise ProgressError(f"nothing is in flight from worker {decision.sender} to worker {receiver}")
        batch, left = possible[decision.which]
        exchange = copied(state.exchanges[receiver])
        updates = self.receive(exchange, batch)
        after = attrs.evolve(
            state,
            queues=replaced(state.queues, place, left),
            exchanges=replaced(state.exchanges, receiver, exchange),
        )
        return self._counted(after, receiver, updates)

    def _counted(self, state: ExchangeState, worker: int, updates: Iterable[tuple[Pointstamp, int]]) -> ExchangeState:
        return attrs.evolve(state, views=replaced(state.views, worker, plus(state.views[worker], updates)))


@st.composite
def histories(draw: st.DrawFn, spec: Any, graph: GraphSpec, *, max_size: int = 20) -> list[Statement]:
    """Make legal histories of one worker: atomic statements, each permitted by what it held or consumed (OC2).

    At the start each output has one capability at the minimum. Summed up in order, no count is ever negative.
    """
    rules = ExchangeRules(graph, 1, draw(st.lists(times(spec), max_size=3, unique=True)))
    state = rules.initial()
    made: list[Statement] = []
    for _ in range(draw(st.integers(0, max_size))):
        statements = list(rules.statements(state, 0))
        if not statements:
            break
        made.append(draw(st.sampled_from(statements)))
        state = rules.after(state, Do(0, made[-1]))
    return made
