"""``name_components``: each component gets the name of its smallest node, and no worker sees more than its own nodes.

A worker sends the owner of each root the smallest node that it has of that component. The owner returns the smallest of all to
those that asked. The invariant: a worker sends one row for each component that it has nodes of, however many these are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timely.dataflow import Exchange, OperatorInfo, Pipeline, Stream
from timely.graphs.stages.gathering import Collected, drained, gather, optional
from timely.graphs.stages.repartitioned_state import register_parts, register_state
from timely.graphs.structures.arrays import BLOCK, MISSING, Column, first, grow, look_up
from timely.memory import MemoryBudget, Spool
from timely.operators.type_variables import T


def name_components(names: Stream[T, Any], members: Stream[T, Any], *, lasting: Stream[T, Any] | None = None) -> Stream[T, Any]:
    """Return Arrow batches ``(node, component)``, where a component is named by its smallest node.

    ``names`` are those of ``encode``; ``members`` are arrays of ``(number of a node, number of any one node of its component)``.
    Every named node has one row, on the worker of its number; a node without a member is a component of its own. With
    ``lasting``, a stream that has something on every worker at each time, names and members are for all later times, and a node
    has a row when it is new or its component has another name.

    >>> import timely
    >>> def build(scope):
    ...     one = scope.to_stream([0])
    ...     names = one.map_batch(lambda _: pa.record_batch({"id": [0, 1, 2], "value": ["c", "b", "a"]}))
    ...     members = one.map_batch(lambda _: np.array([[0, 0], [1, 0]]))
    ...     return name_components(names, members)
    >>> timely.example(build)
    [(0, [('a', 'a'), ('b', 'b'), ('c', 'b')])]
    """
    naming: _Naming[T] = _Naming(lasting is not None)
    (least,) = gather(
        "name: least here",
        [(names, Pipeline), (members, Exchange(first)), *optional(lasting, Pipeline)],
        1,
        naming.least_here,
        keep=naming.register,
    )
    (replies,) = gather("name: least of all", [(least, Exchange("root"))], 1, _least_of_all)
    (named,) = gather("name: nodes", [(replies, Exchange("to"))], 1, naming.nodes)
    return named


@attrs.define(eq=False)
class _Part:
    """One worker's nodes: batches ``(id, value)``, the root of each place, and the number of its name."""

    names: Spool | list[Any]
    roots: Column = attrs.field(factory=lambda: np.empty(0, np.int64))
    named: Column = attrs.field(factory=lambda: np.empty(0, np.int64))

    def roots_of(self, places: Column, ids: Column) -> Column:
        """Return the root of each node: itself, if it is no member."""
        roots = look_up(self.roots, places)
        return np.where(roots == MISSING, ids, roots)


