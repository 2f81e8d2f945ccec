"""A trace has what workers did, in the format that Perfetto and Chrome read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import timely
from timely.errors import ConfigurationError
from timely.inspect import ChromeTrace, EventLog, Tally


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
