"""``Derivations``: what the operators of a program have sent, and which records one of them follows from.

It taps the outputs of operators, so that a program that nobody asks pays nothing. Of a record it takes the earliest way to it, so
that the way through a loop goes back round by round. It may miss what a function of one's own depends on: who asks checks that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import attrs

from timely.dataflow import Operator, ScopeBuilder
from timely.dataflow.channel import Pusher
from timely.differential.operators.join_results import Pairing
from timely.differential.updates.updates import Container, Update
from timely.errors import brief
from timely.order import Product
from timely.progress import Source, Target
from timely.scopes import EGRESS, INGRESS, Subgraph

Record: TypeAlias = Any
Scope: TypeAlias = Subgraph[Any, Any]
Rank: TypeAlias = tuple[Any, ...]
"""The rounds of the loops around a record."""

V = TypeVar("V")

_PLUMBING: Final = frozenset({"concat", "feedback", "consolidate", "arrange_by_key", "arrange_by_self", "inspect_batch"})


@attrs.frozen(eq=False)
class Derivation:
    """A record that an operator has made, or that an input has, with those that it follows from; ``round`` is that of a loop."""

    operator: str
    at: str
    """The line of the program, or what a query has there."""
    record: Record
    round: Rank
    inputs: tuple[Derivation, ...] = attrs.field(repr=False)

    def lines(self) -> Iterator[tuple[int, Derivation]]:
        """Yield each step once, with its depth in the tree."""
        left, seen = [(0, self)], set[int]()
        while left:
            depth, each = left.pop()
            if id(each) not in seen:
                seen.add(id(each))
                yield depth, each
                left += [(depth + 1, inner) for inner in reversed(each.inputs)]

    def __reduce__(self) -> tuple[Any, ...]:  # as lists, since the rounds of a loop are nested deeper than pickle goes
        steps = [each for _, each in self.lines()]
        places = {id(each): place for place, each in enumerate(steps)}
        parts = [(each.operator, each.at, each.record, each.round) for each in steps]
        return _restored, (parts, [[places[id(inner)] for inner in each.inputs] for each in steps])

    def __str__(self) -> str:  # indented no further than this: the text of many rounds would be quadratic
        return "\n".join("  " * min(depth, 30) + each.line for depth, each in self.lines())

    @property
    def line(self) -> str:
        """The step in one line."""
        when = f" in round {', '.join(map(str, self.round))}" if self.round else ""
        return f"{brief(self.record)} by {self.operator}{when}{self.at and f' at {self.at}'}"


def _restored(parts: Sequence[tuple[str, str, Record, Rank]], inputs: Sequence[Sequence[int]]) -> Derivation:
    steps = [Derivation(*each, ()) for each in parts]
    for each, places in zip(steps, inputs):
        object.__setattr__(each, "inputs", tuple(steps[place] for place in places))
    return steps[0]


class SentRecords(Pusher[Any]):
    """What one output of an operator has sent, added up when somebody asks."""

    __slots__ = ("_batches", "_by_key", "_counts", "_left", "_made_of", "_order", "_taken", "inputs", "operator")

    def __init__(self, operator: Operator[Any]) -> None:
        self.operator = operator
        self.inputs: Sequence[Sequence[SentRecords]] = ()
        self._batches: list[tuple[object, Container]] = []
        self._counts: dict[Record, Rank | dict[Rank, int]] = {}
        self._order: list[Record] = []
        self._by_key: dict[Record, list[Record]] = {}
        self._left: dict[Record, list[Record]] = {}
        self._made_of: dict[Record, list[tuple[Record, ...]]] = {}  # of the records of each input
        self._taken: dict[str, int] = {}

    def push(self, time: object, batch: Container, records: int) -> None:
        self._batches.append((time, batch))

    def rank(self, record: Record) -> Rank | None:
        """Return the first round in which it has a record, or ``None``."""
        self.records()
        counts = self._counts.get(record)
        if not isinstance(counts, dict):
            return counts
        count = 0
        for rank in sorted(counts):
            count += counts[rank]
            if count > 0:
                return rank
        return None

    def records(self) -> list[Record]:
        """Return all records that were ever sent, in the order in which they came first."""
        counts, batches, self._batches = self._counts, self._batches, []
        for time, batch in batches:
            rank = _rank(time)
            for record, diff in batch if self.inputs else (each for each in batch if type(each) is tuple and len(each) == 2):
                before = counts.get(record)
                if before is None:
                    self._order.append(record)
                    counts[record] = rank if diff == 1 else {rank: diff if type(diff) is int else 1}
                    continue
                if not isinstance(before, dict):
                    before = counts[record] = {before: 1}
                before[rank] = before.get(rank, 0) + (diff if type(diff) is int else 1)
        return self._order

    def with_key(self, key: object, pairs: bool = True) -> list[Record]:
        """Return the records that are pairs with a key, or no ``pairs``, and that key."""
        if not pairs:
            return [] if self.rank(key) is None else [key]
        for record in self._new("keys", self.records()):
            self._by_key.setdefault(_key(record), []).append(record)
        return self._by_key.get(key, [])

    def origins(self, record: Record, wide: bool) -> Way:
        """Return what a record follows from: of several ways the earliest, or if ``wide``, all, and all records with its key."""
        function, sources = self.operator.info.state.function, [each for port in self.inputs for each in port]
        if isinstance(function, Pairing):
            self._join(function, *(port[0] for port in self.inputs))
        elif function is not None:
            if sources[0].rank(record) is not None and any(made == record for made, _ in function([(record, 1)])):
                return ((sources[0], record),)
            for other in self._new("records", sources[0].records()):
                for made, _ in function([(other, 1)]):
                    self._made_of.setdefault(made, []).append((other,))
        else:
            there: list[Way] = [((each, record),) for each in sources if each.rank(record) is not None]
            if there and not (wide and len(sources) == 1):
                return min(there, key=_latest)
            keyed = [(each, other) for each in sources for other in each.with_key(_key(record))]
            return tuple((each, other) for each, other in keyed if each.rank(other) is not None)
        firsts = [port[0] for port in self.inputs]
        ways = [tuple(zip(firsts, way)) for way in self._made_of.get(record, ())]
        ways = [way for way in ways if all(each.rank(other) is not None for each, other in way)]
        return tuple(dict.fromkeys(one for way in ways for one in way)) if wide else min(ways, key=_latest, default=())

    def _join(self, pairing: Pairing, left: SentRecords, right: SentRecords) -> None:
        collect, (left_pairs, right_pairs) = pairing

        def add(key: object, one: Record, other: Record) -> None:
            made: list[Update] = []
            collect(made, key, one[1] if left_pairs else None, other[1] if right_pairs else None, 1)
            for record, _ in made:
                self._made_of.setdefault(record, []).append((one, other))

        for other in self._new("right", right.records()):
            key = other[0] if right_pairs else other
            for one in self._left.get(key, ()):
                add(key, one, other)
        for one in self._new("left", left.records()):
            key = one[0] if left_pairs else one
            self._left.setdefault(key, []).append(one)
            for other in right.with_key(key, right_pairs):
                add(key, one, other)

    def _new(self, name: str, items: list[V]) -> list[V]:
        begin, self._taken[name] = self._taken.get(name, 0), len(items)
        return items[begin:] if begin else items[:]


Way: TypeAlias = tuple[tuple[SentRecords, Record], ...]
"""Records that another one is made of."""


def _rank(time: object) -> Rank:
    return (*_rank(time.outer), time.inner) if type(time) is Product else ()


def _latest(way: Way) -> Rank:
    return max((rank for each, record in way if (rank := each.rank(record)) is not None), default=())


def _key(record: Record) -> Record:
    return record[0] if isinstance(record, tuple) and len(record) == 2 else record


class Derivations:
    """Taps the outputs of the operators of a dataflow that was built, and has not run yet."""

    def __init__(self, scope: ScopeBuilder[Any]) -> None:
        self._outputs: dict[tuple[int, int], SentRecords] = {}
        self._around: dict[int, tuple[Scope, int]] = {}
        operators: list[tuple[Scope, Operator[Any]]] = []
        for around in scope.scopes:
            for child in around.children:
                self._around[id(child.scope)] = around, child.index
                if isinstance(child.scope, Operator):
                    operators.append((around, child.scope))
                    for port in child.scope.output_ports:
                        sent = self._outputs[id(child.scope), port.index] = SentRecords(child.scope)
                        port.tee.append(sent)
        for around, operator in operators:
            inputs = [list(self._sources(around, Target(operator.index, place))) for place in range(operator.inputs)]
            for port in operator.output_ports:
                self._outputs[id(operator), port.index].inputs = inputs

    def sent_by(self, scope: Scope, source: Source) -> Iterator[SentRecords]:
        """Yield what is sent at an output of a child of a scope, or comes into the scope: of nested ones by their operators."""
        child = None if source.node == INGRESS else scope.children[source.node].scope
        if child is None:
            around, index = self._around[id(scope)]
            yield from self._sources(around, Target(index, source.port))
        elif isinstance(child, Subgraph):
            yield from self._sources(child, Target(EGRESS, source.port))
        elif (id(child), source.port) in self._outputs:
            yield self._outputs[id(child), source.port]

    def _sources(self, scope: Scope, target: Target) -> Iterator[SentRecords]:
        for edge in scope.edges:
            if edge.target == target:
                yield from self.sent_by(scope, edge.source)


def origins(result: SentRecords, record: Record, *, wide: bool) -> dict[SentRecords, dict[Record, None]]:
    """Return the records of inputs that a record of a result follows from."""
    left: list[tuple[SentRecords, Record]] = [(result, record)]
    seen, leaves = set(left), dict[SentRecords, dict[Record, None]]()
    while left:
        sent, each = left.pop()
        if not sent.inputs:
            leaves.setdefault(sent, {})[each] = None
        new = [one for one in (sent.origins(each, wide) if sent.inputs else ()) if one not in seen]
        seen.update(new)
        left += new
    return leaves


def steps(result: SentRecords, record: Record) -> Derivation:
    """Return how operators have made a record, round by round."""
    made: dict[tuple[SentRecords, Record], Derivation | None] = {}
    left = [(result, record)]
    while left:
        sent, each = here = left[-1]
        parts = sent.origins(each, True) if sent.inputs else ()
        new = [one for one in parts if one not in made] if here not in made else []
        made.setdefault(here, None)  # until its inputs are made; one that leads back to it is none of its inputs
        left += new
        if not new:
            left.pop()
            if made[here] is None:
                inputs = tuple(inner for one in parts if (inner := made[one]) is not None)
                info = sent.operator.info
                through = info.name in _PLUMBING and len(inputs) == 1 and inputs[0].record == each
                made[here] = (
                    inputs[0] if through else Derivation(info.name, str(info.origin or ""), each, sent.rank(each) or (), inputs)
                )
    step = made[result, record]
    assert step is not None
    return step