class _Naming(Generic[T]):
    """The finish functions of one worker."""

    def __init__(self, lasting: bool) -> None:
        self._lasting = lasting
        self._parts: dict[T | None, _Part] = {}

    def _part(self, time: T) -> _Part:
        key = None if self._lasting else time
        if key not in self._parts:
            self._parts[key] = _Part(Spool() if MemoryBudget.current().limit is not None else [])
        return self._parts[key]

    def least_here(self, info: OperatorInfo, time: T, collected: list[Collected]) -> Iterator[list[Any]]:
        """Yield ``(root, id, value, to)``: the least node here of each component that has any here, and this worker."""
        part = self._part(time)
        for batch in drained(collected[0]):
            part.names.append(batch)
        for rows in drained(collected[1]):
            self._set_roots(info, part, rows)
        least = _Least()
        for batch in part.names:
            ids = batch.column("id").to_numpy()
            least.add(part.roots_of(ids // info.peers, ids), ids, batch.column("value"))
        for some in least.batches():
            yield [some.append_column("to", pa.array(np.full(len(some), info.worker)))]

    def _set_roots(self, info: OperatorInfo, part: _Part, rows: Any) -> None:
        places = rows[:, 0] // info.peers
        part.roots = grow(part.roots, int(places.max(initial=-1)) + 1)
        part.roots[places] = rows[:, 1]

    def nodes(self, info: OperatorInfo, time: T, collected: list[Collected]) -> Iterator[list[Any]]:
        """Yield ``(node, component)`` for the nodes that have no name yet, or another one."""
        part = self._part(time) if self._lasting else self._parts.pop(time)
        table = pa.Table.from_batches(list(drained(collected[0]))).sort_by("root").combine_chunks()
        roots, ids, values = (table.column(name).combine_chunks() for name in ("root", "id", "value"))
        roots, ids = roots.to_numpy(), ids.to_numpy()
        for batch in part.names if self._lasting else drained(part.names):
            nodes = batch.column("id").to_numpy()
            places, node = nodes // info.peers, batch.column("value")
            at = np.searchsorted(roots, part.roots_of(places, nodes))
            if self._lasting:
                part.named = grow(part.named, int(places.max(initial=-1)) + 1)
                changed = np.flatnonzero(part.named[places] != ids[at])
                part.named[places] = ids[at]
                at, node = at[changed], node.take(pa.array(changed))
            for start in range(0, len(at), BLOCK):
                some = slice(start, start + BLOCK)
                yield [pa.record_batch({"node": node[some], "component": values.take(pa.array(at[some]))})]

    def register(self, info: OperatorInfo) -> None:
        """Register the nodes, their roots, and their names."""

        def save() -> Iterator[tuple[pa.RecordBatch | None, Any, Any]]:
            for part in self._parts.values():
                for batch in part.names:
                    yield batch, np.empty((0, 2), np.int64), np.empty((0, 2), np.int64)
                yield None, self._rows(info, part.roots), self._rows(info, part.named)

        def load(item: tuple[pa.RecordBatch | None, Any, Any]) -> None:
            names, members, named = item
            part = self._part(None)  # type: ignore[arg-type]  # lasting: of no time
            if names is not None and len(names):
                part.names.append(names)
            self._set_roots(info, part, members)
            places = named[:, 0] // info.peers
            part.named = grow(part.named, int(places.max(initial=-1)) + 1)
            part.named[places] = named[:, 1]

        def repartition(item: tuple[pa.RecordBatch | None, Any, Any], *_: int) -> Iterator[Any]:
            names, *rows = item
            if names is not None:
                mine = np.flatnonzero(names.column("id").to_numpy() % info.peers == info.worker)
                names = names.take(pa.array(mine))
            yield names, *(some[some[:, 0] % info.peers == info.worker] for some in rows)

        if self._lasting:
            register_state(info, save, load, repartition, logged=False)
        else:
            register_parts(info, self._parts, "names/1")

    @staticmethod
    def _rows(info: OperatorInfo, table: Column) -> Any:
        places = np.flatnonzero(table != MISSING)
        return np.vstack((places * info.peers + info.worker, table[places])).T


class _Least:
    """The least value of each root so far, with its number."""

    def __init__(self) -> None:
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self._reduced = 0

    def add(self, roots: Column, ids: Column, values: pa.Array) -> None:
        self._waiting.append(_least(roots, ids, values))
        self._rows += len(self._waiting[-1])
        if self._rows > 2 * self._reduced + BLOCK:  # so that a row is sorted a few times only
            self._reduce()

    def _reduce(self) -> None:
        if len(self._waiting) > 1:
            roots, ids, values = pa.concat_batches(self._waiting).columns
            self._waiting = [_least(roots.to_numpy(), ids.to_numpy(), values)]
        self._rows = self._reduced = sum(map(len, self._waiting))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield ``(root, id, value)`` by root, a block at a time."""
        self._reduce()
        for batch in self._waiting:
            for start in range(0, len(batch), BLOCK):
                yield batch.slice(start, BLOCK)


def _least(roots: Column, ids: Column, values: pa.Array) -> pa.RecordBatch:
    """Return the rows with the least value of each root, by root."""
    order = pc.sort_indices(values).to_numpy()
    distinct_roots, at = np.unique(roots[order], return_index=True)
    rows = order[at].astype(np.int64)
    return pa.record_batch({"root": distinct_roots, "id": ids[rows], "value": values.take(pa.array(rows))})


def _least_of_all(info: OperatorInfo, _: object, collected: list[Collected]) -> Iterator[list[Any]]:
    """Yield ``(to, root, id, value)`` for each row, with the least value of its root."""
    candidates = _Least()
    for batch in collected[0]:
        candidates.add(batch.column("root").to_numpy(), batch.column("id").to_numpy(), batch.column("value"))
    least = pa.concat_batches(list(candidates.batches()))
    roots = least.column("root").to_numpy()
    for batch in drained(collected[0]):
        rows = least.take(pa.array(np.searchsorted(roots, batch.column("root").to_numpy())))
        yield [rows.append_column("to", batch.column("to"))]
