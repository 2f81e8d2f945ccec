"""``encode_in_parts``: ``encode`` for nodes whose dictionaries exceed memory, as a hash join on disk, part by part.

A worker splits the ends of its edges by ``NodeParts``, and spools each part. For one part after another it gives codes to the
nodes, and requests their numbers from the workers that own them. These number part by part too. The invariant: the order of the
ends within a part never changes, so the numbers of all parts are merged back into edges by the part of each end alone. At most
one dictionary of a part is in memory, the number of each node, and a few blocks of edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import attrs
import numpy as np
import pyarrow as pa

from timely.dataflow import Exchange, OperatorInfo, Pact, Pipeline, Stream
from timely.dataflow.containers.partition_arrays import rows_by_worker
from timely.graphs.stages.edge_input import edge_columns, next_time, node_routes, same_type, vertex_columns, weight_column
from timely.graphs.stages.gathering import gather
from timely.graphs.stages.node_parts import PARTS, NodeParts, by_part
from timely.graphs.stages.repartitioned_state import Log, register_state
from timely.graphs.structures.arrays import BLOCK, Column, bits
from timely.graphs.structures.dictionary import Dictionary
from timely.memory import Spool
from timely.operators.type_variables import T


def encode_in_parts(
    edges: Stream[T, Any],
    src: str,
    dst: str,
    *,
    vertices: Stream[T, Any] | None = None,
    weight: str | None = None,
    lasting: bool = False,
    narrow: bool = False,
) -> tuple[Stream[T, Any], Stream[T, Any]]:
    """Return the same as ``encode``, in several containers. If ``lasting``, a time costs the nodes of all times before."""
    requester, translator = _Requester(src, dst, weight, lasting), _Translator(narrow and weight is None)
    owner = _Owner(src, lasting)
    inputs = [(edges, Pipeline)] if vertices is None else [(edges, Pipeline), (vertices, Pipeline)]
    coded, requests = gather("encode: request by part", inputs, 2, requester.finish)
    requested: list[tuple[Stream[T, Any], Pact]] = [(requests, Exchange(_receiver))]
    replies, names = gather("encode: number by part", requested, 2, owner.finish, keep=owner.register)
    both: list[tuple[Stream[T, Any], Pact]] = [(coded, Pipeline), (replies, Exchange(_receiver))]
    (numbers,) = gather("encode: translate by part", both, 1, translator.finish)
    return numbers, names


Numbered: TypeAlias = tuple[pa.RecordBatch | None, int]
"""Nodes that a worker has numbered, ``(id, value)``, and the place of the next number that it gives."""


@attrs.frozen(eq=False)
class _Message:
    """A container for one worker; ``content`` is an Arrow or NumPy array."""

    receiver: int
    sender: int
    part: int
    content: Any

    @property
    def nbytes(self) -> int:
        return int(self.content.nbytes)

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[_Message]:
        yield self

    def partition(self, key: Any, workers: int) -> Sequence[tuple[int, _Message]]:
        """Return the one worker that gets it."""
        return [(self.receiver, self)]


@attrs.frozen(eq=False)
class _Request(_Message):
    """The keys of nodes of a part whose numbers a worker requests; the nodes are of type ``kind``."""

    kind: pa.DataType


def _receiver(message: _Message) -> int:
    return message.receiver


@attrs.frozen(eq=False)
class _Coded:
    """What one worker knows of the ends of its edges, by part, in blocks that have all sources, then all targets."""

    which: Spool = attrs.field(factory=Spool)
    """The part of each end, a block at a time; vertices are not among them."""
    codes: list[Spool] = attrs.field(factory=lambda: [Spool() for _ in range(PARTS)])
    weights: Spool = attrs.field(factory=Spool)
    requested: list[dict[int, Column]] = attrs.field(factory=lambda: [{} for _ in range(PARTS)])
    """Of each part, the codes whose numbers were requested from each worker, in the order of the request."""
    nodes: list[int] = attrs.field(factory=lambda: [0] * PARTS)


class _Requester:
    """The first stage: codes for the nodes of one worker at one time."""

    def __init__(self, src: str, dst: str, weight: str | None, lasting: bool) -> None:
        self._src = src
        self._dst = dst
        self._weight = weight
        self._lasting = lasting
        self._last: Any = None

    def finish(self, info: OperatorInfo, time: Any, collected: list[Any]) -> Iterator[list[Any]]:
        """Yield requests for the nodes of each part; at last the edges with the codes of their ends."""
        if self._lasting:
            self._last = next_time(info, self._last, time)
        coded = _Coded()
        keys: list[Spool] = [Spool() for _ in range(PARTS)]
        parts: NodeParts | None = None
        for batches in blocks(collected[0]):
            ends = edge_columns(info, batches, self._src, self._dst, parts and parts.kind)
            parts = parts or NodeParts(ends[0].type)
            if self._weight is not None:
                coded.weights.append(bits(weight_column(info, batches, self._weight)))
            coded.which.append(self._split(info, parts, ends, keys))
        alone: list[Spool] = [Spool() for _ in range(PARTS)]
        for batches in blocks(collected[1] if len(collected) > 1 else []):
            nodes = vertex_columns(info, batches, parts and parts.kind)
            parts = parts or NodeParts(nodes[0].type)
            self._split(info, parts, nodes, alone)
        assert parts is not None
        for part in range(PARTS):
            dictionary = Dictionary()
            news = []
            for spool in (keys[part], alone[part]):
                for array in spool.drain():
                    codes, new = dictionary.encode(array if isinstance(array, pa.Array) else pa.array(array))
                    news.append(new)
                    if spool is keys[part]:
                        coded.codes[part].append(codes.astype(np.int32))
            if not len(dictionary):
                continue
            coded.nodes[part] = len(dictionary)
            new = pa.concat_arrays(news)
            del dictionary, news
            routes = node_routes(info, parts.restore(part, new), self._src)
            for owner, places in rows_by_worker(routes, info.peers):
                coded.requested[part][owner] = places
                wanted = new if len(places) == len(new) else new.take(pa.array(places))
                yield [[], _Request(owner, info.worker, part, wanted, parts.kind)]
        yield [[coded], []]

    def _split(self, info: OperatorInfo, parts: NodeParts, columns: list[pa.Array], keys: list[Spool]) -> Any:
        """Append the keys of a block of nodes to each part; return the part of each."""
        which, encoded = parts.split(info, pa.concat_arrays(columns), self._src)
        for part, places in enumerate(by_part(which)):
            if len(places):
                some = encoded.take(pa.array(places))
                keys[part].append(some.to_numpy() if pa.types.is_int64(some.type) else some)
        return which


class _Owner:
    """The second stage: numbers for the nodes that one worker owns. If lasting, it remembers them by part, not as a dictionary.

    With other workers nodes keep their numbers on their new owners, and new numbers are beyond all that were given.
    """

    def __init__(self, src: str, lasting: bool) -> None:
        self._src = src
        self._lasting = lasting
        self._parts: NodeParts | None = None
        self._known = _Known()
        self._next = 0
        self._log: Log | None = None

    def finish(self, info: OperatorInfo, _: object, collected: list[Any]) -> Iterator[list[Any]]:
        """Yield replies to the requests, and names, part by part."""
        if not self._lasting:
            self._parts, self._known, self._next = None, _Known(), 0
        requests: list[Spool] = [Spool() for _ in range(PARTS)]
        for request in collected[0].drain():
            kind = same_type(info, [request.kind], self._parts and self._parts.kind)
            self._parts = self._parts or NodeParts(kind)
            requests[request.part].append(request)
        for part, spool in enumerate(requests):
            if not len(spool):
                continue
            wanted = sorted(spool.drain(), key=lambda request: request.sender)
            dictionary, ids = self._known.dictionary(part)
            places, new = dictionary.encode(*(request.content for request in wanted))
            names = self._number(info, part, new)
            numbers = np.concatenate((ids, *(batch.column("id").to_numpy() for batch in names))).take(places)
            ends = np.cumsum([len(request.content) for request in wanted])
            for request, replies in zip(wanted, np.split(numbers, ends[:-1]), strict=True):
                yield [_Message(request.sender, info.worker, part, replies), names.pop() if names else []]

    def _number(self, info: OperatorInfo, part: int, new: pa.Array) -> list[pa.RecordBatch]:
        """Give the next numbers to new keys of a part; return the batch ``(id, value)`` of their names, if there are any."""
        if not len(new):
            return []
        assert self._parts is not None
        ids = np.arange(self._next, self._next + len(new)) * info.peers + info.worker
        self._next += len(new)
        batch = pa.record_batch({"id": ids, "value": self._parts.restore(part, new)})
        if self._lasting:
            self._known.add(part, new, ids)
            if self._log is not None:
                self._log((batch, self._next))
        return [batch]

    def register(self, info: OperatorInfo) -> None:
        """Register the nodes that have numbers: batches ``(id, value)``, and the place of the next number."""

        def save() -> Iterator[Numbered]:
            yield None, self._next
            for part in range(PARTS):
                for keys, ids in self._known.keys(part):
                    assert self._parts is not None
                    yield pa.record_batch({"id": ids, "value": self._parts.restore(part, keys)}), self._next

        def load(item: Numbered) -> None:
            batch, following = item
            self._next = max(self._next, following)
            if batch is None or not len(batch):
                return
            self._parts = self._parts or NodeParts(batch.column("value").type)
            which, keys = self._parts.split(info, batch.column("value"), self._src)
            for part, places in enumerate(by_part(which)):
                if len(places):
                    self._known.add(part, keys.take(pa.array(places)), batch.column("id").to_numpy()[places])

        if self._lasting:
            self._log = register_state(info, save, load, partial(repartitioned, info, self._src))


def repartitioned(info: OperatorInfo, src: str, item: Numbered, _: int, senders: int) -> Iterator[Numbered]:
    """Yield what a worker takes over of the nodes that one of so many ``senders`` had numbered."""
    batch, following = item
    if batch is not None:
        mine = node_routes(info, batch.column("value"), src) % info.peers == info.worker
        batch = batch.take(pa.array(np.flatnonzero(mine)))
    yield batch, -(-following * senders // info.peers)


class _Known:
    """The keys of the nodes that have numbers, and these, by part."""

    def __init__(self) -> None:
        self._keys: list[Spool] = [Spool() for _ in range(PARTS)]
        self._ids: list[Spool] = [Spool() for _ in range(PARTS)]

    def add(self, part: int, keys: pa.Array, ids: Column) -> None:
        self._keys[part].append(keys)
        self._ids[part].append(ids)

    def keys(self, part: int) -> Iterator[tuple[pa.Array, Column]]:
        return zip(self._keys[part], self._ids[part], strict=True)

    def dictionary(self, part: int) -> tuple[Dictionary, Column]:
        """Return the dictionary of a part, and the number of each of its codes."""
        dictionary, ids = Dictionary(), [np.empty(0, np.int64)]
        for keys, some in self.keys(part):
            dictionary.extend(keys)
            ids.append(some)
        return dictionary, np.concatenate(ids)


class _Translator:
    """The third stage: the numbers of one worker's codes, merged into edges."""

    def __init__(self, narrow: bool) -> None:
        self._narrow = narrow

    def finish(self, info: OperatorInfo, _: object, collected: list[Any]) -> Iterator[list[Any]]:
        """Yield the edges with the numbers of their ends, block by block."""
        ((coded,),) = collected[0]
        replies: list[Spool] = [Spool() for _ in range(PARTS)]
        for reply in collected[1].drain():
            replies[reply.part].append(reply)
        numbers = [self._numbers(coded, part, replies[part]) for part in range(PARTS)]
        weighted = len(coded.weights) > 0
        weights = coded.weights.drain()
        for which in coded.which.drain():
            kind = np.int64 if not self._narrow or any(cursor.greatest >= 1 << 30 for cursor in numbers) else np.int32
            columns = np.empty((2 + weighted, len(which) // 2), kind)
            ends = columns[:2].reshape(-1)
            if weighted:
                columns[2] = next(weights)
            for cursor, places in zip(numbers, by_part(which), strict=True):
                if len(places):
                    ends[places] = cursor.next(len(places))
            yield [columns.T]

    def _numbers(self, coded: _Coded, part: int, replies: Spool) -> _Cursor:
        """Return the number of each end of a part."""
        table = np.empty(coded.nodes[part], np.int64)
        for reply in replies.drain():
            table[coded.requested[part][reply.sender]] = reply.content
        coded.requested[part].clear()
        greatest = int(table.max(initial=0))
        return _Cursor(coded.codes[part], table.astype(np.int32) if greatest < 1 << 31 else table, greatest)


class _Cursor:
    """The numbers of the ends of a part, in their order: those of the codes in a spool, by a table."""

    def __init__(self, codes: Spool, table: Column, greatest: int) -> None:
        self._codes = codes.drain()
        self._table = table
        self.greatest = greatest

    def next(self, count: int) -> Column:
        """Return the next ``count`` numbers."""
        codes: Column = next(self._codes)
        assert len(codes) == count  # blocks are read as they were written
        return self._table.take(codes)


def blocks(batches: Any) -> Iterator[list[pa.RecordBatch]]:
    """Yield the batches, as many at a time as have about ``BLOCK`` rows, and let go of them."""
    some: list[Any] = []
    rows = 0
    for batch in batches.drain() if isinstance(batches, Spool) else batches:
        some.append(batch)
        rows += len(batch)
        if rows >= BLOCK:
            yield some
            some, rows = [], 0
    if some:
        yield some
