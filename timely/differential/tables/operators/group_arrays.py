"""Groups as arrays: a group is a code, and each sum of all groups is one array, of 64 bits while that holds its numbers.

Times have one order here, so what the groups are at the last complete time is all that is kept, without a history. A checkpoint
holds what it does of a reduction, so that one with a memory limit, whose state goes to disk, goes on from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import chain
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

import attrs
import numpy as np
import pyarrow as pa

from timely.dataflow import Capability, InputPort, OperatorInfo, OutputPort, Stream, route
from timely.differential.operators.arrangement import pact_for
from timely.differential.operators.reductions import Restored
from timely.differential.operators.scope_times import bounds_in, due_in
from timely.differential.tables.expressions.column_compiler import column_of
from timely.differential.tables.operators.aggregations import AggregateCall
from timely.differential.trace.compaction_frontier import Holds
from timely.differential.trace.deltas import RowDelta
from timely.differential.trace.entries import Entry
from timely.differential.trace.state_memory import guarded
from timely.differential.trace.trace import Trace
from timely.differential.trace.trace_limits import TraceLimits
from timely.differential.trace.trace_state import TraceState
from timely.differential.updates.int_columns import split
from timely.differential.updates.rings import Vector
from timely.differential.updates.row_columns import ArrowValues, Fixed, LazyColumn, RowColumns, values_of
from timely.differential.updates.updates import Update, consolidate
from timely.errors import StateError
from timely.operators.generic import unary_frontier
from timely.operators.keyed.column_kernels import NoKernel
from timely.operators.pending import Pending
from timely.operators.state_registration import register_keyed_state
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)

Array: TypeAlias = np.ndarray[Any, Any]

_LIMIT: Final = 1 << 63
"""What numbers of 64 bits are less than."""

_BLOCKS: Final = (1024 + 1073) // 8 + 1
"""Blocks of 8 exponents, of all that floats have."""


class GroupUpdates:
    """Updates of groups: the columns of their keys, each key once, and an array of what is added to each sum.

    Iteration gives pairs ``(key, Vector)``; sums of decimals are whole numbers in the arrays, of ``scales`` digits.
    """

    __slots__ = ("keys", "scales", "sums")

    def __init__(self, keys: RowColumns, sums: Sequence[Array], scales: Sequence[int]) -> None:
        self.keys = keys
        self.sums = sums
        self.scales = scales

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[Update]:
        vectors = map(Vector, zip(*map(_numbers, self.sums, self.scales), strict=True))
        return zip(self.keys.rows(), vectors, strict=True)

    def __reduce__(self) -> tuple[object, ...]:
        return GroupUpdates, (self.keys, self.sums, self.scales)

    def routed(self, pairs: bool) -> bool:
        """Return whether ``parts`` exchanges it as its rows are."""
        return not pairs

    def parts(self, workers: int) -> list[tuple[int, GroupUpdates]]:
        """Return pairs ``(worker, updates)``, by key, as ``Updates.parts`` does."""
        return [(0, self)] if workers == 1 else split(self, self.keys.owners(workers), workers)

    def chosen(self, rows: Any) -> GroupUpdates:
        """Return some of the updates, by number or as a slice."""
        return GroupUpdates(self.keys.chosen(rows), [column[rows] for column in self.sums], self.scales)


def _numbers(column: Array, scale: int) -> list[Any]:
    """Return an array as Python's numbers, with fractions for those of decimals."""
    if not scale:
        plain: list[Any] = column.tolist()
        return plain
    unit = 10**scale
    return [Fraction(number, unit) for number in column.tolist()]


def _greatest(column: Array) -> int:
    """Return the greatest absolute value of whole numbers."""
    return max(int(column.max()), -int(column.min())) if len(column) else 0


def _added(one: Array, other: Array) -> Array:
    """Return the sums of two arrays, exactly."""
    if one.dtype == other.dtype == np.int64:
        total = one + other
        if not ((one ^ total) & (other ^ total) < 0).any():
            return total
    objects: Array = one.astype(object) + other.astype(object)
    return objects


def added_up(column: Array, groups: Array, count: int) -> Array:
    """Return the sums of the numbers of each of ``count`` groups, exactly: ``groups`` has the group of each number.

    >>> added_up(np.array([1, 2, 1 << 62, 1 << 62]), np.array([0, 0, 1, 1]), 2).tolist() == [3, 1 << 63]
    True
    """
    if column.dtype == np.int64 and _greatest(column) * len(column) >= _LIMIT:
        column = column.astype(object)
    total = np.zeros(count, column.dtype)
    np.add.at(total, groups, column)
    return total


