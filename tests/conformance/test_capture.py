"""Capture and replay, by the ids of docs/conformance.md and of the invariants (T8)."""

from __future__ import annotations

import functools
import gc
import sys
import threading
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from tests.conformance.recorded import complaint, record, replayed
from timely import (
    Antichain,
    CaptureError,
    EventLink,
    Messages,
    OperatorError,
    Product,
    Progress,
)
from timely.operators import EventSource, StreamState

# -- in memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["writer", "reader"])
def test_E1_through_a_link_into_a_second_dataflow(first: str) -> None:
    worker = timely.Worker()
    link: EventLink[int] = EventLink()

    def write() -> None:
        with worker.dataflow(int) as scope:
            scope.to_stream(range(10)).capture_into(link)

    if first == "writer":
        write()
    with worker.dataflow(int) as scope:
        seen = scope.replay(link).capture()
    if first == "reader":
        write()
    worker.run()
    assert seen.extract()[0][1] == list(range(10))
    assert [x for _, batch in seen.messages for x in batch] == list(range(10))
    assert link.extract() == seen.extract()


def test_E3_example_returns_what_capture_extracts() -> None:
    assert timely.example(lambda scope: scope.to_stream(range(10)))[0] == (0, list(range(10)))


@pytest.mark.parametrize("workers", [1, 3])
def test_E4_all_workers_into_one_link(workers: int) -> None:
    link: EventLink[int] = EventLink(across_threads=True)

    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int) as scope:
            scope.to_stream(range(10)).capture_into(link)

    timely.execute(program, workers=workers)
    assert link.extract()[0][1] == [i // workers for i in range(10 * workers)]


@pytest.mark.parametrize(("holder", "across_threads"), [("link", False), ("reader", True)])
def test_E5_dropping_a_million_events(holder: str, across_threads: bool) -> None:
    link: EventLink[int] | None = EventLink(across_threads=across_threads)
    assert link is not None
    reader = link.reader() if holder == "reader" else None
    event: Messages[int] = Messages(0, [])
    for _ in range(1_000_000):
        link.append(event)
    before = sys.getrefcount(event)
    link = None
    gc.collect()
    if reader is not None:
        assert reader.take() is event  # and the reader still has the rest
        assert sys.getrefcount(event) > before - 2
        reader = None
    assert sys.getrefcount(event) <= before - 1_000_000


def test_a_reader_that_asks_to_be_woken_too_late_is_woken_at_once() -> None:
    link: EventLink[int] = EventLink()
    reader = link.reader()
    calls: list[int] = []
    assert reader.take() is None
    link.append(Progress([(0, 1)]))  # between the look and the question, as another thread may
    assert reader.notify(lambda: calls.append(1))
    assert calls == [1]
    assert reader.take() is not None
    assert reader.notify(lambda: calls.append(2))
    assert calls == [1]
    link.append(Progress([(0, -1)]))
    assert calls == [1, 2]


class Batch(list[int]):
    """A container that a weak reference can follow."""


def test_a_link_that_forgets_keeps_what_readers_still_need_and_nothing_else() -> None:
    link: EventLink[int] = EventLink()
    early = link.reader()
    batches = [Batch([epoch]) for epoch in range(4)]
    followed = [weakref.ref(batch) for batch in batches]
    link.append(Progress([(0, 1)]))
    for epoch, batch in enumerate(batches[:3]):
        link.append(Messages(epoch, batch))
        link.append(Progress([(epoch, -1), (epoch + 1, 1)]))
    link.forget()
    link.append(Messages(3, batches.pop()))
    del batch
    batches.clear()
    assert all(batch() is not None for batch in followed)
    link.append(Progress([(3, -1)]))
    assert replayed(link) == [(3, [3])]
    assert replayed(early) == [(epoch, [epoch]) for epoch in range(4)]
    link.forget()
    assert replayed(link) == []
    gc.collect()
    assert all(batch() is None for batch in followed)


@pytest.mark.parametrize("readers", [1, 2])
def test_a_link_between_workers_that_are_threads(readers: int) -> None:
    links: list[EventLink[int]] = [EventLink(across_threads=True) for _ in range(2)]

    def write() -> None:
        def program(worker: timely.Worker) -> None:
            with worker.dataflow(int) as scope:
                handle = record(scope, links[worker.index])
            for epoch in range(1, 20):
                handle.advance_to(epoch)
                handle.send(epoch)
                worker.step()
            handle.close()

        timely.execute(program, workers=2)

    def read(worker: timely.Worker) -> Any:
        with worker.dataflow(int) as scope:
            seen = scope.replay(*links[worker.index :: worker.peers]).capture()
        worker.run()
        return seen.extract()

    writer = threading.Thread(target=write)
    writer.start()
    results = timely.execute(read, workers=readers)
    writer.join()
    together = Counter((time, x) for part in results for time, batch in part for x in batch)
    assert together == Counter([(0, x) for x in range(10)] * 2 + [(x, x) for x in range(1, 20)] * 2)


# -- the rules -----------------------------------------------------------------------------------------------------------

OPENING: Any = Progress([(2, 1)])


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([Messages(0, [1])], "event 0 has records at 0, which cannot come any more; 0 events are good: .* has not opened"),
        ([OPENING, Messages(1, [1])], "event 1 has records at 1, which cannot come any more; 1 events are good.*at or after 2"),
        ([OPENING, Progress([(1, 1)])], "event 1 counts 1 up, which is not at or after a time still counted"),
        ([OPENING, Progress([(3, 1), (2, -1)]), Messages(2, [1])], "event 2 has records at 2.*at or after 3"),
        ([Progress([(0, -1)])], "event 0 counts 0 down below zero"),
        ([OPENING, Progress([(2, -2)])], "event 1 counts 2 down below zero"),
        ([OPENING], "source 0 of replay ends before the stream is over; 1 events are good: .*at or after 2"),
        ([], "source 0 of replay ends before the stream is over; 0 events are good"),
        ([OPENING, "text"], r"event 1 is to be Messages\(time, batch\) or Progress\(changes\), and is 'text'"),
    ],
)
def test_E8_a_stream_that_breaks_the_rules_is_refused(events: list[Any], words: str) -> None:
    error = complaint(events)
    assert error.events == (0 if not events or events[0] is not OPENING else error.events)
    with pytest.raises(CaptureError, match=words):
        raise error


