"""``Derivations``: what the operators of a program have sent, and which records one of them follows from.

It taps the outputs of operators, so that a program that nobody asks pays nothing. Of a record it takes the earliest way to it, so
that the way through a loop goes back round by round. It may miss what a function of one's own depends on: who asks checks that.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from html import escape
from itertools import chain, islice
from typing import Any, Final, TypeAlias, TypeVar

import attrs

from timely.dataflow import Operator, ScopeBuilder
from timely.dataflow.channel import Pusher
from timely.differential.operators.join_results import GroupShape, Pairing
from timely.differential.updates.updates import Container, Update
from timely.errors import brief
from timely.order import Product
from timely.progress import Source, Target
from timely.scopes import EGRESS, INGRESS, Subgraph

Record: TypeAlias = Any
Scope: TypeAlias = Subgraph[Any, Any]
Rank: TypeAlias = tuple[Any, ...]
"""The rounds of the loops around a record."""

Inputs: TypeAlias = dict[str, dict[Record, int]]
"""Rows of inputs, by name, with their counts."""

Test: TypeAlias = Callable[[Record], object]

V = TypeVar("V")

_SHOWN: Final = 5
"""Records that are shown of those that are dropped."""

_LONG: Final = 200
"""Characters that are shown of one."""

_TRIED: Final = 100
"""Values of others that a record is tried with, or fewer where that is more often than ``_TRIALS`` for an operator."""

_TRIALS: Final = 100_000

_WORK: Final = 1_000_000
"""Trials and records after which no further operator is looked at: some seconds."""

_TRIPS: Final = 20
"""Looks at an operator: in a loop, rounds back."""

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


@attrs.frozen
class Provenance:
    """Why a row is there: over the rows of ``inputs`` alone, with their counts, the result has it; without any of them not.

    ``steps`` is how operators make it of them.
    """

    row: Record
    inputs: Inputs
    steps: Derivation = attrs.field(eq=False, repr=False)

    def __str__(self) -> str:
        lines = [f"{brief(self.row)} follows from"]
        for name, rows in self.inputs.items():
            lines += [f"  {name}: {brief(row)}" + (f", {count} times" if count != 1 else "") for row, count in rows.items()]
        return "\n".join(lines if self.inputs else [f"{brief(self.row)} follows from no row"])

    def _repr_html_(self) -> str:
        rows = (f"<div style='padding-left:{depth}em'>{escape(each.line)}</div>" for depth, each in self.steps.lines())
        return f"<pre>{escape(str(self))}</pre>{''.join(rows)}"


@attrs.frozen
class Drop:
    """An operator, at a line of a program or in the query of ``view``, why it drops candidates, and some of these."""

    operator: str
    reason: str
    rows: tuple[Record, ...]
    columns: tuple[Any, ...] = ()
    """Of a query, those of the rows."""
    view: str = ""
    at: str = ""

    def __str__(self) -> str:
        names = [column.name for column in self.columns]
        fields = [", ".join(f"{name} = {brief(value)}" for name, value in zip(names, row)) for row in self.rows if names]
        shown = fields if self.view else list(map(brief, self.rows))
        shown = [each if len(each) < _LONG else f"{each[:_LONG]} ..." for each in shown if each]
        where = f"{self.view and f' in {self.view}'}{self.at and f' at {self.at}'}"
        return "\n    ".join([f"{self.operator}{where}: {self.reason}", *shown])


@attrs.frozen
class WhyNot:
    """Why no row is as ``asked``: at the first of ``drops`` the last candidates are dropped; others follow from that."""

    asked: str
    drops: tuple[Drop, ...]

    def __str__(self) -> str:
        return "\n  ".join([f"no row {self.asked}:", *map(str, self.drops)])


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

    def count(self, record: Record) -> int:
        """Return how often it has a record when all rounds are over."""
        self.records()
        counts = self._counts.get(record)
        return sum(counts.values()) if isinstance(counts, dict) else counts is not None

    def present(self) -> list[Record]:
        """Return the records that it has when all rounds are over."""
        return [record for record in self.records() if self.count(record) > 0]

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
        elif callable(function):
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


# -- what is not there ---------------------------------------------------------------------------------------------


def drops(result: SentRecords, asked: Test, like: Record) -> list[Drop]:
    """Return where the last candidates of records that pass a test are dropped, operators before those behind them.

    None where a record passes. Parts of ``like`` are tried too.
    """
    search = _Drops(asked, like)
    if any(map(search.asked, result.present())):
        return []
    search.from_result(result, search.asked, False)
    if not any(drop.rows for drop in search.drops.values()):
        search.from_result(result, lambda record: True, True)
        reason = "drops these, of which some may lead there"
        search.drops = {key: attrs.evolve(drop, reason=reason) if key[1] else drop for key, drop in search.drops.items()}
    last, some = ([drop for (_, lost), drop in search.drops.items() if lost is which] for which in (False, True))
    return sorted(last[::-1] + some, key=lambda drop: not drop.rows)


class _Drops:
    """Goes from a result towards the inputs, with what records must be like there so that the result has what is asked for.

    A record that was dropped is tried with the partners and the results that others have.
    """

    def __init__(self, asked: Test, like: Record) -> None:
        self._asked = asked
        self.drops: dict[tuple[SentRecords, bool], Drop] = {}
        self._left: deque[tuple[SentRecords, Test, bool]] = deque()
        self._visits: Counter[tuple[SentRecords, bool]] = Counter()
        self._work = 0
        self._partners: dict[SentRecords, list[list[Any]]] = {}
        self._like = [like]
        for part in self._like:
            self._like += part if isinstance(part, tuple) else ()

    def asked(self, record: Record) -> bool:
        """Return whether a record is asked for."""
        try:
            return bool(self._asked(record))
        except Exception:  # of one of another shape
            return False

    def from_result(self, result: SentRecords, test: Test, lost: bool) -> None:
        """Note the operators that drop the last records that pass a test; or with ``lost``, some of them."""
        self._further([result], test, lost)
        while self._left and self._work < _WORK:
            self._look(*self._left.popleft())

    def _look(self, sent: SentRecords, test: Test, lost: bool) -> None:
        function, sources = sent.operator.info.state.function, [each for port in sent.inputs for each in port]
        self._visits[sent, lost] += 1
        self._work += sum(len(each.records()) for each in sources)
        if self._visits[sent, lost] > _TRIPS:
            return
        if not sources:
            self._note(sent, lost, "no such row", ())
        elif isinstance(function, Pairing):
            self._join(sent, function, test, lost)
        elif isinstance(function, GroupShape):
            self._group(sent, function, sources[0], test, lost)
        elif callable(function):
            self._linear(sent, function, sources[0], test, lost)
        else:
            rows = [record for each in sources for record in each.present() if test(record)]
            below = [each for each in sources if any(each.count(record) < 0 for record in rows)]
            while below and below[0].operator.info.name == "negate":
                below = list(below[0].inputs[0])
            if rows and not lost:
                self._note(sent, lost, f"{below[0].operator.info.name} takes it away" if below else "not in the result", rows)
            else:
                self._further(sources, test, lost)

    def _note(self, sent: SentRecords, lost: bool, reason: str, rows: Sequence[Record]) -> None:
        info, before = sent.operator.info, self.drops.get((sent, lost))
        if rows or not (lost or before):
            self.drops[sent, lost] = Drop(info.name, reason, tuple(rows)[:_SHOWN], at=str(info.origin or ""))

    def _further(self, sources: Iterable[SentRecords], test: Test, lost: bool) -> None:
        known = cache(test)  # in a loop each would ask for many of the round before
        self._left += [(each, known, lost) for each in sources]

    def _tried(self, values: Iterable[Any]) -> list[Any]:
        return list(islice(dict.fromkeys(chain(self._like, values)), _TRIED))

    def _linear(self, sent: SentRecords, function: Any, source: SentRecords, test: Test, lost: bool) -> None:
        made = {record: function([(record, 1)]) for record in source.present()}
        dropped = [record for record, news in made.items() if not news]
        rows = list(filter(test, dropped))
        if rows or (dropped and any(new != record for record, news in made.items() for new, _ in news)):  # else it is a filter
            self._note(sent, lost, "drops them" if rows else f"makes nothing of {len(dropped)} records", rows)
        if lost or not rows:
            self._further([source], lambda record: any(map(test, _made(function, record))), lost)

    def _group(self, sent: SentRecords, grouping: GroupShape, source: SentRecords, test: Test, lost: bool) -> None:
        values = [new[1] for new in sent.records()] if grouping.results else []
        values += [record[1] for record in _relaxed(source, set())] if grouping.pairs else []
        tried, keys = self._tried(values), dict[Record, bool]()

        def leads(record: Record) -> bool:
            if not grouping.results:
                return bool(test(record))
            key = record[0] if grouping.pairs else record
            if key not in keys:
                keys[key] = any(test((key, value)) for value in tried)
            return keys[key]

        rows = list(filter(leads, source.present()))
        others = [new for new in sent.present() if grouping.results and keys.get(new[0])]
        if rows and not lost:
            self._note(sent, lost, "others of their key" if others else "nothing of these", others or rows)
        chosen = grouping.pairs and any(map(test, rows))  # among others
        if not chosen:
            self._further([source], leads, lost or bool(rows))

    def _join(self, sent: SentRecords, pairing: Pairing, test: Test, lost: bool) -> None:
        sides = [port[0] for port in sent.inputs]

        def parts(place: int, record: Record) -> tuple[Any, Any]:
            return record if pairing.pairs[place] else (record, None)

        def meets(place: int, record: Record, partners: Iterable[Any]) -> bool:
            made: list[Update] = []
            key, value = parts(place, record)
            for partner in partners:
                try:
                    pairing.collect(made, key, *((partner, value) if place else (value, partner)), 1)
                except Exception:  # of values that never met
                    continue
            return any(test(new) for new, _ in made)

        def among(place: int, by_key: Mapping[Any, Sequence[Any]], record: Record) -> bool:
            return meets(place, record, by_key.get(parts(place, record)[0], ()))

        if sent not in self._partners:
            self._partners[sent] = [
                self._tried(parts(place, record)[1] for record in _relaxed(side, set())) for place, side in enumerate(sides)
            ]
        present = [side.present() for side in sides]
        most = max(_TRIALS // (len(present[0]) + len(present[1]) + 1), 1)
        tried = [values[:most] for values in self._partners[sent]]
        self._work += sum(map(len, present)) * min(most, _TRIED)
        rows = [[each for each in present[place] if meets(place, each, tried[1 - place])] for place in (0, 1)]
        for here in sorted((0, 1), key=lambda place: -len(rows[place]) / (len(present[place]) or 1)):  # last those that are few
            there, by_key = 1 - here, dict[Any, list[Any]]()
            for key, value in (parts(here, record) for record in rows[here]):
                by_key.setdefault(key, []).append(value)
            if rows[here] and not lost:
                self._note(sent, lost, "no partner", rows[here])
            if rows[here]:
                self._further([sides[there]], partial(among, there, by_key), lost)
            if lost or not any(rows):
                self._further([sides[here]], partial(meets, here, partners=tried[there]), lost)


def _made(function: Any, record: Record) -> list[Record]:
    """Return what a linear operator makes of a record, or that itself where it makes nothing."""
    try:
        made = function([(record, 1)])
    except Exception:  # of one that a filter before it drops
        return []
    return [new for new, diff in made if diff > 0] if made else [record]


def _relaxed(sent: SentRecords, seen: set[SentRecords]) -> Iterator[Record]:
    """Yield the records that there would be if linear operators dropped none."""
    function, sources = sent.operator.info.state.function, [each for port in sent.inputs for each in port]
    if not sources or sent in seen or isinstance(function, Pairing | GroupShape):
        yield from sent.records()
        return
    seen.add(sent)
    for each in sources:
        for record in _relaxed(each, seen):
            yield from _made(function, record) if callable(function) else [record]
