"""``encode``: edges between nodes of any type become edges between numbers, by a dictionary that all workers share.

Each worker gives its nodes codes, and requests the numbers of new ones from the workers that own them; these reply. The
invariant: equal nodes have equal numbers, different nodes different ones, and worker ``n % workers`` names the node of number
``n``. Numbers are dense: those of a worker are ``worker``, ``worker + workers``, and so on.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from timely.dataflow import Exchange, OperatorInfo, Pact, Pipeline, Stream
from timely.dataflow.containers.partition_arrays import rows_by_worker
from timely.graphs.stages.edge_input import edge_columns, next_time, node_routes, same_type, vertex_columns, weight_column
from timely.graphs.stages.external_encoding import Numbered, encode_in_parts, repartitioned
from timely.graphs.stages.gathering import gather
from timely.graphs.stages.repartitioned_state import Log, register_state
from timely.graphs.structures.arrays import MISSING, Column, Rows, bits, grow, join_rows
from timely.graphs.structures.dictionary import Codes, Dictionary
from timely.memory import MemoryBudget
from timely.operators.type_variables import T


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

    ``weight`` names a column whose bits become a third column. ``vertices`` are batches with a column ``node``, which are named
    too. The numbers of a time come when its edges are complete, names on the worker that owns the number. A dictionary is of one
    time; if ``lasting``, it is of all times, and a node is named once. ``narrow`` edges are int32 if they have no weights and all
    numbers are below 2**30. Inside the workers, ``SchemaError`` for a column that is missing, has nulls or another type.

    >>> import timely
    >>> def build(scope):
    ...     edges = scope.to_stream([0]).map_batch(lambda _: pa.record_batch({"src": ["a", "b"], "dst": ["b", "c"]}))
    ...     numbers, names = encode(edges)
    ...     return numbers
    >>> timely.example(build)
    [(0, [[0, 1], [1, 2]])]
    """
    if MemoryBudget.current().limit is not None:
        return encode_in_parts(edges, src, dst, vertices=vertices, weight=weight, lasting=lasting, narrow=narrow)
    requester, owner = _Requester(src, dst, weight, lasting), _Owner(src, lasting)
    translator = _Translator(lasting, narrow and weight is None)
    inputs = [(edges, Pipeline)] if vertices is None else [(edges, Pipeline), (vertices, Pipeline)]
    coded, requests = gather("encode: request", inputs, 2, requester.finish, keep=requester.register)
    requested: list[tuple[Stream[T, Any], Pact]] = [(requests, Exchange(_receiver))]
    replies, names = gather("encode: number", requested, 2, owner.finish, keep=owner.register)
    both: list[tuple[Stream[T, Any], Pact]] = [(coded, Pipeline), (replies, Exchange(_receiver))]
    (numbers,) = gather("encode: translate", both, 1, translator.finish, keep=translator.register)
    return numbers, names


@attrs.frozen
class _Request:
    """Nodes whose numbers a worker requests from the one that owns them."""

    receiver: int
    sender: int
    nodes: pa.Array


@attrs.frozen
class _Reply:
    """The numbers of the nodes of a request, in its order."""

    receiver: int
    sender: int
    numbers: Column


def _receiver(message: _Request | _Reply) -> int:
    return message.receiver


@attrs.frozen
class _Coded:
    """``count`` edges with ``codes`` for their ends: all sources, all targets, then vertices.

    ``requested`` has, for each worker, the codes whose numbers were requested from it, in the order of the request.
    """

    codes: Codes
    count: int
    weights: Column | None
    requested: dict[int, Column]

    def edges(self, numbers: Column | None, kind: type[np.integer[Any]]) -> Any:
        """Return the edges as integers of a ``kind``, with the codes of their ends, or the ``numbers`` of these."""
        columns = np.empty((2 if self.weights is None else 3, self.count), kind)
        self.codes.write(columns[:2].reshape(-1), through=numbers)
        if self.weights is not None:
            columns[2] = self.weights
        return columns.T


