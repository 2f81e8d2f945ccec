"""``encode``: edges between nodes of any type become edges between numbers, by a dictionary that all workers share.

Each worker finds the distinct nodes of its edges and asks, for each, the worker that the node belongs to; that one
numbers what it is asked for and answers. The invariant: equal nodes have equal numbers, different nodes different ones,
and the node of number ``n`` is named on worker ``n % workers``. Numbers are dense: those of one worker are ``worker``,
``worker + workers``, and so on. A dictionary is of one time, and forgotten when that is complete; or it lasts, and then
each node is asked for once by each worker, and named once.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from timely.dataflow import Exchange, OperatorInfo, Pipeline, Stream
from timely.graphs.gather import gather
from timely.graphs.input import edge_columns, node_routes, same_type, vertex_columns, weight_column
from timely.graphs.numbers import Numbers
from timely.graphs.pairs import Column, bits, first, join_rows, room
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
) -> tuple[Stream[T, Any], Stream[T, Any]]:
    """Return the edges as arrays of ``(source, target)`` numbers, and the names: Arrow batches ``(id, value)``.

    With ``weight``, which names a column, there is a third one with the bits of the weights. ``vertices`` are Arrow
    batches with a column ``node``, which are named too. The numbers of a time come when its edges are complete; names
    are on the worker of their number. A dictionary that is ``lasting`` holds for all times, and a node is named at the
    first at which it is there. Inside the workers, a batch that lacks a column, has nulls in it, or has other types
    than the rest raises ``SchemaError``.

    >>> import timely
    >>> def build(scope):
    ...     edges = scope.to_stream([0]).map_batch(lambda _: pa.record_batch({"src": ["a", "b"], "dst": ["b", "c"]}))
    ...     numbers, names = encode(edges)
    ...     return numbers
    >>> timely.example(build)
    [(0, [[0, 1], [1, 2]])]
    """
    part = _Encoder(src, dst, weight, lasting)
    given = [(edges, Pipeline)] if vertices is None else [(edges, Pipeline), (vertices, Pipeline)]
    coded, requests = gather("encode: ask", given, 2, part.ask)
    answers, names = gather("encode: number", [(requests, Exchange("route"))], 2, part.number)
    (numbers,) = gather("encode: apply", [(coded, Pipeline), (answers, Exchange(first))], 1, part.apply)
    return numbers, names


class _Encoder:
    """One worker's part: what it has asked for, what it was asked for, and what it was answered."""

    __slots__ = ("_answers", "_asked", "_dst", "_lasting", "_owned", "_owned_type", "_src", "_type", "_weight")

    def __init__(self, src: str, dst: str, weight: str | None, lasting: bool) -> None:
        self._src = src
        self._dst = dst
        self._weight = weight
        self._lasting = lasting
        self._type: pa.DataType | None = None
        self._owned_type: pa.DataType | None = None
        self._asked = Numbers()
        self._owned = Numbers()
        self._answers: Column = np.empty(0, np.int64)

    def ask(self, info: OperatorInfo, _: object, collected: list[list[Any]]) -> list[Any]:
        """Return the edges as positions among the nodes asked for, and the request for those that are new."""
        edges, vertices = collected[0], collected[1] if len(collected) > 1 else []
        expected = self._type if self._lasting else None
        ends = edge_columns(info, edges, self._src, self._dst, expected)
        alone = vertex_columns(info, vertices, ends[0].type if ends else expected)
        if not self._lasting:
            self._asked = Numbers()
        self._type = (ends or alone)[0].type
        asked = len(self._asked)
        nodes, fresh = self._asked.number(pa.concat_arrays(ends + alone))
        codes = nodes[: sum(map(len, ends))].reshape(2, -1)
        if self._weight is not None:
            codes = np.vstack((codes, bits(weight_column(info, edges, self._weight))))
        if not len(fresh):
            return [codes.T, []]
        asker = np.full(len(fresh), info.worker)
        code = np.arange(asked, len(self._asked))
        request = {"route": node_routes(info, fresh, self._src), "asker": asker, "code": code, "value": fresh}
        return [codes.T, pa.record_batch(request)]

    def number(self, info: OperatorInfo, _: object, collected: list[list[Any]]) -> list[Any]:
        """Number the nodes that were asked for; return the answers ``(asker, code, number)``, and the new names."""
        requests = sorted(collected[0], key=lambda batch: int(batch.column("asker")[0].as_py()))
        values = [request.column("value") for request in requests]
        self._owned_type = same_type(info, values, self._owned_type if self._lasting else None)
        if not self._lasting:
            self._owned = Numbers()
        owned = len(self._owned)
        places, fresh = self._owned.number(pa.concat_arrays(values))
        asked = [np.concatenate([request.column(name).to_numpy() for request in requests]) for name in ("asker", "code")]
        answers = np.vstack((*asked, places * info.peers + info.worker)).T
        if not len(fresh):
            return [answers, []]
        ids = np.arange(owned, len(self._owned)) * info.peers + info.worker
        return [answers, pa.record_batch({"id": ids, "value": fresh})]

    def apply(self, info: OperatorInfo, _: object, collected: list[list[Any]]) -> list[Any]:
        """Put the numbers in the place of the codes."""
        codes, answers = join_rows(collected[0], 2), join_rows(collected[1], 3)
        kept = self._answers if self._lasting else self._answers[:0]
        self._answers = table = room(kept, int(answers[:, 1].max(initial=-1)) + 1)
        table[answers[:, 1]] = answers[:, 2]
        ends = table[codes.T[:2]]
        return [(ends if self._weight is None else np.vstack((ends, codes[:, 2]))).T]
