"""Windows over event time: what happened in the same stretch of time, brought together when the stretch is complete.

Each record says when it happened, and the time at which it is sent is a promise that nothing older than that will be in
time. A window is complete when the frontier has reached its end. The invariant, which holds for every schedule and any number of
workers: each pair of a record and a window that it falls into comes out exactly once, with the window or on the stream of late
ones. Whether it is late depends on its two times alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import attrs

from timely.dataflow import Capability, InputPort, OperatorBuilder, OperatorInfo, OutputPort, Stream, records_of, route, scope_of
from timely.errors import ConfigurationError, TimestampError
from timely.operators.by_record import ByRecord
from timely.operators.pending import Pending
from timely.order import PartialOrder
from timely.progress import time_domain

T = TypeVar("T", bound=PartialOrder)
D = TypeVar("D")
K = TypeVar("K")


@attrs.frozen(order=True)
class Window:
    """The stretch of event time from ``start`` on, up to but without ``end``, in the units of the event times.

    >>> Window(0, 10) < Window(10, 20)
    True
    """

    start: Any
    end: Any


Assign: TypeAlias = Callable[[Any], Sequence[Window]]
"""Which windows an event time falls into."""


def tumbling(size: Any) -> Assign:
    """Return the windows of this ``size``, one after the other from 0 on: each event time falls into one.

    >>> tumbling(10)(25)
    [Window(start=20, end=30)]
    """
    return sliding(size, size)


def sliding(size: Any, every: Any) -> Assign:
    """Return the windows of this ``size`` of which one starts at every multiple of ``every``: an event time falls into several.

    None of them starts before 0. ``ConfigurationError`` unless ``0 < every <= size``. Sizes and event times are numbers, or what
    calculates as these do: spans of time (``datetime.timedelta``) since a moment of one's own choosing, say.

    >>> sliding(10, 5)(12)
    [Window(start=5, end=15), Window(start=10, end=20)]
    """
    if not (_positive(every) and _positive(size) and every <= size):
        raise ConfigurationError(f"windows of size {size!r} every {every!r}: give 0 < every <= size, so that they leave no gap")

    def assign(event: Any) -> list[Window]:
        # each start is a product, not a difference: of fractions (0.1) that is one number for all the events of a window
        number = event // every
        following = (number + 1) * every
        if following <= event:  # as the product was rounded down
            number, following = number + 1, (number + 2) * every
        start = number * every
        if size == every:
            return [Window(start, following)]
        found = [Window(start, start + size)]
        while number >= 1:
            number -= 1
            start = number * every
            end = start + size
            if end <= event:
                break
            found.append(Window(start, end))
        found.reverse()
        return found

    return assign


def _positive(length: Any) -> bool:
    """Return whether it is a length of time, of whatever type, and more than nothing."""
    try:
        return bool(length > length - length)
    except TypeError:
        return False


def windows(
    stream: Stream[T, D],
    assign: Assign,
    at: Callable[[D], Any],
    key: Callable[[D], Any] | None = None,
    due: Callable[[Any, T], T] | None = None,
) -> tuple[Stream[T, tuple[Any, Window, list[D]]], Stream[T, tuple[Window, D]]]:
    """Return two streams: ``(key, window, records)`` for each window that is complete, at the time of its end, and
    ``(window, record)`` for each record that came too late for a window, at the time of the record.

    ``at(record)`` is the event time, and ``assign`` says which windows that falls into: ``tumbling(size)``, ``sliding(size,
    every)`` or a function of one's own. Windows are kept for each ``key(record)``, ``None`` if no key is given; records of one
    key come together on one worker. ``due(end, time)`` is the time at which a window that ends at ``end`` is complete, for a
    record sent at ``time``; by default it is ``end`` itself, which is right where times are event times and are numbers.
    A record is late for a window if it was sent at or after the window's end. ``ConfigurationError`` for an ``assign`` that is no
    function, ``TimestampError`` where what ``due`` says is no
    time of the scope; in a loop times are not event times, and ``due`` has to be given. Source: event-time windows are those of
    the Dataflow Model (Akidau et al. 2015); its watermark is the frontier.

    >>> import timely
    >>> from timely.operators.windows import tumbling, windows
    >>> worker = timely.Worker()
    >>> with worker.dataflow(int) as scope:
    ...     handle, stream = scope.new_input()
    ...     complete, late = stream.apply(windows, tumbling(10), at=lambda event: event)
    ...     complete, late = complete.capture(), late.capture()
    >>> for event, promise in [(3, 0), (12, 0), (7, 8), (9, 10), (15, 30)]:
    ...     handle.advance_to(promise)
    ...     handle.send(event)
    >>> handle.close()
    >>> worker.run()
    >>> [(time, window.start, events) for time, batch in complete.messages for _, window, events in batch]
    [(10, 0, [3, 7]), (20, 10, [12])]
    >>> [(time, window.start, event) for time, batch in late.messages for window, event in batch]
    [(10, 0, 9), (30, 10, 15)]
    """
    if not callable(assign):
        raise ConfigurationError(f"windows takes tumbling(size), sliding(size, every) or a function, not {assign!r}")
    keyed = key or (lambda record: None)
    complete_at: Callable[[Any, T], T] = due or (lambda end, time: end)
    domain = scope_of(stream, "windows").subgraph.domain
    builder = OperatorBuilder(stream.scope, "windows")
    builder.new_input(stream, ByRecord(keyed))
    complete, late = builder.new_output(), builder.new_output()

    def constructor(capabilities: list[Capability[T]], info: OperatorInfo) -> Callable[..., object]:
        held: Pending[T, tuple[Capability[T], dict[tuple[Any, Window], list[D]]]] = Pending()

        def save() -> Iterator[tuple[int, tuple[T, Any, Window, list[D]]]]:
            for end in held:
                for (k, window), records in held[end][1].items():
                    yield route(k), (end, k, window, records)

        def load(items: Iterable[tuple[T, Any, Window, list[D]]]) -> None:
            for end, k, window, records in items:
                if end not in held:
                    held[end] = (capabilities[0].delayed(end), {})
                held[end][1][k, window] = records

        info.register_state(save, load)
        for capability in capabilities:
            capability.drop()

        def logic(input: InputPort[T, D], out: OutputPort[T], too_late: OutputPort[T]) -> None:
            for capability, batch in input:
                time, missed = capability.time, []
                for record in records_of(batch):
                    for window in assign(at(record)):
                        end = complete_at(window.end, time)
                        if type(end) is not type(time):
                            domain.check(end)
                        if not (time <= end and time != end):
                            missed.append((window, record))
                            continue
                        if end not in held:
                            held[end] = (capability.delayed(end), {})
                        held[end][1].setdefault((keyed(record), window), []).append(record)
                too_late.session(capability).give_batch(missed)
            frontier = input.frontier
            for _, (ending, contents) in held.take(lambda end: not frontier.less_than(end)):
                out.session(ending).give_many((key, window, records) for (key, window), records in contents.items())
                ending.drop()

        return logic

    builder.build(constructor)
    return complete, late


@attrs.define
class _Session(Generic[T, D]):
    """What is known so far of one session: the right to send it at its end, and its records."""

    window: Window
    end: Capability[T]
    records: list[D]


def sessions(
    stream: Stream[T, D],
    gap: Any,
    at: Callable[[D], Any],
    key: Callable[[D], Any] | None = None,
    due: Callable[[Any], T] | None = None,
) -> tuple[Stream[T, tuple[Any, Window, list[D]]], Stream[T, D]]:
    """Return two streams: ``(key, window, records)`` for each session that is complete, at the time of its end, and the records
    that came too late for any.

    A session lasts from its first event to ``gap`` after its last one: an event belongs to it that comes before it is over. Its
    end depends on its records, so here a record is late if it was sent after its own event time. ``at`` and ``key`` are as for
    ``windows``; ``due(end)`` is the time at which a session that ends at ``end`` is complete, by default ``end`` itself. One that
    is given may say the same of many moments, as ``lambda end: end // 1000`` does: a session then waits until nothing can come at
    that time either, since an event that comes at it may be in time, and belong to the session. ``TimestampError`` unless every
    two times can be compared, ``ConfigurationError`` for a gap that is not positive.

    >>> import timely
    >>> from timely.operators.windows import sessions
    >>> timely.example(lambda scope: scope.to_stream([1, 12, 4, 30]).apply(sessions, 10, at=lambda event: event)[0])
    [(22, [(None, Window(start=1, end=22), [1, 4, 12])]), (40, [(None, Window(start=30, end=40), [30])])]
    """
    domain = time_domain(scope_of(stream, "sessions").time)
    if not domain.total:
        raise TimestampError(f"sessions need times of which every two can be compared, and those of {domain.name} cannot")
    if not _positive(gap):
        raise ConfigurationError(f"sessions with a gap of {gap!r}: give one that is more than nothing")
    keyed = key or (lambda record: None)
    time_of: Callable[[Any], T] = due or (lambda end: end)
    builder = OperatorBuilder(stream.scope, "sessions")
    builder.new_input(stream, ByRecord(keyed))
    complete, late = builder.new_output(), builder.new_output()

    def constructor(capabilities: list[Capability[T]], info: OperatorInfo) -> Callable[..., object]:
        held: dict[Any, list[_Session[T, D]]] = {}
        ends: Pending[T, dict[Any, None]] = Pending()  # the keys of which a session may end then: it may have grown since

        def save() -> Iterator[tuple[int, tuple[T, Any, Window, list[D]]]]:
            for k, known in held.items():
                for session in known:
                    yield route(k), (session.end.time, k, session.window, session.records)

        def load(items: Iterable[tuple[T, Any, Window, list[D]]]) -> None:
            for time, k, window, records in items:
                held.setdefault(k, []).append(_Session(window, capabilities[0].delayed(time), records))
                ends.at(time, dict)[k] = None

        info.register_state(save, load)
        for capability in capabilities:
            capability.drop()

        def logic(input: InputPort[T, D], out: OutputPort[T], too_late: OutputPort[T]) -> None:
            for capability, batch in input:
                missed = []
                for record in records_of(batch):
                    event = at(record)
                    if capability.time <= time_of(event):
                        end = capability.delayed(time_of(event + gap))
                        ends.at(end.time, dict)[keyed(record)] = None
                        _put(held.setdefault(keyed(record), []), _Session(Window(event, event + gap), end, [record]))
                    else:
                        missed.append(record)
                too_late.session(capability).give_batch(missed)
            # where every moment is a time of its own, an event before the end is in time only before the time of the end
            more_until = input.frontier.less_than if due is None else input.frontier.less_equal
            for _, keys in ends.take(lambda end: not more_until(end)):
                for k in keys:
                    known = held.pop(k, [])
                    over = bisect_left(known, True, key=lambda session: more_until(session.end.time))
                    for session in known[:over]:
                        out.session(session.end).give((k, session.window, sorted(session.records, key=at)))
                    if over < len(known):
                        held[k] = known[over:]

        return logic

    builder.build(constructor)
    return complete, late


def _put(known: list[_Session[T, D]], new: _Session[T, D]) -> None:
    """Put a session among those of its key, which are apart and in order; it takes up those that it overlaps with."""
    first = bisect_right(known, new.window.start, key=lambda session: session.window.end)
    after = bisect_left(known, new.window.end, lo=first, key=lambda session: session.window.start)
    for session in known[first:after]:
        later = max(session, new, key=lambda one: one.window.end)
        window = Window(min(session.window.start, new.window.start), later.window.end)
        more, fewer = sorted((session.records, new.records), key=len, reverse=True)
        more.extend(fewer)
        new = _Session(window, later.end, more)
    known[first:after] = [new]
