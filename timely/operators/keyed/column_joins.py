"""``join`` on columns: the pairs of rows of Arrow batches, over the times of a lattice.

Each side is a few sorted runs. Invariant: no row becomes a Python object, and a row is sorted and copied a logarithmic number of
times.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timely.dataflow import (
    Capability,
    Exchange,
    InputPort,
    OperatorInfo,
    OutputPort,
    Pipeline,
    Stream,
    route_column,
    scope_of,
)
from timely.errors import ContainerError, GraphError, SchemaError, brief
from timely.operators.generic import binary_frontier, stateless, unary
from timely.operators.keyed.merge_policy import GEOMETRIC
from timely.operators.keyed.sorted_keys import Array, SortedKeys, pairs, sorted_keys
from timely.operators.pending import Pending
from timely.operators.state_registration import register_row_state, register_union_state
from timely.operators.type_variables import T
from timely.progress import Antichain, Lattice, lattice

_Item: TypeAlias = tuple[int, Any, pa.RecordBatch]
"""What a checkpoint has: the side, a time and rows."""

_WAITING: Final = 1 << 20
"""Rows of one side that wait at most for their times to be complete: a hundred small joins cost as much as one large one."""

_MOST: Final = 1 << 18
"""Rows of a batch that is sent, unless one row has more partners."""

_LARGE: Final = 1 << 30
"""Bytes of a run from which on it is not merged: Arrow's text columns hold twice as much at most."""

_MIX: Final = np.int64(-0x61C8864680B583EB)
"""2**64 over the golden ratio, as 64 bits with a sign: products wrap round."""

_LOW_BITS: Final = (1 << 64) - 1


def join_columns(stream: Stream[T, Any], other: Stream[T, Any], on: str | Sequence[str], name: str) -> Stream[T, Any]:
    """Return the pairs of rows with equal values in the columns ``on``: ``join`` for Arrow batches."""
    names = [on] if isinstance(on, str) else list(on) if isinstance(on, Iterable) else []
    if not names or not all(isinstance(column, str) for column in names) or len(set(names)) < len(names):
        raise GraphError(f"join takes on= as the name of a column, or a list of different names, not {brief(on)}")
    bounds: Lattice[T] = lattice(scope_of(stream, name).time)
    exchange = Exchange(names)

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[..., object]:
        sides = _Side("left", names, bounds), _Side("right", names, bounds)

        def stored() -> Iterator[_Item]:
            return ((flip, time, batch) for flip, side in enumerate(sides) for time, batch in side.content())

        def store(items: Iterable[_Item]) -> None:
            for flip, time, batch in items:
                sides[flip].store(sides[flip].rows(time, [sides[flip].checked(batch)]), [])

        def waiting() -> Iterator[_Item]:
            for flip, side in enumerate(sides):
                for time, (_, batches) in side.pending.items():
                    yield from ((flip, time, batch) for batch in batches)

        def wait(items: Iterable[_Item]) -> None:
            for flip, time, batch in items:
                sides[flip].wait(capability.delayed(time), batch)

        log = register_row_state(info, exchange, stored, store, logged=True)
        register_row_state(info, exchange, waiting, wait)
        capability.drop()

        def logic(left: InputPort[T, Any], right: InputPort[T, Any], output: OutputPort[T]) -> None:
            ports = left, right
            for flip, (mine, port, others) in enumerate(zip(sides, ports, reversed(sides), strict=True)):
                for arrived, batch in port:
                    mine.wait(arrived.retain(), batch)
                frontier = bounds.lower_envelope([*ports[1 - flip].frontier, *others.pending.minimum()])
                for time, held, rows in mine.due(port.frontier):
                    for when, joined in _joined(rows, mine, others, bounds):
                        with held.delayed(when) as later:
                            output.session(later).give_batch(joined)
                    if frontier:  # else nothing comes that it could meet
                        mine.store(rows, frontier)
                        log.append(None, (flip, time, rows.batch))
            if not log.kept or left.frontier or right.frontier:  # a resumed run may have more, which needs all of it
                for mine, port in zip(sides, reversed(ports), strict=True):
                    if not port.frontier:
                        mine.runs.clear()

        return logic

    _compare_columns(stream, other, names, bounds, name)
    return binary_frontier(stream, other, exchange, exchange, name, constructor)


