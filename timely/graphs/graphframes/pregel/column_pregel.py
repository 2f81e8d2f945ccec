"""``column_pregel``: Pregel whose vertices are rows of Arrow tables, and whose functions are expressions over columns.

Each superstep runs an expression once for all edges of a worker, and once for all its vertices. The invariant: all vertices are
updated in a superstep, by the messages of that superstep, from the columns before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import pyarrow as pa

from timely.dataflow import OperatorInfo, Stream
from timely.graphs.graphframes.pregel.bulk_synchronous import StepProgram, Steps, bulk_synchronous
from timely.graphs.graphframes.pregel.expression_kernels import (
    ColumnAggregate,
    ColumnExpression,
    ColumnField,
    FunctionCall,
    evaluate,
    merged_aggregate,
    partial_aggregate,
    spread,
)
from timely.graphs.graphframes.pregel.graph_partition import GraphPartition, partitioned, result_batch
from timely.graphs.structures.arrays import Column, Mask, join_columns
from timely.operators.type_variables import T

ACTIVE: Final = "_pregel_is_active"
"""The name of the column that says whether a vertex is active."""

MESSAGE: Final = "_pregel_msg_"
"""The name of the column that has a message, and then what the messages to a vertex are aggregated to."""


_END: Final = "end"

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

    def read_at(self, place: str) -> list[str]:
        """Return the columns that messages read of ``"src"``, ``"dst"`` or ``"edge"``."""
        read = {name.partition(".")[2] for name in self.read_along_edges() if name.startswith(f"{place}.")}
        if place == "dst" and self.skip_inactive and read - {"id"}:
            read.add(ACTIVE)
        return sorted(read)


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
    program reads. ``SchemaError`` for values for which an expression has no result. Source: Malewicz et al., "Pregel: a system
    for large-scale graph processing" (2010).
    """
    return bulk_synchronous("column pregel", [vertices, edges], _Supersteps(program))


@attrs.define(eq=False)
class _Vertices:
    """One worker's vertices: what does not change, their states, and the columns of mirrors that do not change."""

    part: GraphPartition
    attributes: pa.Table
    states: pa.Table
    mirrored: dict[str, pa.Array]
    superstep: int = 0


@attrs.frozen
class _Supersteps(StepProgram[_Vertices]):
    _program: ColumnProgram

    def begin(self, info: OperatorInfo, collected: list[list[Any]]) -> Steps[_Vertices]:
        part = yield from partitioned(info, *collected)
        program = self._program
        attributes = pa.table({"id": part.nodes, **{name: part.attributes[name] for name in part.attributes.column_names}})
        states = _states(attributes, {name: state.initial for name, state in program.states.items()}, program)
        fixed = [name for name in program.read_at("dst") if name not in program.states]
        return _Vertices(part, attributes, states, (yield from _mirrored(part, attributes, fixed)))

    def round(self, info: OperatorInfo, state: _Vertices) -> Steps[bool]:
        program, part = self._program, state.part
        if state.superstep == program.supersteps:
            return False
        vertices = _beside(state.attributes, state.states)
        changing = [name for name in program.read_at("dst") if name in program.states]
        mirrors = {**state.mirrored, **(yield from _mirrored(part, vertices, changing))}
        outgoing, local = _messages(part, program, vertices, mirrors)
        count = sum(len(values) for _, values in (*outgoing, *local))
        sent = _combined(program, outgoing, part.mirrors)
        received = yield [(count, one) for one in _by_owner(part, sent)]
        if program.stop_without_messages and not any(sent for sent, _ in received):
            return False
        arrived = [(places[_places(batch)], batch) for places, (_, batch) in zip(part.mirrored, received, strict=True)]
        own = _combined(program, local, len(part))
        message = _merged(part, program, [(_places(own), own), *arrived])
        states = _states(
            vertices.append_column(MESSAGE, message), {name: state.update for name, state in program.states.items()}, program
        )
        going = not program.stop_when_inactive or any((yield [bool(_active(states).any())] * info.peers))
        state.states = states
        state.superstep += 1
        return going

    def end(self, info: OperatorInfo, state: _Vertices) -> Steps[Any]:
        yield from ()
        states = {name: state.states[name].combine_chunks() for name in self._program.states if name != ACTIVE}
        return result_batch(state.part, **states)


def _states(table: pa.Table, expressions: Mapping[str, ColumnExpression], program: ColumnProgram) -> pa.Table:
    return pa.table({name: evaluate(one, table).cast(program.states[name].type) for name, one in expressions.items()})