class _Requester:
    """The first stage: codes for the nodes of one worker. With other workers it forgets them, and requests them again."""

    def __init__(self, src: str, dst: str, weight: str | None, lasting: bool) -> None:
        self._src = src
        self._dst = dst
        self._weight = weight
        self._lasting = lasting
        self._last: Any = None
        self._type: pa.DataType | None = None
        self._dictionary = Dictionary()
        self._log: Log | None = None

    def finish(self, info: OperatorInfo, time: Any, collected: list[list[Any]]) -> list[Any]:
        """Return the edges with the codes of their ends, and requests for the nodes that are new."""
        if self._lasting:  # the reply to a request comes at its time, and not before
            self._last = next_time(info, self._last, time)
        edges, vertices = collected[0], collected[1] if len(collected) > 1 else []
        expected = self._type if self._lasting else None
        ends = edge_columns(info, edges, self._src, self._dst, expected)
        alone = vertex_columns(info, vertices, ends[0].type if ends else expected)
        if not self._lasting:
            self._dictionary = Dictionary()
        self._type = (ends or alone)[0].type
        weights = None if self._weight is None else bits(weight_column(info, edges, self._weight))
        known = len(self._dictionary)
        codes, new = self._dictionary.add(*ends, *alone)
        if self._log is not None:
            self._log(_nodes(new))
        rows = self._by_owner(info, new)
        requested = {owner: places + known for owner, places in rows.items()}
        nodes = {owner: new if len(rows) == 1 else new.take(pa.array(places)) for owner, places in rows.items()}
        requests = [_Request(owner, info.worker, part) for owner, part in nodes.items()]
        return [[_Coded(codes, sum(map(len, ends)) // 2, weights, requested)], requests]

    def _by_owner(self, info: OperatorInfo, nodes: pa.Array) -> dict[int, Column]:
        if info.peers == 1:
            node_routes(info, nodes[:0], self._src)  # raises for a type that cannot be routed
            return {0: np.arange(len(nodes))} if len(nodes) else {}
        return dict(rows_by_worker(node_routes(info, nodes, self._src), info.peers))

    def register(self, info: OperatorInfo) -> None:
        """Register the nodes, in the order of their codes."""

        def save() -> Iterator[pa.RecordBatch]:
            if self._type is not None:
                yield _nodes(self._dictionary.values(self._type))

        def load(batch: pa.RecordBatch) -> None:
            self._type = batch.column("value").type
            self._dictionary.extend(batch.column("value"))

        if self._lasting:
            self._log = register_state(info, save, load, lambda batch, *_: [batch.slice(0, 0)])


class _Owner:
    """The second stage: numbers for the nodes that one worker owns.

    With other workers nodes keep their numbers on their new owners, and new numbers are beyond all that were given.
    """

    def __init__(self, src: str, lasting: bool) -> None:
        self._src = src
        self._lasting = lasting
        self._last: Any = None
        self._type: pa.DataType | None = None
        self._dictionary = Dictionary()
        self._ids: Column | None = None  # of the nodes owned, where the workers were others before
        self._next = 0
        self._log: Log | None = None

    def finish(self, info: OperatorInfo, time: Any, collected: list[list[Any]]) -> list[Any]:
        """Return replies to the requests, and the new names."""
        if self._lasting:  # a node is named at one time, and not before
            self._last = next_time(info, self._last, time)
        requests: list[_Request] = sorted((one for batch in collected[0] for one in batch), key=lambda one: one.sender)
        self._type = same_type(info, [request.nodes.type for request in requests], self._type if self._lasting else None)
        if not self._lasting:
            self._dictionary, self._next = Dictionary(), 0
        places, new = self._dictionary.encode(*(request.nodes for request in requests))
        ids = np.arange(self._next, self._next + len(new)) * info.peers + info.worker
        self._next += len(new)
        if self._ids is not None:
            self._ids = np.concatenate((self._ids, ids))
        numbers = places * info.peers + info.worker if self._ids is None else self._ids[places]
        parts = np.split(numbers, np.cumsum([len(request.nodes) for request in requests])[:-1])
        replies = [_Reply(request.sender, info.worker, part) for request, part in zip(requests, parts, strict=True)]
        if not len(new):
            return [replies, []]
        names = pa.record_batch({"id": ids, "value": new})
        if self._log is not None:
            self._log((names, self._next))
        return [replies, names]

    def register(self, info: OperatorInfo) -> None:

        def save() -> Iterator[Numbered]:
            if self._type is None:
                yield None, self._next
            else:
                ids = self._known_ids(info, len(self._dictionary))
                yield pa.record_batch({"id": ids, "value": self._dictionary.values(self._type)}), self._next

        def load(item: Numbered) -> None:
            batch, following = item
            if batch is not None:
                self._own(info, batch)
            self._next = max(self._next, following)
            if self._next != len(self._dictionary):
                self._ids = self._known_ids(info, len(self._dictionary))

        if self._lasting:
            self._log = register_state(info, save, load, partial(repartitioned, info, self._src))

    def _own(self, info: OperatorInfo, batch: pa.RecordBatch) -> None:
        ids = batch.column("id").to_numpy()
        self._type = batch.column("value").type
        known = len(self._dictionary)
        self._dictionary.extend(batch.column("value"))
        plain = np.arange(known, len(self._dictionary)) * info.peers + info.worker
        if self._ids is not None or not np.array_equal(ids, plain):
            self._ids = np.concatenate((self._known_ids(info, known), ids))

    def _known_ids(self, info: OperatorInfo, known: int) -> Column:
        """Return the numbers of the first nodes owned."""
        return np.arange(known) * info.peers + info.worker if self._ids is None else self._ids


class _Translator:
    """The third stage: the numbers of one worker's codes."""

    def __init__(self, lasting: bool, narrow: bool) -> None:
        self._lasting = lasting
        self._narrow = narrow
        self._forget()
        self._log: Log | None = None

    def _forget(self) -> None:
        self._numbers: Column = np.empty(0, np.int64)
        self._greatest = 0
        self._same = True  # whether all numbers equal their codes, as with one worker

    def finish(self, info: OperatorInfo, _: object, collected: list[list[Any]]) -> list[Any]:
        """Return the edges with the numbers of their ends."""
        edges: list[_Coded] = [coded for batch in collected[0] for coded in batch]
        requested = {owner: codes for coded in edges for owner, codes in coded.requested.items()}
        if not self._lasting:
            self._forget()
        self._numbers = grow(self._numbers, max((int(codes[-1]) + 1 for codes in requested.values()), default=0))
        for reply in (reply for batch in collected[1] for reply in batch):
            codes = requested[reply.sender]
            self._add(codes, reply.numbers)
            if self._log is not None:
                self._log(np.vstack((codes, reply.numbers)).T)
        kind = np.int32 if self._narrow and self._greatest < 1 << 30 else np.int64
        numbers = None if self._same else self._numbers
        return [join_rows([coded.edges(numbers, kind) for coded in edges if coded.count], 2)]

    def _add(self, codes: Column, numbers: Column) -> None:
        self._numbers = grow(self._numbers, int(codes.max(initial=-1)) + 1)
        self._numbers[codes] = numbers
        self._greatest = max(self._greatest, int(numbers.max(initial=0)))
        self._same = self._same and np.array_equal(codes, numbers)

    def register(self, info: OperatorInfo) -> None:
        """Register rows of codes and numbers."""

        def save() -> Iterator[Rows]:
            codes = np.flatnonzero(self._numbers != MISSING)
            yield np.vstack((codes, self._numbers[codes])).T

        if self._lasting:
            self._log = register_state(info, save, lambda rows: self._add(*rows.T), lambda rows, *_: [rows[:0]])


def _nodes(values: pa.Array) -> pa.RecordBatch:
    return pa.record_batch({"value": values})