def _compare_columns(stream: Stream[T, Any], other: Stream[T, Any], on: list[str], bounds: Lattice[T], name: str) -> None:
    """Compare the columns of both sides on one worker: keys of types that differ may never meet on any worker."""
    seen: dict[str, pa.Schema] = {}

    def announce(input: InputPort[T, Any], output: OutputPort[T], *, label: str) -> None:
        for time, batch in input:
            if isinstance(batch, pa.RecordBatch) and seen.get(label) != batch.schema:  # what is none is refused by the join
                seen[label] = batch.schema
                output.session(time).give((label, batch.schema))

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[..., object]:
        sides = {label: _Side(label, on, bounds) for label in ("left", "right")}

        def check(schemas: Iterable[tuple[str, pa.Schema]]) -> None:
            for label, schema in schemas:
                sides[label].checked(pa.RecordBatch.from_pylist([], schema=schema))
            if all(side.schema for side in sides.values()):
                _check_sides(sides["left"], sides["right"])

        def known() -> Iterator[tuple[str, pa.Schema]]:
            """Return the columns of what came: a resumed run has rows of it, on any worker."""
            return ((label, side.schema) for label, side in sides.items() if side.schema)

        register_union_state(info, known, check)
        capability.drop()

        def logic(input: InputPort[T, Any], output: OutputPort[T]) -> None:
            for _, schemas in input:
                check(schemas)

        return logic

    left, right = (
        stateless(each, Pipeline, f"{name} (columns of the {label})", functools.partial(announce, label=label))
        for label, each in (("left", stream), ("right", other))
    )
    unary(left.concat(right), Exchange(lambda _: 0), f"{name} (columns)", constructor)


class _Rows(NamedTuple):
    """A run: rows in the order of arrival, with what sorts them."""

    numbers: SortedKeys
    order: Array
    batch: pa.RecordBatch
    times: list[Any]
    codes: Array | None
    """For each row the place of its time; ``None`` where there is one time."""

    @property
    def size(self) -> int:
        return int(self.batch.nbytes)

    def codes_of_rows(self) -> Array:
        return np.zeros(len(self.batch), np.int64) if self.codes is None else self.codes


@attrs.define(eq=False)
class _Side:
    """The rows of one input."""

    label: str
    on: list[str]
    _bounds: Lattice[Any]
    runs: list[_Rows] = attrs.field(factory=list)
    pending: Pending[Any, tuple[Capability[Any], list[pa.RecordBatch]]] = attrs.field(factory=Pending)
    schema: pa.Schema | None = None
    _waiting: int = 0

    @property
    def exact(self) -> bool:
        """Whether rows of equal numbers have equal keys."""
        assert self.schema is not None
        return len(self.on) == 1 and pa.types.is_integer(self.schema.field(self.on[0]).type)

    def wait(self, held: Capability[Any], batch: Any) -> None:
        """Keep rows until their time is complete or enough wait."""
        self.pending.at(held.time, lambda: (held, []))[1].append(self.checked(batch))
        self._waiting += len(batch)

    def due(self, frontier: Antichain[Any]) -> Iterator[tuple[Any, Capability[Any], _Rows]]:
        """Yield the rows of complete times, or all if there are many, with their times and capabilities."""
        many = self._waiting >= _WAITING
        for time, (held, batches) in self.pending.take(lambda time: many or not frontier.less_equal(time)):
            for portion in _portions(batches):
                self._waiting -= sum(map(len, portion))
                yield time, held, self.rows(time, portion)
            held.drop()

    def rows(self, time: Any, batches: Sequence[pa.RecordBatch]) -> _Rows:
        """Return the rows that can have partners, sorted: those that have all values of the key."""
        batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        for name in self.on:
            column = batch.column(name)
            missing = pc.is_null(column, nan_is_null=True) if column.null_count or pa.types.is_floating(column.type) else None
            if missing is not None:
                batch = batch.filter(pc.invert(missing))
        numbers = [_signed(route_column(batch.column(name))) for name in self.on]
        keys, order = sorted_keys(functools.reduce(lambda one, two: one * _MIX + two, numbers))
        return _Rows(keys, order, batch, [time], None)

    def store(self, rows: _Rows, frontier: Sequence[Any]) -> None:
        """Store a run; ``frontier`` is of the other side's times from now on, and only what matters there is stored of times."""
        runs = self.runs
        if len(rows.batch):
            runs.append(rows)
        while due := GEOMETRIC.due([len(run.batch) for run in runs]):
            older, newer = runs[due]
            if older.size + newer.size >= _LARGE:
                break
            runs[due] = [self._merged(older, newer, frontier)]

    def content(self) -> Iterator[tuple[Any, pa.RecordBatch]]:
        """Yield the rows by time."""
        for run in self.runs:
            codes = run.codes_of_rows()
            for code, time in enumerate(run.times):
                if len(rows := np.flatnonzero(codes == code)):
                    yield time, run.batch.take(pa.array(rows))

    def _merged(self, one: _Rows, other: _Rows, frontier: Sequence[Any]) -> _Rows:
        places: dict[Any, int] = {}
        codes = []
        for run in (one, other):
            advanced = [self._bounds.advance(time, frontier) for time in run.times]
            table = np.array([places.setdefault(time, len(places)) for time in advanced], np.int64)
            codes.append(table[run.codes_of_rows()])
        numbers = np.concatenate([np.repeat(run.numbers.keys, np.diff(run.numbers.offsets)) for run in (one, other)])
        order = np.concatenate((one.order, other.order + len(one.batch)))
        keys, again = sorted_keys(numbers, runs=True)
        batch = pa.concat_batches([one.batch, other.batch])
        return _Rows(keys, order[again], batch, list(places), np.concatenate(codes) if len(places) > 1 else None)

    def checked(self, batch: Any) -> pa.RecordBatch:
        """Return a batch with the columns of those before it, and without dictionaries or views."""
        if not isinstance(batch, pa.RecordBatch):
            raise ContainerError(
                f"join(on=...) is for Arrow record batches, and what came on the {self.label} is a {type(batch).__name__}: join"
                " pairs (key, value) without on=, or make a batch with map_batch"
            )
        names = batch.schema.names
        if self.schema is None:
            if len(set(names)) < len(names) or not set(self.on) <= set(names):
                raise SchemaError(f"join on {self.on}: the {self.label} needs each column once, and has {names}")
            fields = [pa.field(field.name, _plain(field.type)) for field in batch.schema]
            self.schema = pa.schema(fields)
        kinds = {field.name: _plain(field.type) for field in batch.schema}
        if len(kinds) < len(names) or kinds != {field.name: field.type for field in self.schema}:
            raise SchemaError(
                f"join on {self.on}: the batches of the {self.label} differ in their columns, {_shown(self.schema)} and then"
                f" {_shown(batch.schema)}: give all of them the same ones with map_batch"
            )
        columns = [batch.column(field.name) for field in self.schema]
        cast = [column.cast(field.type) for field, column in zip(self.schema, columns, strict=True)]
        return pa.RecordBatch.from_arrays(cast, schema=self.schema)


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type to store a column as: Arrow takes no rows of views, and batches have different dictionaries."""
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    return {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}.get(kind, kind)


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _signed(numbers: Array) -> Array:
    """Return routing numbers as 64 bits with a sign: different ones may become equal, equal ones stay so."""
    if numbers.dtype == object:
        numbers = (numbers & _LOW_BITS).astype(np.uint64)
    return numbers.view(np.int64)


def _check_sides(one: _Side, other: _Side) -> None:
    """Raise ``SchemaError`` where keys cannot be compared, or a column would be there twice."""
    left, right = (one, other) if one.label == "left" else (other, one)
    assert left.schema is not None
    assert right.schema is not None
    for name in left.on:
        kinds = left.schema.field(name).type, right.schema.field(name).type
        alike = kinds[0] == kinds[1] or any(all(map(is_one, kinds)) for is_one in _ALIKE)
        if not alike and not any(map(pa.types.is_null, kinds)):  # a column without values meets none
            raise SchemaError(
                f"join on {left.on}: {name!r} is {kinds[0]} on the left and {kinds[1]} on the right: cast one of them"
                " with map_batch"
            )
    if twice := [name for name in left.schema.names if name in right.schema.names and name not in left.on]:
        raise SchemaError(
            f"join on {left.on}: both sides have {twice}: rename them on one side with map_batch, or join on them too"
        )


_ALIKE: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    lambda kind: pa.types.is_integer(kind) and not pa.types.is_uint64(kind),
    lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
    lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind),
)
"""Kinds of types whose values can be compared with each other's."""


