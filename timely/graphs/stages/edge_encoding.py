"""``encode``: edges between nodes of any type become edges between numbers, by a dictionary that all workers share.

A worker gives codes to the nodes of a time, and requests their numbers from the workers that own them; these reply. With a memory
budget that is a hash join on disk, for one part of the nodes after another. Then at most one dictionary of a part is in memory,
the number of each node, and a few blocks of edges.

The invariants: equal nodes have equal numbers, different nodes different ones, and worker ``n % workers`` names node ``n``.
Numbers are dense: those of a worker are ``worker``, ``worker + workers``, and so on. The order of the ends within a part never
changes, so the part of each end alone says how to merge them into edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timely.dataflow import Exchange, OperatorInfo, Pipeline, Stream
from timely.dataflow.containers.partition_arrays import rows_by_worker
from timely.graphs.stages.edge_input import edge_columns, next_time, node_routes, same_type, vertex_columns, weight_column
from timely.graphs.stages.gathering import Collected, blocks, drained, gather, optional
from timely.graphs.stages.repartitioned_state import Log, register_state
from timely.graphs.structures.arrays import Column, bits, grow
from timely.graphs.structures.dictionary import Dictionary, as_integers, from_integers
from timely.memory import MemoryBudget, Spool
from timely.operators.type_variables import T

PARTS: Final = 16
_BITS: Final = 4
_BLOCK: Final = 10
"""So many last bits of an integer stay in its key, the next ``_BITS`` are its part."""

Part = npt.NDArray[np.uint8]


class NodeParts:
    """The parts of nodes of a type: one, or ``PARTS`` with a memory budget, so that the dictionary of one part fits.

    Equal nodes are in one part and have equal keys there, different nodes of a part different ones. Integers, dates and times
    have integers for keys that lie as close together as they do, so that a dictionary of a part is an array too.
    """

    def __init__(self, kind: pa.DataType, count: int) -> None:
        self._kind = kind
        self._count = count
        self._integers = count > 1 and as_integers(pa.array([], kind)) is not None

    def split(self, info: Any, columns: Sequence[pa.Array], src: str) -> tuple[Part | None, list[list[pa.Array]]]:
        """Return the part of each node, ``None`` where there is one part, and for each part its keys, in arrays: one, or none.

        ``SchemaError`` for a type that cannot be routed.
        """
        if self._count == 1:
            return None, [list(columns)]
        nodes = pa.concat_arrays(columns)
        integers = as_integers(nodes) if self._integers else None
        if integers is not None:
            which = ((integers >> _BLOCK) & (PARTS - 1)).astype(np.uint8)
            nodes = pa.array(((integers >> (_BLOCK + _BITS)) << _BLOCK) | (integers & ((1 << _BLOCK) - 1)))
        else:
            encoded = nodes.dictionary_encode()
            routes = node_routes(info, encoded.dictionary, src)
            which = (routes // info.peers % PARTS).astype(np.uint8).take(encoded.indices.to_numpy())
        return which, [[nodes.take(pa.array(places))] if len(places) else [] for places in by_part(which)]

    def restore(self, part: int, keys: pa.Array) -> pa.Array:
        """Return the nodes of a part that have these keys."""
        if not self._integers:
            return keys
        integers: Column = keys.to_numpy()
        high = (((integers >> _BLOCK) << _BITS) | part) << _BLOCK
        return from_integers(high | (integers & ((1 << _BLOCK) - 1)), self._kind)


def by_part(which: Part) -> list[Column]:
    """Return the places of each part, in ascending order."""
    order = np.argsort(which, kind="stable")
    return np.split(order, np.cumsum(np.bincount(which, minlength=PARTS))[:-1])


def encode(
    edges: Stream[T, Any],
    src: str = "src",
    dst: str = "dst",
    *,
    vertices: Stream[T, Any] | None = None,
    weight: str | None = None,
    lasting: bool = False,
) -> tuple[Stream[T, Any], Stream[T, Any]]:
    """Return the edges as arrays of ``(source, target)`` numbers, and the names: Arrow batches ``(id, value)``.

    ``weight`` names a column whose bits become a third column. ``vertices`` are batches with a column ``node``, which are named
    too. The numbers of a time come when its edges are complete, names on the worker that owns the number. A dictionary is of one
    time; if ``lasting``, it is of all times, and a node is named once. Inside the workers, ``SchemaError`` for a column that is
    missing, has nulls or another type.

    >>> import timely
    >>> def build(scope):
    ...     edges = scope.to_stream([0]).map_batch(lambda _: pa.record_batch({"src": ["a", "b"], "dst": ["b", "c"]}))
    ...     numbers, names = encode(edges)
    ...     return numbers
    >>> timely.example(build)
    [(0, [[0, 1], [1, 2]])]
    """
    parts = 1 if MemoryBudget.current().limit is None else PARTS
    requester, owner = _Requester(src, dst, weight, lasting, parts), _Owner(src, lasting, parts)
    coded, requests = gather("encode: request", [(edges, Pipeline), *optional(vertices, Pipeline)], 2, requester.finish)
    replies, names = gather("encode: number", [(requests, Exchange(_receiver))], 2, owner.finish, keep=owner.register)
    (numbers,) = gather("encode: translate", [(coded, Pipeline), (replies, Exchange(_receiver))], 1, _translate)
    return numbers, names


@attrs.frozen(eq=False)
class _Message:
    """A container for one worker; ``content`` is an Arrow or NumPy array for a part of the nodes."""

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
        return [(self.receiver, self)]


@attrs.frozen(eq=False)
class _Request(_Message):
    """The keys of nodes of a part whose numbers a worker requests; the nodes are of type ``kind``."""

    kind: pa.DataType


def _receiver(message: _Message) -> int:
    return message.receiver


def _spools(count: int) -> list[Spool]:
    return [Spool() for _ in range(count)]


@attrs.frozen(eq=False)
class _Coded:
    """What one worker knows of the ends of its edges, by part, in blocks that have all sources, then all targets."""

    codes: list[Spool]
    which: Spool = attrs.field(factory=Spool)
    """The part of each end, a block at a time, ``None`` where there is one part; vertices are not among them."""
    weights: Spool = attrs.field(factory=Spool)
    nodes: list[int] = attrs.field(factory=list)
    requested: list[dict[int, Column | slice]] = attrs.field(factory=list)
    """Of each part, the codes whose numbers were requested from each worker, in the order of the request."""


class _Requester:
    """The first stage: codes for the nodes of one worker at one time."""

    def __init__(self, src: str, dst: str, weight: str | None, lasting: bool, parts: int) -> None:
        self._src = src
        self._dst = dst
        self._weight = weight
        self._lasting = lasting
        self._parts = parts
        self._last: Any = None
        self._kind: pa.DataType | None = None

    def finish(self, info: OperatorInfo, time: Any, collected: list[Collected]) -> Iterator[list[Any]]:
        """Yield requests for the nodes of each part; at last the edges with the codes of their ends."""
        if self._lasting:  # the reply to a request comes at its time, and not before
            self._last = next_time(info, self._last, time)
        else:
            self._kind = None
        coded, ends, alone = _Coded(_spools(self._parts)), _spools(self._parts), _spools(self._parts)
        for batches in blocks(collected[0]):
            columns = edge_columns(info, batches, self._src, self._dst, self._kind)
            if self._weight is not None:
                coded.weights.append(bits(weight_column(info, batches, self._weight)))
            coded.which.append(self._split(info, columns, ends))
        for batches in blocks(collected[1] if len(collected) > 1 else []):
            self._split(info, vertex_columns(info, batches, self._kind), alone)
        for part in range(self._parts):
            nodes = self._codes(ends[part], alone[part], coded.codes[part])
            coded.nodes.append(len(nodes))
            coded.requested.append({})
            for owner, places in self._by_owner(info, part, nodes):
                coded.requested[part][owner] = places
                wanted = nodes if isinstance(places, slice) else nodes.take(pa.array(places))
                yield [[], _Request(owner, info.worker, part, wanted, self._kind)]
        yield [[coded], []]

    def _split(self, info: OperatorInfo, columns: list[pa.Array], keys: list[Spool]) -> Any:
        """Append the keys of a block of nodes to each part; return the part of each."""
        self._kind = columns[0].type
        which, parts = NodeParts(self._kind, self._parts).split(info, columns, self._src)
        for spool, some in zip(keys, parts, strict=True):
            if some:
                spool.append(some if which is None else some[0])
        return which

    def _codes(self, ends: Spool, alone: Spool, codes_of_ends: Spool) -> pa.Array:
        """Append the codes of the ends, a block at a time; return all nodes of a part by their codes."""
        dictionary, news = Dictionary(), []
        for spool in (ends, alone):
            for keys in spool.drain():
                codes, new = dictionary.encode(*(keys if isinstance(keys, list) else [keys]))
                news.append(new)
                if spool is ends:
                    codes_of_ends.append(codes if isinstance(keys, list) else codes.astype(np.int32))
        return news[0] if len(news) == 1 else pa.concat_arrays(news) if news else pa.nulls(0)

    def _by_owner(self, info: OperatorInfo, part: int, keys: pa.Array) -> Iterable[tuple[int, Column | slice]]:
        assert self._kind is not None
        if not len(keys):
            return []
        nodes = NodeParts(self._kind, self._parts).restore(part, keys if info.peers > 1 else keys[:0])
        routes = node_routes(info, nodes, self._src)  # raises for a type that cannot be routed
        return rows_by_worker(routes, info.peers) if info.peers > 1 else [(0, slice(None))]


Numbered: TypeAlias = tuple[pa.RecordBatch | None, int]
"""Nodes that a worker has numbered, ``(id, value)``, and the place of the next number that it gives."""


class _Owner:
    """The second stage: numbers for the nodes that one worker owns.

    With other workers nodes keep their numbers on their new owners, and new numbers are beyond all that were given.
    """

    def __init__(self, src: str, lasting: bool, parts: int) -> None:
        self._src = src
        self._lasting = lasting
        self._parts = parts
        self._last: Any = None
        self._log: Log | None = None
        self._forget()

    def _forget(self) -> None:
        self._kind: pa.DataType | None = None
        self._known = [_Known(spooled=self._parts > 1) for _ in range(self._parts)]
        self._next = 0

    def finish(self, info: OperatorInfo, time: Any, collected: list[Collected]) -> Iterator[list[Any]]:
        """Yield replies to the requests, and the new names, part by part."""
        if self._lasting:  # a node is named at one time, and not before
            self._last = next_time(info, self._last, time)
        else:
            self._forget()
        requests = _spools(self._parts)
        for request in drained(collected[0]):
            self._kind = same_type(info, [request.kind], self._kind)
            requests[request.part].append(request)
        for part, spool in enumerate(requests):
            wanted = sorted(spool.drain(), key=lambda request: request.sender)
            names: Any = []
            if wanted:
                numbers, new, ids = self._known[part].number([request.content for request in wanted], self._following(info))
                if len(new):
                    names = self._names(part, new, ids)
                    if self._log is not None:
                        self._log((names, self._next))
                ends = np.cumsum([len(request.content) for request in wanted])
                for request, replies in zip(wanted, np.split(numbers, ends[:-1]), strict=True):
                    yield [_Message(request.sender, info.worker, part, replies), names]
                    names = []

    def _following(self, info: OperatorInfo) -> Callable[[int], Column]:
        def following(count: int) -> Column:
            self._next += count
            return np.arange(self._next - count, self._next) * info.peers + info.worker

        return following

    def _names(self, part: int, keys: pa.Array, ids: Column) -> pa.RecordBatch:
        assert self._kind is not None
        return pa.record_batch({"id": ids, "value": NodeParts(self._kind, self._parts).restore(part, keys)})

    def register(self, info: OperatorInfo) -> None:
        """Register the nodes that have numbers: batches ``(id, value)``, and the place of the next number."""

        def save() -> Iterator[Numbered]:
            yield None, self._next
            for part, known in enumerate(self._known):
                yield from ((self._names(part, keys, ids), self._next) for keys, ids in known.items(self._kind))

        def load(item: Numbered) -> None:
            batch, following = item
            self._next = max(self._next, following)
            if batch is None or not len(batch):
                return
            ids, values = batch.column("id").to_numpy(), batch.column("value")
            self._kind = values.type
            which, parts = NodeParts(values.type, self._parts).split(info, [values], self._src)
            ids_of_parts = [ids] if which is None else [ids[places] for places in by_part(which)]
            for known, keys, some in zip(self._known, parts, ids_of_parts, strict=True):
                if keys:
                    known.extend(keys[0], some)

        def repartition(item: Numbered, _: int, senders: int) -> Iterator[Numbered]:
            batch, following = item
            if batch is not None:
                mine = node_routes(info, batch.column("value"), self._src) % info.peers == info.worker
                batch = batch.take(pa.array(np.flatnonzero(mine)))
            yield batch, -(-following * senders // info.peers)

        if self._lasting:
            self._log = register_state(info, save, load, repartition)


class _Known:
    """The keys of a part that have numbers. With a memory budget they are spooled, and their dictionary is there in use only."""

    def __init__(self, spooled: bool) -> None:
        self._spool = Spool() if spooled else None
        self._dictionary = Dictionary()
        self._ids: Column = np.empty(0, np.int64)

    def number(self, columns: Sequence[pa.Array], following: Callable[[int], Column]) -> tuple[Column, pa.Array, Column]:
        """Return the numbers of keys, and the keys that are new with theirs: the ``following(count)``."""
        if self._spool is not None:
            for keys, ids in self.items(None):
                self._enter(keys, ids)
        count = len(self._dictionary)
        places, new = self._dictionary.encode(*columns)
        ids = following(len(new))
        self._set(count, ids)
        numbers = self._ids.take(places)
        if self._spool is not None:
            self._dictionary, self._ids = Dictionary(), np.empty(0, np.int64)
            if len(new):
                self._spool.append(pa.record_batch({"id": ids, "value": new}))
        return numbers, new, ids

    def extend(self, keys: pa.Array, ids: Column) -> None:
        """Add keys that have numbers."""
        if self._spool is None:
            self._enter(keys, ids)
        else:
            self._spool.append(pa.record_batch({"id": ids, "value": keys}))

    def _enter(self, keys: pa.Array, ids: Column) -> None:
        self._set(len(self._dictionary), ids)
        self._dictionary.extend(keys)

    def _set(self, start: int, ids: Column) -> None:
        self._ids = grow(self._ids, start + len(ids))
        self._ids[start : start + len(ids)] = ids

    def items(self, kind: pa.DataType | None) -> Iterator[tuple[pa.Array, Column]]:
        """Yield all keys, which are of this type, and their numbers."""
        if self._spool is not None:
            yield from ((batch.column("value"), batch.column("id").to_numpy()) for batch in self._spool)
        elif kind is not None:
            yield self._dictionary.values(kind), self._ids[: len(self._dictionary)]


def _translate(info: OperatorInfo, _: object, collected: list[Collected]) -> Iterator[list[Any]]:
    """The third stage: yield the edges with the numbers of their ends, block by block."""
    ((coded,),) = collected[0]
    replies = _spools(len(coded.codes))
    for reply in drained(collected[1]):
        replies[reply.part].append(reply)
    tables = [_numbers(coded, part, spool) for part, spool in enumerate(replies)]
    if len(tables) > 1 and max(int(table.max(initial=0)) for table in tables) < 1 << 31:
        tables = [table.astype(np.int32) for table in tables]
    codes, weights = [spool.drain() for spool in coded.codes], coded.weights.drain()
    weighted = len(coded.weights) > 0
    for which in coded.which.drain():
        whole = next(codes[0]) if which is None else None
        columns = np.empty((2 + weighted, len(which if whole is None else whole) // 2), np.int64)
        ends = columns[:2].reshape(-1)
        if whole is not None:
            np.take(tables[0], whole[: len(ends)], out=ends, mode="clip")
        else:
            for part, places in enumerate(by_part(which)):
                if len(places):
                    ends[places] = tables[part].take(next(codes[part]))
        if weighted:
            columns[2] = next(weights)
        yield [columns.T]


def _numbers(coded: _Coded, part: int, replies: Spool) -> Column:
    table = np.empty(coded.nodes[part], np.int64)
    for reply in replies.drain():
        table[coded.requested[part][reply.sender]] = reply.content
    coded.requested[part].clear()
    return table
