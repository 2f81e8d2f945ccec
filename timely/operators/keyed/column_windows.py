"""``windows`` and ``sessions`` on columns: rows of Arrow batches, each sent on to the time at which its window is complete.

``group_by`` aggregates them there. Invariant: no row becomes a Python object, and whether a row is late depends on its time and
its event time alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeAlias

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timely.dataflow import (
    Capability,
    CapabilitySet,
    Distribute,
    Exchange,
    InputCapability,
    InputPort,
    OperatorBuilder,
    OperatorInfo,
    OutputPort,
    Pipeline,
    Stream,
    route,
    scope_of,
)
from timely.errors import ConfigurationError, ContainerError, GraphError, SchemaError, TimestampError, brief
from timely.operators.keyed.column_numbers import canonical_keys
from timely.operators.keyed.grouping import group_by, together
from timely.operators.keyed.sorted_keys import Array
from timely.operators.state_registration import register_row_state
from timely.operators.type_variables import T
from timely.progress import Antichain, PathSummary, Step, time_domain

_START: Final = "window_start"
_END: Final = "window_end"

_LARGEST: Final = (1 << 63) - 1

_TICKS: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Ticks of a second, for each unit of timestamps."""

_LATER: Final[Antichain[PathSummary[Any]]] = Antichain([Step(1)])
"""What is on time is sent on to a later time, so that a window leaves as soon as the frontier is at its end."""

_Item: TypeAlias = tuple[int, pa.RecordBatch]
"""What a checkpoint has of sessions: a time at or before which none of the rows is due, and the rows."""


def windows_of_columns(
    stream: Stream[T, Any],
    size: Any,
    every: Any,
    at: str,
    key: str | Sequence[str] | None,
    due: Callable[[Any, Any], Any] | None,
    columns: Mapping[str, Any],
    name: str,
) -> tuple[Stream[T, Any], Stream[T, Any]]:
    """Return the aggregates of complete windows, and the late rows: ``windows`` for Arrow batches."""
    rows = _Rows.checked(name, at, key, columns, size, every, due=due)
    complete_at = due or (lambda ends, time: ends)
    builder: OperatorBuilder[Any] = OperatorBuilder(_whole_times(stream, name), name)
    builder.new_input(stream, Pipeline)
    complete, late = builder.new_output({0: _LATER}), builder.new_output()

    def constructor(capabilities: list[Capability[Any]], info: OperatorInfo) -> Callable[..., object]:
        info.declare_stateless()
        for capability in capabilities:
            capability.drop()

        def logic(input: InputPort[Any, Any], out: OutputPort[Any], too_late: OutputPort[Any]) -> None:
            batch: Any
            for capability, batch in input:
                events = rows.events(batch)
                length, step = events.lengths
                missed = too_late.session(capability)
                for chosen, starts in _windows(events.ticks, length, step):
                    of_window = batch if chosen is None else batch.take(pa.array(chosen))
                    ends = starts + length
                    times = rows.times(complete_at(events.given(ends), capability.time), len(ends))
                    if len(times) and times.min() <= capability.time:
                        on_time = times > capability.time
                        both = [(_START, events.column(starts)), (_END, events.column(ends))]
                        missed.give_batch(_appended(of_window, *both).filter(pa.array(~on_time)))
                        of_window, starts, times = of_window.filter(pa.array(on_time)), starts[on_time], times[on_time]
                    placed = _appended(of_window.select(rows.used), (_START, events.column(starts)))
                    if len(times):
                        with capability.delayed(int(times.min())) as held:
                            _send(placed, times, held, out)

        return logic

    def with_end(batch: pa.RecordBatch) -> pa.RecordBatch:
        starts = batch.column(len(rows.keys))
        length, _ = rows.lengths(starts.type)
        ends = pc.add(starts.cast(pa.int64()), length).cast(starts.type)
        return _appended(batch, (_END, ends)).select([*rows.keys, _START, _END, *columns])

    builder.build(constructor)
    return group_by(complete, [*rows.keys, _START], **columns).map_batch(with_end), late