def _joined(rows: _Rows, mine: _Side, others: _Side, bounds: Lattice[Any]) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """Yield the pairs of a run with the other side's rows, by time."""
    if others.runs and len(rows.batch):
        _check_sides(mine, others)
    flip, (time,) = mine.label == "right", rows.times
    for run in others.runs:
        table: dict[Any, list[int]] = {}
        for code, when in enumerate(run.times):
            table.setdefault(bounds.lub(time, when), []).append(code)
        for _, first, second in pairs(rows.numbers, run.numbers, _MOST):
            chosen = rows.order[first], run.order[second]
            for bound, codes in table.items():
                here = chosen
                if len(table) > 1:
                    assert run.codes is not None
                    places = np.flatnonzero(np.isin(run.codes[chosen[1]], codes))
                    here = chosen[0][places], chosen[1][places]
                ends = [batch.take(pa.array(places)) for batch, places in zip((rows.batch, run.batch), here, strict=True)]
                left, right = reversed(ends) if flip else ends
                joined = _side_by_side(left, right, mine)
                if len(joined):
                    yield bound, joined


def _side_by_side(left: pa.RecordBatch, right: pa.RecordBatch, side: _Side) -> pa.RecordBatch:
    """Return the rows of two batches side by side, without those whose keys differ."""
    if not side.exact:
        equal = [pc.equal(left.column(name), right.column(name)) for name in side.on]
        mask = functools.reduce(pc.and_, equal)
        if mask.true_count < len(mask):
            left, right = left.filter(mask), right.filter(mask)
    rest = [(batch, [name for name in batch.schema.names if name not in side.on]) for batch in (left, right)]
    columns = {name: batch.column(name) for batch, names in ((left, side.on), *rest) for name in names}
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _portions(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yield batches in lists that Arrow can concatenate."""
    portion: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        size += batch.nbytes
        if portion and size >= _LARGE:
            yield portion
            portion, size = [], batch.nbytes
        portion.append(batch)
    yield portion