def _active(table: pa.Table) -> Mask:
    return np.asarray(table[ACTIVE].combine_chunks().fill_null(False).to_numpy(zero_copy_only=False), np.bool_)


def _beside(attributes: pa.Table, states: pa.Table) -> pa.Table:
    return pa.table({table_name: table[table_name] for table in (attributes, states) for table_name in table.column_names})


def _mirrored(part: GraphPartition, table: pa.Table, names: Sequence[str]) -> Steps[dict[str, pa.Array]]:
    """Return columns of the mirrors."""
    if not names:
        return {}
    chosen = table.select(names).combine_chunks()
    received: list[pa.Table] = yield [chosen.take(pa.array(places)) for places in part.mirrored]
    mirrors = pa.concat_tables(received)
    return {name: mirrors[name].combine_chunks() for name in names}


def _messages(
    part: GraphPartition, program: ColumnProgram, vertices: pa.Table, mirrors: Mapping[str, pa.Array]
) -> tuple[list[_Messages], list[_Messages]]:
    """Return mirrors and messages to them, and places here and messages to these."""
    sources, targets = part.sources, part.targets
    if not len(sources):
        return [], []
    along = np.arange(len(sources))
    if program.skip_inactive:
        active = _active(vertices)[sources]
        if ACTIVE in mirrors:
            active |= _active(pa.table({ACTIVE: mirrors[ACTIVE]}))[targets]
        along = np.flatnonzero(active)
    at_source, at_target, edges = pa.array(sources[along]), pa.array(targets[along]), pa.array(along)
    columns = {f"src.{name}": vertices[name].take(at_source) for name in program.read_at("src")}
    columns.update({f"dst.{name}": mirrors[name].take(at_target) for name in program.read_at("dst")})
    columns.update({f"edge.{name}": part.edge_attributes[name].take(edges) for name in program.read_at("edge")})
    table = pa.table(columns or {"": pa.nulls(len(along))})
    outgoing: list[_Messages] = []
    local: list[_Messages] = []
    for message in program.messages:
        values = evaluate(message.expression, table)
        sent = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.bool_)
        ends = (sources if message.to_source else targets)[along[sent]]
        (local if message.to_source else outgoing).append((ends, values.filter(pa.array(sent))))
    return outgoing, local


def _combined(program: ColumnProgram, messages: Sequence[_Messages], count: int) -> pa.RecordBatch:
    """Return a row for each of ``count`` ends that get a message, in their order: the end, and the partial aggregates."""
    ends = join_columns([ends for ends, _ in messages])
    kind = program.message_type
    table = pa.table({MESSAGE: pa.concat_arrays([pa.nulls(0, kind), *(values.cast(kind) for _, values in messages)])})
    there, groups = _groups(ends, count)
    columns: dict[str, pa.Array] = {_END: pa.array(there)}
    for at, one in enumerate(program.aggregates):
        for part, column in enumerate(partial_aggregate(one, groups, len(there), table)):
            columns[f"{at}.{part}"] = column
    return pa.record_batch(columns)


def _by_owner(part: GraphPartition, sent: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Return what each worker has to get: ends are the indices of its vertices among its mirrors here."""
    ends = _places(sent)
    cuts = np.searchsorted(ends, part.bounds).tolist()
    return [
        sent.slice(start, end - start).set_column(0, _END, pa.array((ends[start:end] - bound).astype(np.int32)))
        for start, end, bound in zip(cuts, cuts[1:], part.bounds)
    ]


def _places(batch: pa.RecordBatch) -> Column:
    places: Column = batch[_END].to_numpy()
    return places


def _merged(part: GraphPartition, program: ColumnProgram, arrived: Sequence[tuple[Column, pa.RecordBatch]]) -> pa.Array:
    """Return the aggregated message of each vertex, null where there is none."""
    there, groups = _groups(np.concatenate([places for places, _ in arrived]), len(part))
    columns: dict[str, pa.Array] = {}
    for at, one in enumerate(program.aggregates):
        partials = [[batch[name] for name in batch.schema.names if name.startswith(f"{at}.")] for _, batch in arrived]
        columns[str(at)] = merged_aggregate(one, groups, len(there), partials)
    messages = evaluate(program.combined, pa.table({"id": part.nodes.take(pa.array(there)), **columns}))
    return spread(messages, there, len(part))


def _groups(ends: Column, count: int) -> tuple[Column, Column]:
    """Return which of so many ends there are, and the number of each one's group among these."""
    present = np.zeros(count, np.bool_)
    present[ends] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[ends]
