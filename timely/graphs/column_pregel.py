"""``column_pregel``: Pregel whose vertices are rows of Arrow tables, and whose functions are expressions over columns.

Each superstep runs an expression once for all edges of a worker, and once for all its vertices. The invariant: all vertices are
updated in a superstep, by the messages of that superstep, from the columns before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import attrs
import numpy as np
import pyarrow as pa

from timely.dataflow import OperatorInfo, Stream
from timely.graphs.arrays import Column, Mask, sorted_order
from timely.graphs.bulk_synchronous import Steps, bulk_synchronous
from timely.graphs.column_expressions import ColumnAggregate, ColumnExpression, ColumnField, FunctionCall, aggregate, evaluate
from timely.graphs.graph_partition import GraphPartition, partitioned, result_batch
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)

ACTIVE: Final = "_pregel_is_active"
"""The name of the column that says whether a vertex is active."""

MESSAGE: Final = "_pregel_msg_"
"""The name of the column that has a message, and then what the messages to a vertex are aggregated to."""


_Messages: TypeAlias = tuple[Column, pa.Array]
"""Where messages go, and their values."""


@attrs.frozen
class StateColumn:
    """A column that a program adds to the vertices: its type, its values before the first superstep, and those after each."""

    type: pa.DataType
    initial: ColumnExpression
    update: ColumnExpression


@attrs.frozen
class MessageColumn:
    """A message along each edge, to its target or its source; a null is not sent."""

    expression: ColumnExpression
    to_source: bool


@attrs.frozen
class ColumnProgram:
    """A Pregel program.

    Messages read ``src.name``, ``dst.name`` and ``edge.name``. States read attributes, states and the message. Aggregates read
    ``_pregel_msg_``, and are the columns ``0``, ``1``, ... of ``combined``, beside ``id``.
    """

    states: Mapping[str, StateColumn]
    messages: Sequence[MessageColumn]
    message_type: pa.DataType
    aggregates: Sequence[ColumnAggregate]
    combined: ColumnExpression
    supersteps: int
    stop_without_messages: bool = False
    skip_inactive: bool = False
    stop_when_inactive: bool = False

    def read_along_edges(self) -> set[str]:
        """Return the columns that messages read."""
        return {name for message in self.messages for name in fields(message.expression)}


def fields(expression: ColumnExpression) -> Iterator[str]:
    """Yield the names of the columns that an expression reads."""
    if isinstance(expression, ColumnField):
        yield expression.name
    elif isinstance(expression, FunctionCall):
        for argument in expression.arguments:
            yield from fields(argument)


def column_pregel(edges: Stream[T, Any], vertices: Stream[T, Any], program: ColumnProgram) -> Stream[T, Any]:
    """Return Arrow batches ``(node, ...)`` with the state columns of each vertex after the last superstep.

    ``edges`` are batches ``(src, dst)``, ``vertices`` are batches with a column ``node``, both with the attributes that the
    program reads. Each time is a graph of its own. ``SchemaError``, as the cause of an ``OperatorError``, for two vertices with
    one node, edges whose ends are no vertices, and values for which an expression has no result. Source: Malewicz et al.,
    "Pregel: a system for large-scale graph processing" (2010).

    >>> import timely
    >>> from timely.graphs.column_expressions import Constant
    >>> near, sent = ColumnField("near"), ColumnField("_pregel_msg_")
    >>> near = StateColumn(pa.int64(), near, FunctionCall("Coalesce", (sent, near), pa.int64()))
    >>> send = MessageColumn(ColumnField("src.near"), to_source=False)
    >>> least = ColumnAggregate("Min", sent, pa.int64())
    >>> program = ColumnProgram({"near": near}, [send], pa.int64(), [least], ColumnField("0"), supersteps=1)
    >>> def build(scope):
    ...     start = scope.to_stream([0])
    ...     edges = start.map_batch(lambda _: pa.record_batch({"src": ["a", "b"], "dst": ["c", "c"]}))
    ...     vertices = start.map_batch(lambda _: pa.record_batch({"node": ["a", "b", "c"], "near": [5, 3, 9]}))
    ...     return column_pregel(edges, vertices, program)
    >>> timely.example(build)
    [(0, [('a', 5), ('b', 3), ('c', 3)])]
    """
    return bulk_synchronous("column pregel", [vertices, edges], partial(_supersteps, program=program))


def _supersteps(info: OperatorInfo, collected: list[list[Any]], *, program: ColumnProgram) -> Steps[Any]:
    part = yield from partitioned(info, *collected)
    given = pa.table({"id": part.nodes, **{name: part.attributes[name] for name in part.attributes.column_names}})
    states = _states(given, {name: state.initial for name, state in program.states.items()}, program)
    triplets = _Triplets(part, program)
    yield from triplets.mirror_attributes(given)
    for _ in range(program.supersteps):
        vertices = _beside(given, states)
        yield from triplets.mirror_states(vertices)
        outgoing, local = triplets.messages(vertices)
        count = sum(len(values) for _, values in local) + sum(len(values) for _, values in outgoing)
        received = yield [(count, *sent) for sent in _by_owner(part, outgoing, program.message_type)]
        if program.stop_without_messages and not any(sent for sent, _, _ in received):
            break
        arrived = [(places[at], values) for places, (_, at, values) in zip(part.mirrored, received, strict=True)]
        message = _combined(part, program, [*local, *arrived])
        vertices = vertices.append_column(MESSAGE, message)
        states = _states(vertices, {name: state.update for name, state in program.states.items()}, program)
        if program.stop_when_inactive and not any((yield [bool(_active(states).any())] * info.peers)):
            break
    return result_batch(part, **{name: states[name].combine_chunks() for name in program.states if name != ACTIVE})


def _states(table: pa.Table, expressions: Mapping[str, ColumnExpression], program: ColumnProgram) -> pa.Table:
    return pa.table({name: evaluate(one, table).cast(program.states[name].type) for name, one in expressions.items()})


def _active(table: pa.Table) -> Mask:
    return np.asarray(table[ACTIVE].combine_chunks().fill_null(False).to_numpy(zero_copy_only=False), np.bool_)


def _beside(given: pa.Table, states: pa.Table) -> pa.Table:
    return pa.table({table_name: table[table_name] for table in (given, states) for table_name in table.column_names})


class _Triplets:
    """What messages read of each edge of one worker, and of its ends."""

    def __init__(self, part: GraphPartition, program: ColumnProgram) -> None:
        read = program.read_along_edges()
        self._part, self._program = part, program
        self._of_source = [name[4:] for name in sorted(read) if name.startswith("src.")]
        self._of_target = [name[4:] for name in sorted(read) if name.startswith("dst.")]
        self._of_edge = [name[5:] for name in sorted(read) if name.startswith("edge.")]
        self._targets_too = any(name != "id" for name in self._of_target)
        if program.skip_inactive and self._targets_too:
            self._of_target = sorted({*self._of_target, ACTIVE})
        self._mirrors: dict[str, pa.Array] = {}

    def mirror_attributes(self, given: pa.Table) -> Steps[None]:
        """Send what does not change."""
        yield from self._mirror(given, [name for name in self._of_target if name not in self._program.states])

    def mirror_states(self, vertices: pa.Table) -> Steps[None]:
        """Send what has changed."""
        yield from self._mirror(vertices, [name for name in self._of_target if name in self._program.states])

    def _mirror(self, table: pa.Table, names: Sequence[str]) -> Steps[None]:
        if names:
            chosen = table.select(names).combine_chunks()
            received: list[pa.Table] = yield [chosen.take(pa.array(places)) for places in self._part.mirrored]
            mirrors = pa.concat_tables(received)
            self._mirrors.update({name: mirrors[name].combine_chunks() for name in names})

    def messages(self, vertices: pa.Table) -> tuple[list[_Messages], list[_Messages]]:
        """Return pairs of mirrors and messages to them, and of places here and messages to these."""
        sources, targets = self._part.sources, self._part.targets
        if not len(sources):
            return [], []
        along = np.arange(len(sources))
        if self._program.skip_inactive:
            active = _active(vertices)[sources]
            if self._targets_too:
                active |= _active(pa.table({ACTIVE: self._mirrors[ACTIVE]}))[targets]
            along = np.flatnonzero(active)
        at_source, at_target, edges = pa.array(sources[along]), pa.array(targets[along]), pa.array(along)
        columns = {f"src.{name}": vertices[name].take(at_source) for name in self._of_source}
        columns.update({f"dst.{name}": self._mirrors[name].take(at_target) for name in self._of_target})
        columns.update({f"edge.{name}": self._part.edge_attributes[name].take(edges) for name in self._of_edge})
        table = pa.table(columns or {"": pa.nulls(len(along))})
        outgoing: list[_Messages] = []
        local: list[_Messages] = []
        for message in self._program.messages:
            values = evaluate(message.expression, table)
            sent = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.bool_)
            ends = (sources if message.to_source else targets)[along[sent]]
            (local if message.to_source else outgoing).append((ends, values.filter(pa.array(sent))))
        return outgoing, local


def _by_owner(
    part: GraphPartition, messages: Sequence[tuple[Column, pa.Array]], kind: pa.DataType
) -> list[tuple[Column, pa.Array]]:
    """Return what each worker has to get of messages to mirrors: indices of its vertices, and values."""
    mirrors = np.concatenate([np.empty(0, np.int64), *(ends for ends, _ in messages)])
    values = pa.concat_arrays([pa.nulls(0, kind), *(values.cast(kind) for _, values in messages)])
    order = sorted_order(mirrors)
    mirrors, values = mirrors[order], values.take(pa.array(order))
    cuts = np.searchsorted(mirrors, part.bounds).tolist()
    return [
        (mirrors[start:end] - bound, values.slice(start, end - start)) for start, end, bound in zip(cuts, cuts[1:], part.bounds)
    ]


def _combined(part: GraphPartition, program: ColumnProgram, messages: Sequence[_Messages]) -> pa.Array:
    """Return the aggregated message of each vertex, null where there is none."""
    places = np.concatenate([places for places, _ in messages])
    table = pa.table({MESSAGE: pa.concat_arrays([values.cast(program.message_type) for _, values in messages])})
    there, groups = np.unique(places, return_inverse=True)
    columns = {str(at): aggregate(one, groups, len(there), table) for at, one in enumerate(program.aggregates)}
    found = evaluate(program.combined, pa.table({"id": part.nodes.take(pa.array(there)), **columns}))
    at = np.full(len(part), -1)
    at[there] = np.arange(len(there))
    return found.take(pa.array(at, mask=at < 0))