def sessions_of_columns(
    stream: Stream[T, Any],
    gap: Any,
    at: str,
    key: str | Sequence[str] | None,
    due: Callable[[Any], Any] | None,
    columns: Mapping[str, Any],
    name: str,
) -> tuple[Stream[T, Any], Stream[T, Any]]:
    """Return the aggregates of complete sessions, and the late rows: ``sessions`` for Arrow batches."""
    rows = _Rows.checked(name, at, key, columns, gap, due=due)
    time_of = due or (lambda ends: ends)
    pact: Exchange | Distribute = (
        Exchange(rows.keys) if rows.keys else Distribute(lambda time, batch, workers: [(route(None) % workers, batch)])
    )
    builder: OperatorBuilder[Any] = OperatorBuilder(_whole_times(stream, name), name)
    builder.new_input(stream, pact)
    complete, late = builder.new_output({0: _LATER} if due is None else None), builder.new_output()

    def constructor(capabilities: list[Capability[Any]], info: OperatorInfo) -> Callable[..., object]:
        waiting: list[pa.RecordBatch] = []
        held: CapabilitySet[Any] = CapabilitySet()  # at or before the first time at which a session may be complete

        def save() -> Iterator[_Item]:
            return ((time, batch) for time in held.frontier for batch in waiting)

        def load(items: Iterable[_Item]) -> None:
            for time, batch in items:
                held.insert(capabilities[0].delayed(time))
                waiting.append(batch)

        register_row_state(info, pact, save, load)
        for capability in capabilities:
            capability.drop()

        def wait(capability: InputCapability[Any], batch: Any, too_late: OutputPort[Any]) -> None:
            events = rows.events(batch)
            on_time = rows.times(time_of(events.given(events.ticks)), len(batch)) >= capability.time
            if not on_time.all():
                too_late.session(capability).give_batch(batch.filter(pa.array(~on_time)))
            if on_time.any():
                ends = events.ticks[on_time] + events.lengths[0]
                held.insert(capability.delayed(int(rows.times(time_of(events.given(ends)), len(ends)).min())))
                sorted_events = _appended(batch.select(rows.used), (_START, events.column(events.ticks)))
                waiting.append(sorted_events.filter(pa.array(on_time)))

        def logic(input: InputPort[Any, Any], out: OutputPort[Any], too_late: OutputPort[Any]) -> None:
            for capability, batch in input:
                wait(capability, batch, too_late)
            # where each end has a time of its own, only events before that time can extend the session
            more_until = input.frontier.less_than if due is None else input.frontier.less_equal
            if not waiting or all(more_until(time) for time in held.frontier):
                return
            batch, keys = rows.sortable(waiting)
            waiting.clear()
            kind = batch.schema.field(_START).type
            lengths = rows.lengths(kind)
            order, starts, ends = _sessions(keys, _ticks(batch.column(_START)), lengths[0])
            sessions = _Events(kind, ends, lengths)
            times = rows.times(time_of(sessions.given(ends)), len(ends))
            over = np.ones(len(times), bool)
            for bound in input.frontier:
                over = times <= bound if due is None else times < bound
            if (order[1:] < order[:-1]).any():
                batch = batch.take(pa.array(order))
            if over.any():
                both = (_START, sessions.column(starts[over])), (_END, sessions.column(ends[over]))
                done = _appended(batch.select(rows.used).filter(pa.array(over)), *both)
                _send(done, times[over], held.allowing(int(times[over].min())), out)
            if over.all():
                held.drop()
            else:
                waiting.append(batch.filter(pa.array(~over)))
                held.downgrade([int(times[~over].min())])

        return logic

    builder.build(constructor)
    return group_by(complete, [*rows.keys, _START], **{_END: (_END, "max")}, **columns), late


class _Events(NamedTuple):
    """Event times as whole numbers, with their type and the lengths of windows in the same unit."""

    kind: pa.DataType
    ticks: Array
    lengths: Sequence[int]

    def given(self, ticks: Array) -> Array:
        """Return ticks as ``due`` gets them."""
        return ticks.view(f"datetime64[{self.kind.unit}]") if pa.types.is_timestamp(self.kind) else ticks

    def column(self, ticks: Array) -> pa.Array:
        return pa.array(ticks).cast(self.kind)