def floats_added_up(column: Array, groups: Array, count: int) -> Array:
    """Return what ``added_up`` does of finite floats, in the units of ``float_parts``.

    Mantissas of a group are added up whose exponents are near, so that Python's numbers are made of sums alone.

    >>> floats_added_up(np.array([0.5, 1e300, -1e300]), np.zeros(3, np.int64), 1).tolist() == [1 << 1073]
    True
    """
    mantissas, exponents = np.frexp(column)
    places = exponents + 1073  # of the last bit of 53, which is 52 places before the least float
    whole = (mantissas * (1 << 53)).astype(np.int64) << (places & 7)
    encoded = pa.array(groups * np.int64(_BLOCKS) + (places >> 3)).dictionary_encode()
    parts, pairs = encoded.indices.to_numpy(), encoded.dictionary.to_numpy()
    high, low = (added_up(half, parts, len(pairs)).astype(object) for half in (whole >> 30, whole & (1 << 30) - 1))
    units = np.zeros(count, object)
    np.add.at(units, pairs // _BLOCKS, ((high << 30) + low) << (8 * (pairs % _BLOCKS)).astype(object))
    shifted: Array = units >> 52
    return shifted


def times(column: Array, factor: int) -> Array:
    """Return numbers times a factor, exactly.

    >>> times(np.array([1 << 62]), 2).tolist() == [1 << 63]
    True
    """
    if factor == 1 or not column.any():
        return column  # also where the factor has more than 64 bits
    product: Array = (column if _greatest(column) * abs(factor) < _LIMIT else column.astype(object)) * factor
    return product


def _any_there(sums: Sequence[Array]) -> Array:
    """Return which groups have a sum that is not zero."""
    there: Array = np.any([column != 0 for column in sums], axis=0)
    return there


class _GroupArrays:
    """The sums of all groups of this worker; the first counts their rows. A key of one value is that value, in ``codes``."""

    def __init__(self, calls: Sequence[AggregateCall], single: bool) -> None:
        forms = self._forms = [call.sums for call in calls]
        self._kinds = [call.kind for call in calls]
        self._single = single
        self.scales = [0, *(scale for form in forms for scale in form.scales)]
        self.codes: dict[Any, int] = {}
        self._free: list[int] = []
        self._sums: list[Array] = [np.zeros(0, np.int64) for _ in self.scales]

    def add(self, batches: Sequence[Any]) -> list[Any]:
        """Add updates of groups, and return how their results change, as containers."""
        table = None
        if all(isinstance(batch, GroupUpdates) for batch in batches):
            table = _concatenated([batch.keys for batch in batches])
        if table is not None:
            return self._add_columns(table, batches)
        changes = self._add_rows(batches[0] if len(batches) == 1 else consolidate(chain.from_iterable(batches)))
        return [changes] if changes else []

    def _add_rows(self, updates: Iterable[Update]) -> list[Update]:
        changes: list[Update] = []
        for record, vector in updates:
            key = record[0] if self._single else record
            code = self.codes.get(key)
            if code is None:
                code = self.codes[key] = self._free.pop() if self._free else len(self.codes)
                self._make_room()
            before = [column.item(code) for column in self._sums]
            after = before.copy()
            for place, number in enumerate(vector):
                if number:
                    scale = self.scales[place]
                    after[place] += int(number * 10**scale) if scale else number
                    self._put(place, code, after[place])
            was, is_now = any(before), any(after)
            result, new = self._result(before) if was else None, self._result(after) if is_now else None
            if not is_now:
                self._free.append(self.codes.pop(key))
            if result != new:
                changes += [((record, values), diff) for values, diff in ((result, -1), (new, 1)) if values is not None]
        return changes

    def _put(self, place: int, code: int, number: Any) -> None:
        column = self._sums[place]
        if column.dtype != object and (type(number) is not int or abs(number) >= _LIMIT):
            column = self._sums[place] = column.astype(object)
        column[code] = number

    def _result(self, sums: Sequence[Any]) -> tuple[Any, ...]:
        values, start = [], 1
        for form in self._forms:
            numbers = sums[start : start + form.size]
            if form.decimals:
                numbers = [*numbers[:-1], Fraction(numbers[-1], 10**form.decimals)]
            values.append(form.result(numbers))
            start += form.size
        return tuple(values)

    def _add_columns(self, table: RowColumns, batches: Sequence[GroupUpdates]) -> list[Any]:
        parts = [self._keys_of(batch.keys) for batch in batches]
        codes = np.concatenate(list(map(self._codes_of, parts)))
        keys = parts[0] if len(parts) == 1 else list(chain.from_iterable(parts))
        sums = [np.concatenate(columns) for columns in zip(*(batch.sums for batch in batches))]
        if len(parts) > 1:
            unique, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
            if len(unique) < len(codes):
                sums = [added_up(column, inverse, len(unique)) for column in sums]
                codes, table, keys = unique, table.chosen(first), [keys[row] for row in first.tolist()]
        before = [column[codes] for column in self._sums]
        after = list(map(_added, before, sums))
        for place, column in enumerate(after):
            if column.dtype == object and self._sums[place].dtype != object:
                self._sums[place] = self._sums[place].astype(object)
            self._sums[place][codes] = column
        was, is_now = _any_there(before), _any_there(after)
        changed = (was != is_now) | (_any_there(sums[1:]) if len(sums) > 1 else False)
        for row in np.flatnonzero(~is_now).tolist():
            self._free.append(self.codes.pop(keys[row]))
        results = self._results(table, before, np.flatnonzero(was & changed), -1)
        return results + self._results(table, after, np.flatnonzero(is_now & changed), 1)

    def _keys_of(self, table: RowColumns) -> Sequence[Any]:
        if not self._single:
            return table.rows()
        column = table.columns[0].get()
        plain = not isinstance(column, Fixed) and not pa.types.is_floating(column.type)
        values: list[Any] = column.to_pylist() if plain else values_of(column)
        return values

    def _codes_of(self, keys: Sequence[Any]) -> Array:
        """Return the codes of groups, each of which is there once, and make those that are new."""
        known, free = self.codes, self._free
        codes = np.array([-1 if code is None else code for code in map(known.get, keys)], np.int64)
        new = np.flatnonzero(codes < 0).tolist()
        if new:
            reused = [free.pop() for _ in range(min(len(free), len(new)))]
            made = [*reused, *range(len(known) + len(reused) + len(free), len(known) + len(free) + len(new))]
            known.update(zip([keys[row] for row in new], made, strict=True))
            codes[new] = made
            self._make_room()
        return codes

    def _make_room(self) -> None:
        size, room = len(self.codes) + len(self._free), len(self._sums[0])
        if size > room:
            more = max(size, room * 3 // 2) - room
            self._sums = [np.append(column, np.zeros(more, column.dtype)) for column in self._sums]

    def _results(self, table: RowColumns, sums: Sequence[Array], rows: Array, diff: int) -> list[Any]:
        if not len(rows):
            return []
        chosen, columns, start = [column[rows] for column in sums], [], 1
        for form in self._forms:
            numbers = chosen[start : start + form.size]
            whole = form.columns is not None and all(column.dtype != object for column in numbers)
            columns.append(form.columns(numbers) if form.columns is not None and whole else None)
            start += form.size
        table = table.chosen(rows)
        if any(column is None for column in columns):
            results = list(map(self._result, zip(*(column.tolist() for column in chosen), strict=True)))
            try:
                columns = [column_of(kind, values) for kind, values in zip(self._kinds, zip(*results), strict=True)]
            except (NoKernel, pa.ArrowException, OverflowError):
                return [[(pair, diff) for pair in zip(table.rows(), results, strict=True)]]
        return [RowColumns((*table.columns, *map(LazyColumn, columns)), len(rows), diff)]

    def pairs(self, container: Any) -> Iterable[Update]:
        """Return results as pairs."""
        if not isinstance(container, RowColumns):
            return container  # type: ignore[no-any-return]
        width = len(container.columns) - len(self._forms)
        return (((row[:width], row[width:]), diff) for row, diff in container)

    # -- checkpoints -----------------------------------------------------------------------------------------------

    def saved(self) -> Iterator[tuple[Any, Vector]]:
        """Return the groups and their sums."""
        numbers = map(_numbers, self._of_all(), self.scales)
        return zip(self._records(), map(Vector, zip(*numbers, strict=True)), strict=True)

    def saved_results(self) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        """Return the groups and their results."""
        numbers = zip(*(column.tolist() for column in self._of_all()), strict=True)
        return zip(self._records(), map(self._result, numbers), strict=True)

    def _records(self) -> Iterable[Any]:
        return zip(self.codes) if self._single else self.codes

    def _of_all(self) -> list[Array]:
        codes = np.array(list(self.codes.values()), np.int64)
        return [column[codes] for column in self._sums]


def _concatenated(tables: Sequence[RowColumns]) -> RowColumns | None:
    """Return the rows of tables as one, ``None`` where their columns are not alike."""
    first, *more = [ArrowValues(table.columns, len(table)) for table in tables]
    if any(values.kind != first.kind for values in more):
        return None
    return RowColumns(first.concatenated(more).columns, sum(map(len, tables))) if more else tables[0]


@attrs.define(eq=False)
class _SavedTrace(Generic[T]):
    """What ``TraceState`` reads and writes of a trace."""

    lattice: Any
    holds: Holds[T]
    pairs: bool
    saved_rows: Callable[[], Iterator[tuple[Any, list[Entry]]]]
    load: Callable[[Any, list[Entry]], object]
    limit_memory: Callable[[], object]  # called after rows are loaded
    listeners: list[Any] = attrs.Factory(list)
    limits: TraceLimits = attrs.Factory(TraceLimits.current)
    has_limit: bool = False

    def saved_columns(self, moved: object) -> Iterator[Any]:
        return iter(())


def _nothing(*_: object) -> None:
    pass


@attrs.frozen(eq=False)
class _Waiting(Generic[T]):
    """What waits for one time to be complete."""

    capability: Capability[T]
    batches: list[Any] = attrs.Factory(list)


def group_results(stream: Stream[T, Update], calls: Sequence[AggregateCall], name: str, *, single: bool) -> Stream[T, Any]:
    """Return the results of sums, for the groups that updates ``(key, Vector)`` add up to: as columns of rows, or as pairs.

    Times of the scope have a total order. ``single`` says that keys have one value.
    """
    times, due = bounds_in(stream.scope), due_in(stream.scope)
    minimum = times.domain.minimum

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[..., object]:
        groups = _GroupArrays(calls, single)
        pending: Pending[T, _Waiting[T]] = Pending(total=True)
        ports: list[InputPort[T, Update]] = []

        def upper() -> list[T]:
            return [*ports[0].elements, *pending.minimum()] if ports else [minimum]

        def saved_sums() -> Iterator[tuple[Any, list[Entry]]]:
            return ((record, [(None, minimum, vector)]) for record, vector in groups.saved())

        def saved_results() -> Iterator[tuple[Any, list[Entry]]]:
            return ((record, [(result, minimum, 1)]) for record, result in groups.saved_results())

        loaded: list[Update] = []

        def load(record: Any, entries: list[Entry]) -> None:
            loaded.extend([(record, vector) for _, _, vector in entries])

        def add_loaded() -> None:
            groups.add([loaded])
            loaded.clear()

        limits = TraceLimits.current()
        holds = Holds(times, upper, limits.patience)
        sums = _SavedTrace(times, holds, False, saved_sums, load, add_loaded)
        results = _SavedTrace(times, holds, True, saved_results, _nothing, _nothing)  # they follow from the sums
        for saved in (sums, results):
            TraceState(info, cast("Trace[T]", saved), None, None)

        def waiting_at(time: T, capability: Callable[[], Capability[T]]) -> _Waiting[T]:
            return pending.at(time, lambda: _Waiting(capability()))

        def save() -> Iterator[Restored]:
            for time, waiting in pending.items():
                for record, diff in chain.from_iterable(waiting.batches):
                    yield Restored(record, time, (record, diff))

        def load_waiting(items: Iterable[Restored]) -> None:
            for _, time, update in items:
                if update is None:
                    raise StateError(
                        f"{info.path}: the checkpoint was taken with a memory limit, in the middle of a time: go on with one too"
                    )
                waiting_at(time, lambda: capability.delayed(time)).batches.append([update])  # noqa: B023  # called at once

        info.declare_collection()
        register_keyed_state(info, save, load_waiting, lambda item: route(item.key))
        info.describe(lambda: f"{len(groups.codes):,} groups")

        def logic(input: InputPort[T, Update], output: OutputPort[T]) -> None:
            if not ports:
                ports.append(input)
            for capability, batch in input:
                waiting_at(capability.time, capability.retain).batches.append(batch)
            for time, waiting in pending.take(lambda time: due(time, input.elements)):
                changes = groups.add(waiting.batches)
                with output.session(waiting.capability) as session:
                    for container in changes:
                        session.give_batch(container)
                waiting.capability.drop()
                for listener in sums.listeners:
                    listener(time, RowDelta(consolidate(chain.from_iterable(waiting.batches))))
                for listener in results.listeners:
                    pairs = chain.from_iterable(map(groups.pairs, changes))
                    listener(time, RowDelta(consolidate(pairs)))

        return guarded(info, logic, lambda: f"{len(groups.codes):,} groups")

    return unary_frontier(stream, pact_for(False, None), name, constructor)
