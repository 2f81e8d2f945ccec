"""``encode``: edges between nodes of any type become edges between numbers, by a dictionary that all workers share.

Each worker finds the distinct nodes of its edges and asks, for each, the worker that the node belongs to; that one
numbers what it is asked for and answers. The invariant: equal nodes have equal numbers, different nodes different ones,
and the node of number ``n`` is named on worker ``n % workers``. Numbers are dense: those of one worker are ``worker``,
``worker + workers``, and so on. A dictionary is of one time, and forgotten when that is complete; or it lasts, and then
each node is asked for once by each worker, and named once.

In a dictionary of one time, a worker of which the nodes are whole numbers that lie close together asks nobody: it tells all
workers which they are, a bit for each place (``timely.graphs.marks``). Where all do so, each works out all numbers by itself.
Else a worker is answered what it would have asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import attrs
import numpy as np
import pyarrow as pa

from timely.dataflow import Exchange, OperatorInfo, Pact, Pipeline, Stream
from timely.dataflow.partition_arrays import owners_of, rows_by_worker
from timely.graphs.gather import gather
from timely.graphs.input import edge_columns, next_time, node_routes, same_type, vertex_columns, weight_column
from timely.graphs.marks import Marks, mark, numbered, union
from timely.graphs.numbers import Found, Numbers, as_integers, from_integers
from timely.graphs.pairs import MISSING, Column, Rows, bits, dense, join_rows, room
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)


def encode(
    edges: Stream[T, Any],
    src: str = "src",
    dst: str = "dst",
    *,
    vertices: Stream[T, Any] | None = None,
    weight: str | None = None,
    lasting: bool = False,
    narrow: bool = False,
) -> tuple[Stream[T, Any], Stream[T, Any]]:
    """Return the edges as arrays of ``(source, target)`` numbers, and the names: Arrow batches ``(id, value)``.

    With ``weight``, which names a column, there is a third one with the bits of the weights. ``vertices`` are Arrow
    batches with a column ``node``, which are named too. The numbers of a time come when its edges are complete; names
    are on the worker of their number. A dictionary that is ``lasting`` holds for all times, and a node is named at the
    first at which it is there. With ``narrow`` the edges are of 32 bits where there are no weights and all numbers are below
    2**30, which is half as much to take along. Inside the workers, a batch that lacks a column, has nulls in it, or has other
    types than the rest raises ``SchemaError``.

    >>> import timely
    >>> def build(scope):
    ...     edges = scope.to_stream([0]).map_batch(lambda _: pa.record_batch({"src": ["a", "b"], "dst": ["b", "c"]}))
    ...     numbers, names = encode(edges)
    ...     return numbers
    >>> timely.example(build)
    [(0, [[0, 1], [1, 2]])]
    """
    part = _Encoder(src, dst, weight, lasting, narrow)
    given = [(edges, Pipeline)] if vertices is None else [(edges, Pipeline), (vertices, Pipeline)]
    coded, requests = gather("encode: ask", given, 2, part.ask, keep=part.keep_asked)
    asked: list[tuple[Stream[T, Any], Pact]] = [(requests, Exchange(_receiver))]
    answers, names = gather("encode: number", asked, 2, part.number, keep=part.keep_owned, whole=_all_told)
    applied: list[tuple[Stream[T, Any], Pact]] = [(coded, Pipeline), (answers, Exchange(_receiver))]
    (numbers,) = gather("encode: apply", applied, 1, part.apply, keep=part.keep_answers, whole=_worked_out)
    return numbers, names


_TELLING: Final = 16
"""Up to so many workers tell each other what they have: each hears as much as all together say."""


Given: TypeAlias = tuple[pa.RecordBatch | None, int]
"""Nodes that a worker has numbered, ``(id, value)``, if any, and the place of the next number that it gives."""


@attrs.frozen
class _Request:
    """Nodes for which one worker asks another."""

    receiver: int
    asker: int
    values: pa.Array

    @property
    def kind(self) -> pa.DataType:
        """Return the type of the nodes."""
        return self.values.type

    def belonging(self, info: OperatorInfo, src: str) -> pa.Array:
        """Return those of the nodes that belong to this worker."""
        return self.values


@attrs.frozen
class _Close:
    """All the nodes that one worker has, where they are whole numbers close together."""

    marks: Marks
    kind: pa.DataType

    def nodes(self) -> pa.Array:
        """Return the nodes, in order."""
        return from_integers(self.marks.nodes(), self.kind)


@attrs.frozen
class _Told:
    """What one worker has, for another to know; it asks for those nodes that belong to the receiver, unless all workers tell."""

    receiver: int
    asker: int
    close: _Close

    @property
    def kind(self) -> pa.DataType:
        """Return the type of the nodes."""
        return self.close.kind

    def belonging(self, info: OperatorInfo, src: str) -> pa.Array:
        """Return those of the nodes that belong to this worker."""
        nodes = self.close.nodes()
        return nodes.take(pa.array((_owners(info, nodes, src) == info.worker).nonzero()[0]))


@attrs.frozen
class _Answer:
    """The numbers of the nodes of a request, in its order."""

    receiver: int
    owner: int
    numbers: Column


@attrs.frozen
class _Table:
    """The numbers of all nodes of all workers, from the node ``low`` up."""

    receiver: int
    low: int
    numbers: Column


def _receiver(letter: _Request | _Told | _Answer | _Table) -> int:
    return letter.receiver


def _owners(info: OperatorInfo, nodes: pa.Array, src: str) -> Column:
    """Return the worker that each node belongs to."""
    return owners_of(node_routes(info, nodes, src), info.peers)


def _all_told(info: OperatorInfo, _: object, collected: list[list[Any]]) -> bool:
    """Whether all workers have told what they have. Who has nothing tells nothing, and then the frontier does."""
    return sum(isinstance(request, _Told) for batch in collected[0] for request in batch) == info.peers


def _worked_out(_: object, __: object, collected: list[list[Any]]) -> bool:
    """Whether the numbers have been worked out here, which is after the edges have come."""
    return any(isinstance(answer, _Table) for batch in collected[1] for answer in batch)


@attrs.frozen
class _Coded:
    """Edges of which the ends are ``nodes``, first the sources of all, then the targets; what comes after is no edge's.

    ``asked`` has, for each worker that was asked for nodes, their codes in the order of the request. Where what the worker
    has was ``told``, the nodes are places among its marks, and have no codes yet.
    """

    nodes: Found
    count: int
    weights: Column | None
    asked: dict[int, Column]
    told: _Close | None = None

    def __len__(self) -> int:
        return self.count + sum(map(len, self.asked.values())) + (self.told is not None)

    def found_in(self, table: Column) -> _Coded:
        """Return them with what each of their places has in a table, from the place that was marked first."""
        return attrs.evolve(self, nodes=self.nodes.found_in(table), told=None)

    def edges(self, table: Column | None, kind: type[np.integer[Any]]) -> Any:
        """Return the edges as integers of a ``kind``, with what the table has for the codes of their ends, or with the codes."""
        columns = np.empty((2 if self.weights is None else 3, self.count), kind)
        self.nodes.fill(columns[:2].reshape(-1), through=table)
        if self.weights is not None:
            columns[2] = self.weights
        return columns.T


class _Encoder:
    """One worker's part: what it has asked for, what it was asked for, and what it was answered.

    A dictionary that lasts is state. On other workers, each owns the nodes that are its own there, with the numbers that they
    have; from then on it gives numbers beyond all that were given. What was asked and answered is forgotten, and asked again.
    """

    __slots__ = (
        "_answers",
        "_asked",
        "_dst",
        "_greatest",
        "_ids",
        "_last_asked",
        "_last_owned",
        "_lasting",
        "_narrow",
        "_next",
        "_note_answers",
        "_note_asked",
        "_note_owned",
        "_owned",
        "_owned_type",
        "_same",
        "_src",
        "_type",
        "_weight",
    )

    def __init__(self, src: str, dst: str, weight: str | None, lasting: bool, narrow: bool) -> None:
        self._src = src
        self._dst = dst
        self._weight = weight
        self._lasting = lasting
        self._narrow = narrow and weight is None
        self._type: pa.DataType | None = None
        self._owned_type: pa.DataType | None = None
        self._last_asked: Any = None
        self._last_owned: Any = None
        self._asked = Numbers()
        self._owned = Numbers()
        self._answers: Column = np.empty(0, np.int64)
        self._greatest = 0  # of all numbers that were answered
        self._same = True  # whether all answers were the codes themselves, as they are where there is one worker
        self._ids: Column | None = None  # of what is owned, where that is not what it would be had no workers come or gone
        self._next = 0
        self._note_asked: Callable[[pa.Array], None] = _note_nowhere
        self._note_owned: Callable[[Given], None] = _note_nowhere
        self._note_answers: Callable[[Column, Column], None] = _note_nowhere

    def ask(self, info: OperatorInfo, time: Any, collected: list[list[Any]]) -> list[Any]:
        """Return the edges, of which the ends are found among the nodes asked for, and the request for those that are new."""
        if self._lasting:  # what is asked for once is answered at that time, and not before
            self._last_asked = next_time(info, self._last_asked, time)
        edges, vertices = collected[0], collected[1] if len(collected) > 1 else []
        expected = self._type if self._lasting else None
        ends = edge_columns(info, edges, self._src, self._dst, expected)
        alone = vertex_columns(info, vertices, ends[0].type if ends else expected)
        if not self._lasting:
            self._asked = Numbers()
        self._type = (ends or alone)[0].type
        weights = None if self._weight is None else bits(weight_column(info, edges, self._weight))
        count = sum(map(len, ends)) // 2
        marked = self._mark(info, [*ends, *alone])
        if marked is not None:
            marks, places = marked
            close = _Close(marks, self._type)
            told = [_Told(peer, info.worker, close) for peer in range(info.peers)]
            return [_Coded(Found(np.empty(0, np.int64), places), count, weights, {}, close), told]
        asked = len(self._asked)
        nodes, fresh = self._asked.find(*ends, *alone)
        self._note_asked(fresh)
        dealt = self._deal(info, fresh)
        codes = {owner: rows + asked for owner, rows in dealt}
        parts = [fresh] if len(dealt) == 1 else [fresh.take(pa.array(rows)) for _, rows in dealt]
        requests = [_Request(owner, info.worker, part) for (owner, _), part in zip(dealt, parts, strict=True)]
        if self._tells(info) and len(fresh):  # all others must hear that not all have told
            others = set(range(info.peers)).difference(codes)
            requests += [_Request(owner, info.worker, fresh[:0]) for owner in others]
        return [_Coded(nodes, count, weights, codes), requests]

    def _tells(self, info: OperatorInfo) -> bool:
        """Whether workers tell each other what they have, where they can."""
        return not self._lasting and 1 < info.peers <= _TELLING

    def _mark(self, info: OperatorInfo, columns: list[pa.Array]) -> tuple[Marks, list[Column]] | None:
        """Return marks of what this worker has, and its nodes as places; nothing where it has to ask."""
        if not self._tells(info):
            return None
        keys = [whole for column in columns if (whole := as_integers(column)) is not None]
        return mark(keys) if len(keys) == len(columns) else None

    def _deal(self, info: OperatorInfo, nodes: pa.Array) -> list[tuple[int, Column]]:
        """Return ``(owner, places)`` for each worker that any of the nodes belong to."""
        if info.peers == 1:
            node_routes(info, nodes[:0], self._src)  # are they of a type that can be routed?
            return [(0, np.arange(len(nodes)))] if len(nodes) else []
        return list(rows_by_worker(node_routes(info, nodes, self._src), info.peers))

    def _asking(self, info: OperatorInfo, coded: _Coded) -> _Coded:
        """Return what was told as if it had been asked for: not all workers have told what they have, so that owners answer."""
        if coded.told is None:
            return coded
        nodes = coded.told.marks.nodes()
        codes = dense(nodes - coded.told.marks.low, np.arange(len(nodes)))
        return attrs.evolve(coded.found_in(codes), asked=dict(self._deal(info, coded.told.nodes())))

    def number(self, info: OperatorInfo, time: Any, collected: list[list[Any]]) -> list[Any]:
        """Number the nodes that were asked for; return the answers, and the new names."""
        if self._lasting:  # a node is named at one time, and not before
            self._last_owned = next_time(info, self._last_owned, time)
        requests: list[_Request | _Told] = sorted(
            (request for batch in collected[0] for request in batch), key=lambda one: one.asker
        )
        kinds = [request.kind for request in requests]
        self._owned_type = kind = same_type(info, kinds, self._owned_type if self._lasting else None)
        if not self._lasting:
            self._owned, self._next = Numbers(), 0
        marks = [request.close.marks for request in requests if isinstance(request, _Told)]
        together = union(marks) if len(marks) == len(requests) else None
        if together is not None:
            return self._work_out(info, kind, together, any(request.asker == info.worker for request in requests))
        values = [request.belonging(info, self._src) for request in requests]
        places, fresh = self._owned.number(*values)
        ids = np.arange(self._next, self._next + len(fresh)) * info.peers + info.worker
        self._next += len(fresh)
        if self._ids is not None:
            self._ids = np.concatenate((self._ids, ids))
        numbers = places * info.peers + info.worker if self._ids is None else self._ids[places]
        ends = np.cumsum([len(column) for column in values])
        parts = np.split(numbers, ends[:-1])
        answered = zip(requests, parts, strict=True)
        answers = [_Answer(request.asker, info.worker, part) for request, part in answered if len(part)]
        if not len(fresh):
            return [answers, []]
        names = pa.record_batch({"id": ids, "value": fresh})
        self._note_owned((names, self._next))
        return [answers, names]

    def _work_out(self, info: OperatorInfo, kind: pa.DataType, marks: Marks, asked: bool) -> list[Any]:
        """Return the numbers of all that is marked, if this worker has asked, and the names of what belongs to it."""
        nodes = marks.nodes()
        owners = _owners(info, from_integers(nodes, kind), self._src)
        numbers = numbered(owners, info.peers)
        mine = (owners == info.worker).nonzero()[0]
        names = pa.record_batch({"id": numbers.take(mine), "value": from_integers(nodes.take(mine), kind)})
        if not asked:
            return [[], names if len(mine) else []]
        everywhere = len(nodes) == nodes[-1] + 1 - marks.low
        table = numbers if everywhere else dense(nodes - marks.low, numbers)
        return [[_Table(info.worker, marks.low, table)], names if len(mine) else []]

    def apply(self, info: OperatorInfo, _: object, collected: list[list[Any]]) -> list[Any]:
        """Return the edges with the numbers of their ends."""
        tables = [answer for batch in collected[1] for answer in batch if isinstance(answer, _Table)]
        if tables:
            return self._apply_table(collected[0], tables[0])
        collected = [[self._asking(info, coded) for coded in collected[0]], collected[1]]
        asked = {owner: codes for coded in collected[0] for owner, codes in coded.asked.items()}
        answers = [(asked[answer.owner], answer.numbers) for batch in collected[1] for answer in batch]
        kept = self._answers if self._lasting else self._answers[:0]
        self._answers = table = room(kept, max((int(codes[-1]) + 1 for codes, _ in answers), default=0))
        if not self._lasting:
            self._same, self._greatest = True, 0
        for codes, numbers in answers:
            self._take_answers(codes, numbers)
            self._note_answers(codes, numbers)
        kind = self._integers(self._greatest)
        return [join_rows([coded.edges(None if self._same else table, kind) for coded in collected[0] if coded.count], 2)]

    def _apply_table(self, coded: list[_Coded], table: _Table) -> list[Any]:
        """Return the edges with the numbers that were worked out."""
        kind = self._integers(int(table.numbers.max()))
        found = [
            one.found_in(table.numbers[one.told.marks.low - table.low :]) for one in coded if one.told is not None and one.count
        ]
        return [join_rows([one.edges(None, kind) for one in found], 2)]

    def _integers(self, greatest: int) -> type[np.integer[Any]]:
        """Return the type of numbers up to the greatest."""
        return np.int32 if self._narrow and greatest < 1 << 30 else np.int64

    def _take_answers(self, codes: Column, numbers: Column) -> None:
        """Take in what was answered: the numbers of these codes, for which the table has room."""
        self._answers[codes] = numbers
        self._greatest = max(self._greatest, int(numbers.max(initial=0)))
        self._same = self._same and np.array_equal(codes, numbers)

    # -- state ---------------------------------------------------------------------------------------------------------

    def keep_asked(self, info: OperatorInfo) -> None:
        """Declare what was asked for: the nodes, in the order of their codes."""

        def save() -> Iterator[tuple[None, pa.RecordBatch]]:
            if self._type is not None:
                yield None, _nodes(self._asked.values(self._type))

        def load(items: Iterable[pa.RecordBatch]) -> None:
            for batch in items:
                self._type = batch.column("value").type
                self._asked.learn(batch.column("value"))

        def rescale(parts: Sequence[Iterable[pa.RecordBatch]]) -> None:
            for items in parts:
                for batch in items:
                    self._type = batch.column("value").type

        if self._lasting:
            log = info.register_state(save, load, rescale=rescale, logged=True)
            self._note_asked = lambda fresh: log.append(None, _nodes(fresh)) if log.kept else None

    def keep_owned(self, info: OperatorInfo) -> None:
        """Declare the numbers that were given, and to what."""

        def save() -> Iterator[tuple[None, Given]]:
            if self._owned_type is None:
                yield None, (None, self._next)
            else:
                ids = self._plain(info, len(self._owned))
                yield None, (pa.record_batch({"id": ids, "value": self._owned.values(self._owned_type)}), self._next)

        def load(items: Iterable[Given]) -> None:
            for batch, following in items:
                if batch is not None:
                    self._own(info, batch)
                self._go_on(info, following)

        def rescale(parts: Sequence[Iterable[Given]]) -> None:
            given = 0
            for items in parts:
                for batch, following in items:
                    given = max(given, following * len(parts))
                    if batch is not None:
                        mine = node_routes(info, batch.column("value"), self._src) % info.peers == info.worker
                        self._own(info, batch.take(pa.array(np.flatnonzero(mine))))
            self._go_on(info, -(-given // info.peers))

        if self._lasting:
            log = info.register_state(save, load, rescale=rescale, logged=True)
            self._note_owned = lambda given: log.append(None, given)

    def _own(self, info: OperatorInfo, batch: pa.RecordBatch) -> None:
        """Take in numbers that were given before."""
        ids = batch.column("id").to_numpy()
        self._owned_type = batch.column("value").type
        known = len(self._owned)
        self._owned.learn(batch.column("value"))
        plain = np.arange(known, len(self._owned)) * info.peers + info.worker
        if self._ids is not None or not np.array_equal(ids, plain):
            self._ids = np.concatenate((self._plain(info, known), ids))

    def _go_on(self, info: OperatorInfo, following: int) -> None:
        """Give numbers from this place on."""
        self._next = max(self._next, following)
        if self._next != len(self._owned):
            self._ids = self._plain(info, len(self._owned))

    def _plain(self, info: OperatorInfo, known: int) -> Column:
        """Return the numbers of the first nodes that are owned."""
        return np.arange(known) * info.peers + info.worker if self._ids is None else self._ids

    def keep_answers(self, info: OperatorInfo) -> None:
        """Declare what was answered: rows of codes and numbers."""

        def save() -> Iterator[tuple[None, Rows]]:
            codes = np.flatnonzero(self._answers != MISSING)
            yield None, np.vstack((codes, self._answers[codes])).T

        def load(items: Iterable[Rows]) -> None:
            for codes, numbers in (rows.T for rows in items):
                self._answers = room(self._answers, int(codes.max(initial=-1)) + 1)
                self._take_answers(codes, numbers)

        if self._lasting:
            log = info.register_state(save, load, rescale=lambda parts: None, logged=True)
            self._note_answers = lambda codes, numbers: log.append(None, np.vstack((codes, numbers)).T)


def _note_nowhere(*_: Any) -> None:
    """What is called where nobody keeps the changes."""


def _nodes(values: pa.Array) -> pa.RecordBatch:
    return pa.record_batch({"value": values})