@attrs.frozen
class _Rows:
    """The columns of batches that are read: the event time, the keys and what is aggregated."""

    name: str
    at: str
    keys: list[str]
    used: list[str]
    _lengths: Sequence[Any]

    @staticmethod
    def checked(name: str, at: str, key: Any, columns: Mapping[str, Any], *lengths: Any, due: Callable[..., Any] | None) -> _Rows:
        """Return it, or raise ``GraphError`` and ``ConfigurationError`` for what ``name`` cannot do."""
        keys: list[Any] = (
            [] if key is None else [key] if isinstance(key, str) else list(key) if isinstance(key, Iterable) else [None]
        )
        if not all(isinstance(column, str) for column in keys):
            raise GraphError(
                f"{name} with a column as at= takes the name of a column as key=, or a list of names, not {brief(key)}"
            )
        if taken := {_START, _END} & {*keys, *columns}:
            raise GraphError(f"{name} adds the columns {_START} and {_END}: give {' and '.join(sorted(taken))} another name")
        if not any(all(isinstance(length, kind) for length in lengths) for kind in (int, timedelta)):
            raise ConfigurationError(
                f"{name} on columns takes lengths in whole numbers, or timedeltas for timestamps, not {brief(lengths)}"
            )
        if due is None and isinstance(lengths[0], timedelta):
            raise ConfigurationError(
                f"{name} of timestamps needs due=, which returns for ends the times of the scope at which they are complete"
            )
        sources = [column[0] for column in columns.values() if isinstance(column, tuple) and isinstance(column[0], str)]
        return _Rows(name, at, keys, list(dict.fromkeys([*keys, *sources])), lengths)

    def events(self, batch: Any) -> _Events:
        """Return the event times of a batch; ``SchemaError`` for what is none."""
        if not isinstance(batch, pa.RecordBatch):
            raise ContainerError(
                f"{self.name} with a column as at= is for Arrow record batches, and what came is a {type(batch).__name__}: make"
                " a batch with map_batch, or give a function"
            )
        names, wanted = batch.schema.names, list(dict.fromkeys([self.at, *self.used]))
        if _START in names or _END in names or any(names.count(column) != 1 for column in wanted):
            raise SchemaError(
                f"{self.name} needs each of the columns {wanted} once, and none named {_START} or {_END}: it got {names}"
            )
        column = batch.column(self.at)
        kind = pa.int64() if pa.types.is_integer(column.type) else column.type
        lengths = self.lengths(kind)
        if column.null_count:
            raise SchemaError(
                f"{self.name}: {column.null_count} of {len(column)} event times in {self.at!r} are missing, and their rows are in"
                " no window: filter them with map_batch"
            )
        try:
            ticks = _ticks(column)
        except pa.ArrowInvalid as error:  # of uint64
            raise SchemaError(f"{self.name}: the event times in {self.at!r} do not fit into int64: {error}") from error
        lowest, highest = (int(ticks.min()), int(ticks.max())) if len(ticks) else (0, 0)
        if lowest < max(lengths) - _LARGEST or highest > _LARGEST - max(lengths):
            raise SchemaError(
                f"{self.name}: the event times in {self.at!r} go from {lowest} to {highest}, and their windows beyond 64 bits"
            )
        if lowest < 0 and lengths[0] != lengths[-1]:
            raise SchemaError(
                f"{self.name}: sliding windows start from 0 on, 1970 for timestamps, and the least event time in {self.at!r} is"
                f" {lowest}: move them with map_batch"
            )
        return _Events(kind, ticks, lengths)

    def lengths(self, kind: pa.DataType) -> Sequence[int]:
        """Return the lengths in the unit of event times of this type."""
        sizes = self._lengths
        if isinstance(sizes[0], int) and pa.types.is_integer(kind):
            return sizes
        if not isinstance(sizes[0], timedelta) or not pa.types.is_timestamp(kind):
            takes = "timestamps" if isinstance(sizes[0], timedelta) else "whole numbers"
            raise SchemaError(
                f"{self.name}: with the lengths {brief(sizes)} the event times in {self.at!r} are {takes}, not {kind}: cast them"
                " with map_batch"
            )
        parts = [divmod(length // timedelta(microseconds=1) * _TICKS[kind.unit], _TICKS["us"]) for length in sizes]
        if any(rest for _, rest in parts):
            raise SchemaError(
                f"{self.name}: the lengths {brief(sizes)} are no whole numbers of the unit of {self.at!r}, which is {kind}: cast"
                " it with map_batch"
            )
        return [length for length, _ in parts]

    def times(self, due: Any, rows: int) -> Array:
        """Return what ``due`` returned as one time for each row."""
        ends = np.asarray(due)
        if ends.dtype.kind not in "iu" or ends.shape not in ((), (rows,)):
            raise TimestampError(
                f"{self.name}: due= gets a NumPy array of ends and returns a whole number for each: it returned {brief(due)}"
            )
        return np.broadcast_to(ends, (rows,))

    def sortable(self, batches: Sequence[pa.RecordBatch]) -> tuple[pa.RecordBatch, list[Array]]:
        """Return batches as one, with numbers for the values of each key."""
        try:
            batch, *others = canonical_keys(together(batches), self.keys).combine_chunks().to_batches()
            columns = [pc.dictionary_encode(batch.column(name), null_encoding="encode") for name in self.keys]
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise SchemaError(f"{self.name} cannot sort by the columns {self.keys}: {error}; cast them with map_batch") from error
        if others:
            raise SchemaError(f"{self.name}: open sessions with over 2 GB of text in a column: cast it to large_string")
        return batch, [column.indices.to_numpy() for column in columns]


def _windows(events: Array, size: int, every: int) -> Iterator[tuple[Array | None, Array]]:
    """Yield rows, ``None`` for all of them, and the start of a window of each, until each row had all of its windows."""
    numbers = events // every
    yield None, numbers * every
    for back in range(1, -(-size // every)):
        starts = (numbers - back) * every
        chosen = np.flatnonzero((numbers >= back) & (starts + size > events))  # windows start from 0 on
        if len(chosen):
            yield chosen, starts[chosen]


def _sessions(keys: Sequence[Array], events: Array, gap: int) -> tuple[Array, Array, Array]:
    """Return the order of the rows by key and event time, and then for each the start and the end of its session."""
    order = np.lexsort((events, *keys)) if keys else np.argsort(events, kind="stable")
    ordered = events[order]
    first = np.ones(len(order), bool)
    first[1:] = ordered[1:] >= ordered[:-1] + gap
    for numbers in keys:
        first[1:] |= np.diff(numbers[order]) != 0
    places = np.flatnonzero(first)
    session = np.cumsum(first) - 1
    last = np.append(places[1:], len(order)) - 1
    return order, ordered[places][session], (ordered[last] + gap)[session]


def _send(batch: pa.RecordBatch, times: Array, held: Capability[Any], output: OutputPort[Any]) -> None:
    """Send each row at its time."""
    starts = _runs(times)
    if (times[starts[1:]] < times[starts[:-1]]).any():
        order = np.argsort(times, kind="stable")
        batch, times = batch.take(pa.array(order)), times[order]
        starts = _runs(times)
    session = output.session(held)
    for start, stop in itertools.pairwise([*starts.tolist(), len(times)]):
        session.give_batch(batch.slice(start, stop - start), int(times[start]))


def _runs(numbers: Array) -> Array:
    """Return where equal numbers in a row begin."""
    return np.append(0, np.flatnonzero(numbers[1:] != numbers[:-1]) + 1)


def _ticks(column: pa.Array) -> Array:
    ticks: Array = column.cast(pa.int64()).to_numpy()
    return ticks


def _appended(batch: pa.RecordBatch, *columns: tuple[str, pa.Array]) -> pa.RecordBatch:
    for name, column in columns:
        batch = batch.append_column(name, column)
    return batch


def _whole_times(stream: Stream[T, Any], name: str) -> Any:
    """Return the scope of a stream, whose times are whole numbers."""
    scope = scope_of(stream, name)
    if scope.time is not int:
        raise TimestampError(
            f"{name} on columns is for times of type int, not {time_domain(scope.time).name}: give functions as at= and"
            " key=, which read records"
        )
    return scope
