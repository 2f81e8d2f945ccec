"""``encode``: edges between nodes of any type become edges between numbers, by a dictionary that all workers share.

Each worker finds the distinct nodes of its edges and asks, for each, the worker that the node belongs to; that one
numbers what it is asked for and answers. The invariant: equal nodes have equal numbers, different nodes different ones,
and the node of number ``n`` is named on worker ``n % workers``. Numbers are dense: those of one worker are ``worker``,
``worker + workers``, and so on. A dictionary is of one time, and forgotten when that is complete; or it lasts, and then
each node is asked for once by each worker, and named once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import attrs
import numpy as np
import pyarrow as pa

from timely.dataflow import Exchange, OperatorInfo, Pact, Pipeline, Stream
from timely.dataflow.deal_arrays import rows_by_worker
from timely.graphs.gather import gather
from timely.graphs.input import edge_columns, node_routes, same_type, vertex_columns, weight_column
from timely.graphs.numbers import Found, Numbers
from timely.graphs.pairs import MISSING, Column, Rows, bits, join_rows, room
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
    answers, names = gather("encode: number", [(requests, Exchange(_receiver))], 2, part.number, keep=part.keep_owned)
    applied: list[tuple[Stream[T, Any], Pact]] = [(coded, Pipeline), (answers, Exchange(_receiver))]
    (numbers,) = gather("encode: apply", applied, 1, part.apply, keep=part.keep_answers)
    return numbers, names


Given: TypeAlias = tuple[pa.RecordBatch | None, int]
"""Nodes that a worker has numbered, ``(id, value)``, if any, and the place of the next number that it gives."""


@attrs.frozen
class _Request:
    """Nodes for which one worker asks another."""

    receiver: int
    asker: int
    values: pa.Array


@attrs.frozen
class _Answer:
    """The numbers of the nodes of a request, in its order."""

    receiver: int
    owner: int
    numbers: Column


def _receiver(letter: _Request | _Answer) -> int:
    return letter.receiver


@attrs.frozen
class _Coded:
    """Edges of which the ends are ``nodes``, first the sources of all, then the targets; what comes after is no edge's.

    ``asked`` has, for each worker that was asked for nodes, their codes in the order of the request.
    """

    nodes: Found
    count: int
    weights: Column | None
    asked: dict[int, Column]

    def __len__(self) -> int:
        return self.count + sum(map(len, self.asked.values()))

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

    def ask(self, info: OperatorInfo, _: object, collected: list[list[Any]]) -> list[Any]:
        """Return the edges, of which the ends are found among the nodes asked for, and the request for those that are new."""
        edges, vertices = collected[0], collected[1] if len(collected) > 1 else []
        expected = self._type if self._lasting else None
        ends = edge_columns(info, edges, self._src, self._dst, expected)
        alone = vertex_columns(info, vertices, ends[0].type if ends else expected)
        if not self._lasting:
            self._asked = Numbers()
        self._type = (ends or alone)[0].type
        asked = len(self._asked)
        nodes, fresh = self._asked.find(*ends, *alone)
        self._note_asked(fresh)
        weights = None if self._weight is None else bits(weight_column(info, edges, self._weight))
        dealt = self._deal(info, fresh)
        codes = {owner: rows + asked for owner, rows in dealt}
        parts = [fresh] if len(dealt) == 1 else [fresh.take(pa.array(rows)) for _, rows in dealt]
        requests = [_Request(owner, info.worker, part) for (owner, _), part in zip(dealt, parts, strict=True)]
        return [_Coded(nodes, sum(map(len, ends)) // 2, weights, codes), requests]

    def _deal(self, info: OperatorInfo, nodes: pa.Array) -> list[tuple[int, Column]]:
        """Return ``(owner, places)`` for each worker that any of the nodes belong to."""
        if info.peers == 1:
            node_routes(info, nodes[:0], self._src)  # are they of a type that can be routed?
            return [(0, np.arange(len(nodes)))] if len(nodes) else []
        return list(rows_by_worker(node_routes(info, nodes, self._src), info.peers))

    def number(self, info: OperatorInfo, _: object, collected: list[list[Any]]) -> list[Any]:
        """Number the nodes that were asked for; return the answers, and the new names."""
        requests: list[_Request] = sorted((request for batch in collected[0] for request in batch), key=lambda one: one.asker)
        values = [request.values for request in requests]
        self._owned_type = same_type(info, values, self._owned_type if self._lasting else None)
        if not self._lasting:
            self._owned, self._next = Numbers(), 0
        places, fresh = self._owned.number(*values)
        ids = np.arange(self._next, self._next + len(fresh)) * info.peers + info.worker
        self._next += len(fresh)
        if self._ids is not None:
            self._ids = np.concatenate((self._ids, ids))
        numbers = places * info.peers + info.worker if self._ids is None else self._ids[places]
        ends = np.cumsum([len(column) for column in values])
        parts = np.split(numbers, ends[:-1])
        answers = [_Answer(request.asker, info.worker, part) for request, part in zip(requests, parts, strict=True)]
        if not len(fresh):
            return [answers, []]
        names = pa.record_batch({"id": ids, "value": fresh})
        self._note_owned((names, self._next))
        return [answers, names]

    def apply(self, info: OperatorInfo, _: object, collected: list[list[Any]]) -> list[Any]:
        """Return the edges with the numbers of their ends."""
        asked = {owner: codes for coded in collected[0] for owner, codes in coded.asked.items()}
        answers = [(asked[answer.owner], answer.numbers) for batch in collected[1] for answer in batch]
        kept = self._answers if self._lasting else self._answers[:0]
        self._answers = table = room(kept, max((int(codes[-1]) + 1 for codes, _ in answers), default=0))
        if not self._lasting:
            self._same, self._greatest = True, 0
        for codes, numbers in answers:
            self._take_answers(codes, numbers)
            self._note_answers(codes, numbers)
        kind = np.int32 if self._narrow and self._greatest < 1 << 30 else np.int64
        numbered = [coded.edges(None if self._same else table, kind) for coded in collected[0] if coded.count]
        return [join_rows(numbered, 2)]

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
            log = info.keep(save, load, rescale=rescale, logged=True)
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
            log = info.keep(save, load, rescale=rescale, logged=True)
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
            log = info.keep(save, load, rescale=lambda parts: None, logged=True)
            self._note_answers = lambda codes, numbers: log.append(None, np.vstack((codes, numbers)).T)


def _note_nowhere(*_: Any) -> None:
    """What is called where nobody keeps the changes."""


def _nodes(values: pa.Array) -> pa.RecordBatch:
    return pa.record_batch({"value": values})