def test_E8_what_is_counted_twice_is_counted_down_twice() -> None:
    events = [Progress([(0, 1), (1, 2)]), Progress([(0, -1)]), Messages(1, ["a"]), Progress([(1, -1)]), Messages(5, ["b"])]
    assert replayed([*events, Progress([(1, -1)])]) == [(1, ["a"]), (5, ["b"])]
    assert complaint(events).frontier == (1,)


def test_times_of_another_type_are_refused() -> None:
    for events in ([Progress([("x", 1)])], [Progress([(Product(0, 0), 1)])], [Progress([(0, 1)]), Messages("x", [1])]):
        with pytest.raises(OperatorError, match="is not a time of type int"):
            replayed(events)


@pytest.mark.parametrize("wrong", [3, None])
def test_what_is_neither_sink_nor_source(wrong: Any) -> None:
    with timely.Worker().dataflow(int) as scope:
        with pytest.raises(CaptureError, match="needs something to append events to"):
            scope.empty().capture_into(wrong)
        with pytest.raises(CaptureError, match="replay needs recorded streams"):
            scope.replay(wrong)


@pytest.mark.parametrize("wrong", [["a", "b"], (Path("a"),), [timely.EventLink()]])
def test_sources_in_a_list(wrong: Any) -> None:
    with timely.Worker().dataflow(int) as scope, pytest.raises(CaptureError, match=r"one by one, as in replay\(\*sources\)"):
        scope.replay(wrong)


def test_replay_of_nothing_is_an_empty_stream() -> None:
    assert replayed() == []
    assert replayed([Progress([])]) == []


# -- T8 ------------------------------------------------------------------------------------------------------------------


class Scripted(EventSource[Any]):
    """A source whose events come when a script says so: ``None`` where nothing has come yet."""

    def __init__(self, script: list[Any]) -> None:
        self.script = script[::-1]
        self.state: StreamState[Any] = StreamState()

    def take(self) -> Any:
        event = self.script.pop()
        if event is not None:
            self.state.apply(event)
        return event


TIMES = {
    "int": (int, st.integers(0, 6)),
    "product": (Product[int, int], st.builds(Product, st.integers(0, 3), st.integers(0, 3))),
}


def is_above(held: tuple[Any, ...], time: Any) -> bool:
    return any(below <= time for below in held)


@st.composite
def legal_streams(draw: st.DrawFn, times: st.SearchStrategy[Any]) -> list[Any]:
    """A stream that keeps the rules, whole, drawn event by event."""
    counts: Counter[Any] = Counter(draw(st.lists(times, max_size=3)))
    events: list[Any] = [Progress(list(counts.items()))]
    for _ in range(draw(st.integers(0, 8))):
        held = [time for time in counts if counts[time] > 0]
        above: st.SearchStrategy[Any] = times.filter(functools.partial(is_above, tuple(held)))
        if not held:
            break
        if draw(st.booleans()):
            events.append(Messages(draw(above), draw(st.lists(st.integers(0, 9), max_size=3))))
            continue
        changes = Counter(dict.fromkeys(draw(st.lists(above, max_size=2)), 1))
        changes.subtract({time: draw(st.integers(1, counts[time])) for time in draw(st.lists(st.sampled_from(held), max_size=2))})
        events.append(Progress(list(changes.items())))
        counts.update(changes)
    if +counts:
        events.append(Progress([(time, -count) for time, count in counts.items() if count]))
    return events


@pytest.mark.parametrize("kind", TIMES)
@given(data=st.data())
def test_T8_any_interleaving_of_legal_streams_replays_to_the_same(kind: str, data: st.DataObject) -> None:
    spec: Any
    spec, times = TIMES[kind]
    streams = data.draw(st.lists(legal_streams(times), max_size=3))
    sources = []
    for events in streams:
        script: list[Any] = []
        for event in events:
            script += [None] * data.draw(st.integers(0, 2)) + [event]
        sources.append(Scripted(script))
    worker = timely.Worker()
    with worker.dataflow(spec) as scope:
        replayed_ = scope.replay(*sources)
        seen, probe = replayed_.capture(), replayed_.probe()
    while worker.step():
        so_far = Antichain([time for source in sources for time in source.state.frontier])
        if all(source.state.events for source in sources):
            assert probe.frontier() == so_far  # no more and no less is held than what the streams have said
    assert probe.done()
    expected: Counter[Any] = Counter()
    for events in streams:
        expected.update((event.time, x) for event in events if isinstance(event, Messages) for x in event.batch)
    assert Counter((time, x) for time, batch in seen.messages for x in batch) == expected
