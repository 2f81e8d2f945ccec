"""The event log has everything that happens, in order, and changes nothing."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

import timely
from timely.errors import ConfigurationError
from timely.inspect import (
    ChannelBuilt,
    ChromeTrace,
    Ended,
    Event,
    EventLog,
    Held,
    Notified,
    OperatorBuilt,
    ProgressReceived,
    ProgressSent,
    Read,
    RecordsSent,
    Scheduled,
    Tally,
)


def collatz(worker: timely.Worker, events: list[Event] | None) -> list[Any]:
    """Something with a loop, an exchange and a notification; with a log if there is a list for it."""
    if events is not None:
        EventLog(worker).subscribe(events.append)
    with worker.dataflow(int, name="df") as scope:
        numbers = scope.to_stream(range(worker.index + 1, 40, worker.peers))
        with scope.iterative("loop") as loop:
            handle, again = loop.feedback()
            now = numbers.map(lambda n: (n, n)).enter(loop).concat(again).exchange(lambda pair: pair[1])
            done, going = now.branch(lambda pair: pair[1] > 1)
            going.map(lambda pair: (pair[0], 3 * pair[1] + 1 if pair[1] % 2 else pair[1] // 2)).connect_loop(handle)
            out = done.leave()
        seen = out.value_counts().unary_notify(timely.Pipeline, "once", [0], lambda i, o, n: [*i, *n]).capture()
        also = out.capture()
    worker.run()
    return [seen.extract(), also.extract()]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_log_changes_nothing_and_has_every_record(workers: int) -> None:
    logs: dict[int, list[Event]] = {index: [] for index in range(workers)}
    plain = timely.execute(lambda worker: collatz(worker, None), workers=workers)
    logged = timely.execute(lambda worker: collatz(worker, logs[worker.index]), workers=workers)
    assert logged == plain
    sent: Counter[Any] = Counter()
    read: Counter[Any] = Counter()
    held: Counter[Any] = Counter()
    for events in logs.values():
        for event in events:
            if isinstance(event, RecordsSent):
                sent[event.target, event.time] += event.records
            elif isinstance(event, Read):
                read[(event.path, event.port), event.time] += event.records
            elif isinstance(event, Held):
                held[event.path, event.port] += event.change
    scopes = {"/df", "/df/loop#1"}
    across = {event.target for event in logs[0] if isinstance(event, ChannelBuilt) and event.source[0] in scopes}
    across |= {event.target for event in logs[0] if isinstance(event, ChannelBuilt) and event.target[0] in scopes}
    assert across
    assert {key: count for key, count in read.items() if key[0] not in across} == {
        key: count for key, count in sent.items() if key[0] not in across
    }
    assert len(sent) > 100
    assert set(held.values()) <= {-1 * workers, 0}  # initial capabilities were there before the log began
    built = {event.path for event in logs[0] if isinstance(event, OperatorBuilt)}
    assert {event.path for event in logs[0] if isinstance(event, Scheduled)} <= built
    assert any(isinstance(event, Notified) and event.path.startswith("/df/once#") for event in logs[0])
    assert [event.path for event in logs[0] if isinstance(event, Ended)] == ["/df"]


def test_events_come_in_order_and_streams_are_named_by_their_ends() -> None:
    events: list[Event] = []
    collatz(timely.Worker(), events)
    moments = [event.at for event in events]
    assert moments == sorted(moments)
    built = [event for event in events if isinstance(event, OperatorBuilt)]
    assert all(event.built_at.startswith("test_event_log.py:") for event in built if event.name not in ("loop",))
    paths = {event.path for event in built} | {"/df"}
    channels = [event for event in events if isinstance(event, ChannelBuilt)]
    assert {end[0] for event in channels for end in (event.source, event.target)} <= paths
    assert any(event.exchanged for event in channels)
    assert max(place for place, event in enumerate(events) if isinstance(event, OperatorBuilt)) < min(
        place for place, event in enumerate(events) if isinstance(event, Scheduled)
    )


def test_progress_between_workers_is_sent_and_received() -> None:
    logs: dict[int, list[Event]] = defaultdict(list)
    timely.execute(lambda worker: collatz(worker, logs[worker.index]), workers=2)
    for index in range(2):
        assert any(isinstance(event, ProgressSent) for event in logs[index])
        assert {event.sender for event in logs[index] if isinstance(event, ProgressReceived)} == {1 - index}


def test_X9_logging_replay(tmp_path: Path) -> None:
    """Log events replay as a stream: here from a file, in another worker, later."""
    worker, file = timely.Worker(), tmp_path / "events"
    log, events = EventLog(worker), list[Event]()
    log.subscribe(events.append)
    log.into(timely.FileSink(file))
    with worker.dataflow(name="df") as scope:
        scope.to_stream(range(10)).map(str).capture()
    worker.run()
    log.close()
    reader = timely.Worker()
    with reader.dataflow(name="of the log") as scope:
        seen = scope.replay(timely.FileSource(file, trusted=True)).capture()
    reader.run()
    replayed = [event for _, batch in seen.messages for event in batch]
    assert replayed == events
    assert all(int(event.at * 1e6) >= time for time, batch in seen.messages for event in batch)


def test_several_logs_of_one_worker_are_the_same() -> None:
    """As where a page, a collector of metrics and a file of events look on at once."""
    worker = timely.Worker()
    logs: list[list[Event]] = [[], [], []]
    for events in logs:
        EventLog(worker, lambda: 0.0).subscribe(events.append)
    collatz(worker, None)
    assert {Scheduled, Notified, Held, Read, RecordsSent} < set(map(type, logs[0]))
    assert logs[0] == logs[1] == logs[2]


def test_a_dataflow_that_is_built_aside_is_not_logged() -> None:
    worker, events = timely.Worker(), list[Event]()
    log = EventLog(worker)
    log.subscribe(events.append)
    with log.aside(), worker.dataflow(name="aside") as scope:
        scope.to_stream([1]).map(str).capture()
    worker.run()
    assert [event for event in events if hasattr(event, "path")] == []


def test_dataflows_of_one_name_are_logged_as_they_are() -> None:
    worker, events = timely.Worker(), list[Event]()
    EventLog(worker).subscribe(events.append)
    with worker.dataflow(name="df") as scope:
        scope.to_stream([1]).probe()
    with worker.dataflow(name="df") as scope:
        scope.to_stream([1, 2]).map(str).map(len).probe()
    worker.run()
    sent = [(event.path, event.target, event.records) for event in events if isinstance(event, RecordsSent)]
    assert sent == [
        ("/df/to_stream#0", ("/df/probe#1", 0), 1),
        ("/df/to_stream#0", ("/df/map#1", 0), 2),
        ("/df/map#1", ("/df/map#2", 0), 2),
        ("/df/map#2", ("/df/probe#3", 0), 2),
    ]


def test_a_subscriber_that_raises_is_not_the_dataflows_trouble(caplog: pytest.LogCaptureFixture) -> None:
    worker, events = timely.Worker(), list[Event]()

    def fail(event: Event) -> None:
        raise LookupError("of the subscriber")

    log = EventLog(worker)
    log.subscribe(fail)
    log.subscribe(events.append)
    with worker.dataflow(name="df") as scope:
        seen = scope.to_stream([1, 2]).map(str).capture()
    worker.run()
    assert seen.extract() == [(0, ["1", "2"])]
    assert {OperatorBuilt, ChannelBuilt, RecordsSent, Read, Ended} <= set(map(type, events))
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [LookupError]


def read(file: Path) -> list[dict[str, Any]]:
    answer: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return answer


def squares(worker: timely.Worker) -> int:
    with worker.dataflow(int, name="df") as scope, scope.iterative("loop") as loop:
        handle, again = loop.feedback()
        numbers = scope.to_stream(range(20), on="each").enter(loop).concat(again).exchange(lambda x: x)
        numbers.map(lambda x: x - 7).filter(lambda x: x > 0).connect_loop(handle)
    worker.run()
    return os.getpid()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize("processes", [1, 2])
def test_each_worker_is_a_track_of_slices_that_nest(tmp_path: Path, processes: int) -> None:
    def program(worker: timely.Worker) -> tuple[int, int]:
        trace.watch(worker)
        tally = Tally.of(EventLog(worker))
        return squares(worker), sum(operator.sent for operator in tally.operators.values())

    with ChromeTrace(tmp_path / "trace.json") as trace:
        done = timely.execute(program, workers=2, processes=processes)
    events = read(tmp_path / "trace.json")
    pids, sent = zip(*done, strict=True)
    tracks = {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"}
    assert tracks == {(pid, worker) for worker, pid in enumerate(pids)}
    for track in tracks:
        open_until: list[float] = []
        slices = [event for event in events if event["ph"] == "X" and (event["pid"], event["tid"]) == track]
        for event in sorted(slices, key=lambda event: (event["ts"], -event["dur"])):
            while open_until and open_until[-1] <= event["ts"] + 1:
                open_until.pop()
            assert all(event["ts"] + event["dur"] <= over + 1 for over in open_until)  # microseconds, rounded
            open_until.append(event["ts"] + event["dur"])
    assert {event["args"]["name"] for event in events if event["name"] == "thread_name"} == {
        f"worker {worker}" for worker in range(2 * processes)
    }
    last = {(event["pid"], event["tid"]): event["args"]["/df"] for event in events if event["ph"] == "C"}
    assert sum(last.values()) == sum(sent) > 0  # the last value counts all
    assert all(event["ts"] >= 0 for event in events if event["ph"] != "M")


def test_the_times_are_those_of_the_log(tmp_path: Path) -> None:
    worker = timely.Worker()
    tally = Tally.of(EventLog(worker))
    with ChromeTrace(tmp_path / "trace.json") as trace:
        trace.watch(worker)
        squares(worker)
    runs = [event for event in read(tmp_path / "trace.json") if event.get("cat") == "operator"]
    for path, operator in tally.operators.items():
        own = [event for event in runs if event["args"]["path"] == path]
        assert len(own) == operator.runs
        assert sum(event["dur"] for event in own) >= operator.seconds * 1e6 - operator.runs  # it times the tally too; rounded


def test_a_full_trace_says_so_and_is_still_one(tmp_path: Path) -> None:
    worker = timely.Worker()
    trace = ChromeTrace(tmp_path / "trace.json", most=10)
    trace.watch(worker)
    squares(worker)
    trace.close()
    trace.close()
    squares(worker)  # nobody listens any more
    names = [event["name"] for event in read(tmp_path / "trace.json")]
    assert len(names) == 2 + 10 + 2
    assert names[-2:] == ["the trace is full: later events are left out", "end of the trace"]


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be written"):
        ChromeTrace(tmp_path / "no" / "trace.json")
