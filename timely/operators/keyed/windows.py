"""Windows over event time: the records of one stretch of time, sent together once the frontier has reached its end.

Invariant, for every schedule and any number of workers: each pair of a record and a window that it falls into comes out once, in
the window or on the stream of late records. Whether it is late depends on the record's time and the window's end alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeAlias, overload

import attrs

from timely.dataflow import (
    Capability,
    CapabilitySet,
    InputPort,
    OperatorBuilder,
    OperatorInfo,
    OutputPort,
    Stream,
    operator_name,
    records_of,
    route,
    scope_of,
)
from timely.errors import ConfigurationError, TimestampError, brief, require_package
from timely.operators.keyed.by_record import ByRecord
from timely.operators.pending import Pending
from timely.operators.state_registration import register_keyed_state
from timely.operators.type_variables import D, T
from timely.progress import time_domain


@attrs.frozen(order=True)
class Window:
    """The event times from ``start`` up to, but without, ``end``."""

    start: Any
    end: Any


Assign: TypeAlias = Callable[[Any], Sequence[Window]]
"""Returns the windows that an event time falls into."""


@attrs.frozen
class _Sliding:
    """Assigns windows of this ``size``, one at every multiple of ``every``."""

    size: Any
    every: Any

    def __call__(self, event: Any) -> list[Window]:
        size, every = self.size, self.every
        # a product, not a difference: with fractions (0.1) all events of a window get the same start
        number = event // every
        following = (number + 1) * every
        if following <= event:  # as the product was rounded down
            number, following = number + 1, (number + 2) * every
        start = number * every
        if size == every:
            return [Window(start, following)]
        if number < 0:
            raise TimestampError(f"sliding windows start from 0 on, and {event!r} is before: shift the event times")
        covering = [Window(start, start + size)]
        while number >= 1:
            number -= 1
            start = number * every
            end = start + size
            if end <= event:
                break
            covering.append(Window(start, end))
        covering.reverse()
        return covering


def tumbling(size: Any) -> Assign:
    """Return windows of this ``size``, end to end from 0 on: each event time falls into one.

    >>> tumbling(10)(25)
    [Window(start=20, end=30)]
    """
    return sliding(size, size)


def sliding(size: Any, every: Any) -> Assign:
    """Return windows of this ``size``, one starting at every multiple of ``every`` from 0 on.

    Sizes and event times are numbers, or ``datetime.timedelta``. ``ConfigurationError`` unless ``0 < every <= size``, and
    ``TimestampError`` for an event time below 0 if windows overlap.

    >>> sliding(10, 5)(12)
    [Window(start=5, end=15), Window(start=10, end=20)]
    """
    if not (_positive(every) and _positive(size) and every <= size):
        raise ConfigurationError(f"windows of size {size!r} every {every!r}: give 0 < every <= size, so that they leave no gap")

    return _Sliding(size, every)


def _positive(length: Any) -> bool:
    try:
        return bool(length > length - length)
    except TypeError:
        return False


@overload
def windows(
    stream: Stream[T, D],
    assign: Assign,
    at: Callable[[D], Any],
    key: Callable[[D], Any] | None = None,
    due: Callable[[Any, T], T] | None = None,
    *,
    name: str | None = None,
) -> tuple[Stream[T, tuple[Any, Window, list[D]]], Stream[T, tuple[Window, D]]]: ...


@overload
def windows(
    stream: Stream[T, Any],
    assign: Assign,
    at: str,
    key: str | Sequence[str] | None = None,
    due: Callable[[Any, T], Any] | None = None,
    *,
    name: str | None = None,
    **columns: tuple[str, str] | str,
) -> tuple[Stream[T, Any], Stream[T, Any]]: ...


def windows(
    stream: Stream[T, Any],
    assign: Assign,
    at: Callable[[Any], Any] | str,
    key: Any = None,
    due: Callable[[Any, T], Any] | None = None,
    *,
    name: str | None = None,
    **columns: tuple[str, str] | str,
) -> tuple[Stream[T, Any], Stream[T, Any]]:
    """Return two streams: ``(key, window, records)`` for each complete window, at the time of its end, and ``(window, record)``
    for each record that is late for a window, at the record's time.

    ``at(record)`` is the event time, and ``assign`` is ``tumbling(size)``, ``sliding(size, every)`` or your own function. Windows
    are per ``key(record)``, ``None`` without a key. ``due(end, time)`` is the time at which a window that ends at ``end`` is
    complete, for a record sent at ``time``: by default ``end``, for times that are event times. A record is late if it was sent
    at or after that. ``TimestampError`` where ``due`` returns no time of the scope, as in a loop without ``due``. Source: the
    windows of the Dataflow Model (Akidau et al. 2015), with the frontier as watermark.

    >>> import timely
    >>> from timely.operators.keyed.windows import tumbling, windows
    >>> timely.example(lambda scope: scope.to_stream([3, 12, 7]).apply(windows, tumbling(10), at=lambda event: event)[0])
    [(10, [(None, Window(start=0, end=10), [3, 7])]), (20, [(None, Window(start=10, end=20), [12])])]

    With the name of a column as ``at`` the streams carry Arrow record batches. ``key`` is a column or several, and keywords are
    aggregates as of ``group_by``. A result has the columns ``key``, ``window_start``, ``window_end`` and the aggregates; a late
    row has all of its columns, then ``window_start`` and ``window_end``. Results of one time come together, so that a ``due``
    that maps many ends to one time saves most of the work. It gets NumPy arrays: ``due(ends, time)`` returns a whole number for
    each end. Event times are whole numbers, or timestamps, with timedeltas as lengths, and with ``due``. ``SchemaError`` for
    others, for missing ones, and for negative ones in sliding windows. ``TimestampError`` for times that are not of type int.

    >>> import pyarrow as pa
    >>> def build(scope):
    ...     readings, stream = scope.new_input()
    ...     readings.send_batch(pa.record_batch({"second": [3, 12, 7], "degrees": [20, 19, 21]}))
    ...     return windows(stream, tumbling(10), at="second", readings="count", highest=("degrees", "max"))[0]
    >>> timely.example(build)
    [(10, [(0, 10, 2, 21)]), (20, [(10, 20, 1, 19)])]
    """
    if not callable(assign):
        raise ConfigurationError(f"windows takes tumbling(size), sliding(size, every) or a function, not {assign!r}")
    called = operator_name("windows", name)
    if isinstance(at, str):
        if not isinstance(assign, _Sliding):
            raise ConfigurationError(f"{called} on columns takes tumbling(size) or sliding(size, every), not {assign!r}")
        require_package("pyarrow", "windows on columns", "arrow")
        from timely.operators.keyed.column_windows import windows_of_columns  # imports NumPy and Arrow

        return windows_of_columns(stream, assign.size, assign.every, at, key, due, columns, called)
    _check_functions(called, key, columns)
    keyed = key or (lambda record: None)
    domain = scope_of(stream, "windows").subgraph.domain

    def constructor(capabilities: list[Capability[T]], info: OperatorInfo) -> Callable[..., object]:
        # by key, start and end: a window's own hash costs more
        contents: Pending[T, dict[tuple[Any, Any, Any], tuple[Any, Window, list[Any]]]] = Pending(domain.total)
        held: CapabilitySet[T] = CapabilitySet()  # at or before each end: windows have no capabilities of their own

        def save() -> Iterator[tuple[T, Any, Window, list[Any]]]:
            for end in contents:
                for k, window, records in contents[end].values():
                    yield end, k, window, records

        def load(items: Iterable[tuple[T, Any, Window, list[Any]]]) -> None:
            for end, k, window, records in items:
                held.insert(capabilities[0].delayed(end))
                contents.at(end, dict)[k, window.start, window.end] = k, window, records

        register_keyed_state(info, save, load, lambda item: route(item[1]))
        for capability in capabilities:
            capability.drop()

        def logic(input: InputPort[T, D], out: OutputPort[T], too_late: OutputPort[T]) -> None:
            for capability, batch in input:
                time, missed = capability.time, []
                for record in records_of(batch):
                    for window in assign(at(record)):
                        end = window.end if due is None else due(window.end, time)
                        if type(end) is not type(time):
                            domain.check(end)
                        if not (time <= end and time != end):
                            missed.append((window, record))
                            continue
                        k = None if key is None else key(record)
                        place = k, window.start, window.end
                        opened = contents.at(end, dict)
                        if place in opened:
                            opened[place][2].append(record)
                        else:
                            opened[place] = k, window, [record]
                too_late.session(capability).give_batch(missed)
                held.insert(capability.retain())
            frontier = input.frontier
            session = None
            for end, ended in contents.take(lambda end: not frontier.less_than(end)):
                if session is None or not session.time <= end:
                    session = out.session(held.allowing(end))
                session.give_batch(list(ended.values()), end)
            held.downgrade(contents.minimum())

        return logic

    return _complete_and_late(stream, keyed, called, constructor)


@attrs.define
class _Session(Generic[D]):
    start: Any
    end: Any
    records: list[D]


@overload
def sessions(
    stream: Stream[T, D],
    gap: Any,
    at: Callable[[D], Any],
    key: Callable[[D], Any] | None = None,
    due: Callable[[Any], T] | None = None,
    *,
    name: str | None = None,
) -> tuple[Stream[T, tuple[Any, Window, list[D]]], Stream[T, D]]: ...


@overload
def sessions(
    stream: Stream[T, Any],
    gap: Any,
    at: str,
    key: str | Sequence[str] | None = None,
    due: Callable[[Any], Any] | None = None,
    *,
    name: str | None = None,
    **columns: tuple[str, str] | str,
) -> tuple[Stream[T, Any], Stream[T, Any]]: ...


def sessions(
    stream: Stream[T, Any],
    gap: Any,
    at: Callable[[Any], Any] | str,
    key: Any = None,
    due: Callable[[Any], Any] | None = None,
    *,
    name: str | None = None,
    **columns: tuple[str, str] | str,
) -> tuple[Stream[T, Any], Stream[T, Any]]:
    """Return two streams: ``(key, window, records)`` for each complete session, at the time of its end, and the late records.

    A session lasts from its first event to ``gap`` after its last one. A record is late if it was sent after its own event time,
    since the end of a session depends on its records. ``at`` and ``key`` are as for ``windows``; ``due(end)`` is the time at
    which a session that ends at ``end`` is complete, by default ``end``. Where ``due`` maps several ends to one time, as
    ``lambda end: end // 1000`` does, sessions wait until that time is complete too, since its records may extend them.
    ``TimestampError`` for times that are not totally ordered, ``ConfigurationError`` for a gap that is not positive.

    >>> import timely
    >>> from timely.operators.keyed.windows import sessions
    >>> timely.example(lambda scope: scope.to_stream([1, 12, 4, 30]).apply(sessions, 10, at=lambda event: event)[0])
    [(22, [(None, Window(start=1, end=22), [1, 4, 12])]), (40, [(None, Window(start=30, end=40), [30])])]

    With the name of a column as ``at`` the streams carry Arrow record batches, as for ``windows``; late rows come as they were.
    ``due(ends)`` gets a NumPy array. Rows of open sessions are stored, and sorted again whenever a session may be complete.

    >>> import pyarrow as pa
    >>> def build(scope):
    ...     clicks, stream = scope.new_input()
    ...     clicks.send_batch(pa.record_batch({"user": ["ann", "ann", "bob", "ann"], "second": [1, 4, 5, 30]}))
    ...     return sessions(stream, 10, at="second", key="user", due=lambda ends: ends // 100 + 1, clicks="count")[0]
    >>> timely.example(build)
    [(1, [('ann', 1, 14, 2), ('ann', 30, 40, 1), ('bob', 5, 15, 1)])]
    """
    called = operator_name("sessions", name)
    domain = time_domain(scope_of(stream, "sessions").time)
    if not domain.total:
        raise TimestampError(f"sessions need times of which every two can be compared, and those of {domain.name} cannot")
    if not _positive(gap):
        raise ConfigurationError(f"sessions with a gap of {gap!r}: give one that is more than nothing")
    if isinstance(at, str):
        require_package("pyarrow", "sessions on columns", "arrow")
        from timely.operators.keyed.column_windows import sessions_of_columns  # imports NumPy and Arrow

        return sessions_of_columns(stream, gap, at, key, due, columns, called)
    _check_functions(called, key, columns)
    keyed = key or (lambda record: None)
    time_of: Callable[[Any], T] = due or (lambda end: end)

    def constructor(capabilities: list[Capability[T]], info: OperatorInfo) -> Callable[..., object]:
        open_sessions: dict[Any, list[_Session[Any]]] = {}
        # Keys by the time at which a session of theirs ended when it began: an event that extends it changes nothing here.
        ends: Pending[T, list[Any]] = Pending(total=True)
        held: CapabilitySet[T] = CapabilitySet()

        def save() -> Iterator[tuple[T, Any, Window, list[Any]]]:
            for k, known in open_sessions.items():
                for session in known:
                    yield time_of(session.end), k, Window(session.start, session.end), session.records

        def load(items: Iterable[tuple[T, Any, Window, list[Any]]]) -> None:
            for time, k, window, records in items:
                open_sessions.setdefault(k, []).append(_Session(window.start, window.end, records))
                held.insert(capabilities[0].delayed(time))
                ends.at(time, list).append(k)

        register_keyed_state(info, save, load, lambda item: route(item[1]))
        for capability in capabilities:
            capability.drop()

        def logic(input: InputPort[T, D], out: OutputPort[T], too_late: OutputPort[T]) -> None:
            for capability, batch in input:
                time, missed = capability.time, []
                for record in records_of(batch):
                    event = at(record)
                    if not time <= (event if due is None else due(event)):
                        missed.append(record)
                        continue
                    k = None if key is None else key(record)
                    known = open_sessions.setdefault(k, [])
                    if known:
                        last = known[-1]
                        if last.start <= event < last.end:
                            last.records.append(record)
                            last.end = max(last.end, event + gap)
                            continue
                    until = event + gap
                    end = until if due is None else due(until)
                    if type(end) is not type(time) or not time <= end:
                        capability.delayed(end).drop()  # raises for what is no time, or too early
                    ends.at(end, list).append(k)
                    new = _Session(event, until, [record])
                    if not known or last.end <= event:
                        known.append(new)
                    else:
                        _merge(known, new)
                too_late.session(capability).give_batch(missed)
                held.insert(capability.retain())
            # where each end has a time of its own, only events before that time can extend the session
            more_until = input.frontier.less_than if due is None else input.frontier.less_equal
            by_end: dict[T, list[tuple[Any, Window, list[Any]]]] = {}
            ended: dict[Any, None] = {}
            for _, keys in ends.take(lambda end: not more_until(end)):
                for k in keys:
                    ended[k] = None
            for k in ended:
                known = open_sessions.pop(k, [])
                over = bisect_left(known, True, key=lambda session: more_until(time_of(session.end)))
                for session in known[:over]:
                    records = sorted(session.records, key=at) if len(session.records) > 1 else session.records
                    end = session.end if due is None else due(session.end)
                    by_end.setdefault(end, []).append((k, Window(session.start, session.end), records))
                if over < len(known):
                    open_sessions[k] = known[over:]
                    ends.at(time_of(known[over].end), list).append(k)
            if by_end:
                output = out.session(next(iter(held)))  # times are totally ordered, so that there is one
                for end, complete in by_end.items():
                    output.give_batch(complete, end)
            held.downgrade(ends.minimum())

        return logic

    return _complete_and_late(stream, keyed, called, constructor)


def _check_functions(name: str, key: Any, columns: Mapping[str, Any]) -> None:
    """Raise ``ConfigurationError`` for what only goes with a column as ``at``."""
    if columns:
        raise ConfigurationError(
            f"{name} makes columns of Arrow batches, here {', '.join(columns)}, with the name of a column as at="
        )
    if key is not None and not callable(key):
        raise ConfigurationError(f"{name} with a function as at= takes a function as key=, not {brief(key)}")


def _complete_and_late(
    stream: Stream[T, Any], key: Callable[[Any], Any], name: str, constructor: Callable[..., Callable[..., object]]
) -> tuple[Stream[T, Any], Stream[T, Any]]:
    builder = OperatorBuilder(stream.scope, name)
    builder.new_input(stream, ByRecord(key))
    complete, late = builder.new_output(), builder.new_output()
    builder.build(constructor)
    return complete, late


def _merge(known: list[_Session[D]], new: _Session[D]) -> None:
    """Insert a session among those of its key, which are disjoint and in order, merging those that it overlaps."""
    first = bisect_right(known, new.start, key=lambda session: session.end)
    after = bisect_left(known, new.end, lo=first, key=lambda session: session.start)
    for session in known[first:after]:
        more, fewer = sorted((session.records, new.records), key=len, reverse=True)
        more.extend(fewer)
        new = _Session(min(session.start, new.start), max(session.end, new.end), more)
    known[first:after] = [new]
