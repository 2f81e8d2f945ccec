"""``encode``: edges between nodes of any type become edges between numbers, by a dictionary that all workers share.

Each worker finds the distinct nodes of its edges and asks, for each, the worker that the node belongs to; that one
numbers what it is asked for and answers. The invariant: at one time, equal nodes have equal numbers, different nodes
different ones, and the node of number ``n`` is named on worker ``n % workers``. Numbers are dense: those of one worker
are ``worker``, ``worker + workers``, and so on. Each time has a dictionary of its own, which is forgotten when the time
is complete.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from timely.dataflow import Exchange, OperatorInfo, Pipeline, Stream, route_column
from timely.errors import RoutingError, SchemaError
from timely.graphs.gather import gather
from timely.graphs.pairs import Column, Rows, first, join_rows
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)


def encode(edges: Stream[T, Any], src: str = "src", dst: str = "dst") -> tuple[Stream[T, Any], Stream[T, Any]]:
    """Return the edges as arrays of ``(source, target)`` numbers, and the names: Arrow batches ``(id, value)``.

    The numbers of a time come when its edges are complete; names are on the worker of their number. Inside the workers,
    a batch that lacks a column, has nulls in it, or has other types than the rest raises ``SchemaError``.

    >>> import timely
    >>> def build(scope):
    ...     edges = scope.to_stream([0]).map_batch(lambda _: pa.record_batch({"src": ["a", "b"], "dst": ["b", "c"]}))
    ...     numbers, names = encode(edges)
    ...     return numbers
    >>> timely.example(build)
    [(0, [[0, 1], [1, 2]])]
    """

    def ask(info: OperatorInfo, collected: list[list[Any]]) -> list[Any]:
        codes, values = _distinct(info, collected[0], src, dst)
        asker = np.full(len(values), info.worker, np.int64)
        request = {"route": _routes(info, values, src), "asker": asker, "code": np.arange(len(values)), "value": values}
        return [codes, pa.record_batch(request)]

    coded, requests = gather("encode: ask", [(edges, Pipeline)], 2, ask)
    answers, names = gather("encode: number", [(requests, Exchange("route"))], 2, _number)
    (numbers,) = gather("encode: apply", [(coded, Pipeline), (answers, Exchange(first))], 1, _apply)
    return numbers, names


def _distinct(info: OperatorInfo, batches: list[Any], src: str, dst: str) -> tuple[Rows, pa.Array]:
    """Return the edges as positions in the distinct nodes, and the distinct nodes."""
    columns = [_column(info, batch, name) for name in (src, dst) for batch in batches]
    expected = columns[0].type
    for place, column in enumerate(columns):
        if column.type != expected:
            name = src if place < len(batches) else dst
            raise SchemaError(
                f"{info.path}: column {name!r} is of type {column.type}, and {src!r} began with {expected};"
                " both ends of all edges must be of one type: cast one of them"
            )
    encoded = pa.concat_arrays(columns).dictionary_encode()
    codes = encoded.indices.to_numpy().astype(np.int64)
    return codes.reshape(2, -1).T, encoded.dictionary


def _column(info: OperatorInfo, batch: Any, name: str) -> pa.Array:
    """Return a column of nodes, its dictionary resolved; ``SchemaError`` if it is missing or has nulls."""
    if not isinstance(batch, pa.RecordBatch):
        raise SchemaError(f"{info.path}: edges must come as Arrow record batches, not as {type(batch).__name__}")
    names = batch.schema.names
    if names.count(name) != 1:
        there = "no" if name not in names else "more than one"
        have = ", ".join(map(repr, names))
        raise SchemaError(f"{info.path}: there is {there} column {name!r}; the edges have {have}")
    column = batch.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_nested(column.type):
        raise SchemaError(f"{info.path}: column {name!r} is of type {column.type}, which cannot be a node")
    if column.null_count:
        raise SchemaError(
            f"{info.path}: column {name!r} has {column.null_count} nulls, and a node must have a value: filter them out"
        )
    return column


def _routes(info: OperatorInfo, values: pa.Array, src: str) -> Column:
    """Return the numbers that say which worker a node belongs to; types that cannot be routed are, as text."""
    try:
        return route_column(values)
    except RoutingError:
        pass
    try:
        return route_column(values.cast(pa.string()))
    except pa.ArrowException as error:
        raise SchemaError(
            f"{info.path}: column {src!r} is of type {values.type}, which cannot be a node: {error}"
        ) from error


def _number(info: OperatorInfo, collected: list[list[Any]]) -> list[Any]:
    """Number the nodes that were asked for; return the answers ``(asker, code, number)`` and the names."""
    requests = sorted(collected[0], key=lambda batch: int(batch.column("asker")[0].as_py()))
    values = [request.column("value") for request in requests]
    for other in values:
        if other.type != values[0].type:
            raise SchemaError(f"{info.path}: some workers have nodes of type {other.type}, others of {values[0].type}")
    encoded = pa.concat_arrays(values).dictionary_encode()
    numbers = encoded.indices.to_numpy().astype(np.int64) * info.peers + info.worker
    asked = [np.concatenate([request.column(name).to_numpy() for request in requests]) for name in ("asker", "code")]
    ids = np.arange(len(encoded.dictionary), dtype=np.int64) * info.peers + info.worker
    return [np.column_stack((*asked, numbers)), pa.record_batch({"id": ids, "value": encoded.dictionary})]


def _apply(info: OperatorInfo, collected: list[list[Any]]) -> list[Rows]:
    """Put the numbers in the place of the codes."""
    codes, answers = join_rows(collected[0], 2), join_rows(collected[1], 3)
    table = np.empty(len(answers), np.int64)
    table[answers[:, 1]] = answers[:, 2]
    return [table[codes]]
