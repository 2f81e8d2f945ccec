"""Windows of time: which ones a row is in follows from its moment."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa

from timely.differential.collections import Collection
from timely.differential.tables.expressions.column_compiler import Expressions
from timely.differential.tables.expressions.column_stages import staged
from timely.differential.tables.expressions.scalar_compiler import Row, Scalar
from timely.differential.tables.values.kinds import MOMENTS, Column, Kind
from timely.differential.tables.values.moment_functions import MONDAY, add_interval, bucket, interval_of, naive
from timely.differential.tables.values.parsing import to_utc
from timely.differential.updates.int_columns import Array
from timely.differential.updates.row_columns import LazyColumn, RowColumns
from timely.differential.updates.updates import Update
from timely.errors import GraphError, SqlError, brief

Length = str | datetime.timedelta | int
"""A stretch of time: ``"10 minutes"``, a ``timedelta``, or a whole number for a column of whole numbers."""

MOST: Final = 10_000
"""Windows that one row may be in."""


_EPOCH: Final = datetime.datetime(1970, 1, 1)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_ERA: Final = (datetime.datetime.min - _EPOCH) // _MICROSECOND, (datetime.datetime.max - _EPOCH) // _MICROSECOND
"""The first and the last timestamp."""

FAR: Final = 1 << 61
"""A whole number of which the double has 64 bits."""


@attrs.frozen
class Moments:
    """A column of moments as whole numbers: themselves, or microseconds."""

    at: Array
    type: pa.DataType

    def column(self, numbers: Array) -> pa.Array:
        """Return numbers as a column of moments."""
        return pa.array(numbers).cast(self.type)

    def has_room(self, before: int, after: int) -> bool:
        """Return whether there are moments so long before and after all of them."""
        least, most = (-FAR, FAR) if pa.types.is_integer(self.type) else _ERA
        if max(before, after) > FAR:
            return False
        return not len(self.at) or (int(self.at.min()) - before >= least and int(self.at.max()) + after <= most)


@attrs.frozen
class Axis:
    """What the moments of a column are: timestamps, instants, or whole numbers. Dates are the timestamps at which they begin."""

    kind: Kind
    moment: Callable[[Row], Any]
    kernel: Expressions | None = None
    """The same of columns, where there is a kernel."""

    @property
    def columns(self) -> tuple[Column, Column]:
        """The columns of the beginning and the end of a window."""
        return Column("window_start", self.kind, False), Column("window_end", self.kind, False)

    @property
    def unit(self) -> Any:
        """The length that is one in columns of numbers."""
        return 1 if self.kind is Kind.INTEGER else _MICROSECOND

    def numbers(self, column: Any) -> Moments:
        """Return what the kernel gives, without nulls, as numbers."""
        moments = column.cast(pa.timestamp("us")) if pa.types.is_date(column.type) else column
        return Moments(moments.cast(pa.int64()).to_numpy(), moments.type)


def axis_of(scalar: Scalar, place: str, kernel: Expressions | None = None) -> Axis:
    """Return the axis of an expression; ``GraphError`` where its values are no moments."""
    of = scalar.function
    if scalar.kind is Kind.DATE:

        def start_of_day(row: Row) -> Any:
            value = of(row)
            return None if value is None else naive(value)

        return Axis(Kind.TIMESTAMP, start_of_day, kernel)
    if scalar.kind not in (*MOMENTS, Kind.INTEGER):
        raise GraphError(f"{place}: windows are of timestamps, dates or whole numbers, not of {scalar.kind.value}")
    return Axis(scalar.kind, of, kernel)


@attrs.frozen
class TimeSpan:
    """A length on an axis: months and a duration, or a whole number."""

    months: int
    delta: Any
    least: Any = attrs.field(default=None, repr=False)
    """The least moment of the axis."""

    def after(self, moment: Any) -> Any:
        """Return the moment that is so much later."""
        return moment + self.delta if type(moment) is int else add_interval(moment, self.months, self.delta)

    def before(self, moment: Any) -> Any:
        """Return the moment that is so much earlier."""
        return moment - self.delta if type(moment) is int else add_interval(moment, -self.months, -self.delta)

    def horizon(self, latest: Any) -> Any:
        """Return the moment that is so much earlier than the latest one, or the least that there is."""
        return self.before(latest) if latest - self.least > self.delta else self.least


@attrs.frozen
class Lateness:
    """How much later than others rows come, by the column at a place, whose values are of a kind."""

    place: int
    kind: Kind
    span: TimeSpan


def span_of(length: Length, axis: Axis, place: str, *, months: bool = False, nothing: bool = False) -> TimeSpan:
    """Return a length; ``GraphError`` for one that is not positive, unless it may be ``nothing``, or of another kind."""
    try:
        span = _span(length, axis, place)
    except SqlError as error:
        raise GraphError(f"{place}: {error}") from None
    if span.months and (not months or span.delta):
        raise GraphError(f"{place}: {brief(length)} has months, which are of no fixed length: use weeks, days or shorter units")
    least = type(span.delta)(0)
    if span.months < 0 or (not span.months and (span.delta < least or (span.delta == least and not nothing))):
        raise GraphError(f"{place}: {brief(length)} is not longer than nothing")
    return span


def _span(length: Length, axis: Axis, place: str) -> TimeSpan:
    if axis.kind is Kind.INTEGER:
        if type(length) is not int:
            raise GraphError(f"{place}: the column has whole numbers, so a length is one too, not {brief(length)}")
        return TimeSpan(0, length, -(1 << 63))
    least = datetime.datetime.min.replace(tzinfo=datetime.UTC if axis.kind is Kind.INSTANT else None)
    if isinstance(length, datetime.timedelta):
        return TimeSpan(0, length, least)
    if not isinstance(length, str):
        raise GraphError(f'{place}: a length is "10 minutes" or a timedelta, not {brief(length)}')
    return TimeSpan(*interval_of(length), least)


def beginning(axis: Axis, step: TimeSpan, origin: Any, place: str) -> Callable[[Any], Any]:
    """Return what gives the last beginning of a window at or before a moment; one of them is ``origin``."""
    if axis.kind is Kind.INTEGER:
        if not (origin is None or type(origin) is int):
            raise GraphError(f"{place}: origin is a whole number, as the column, not {brief(origin)}")
        first = origin or 0
        return lambda value: value - (value - first) % step.delta
    if origin is not None:
        if not isinstance(origin, datetime.datetime) or (origin.tzinfo is None) is (axis.kind is Kind.INSTANT):
            raise GraphError(f"{place}: origin is a {axis.kind.value} as the column, not {brief(origin)}")
        origin = to_utc(origin) if origin.tzinfo is not None else origin
    start = bucket(step.months, step.delta)
    return lambda value: start(value, origin)


def sliding(
    rows: Collection[Any, Row], axis: Axis, size: TimeSpan, step: TimeSpan, origin: Any, place: str
) -> Collection[Any, Row]:
    """Return each row with the beginning and the end of every window that it is in."""
    windows = windows_of(axis, size, step, origin, place)

    def by_rows(updates: Iterable[Update]) -> list[Update]:
        return [(window, diff) for row, diff in updates for window in windows(row)]

    kernel = axis.kernel
    if kernel is None or step.months or size.months:
        return staged(rows, place, by_rows, None)
    unit = axis.unit
    first = origin or 0 if unit == 1 else ((MONDAY if origin is None else naive(origin)) - _EPOCH) // unit
    lengths = size.delta // unit, step.delta // unit
    return staged(rows, place, by_rows, lambda table: _windows(table, axis, kernel, first, *lengths))


def windows_of(axis: Axis, size: TimeSpan, step: TimeSpan, origin: Any, place: str) -> Callable[[Row], Iterator[Row]]:
    """Return what gives a row with the beginning and the end of each window that it is in."""
    if not step.months and size.delta // step.delta > MOST:
        raise GraphError(f"{place}: a row would be in more than {MOST} windows: make the step longer")
    start = beginning(axis, step, origin, place)
    moment = axis.moment

    def windows(row: Row) -> Iterator[Row]:
        at = moment(row)
        if at is None:
            return
        begin = start(at)
        while (end := size.after(begin)) > at:
            yield (*row, begin, end)
            begin = step.before(begin)

    return windows


def _windows(table: RowColumns, axis: Axis, kernel: Expressions, first: int, size: int, step: int) -> RowColumns | None:
    """Return each row with its windows, ``None`` where a moment is too far from others."""
    columns = kernel(table)
    if columns is None:
        return None
    moments = axis.numbers(columns[0].drop_null())
    rows = np.flatnonzero(columns[0].is_valid().to_numpy(zero_copy_only=False))
    at = moments.at
    if max(abs(first), step) > FAR or not moments.has_room(size + step, size):
        return None
    begin = at - (at - first) % step
    chosen, begins = [], []
    while len(rows):
        inside = begin + size > at
        rows, at, begin = rows[inside], at[inside], begin[inside]
        chosen.append(rows)
        begins.append(begin)
        begin = begin - step
    rows, begin = np.concatenate([rows, *chosen]), np.concatenate([begin, *begins])
    ends = (LazyColumn(moments.column(side)) for side in (begin, begin + size))
    spread = table.chosen(rows)
    return spread.with_columns((*spread.columns, *ends))
