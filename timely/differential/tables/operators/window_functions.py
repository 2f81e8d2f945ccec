"""Window functions: what each computes of the rows of a partition."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Final

import attrs

from timely.differential.tables.expressions.bound import Call, Expr, Literal, SortKey
from timely.differential.tables.expressions.calls import as_kind, whole_number
from timely.differential.tables.expressions.scalar_compiler import Function
from timely.differential.tables.operators.aggregations import COUNTS, AggregateCall, First, Sums
from timely.differential.tables.operators.sorting import Ordering
from timely.differential.tables.operators.window_columns import RANKS, WindowColumns, of_frames, shifted
from timely.differential.tables.operators.window_frames import Frames, Partition, WindowFrame, frames_of, values_in
from timely.differential.tables.values.kinds import Kind, rounded
from timely.differential.tables.values.overloads import Arguments, Overload
from timely.errors import SqlError

Compute = Callable[[Partition], Sequence[Any]]
"""The values of a window function for the rows of a partition."""


@attrs.frozen
class WindowCall(Expr):
    """A window function of ``inputs``; ``parameters`` are what else it is called with, and ``compute`` makes it of functions."""

    name: str
    inputs: tuple[Expr, ...]
    parameters: tuple[Any, ...]
    partition: tuple[Expr, ...]
    order: tuple[SortKey, ...]
    nullable: bool
    compute: Callable[[Sequence[Function]], Compute] = attrs.field(eq=False, repr=False)
    columns: WindowColumns | None = attrs.field(eq=False, repr=False)
    """The same of columns, for which what goes in is that of ``inputs``."""

    _made_of = ("inputs", "partition", "order")


@attrs.frozen
class Over:
    """What stands behind ``OVER``."""

    partition: tuple[Expr, ...]
    order: tuple[SortKey, ...]
    frame: WindowFrame | None


@attrs.frozen
class WrittenWindow:
    """A window function as it is written; ``shown`` is its name as the user wrote it."""

    name: str
    shown: str
    arguments: tuple[Expr, ...]
    over: Over
    ignores_nulls: bool | None
    at: Any
    frames: Frames = attrs.field(init=False)

    @frames.default
    def _frames(self) -> Frames:
        return frames_of(self.over.frame, Ordering.of_keys(self.over.order))

    def need_order(self) -> None:
        if not self.over.order:
            raise SqlError(f"{self.shown} needs ORDER BY: the order of the rows is unspecified")

    def check(self, takes: tuple[int, ...]) -> None:
        """Refuse another number of arguments."""
        if len(self.arguments) not in takes:
            raise SqlError(f"{self.name} takes {COUNTS[takes]}")

    def number(self, place: int, least: int) -> int:
        """Return a literal whole number."""
        number = whole_number(self.arguments[place])
        if number is None or number < least:
            raise SqlError("it takes a literal whole number here" + (f", at least {least}" if least == 1 else ""))
        return number

    def eligible(self, values: Sequence[Any]) -> Sequence[int]:
        """Return the rows that count: all, or those whose value is not null."""
        if not self.ignores_nulls:
            return range(len(values))
        return [row for row, value in enumerate(values) if value is not None]

    def made(
        self,
        kind: Kind,
        inputs: Sequence[Expr],
        compute: Callable[[Sequence[Function]], Compute],
        *parameters: Any,
        nullable: bool = True,
        columns: WindowColumns | None = None,
    ) -> WindowCall:
        """Return the window function."""
        everything = (*parameters, self.over.frame, self.ignores_nulls)
        over = self.over
        made = (kind, self.name, tuple(inputs), everything, over.partition, over.order, nullable, compute, columns)
        return WindowCall(*made, at=self.at)


def row_number(partition: Sequence[Expr], order: Sequence[SortKey]) -> WindowCall:
    """Return the number of each row of a partition."""
    over = Over(tuple(partition), tuple(order), None)
    return window(WrittenWindow("row_number", "row_number", (), over, None, None), None)


def window(call: WrittenWindow, aggregate: AggregateCall | None) -> WindowCall:
    """Return a window function, or an ``aggregate`` over a window; ``SqlError`` for what it does not take."""
    name = call.name
    if aggregate is not None:
        return _aggregate(aggregate, call)
    if name in _RANKS:
        if call.ignores_nulls is not None:
            raise SqlError(f"{name} takes no IGNORE NULLS")
        call.check((0,))
        if name == "row_number":
            call.need_order()
        kind, compute = _RANKS[name]
        return call.made(kind, (), lambda functions: compute, nullable=False, columns=RANKS[name])
    takes, make = _MAKERS[name]
    call.check(takes)
    call.need_order()
    return make(call)


# -- ranks ---------------------------------------------------------------------------------------------------------


def _row_number(partition: Partition) -> Sequence[Any]:
    return range(1, len(partition.rows) + 1)


def _rank(partition: Partition) -> Sequence[Any]:
    return [start + 1 for start in partition.starts]


def _dense_rank(partition: Partition) -> Sequence[Any]:
    number = {start: index for index, start in enumerate(dict.fromkeys(partition.starts), 1)}
    return [number[start] for start in partition.starts]


def _percent_rank(partition: Partition) -> Sequence[Any]:
    return [start / max(len(partition.rows) - 1, 1) for start in partition.starts]


def _cume_dist(partition: Partition) -> Sequence[Any]:
    return [end / len(partition.rows) for end in partition.ends]


_RANKS: Final[dict[str, tuple[Kind, Compute]]] = {
    "row_number": (Kind.INTEGER, _row_number),
    "rank": (Kind.INTEGER, _rank),
    "dense_rank": (Kind.INTEGER, _dense_rank),
    "percent_rank": (Kind.DOUBLE, _percent_rank),
    "cume_dist": (Kind.DOUBLE, _cume_dist),
}


def _ntile(call: WrittenWindow) -> WindowCall:
    tiles = call.number(0, 1)

    def compute(partition: Partition) -> Sequence[Any]:
        size, more = divmod(len(partition.rows), tiles)
        return [tile + 1 for tile in range(tiles) for _ in range(size + (tile < more))]

    return call.made(Kind.INTEGER, (), lambda functions: compute, tiles, nullable=False)


# -- values of other rows ------------------------------------------------------------------------------------------


def _shifted(call: WrittenWindow) -> WindowCall:
    away = call.number(1, -(1 << 62)) if len(call.arguments) > 1 else 1
    away = -away if call.name == "lag" else away
    default = call.arguments[2] if len(call.arguments) > 2 else Literal(Kind.NULL, None)
    value, other = _with_default(call.arguments[0], default)

    def made(functions: Sequence[Function]) -> Compute:
        value_of, other_of = functions

        def compute(partition: Partition) -> Sequence[Any]:
            values = [value_of(row) for row in partition.rows]
            rows = call.eligible(values)
            shifted = []
            for index, row in enumerate(partition.rows):
                if away == 0:
                    shifted.append(values[index])
                    continue
                place = bisect_left(rows, index) + away if away < 0 else bisect_right(rows, index) + away - 1
                shifted.append(values[rows[place]] if 0 <= place < len(rows) else other_of(row))
            return shifted

        return compute

    return call.made(value.kind, (value, other), made, away, columns=None if call.ignores_nulls else shifted(away))


def _with_default(value: Expr, other: Expr) -> tuple[Expr, Expr]:
    """Return a value and what stands for one that is missing, which has the type of the value, and its digits."""
    text = value.text if isinstance(value, Literal) else None
    if value.kind is Kind.NULL or text is not None:
        kind = Arguments([value.kind, other.kind], [text, other.text if isinstance(other, Literal) else None]).together()
        return as_kind(value, kind), as_kind(other, kind)
    if value.kind.scale is None or other.kind.scale is None:
        return value, as_kind(other, value.kind)
    narrow = Overload((other.kind,), value.kind, rounded(38, value.kind.scale))
    return value, Call(value.kind, f"rounded to {value.kind.scale}", (other,), narrow)


def _nth(call: WrittenWindow) -> WindowCall:
    """Return ``first_value``, ``last_value`` or ``nth_value``."""
    nth = call.number(1, 1) if call.name == "nth_value" else 1
    last = call.name == "last_value"

    def made(functions: Sequence[Function]) -> Compute:
        (value_of,) = functions

        def compute(partition: Partition) -> Sequence[Any]:
            values = [value_of(row) for row in partition.rows]
            rows = call.eligible(values)
            results = []
            for frame in call.frames(partition):
                left, place = nth, None
                for start, end in reversed(frame) if last else frame:
                    first, size = bisect_left(rows, start), bisect_left(rows, end) - bisect_left(rows, start)
                    if left <= size:
                        place = rows[first + (size - left if last else left - 1)]
                        break
                    left -= size
                results.append(None if place is None else values[place])
            return results

        return compute

    return call.made(call.arguments[0].kind, call.arguments[:1], made, nth)


_MAKERS: Final[dict[str, tuple[tuple[int, ...], Callable[[WrittenWindow], WindowCall]]]] = {
    "ntile": ((1,), _ntile),
    **dict.fromkeys(("lag", "lead"), ((1, 2, 3), _shifted)),
    **dict.fromkeys(("first_value", "last_value"), ((1,), _nth)),
    "nth_value": ((2,), _nth),
}
"""How many arguments each takes, and what makes it."""

WINDOWS: Final = frozenset([*_RANKS, *_MAKERS])
"""The functions that need ``OVER``."""


# -- aggregates of frames ------------------------------------------------------------------------------------------


def _aggregate(aggregate: AggregateCall, call: WrittenWindow) -> WindowCall:
    form = aggregate.form
    if not isinstance(form, Sums | First) and form.order is None:
        call.need_order()

    def made(functions: Sequence[Function]) -> Compute:
        entry = aggregate.of_functions(functions)
        if isinstance(form, Sums):
            sums = _sums_of_slices if aggregate.distinct else _running_sums
            return sums(aggregate, entry, form, call)
        if isinstance(form, First):
            return _firsts(entry, form, call)

        def compute(partition: Partition) -> Sequence[Any]:
            entries = [entry(row) for row in partition.rows]
            results = []
            for frame in call.frames(partition):
                values = [value for value in values_in(frame, entries) if value is not None]
                if aggregate.distinct:
                    values = list(dict.fromkeys(values))
                if form.order is not None:
                    values.sort(key=form.order)
                results.append(form.result(values) if values else aggregate.empty)
            return results

        return compute

    parameters = aggregate.parameters, aggregate.distinct, aggregate.condition is not None
    nullable, columns = aggregate.empty is None, of_frames(aggregate, call.over.frame)
    return call.made(aggregate.kind, aggregate.parts, made, *parameters, nullable=nullable, columns=columns)


def _running_sums(aggregate: AggregateCall, entry: Function, form: Sums, call: WrittenWindow) -> Compute:
    added = aggregate.summands(entry)

    def compute(partition: Partition) -> Sequence[Any]:
        totals = [list(accumulate(parts, initial=0)) for parts in zip(*(added(row) for row in partition.rows))]
        return [
            form.result([sum(total[end] - total[start] for start, end in frame) for total in totals])
            for frame in call.frames(partition)
        ]

    return compute


def _sums_of_slices(aggregate: AggregateCall, entry: Function, form: Sums, call: WrittenWindow) -> Compute:
    def compute(partition: Partition) -> Sequence[Any]:
        entries = [entry(row) for row in partition.rows]
        results = []
        for frame in call.frames(partition):
            parts = [form.summands(value) for value in set(values_in(frame, entries)) if value is not None]
            results.append(form.result([sum(part) for part in zip(*parts)] if parts else [0] * form.size))
        return results

    return compute


def _firsts(entry: Function, form: First, call: WrittenWindow) -> Compute:
    """Return the first entry of each frame, by a table of the firsts of 1, 2, 4, ... rows."""

    def key(place: tuple[Any, Any]) -> Any:
        return place[0]

    def compute(partition: Partition) -> Sequence[Any]:
        entries = [entry(row) for row in partition.rows]
        absent: Any = ((True,), None)
        level = [absent if value is None else ((False, form.order(value)), value) for value in entries]
        levels = [level]
        width = 1
        while 2 * width <= len(level):
            below = levels[-1]
            levels.append([min(one, other, key=key) for one, other in zip(below, below[width:])])
            width *= 2
        results = []
        for frame in call.frames(partition):
            best = absent
            for start, end in frame:
                size = (end - start).bit_length() - 1
                best = min(best, levels[size][start], levels[size][end - (1 << size)], key=key)
            results.append(None if best[1] is None else form.result(best[1]))
        return results

    return compute
