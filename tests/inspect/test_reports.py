"""A worker's reports say what it does, and the aggregator makes runs of them.

White box: what a report has for each state of a run is compared without a browser and without waiting, so clocks and limits are
set.
"""

from __future__ import annotations

import contextlib
import gc
import json
import threading
from typing import Any

import pytest

import timely
from tests.inspect.test_live_server import hold
from timely.inspect import Picture, report_aggregator, snapshot
from timely.inspect import report as module
from timely.inspect.report import Reporter, plain, reporting, shaped
from timely.inspect.report_aggregator import ReportAggregator, RunGroups


def test_an_operator_that_does_not_return_is_what_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STILL", 0.0)
    worker, result = timely.Worker(), []
    reporter = Reporter(worker)
    with worker.dataflow(name="df") as scope:
        scope.to_stream([1]).map(lambda x: result.append(reporter.report())).probe()
    reporter.report()
    worker.run()
    assert result[0]["running"] == ["/df/map#1"]
    assert result[0]["dataflows"][0]["stuck"] == "operator /df/map#1 is running, and has not returned"


def test_records_that_pass_at_one_time_are_movement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STILL", 1.0)
    now = [0.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    worker = timely.Worker()
    reporter = Reporter(worker)
    with worker.dataflow(name="df") as scope:
        numbers, stream = scope.new_input()
        stream.map(str).probe()
    worker.step()
    before = reporter.report()
    numbers.send(1)
    worker.step()
    now[0] = 5.0
    after = reporter.report()
    [earlier], [later] = before["dataflows"], after["dataflows"]
    assert earlier["shape"]["children"][0]["held"] == later["shape"]["children"][0]["held"] == [["0", 1]]
    assert after["still"] == 0.0 and later["stuck"] is None
    now[0] = 10.0
    assert reporter.report()["dataflows"][0]["stuck"] is not None
    numbers.close()
    worker.run()


def test_dataflows_of_one_name_are_distinguished() -> None:
    worker = timely.Worker()
    reporter = Reporter(worker)
    first, second = hold(worker), hold(worker)
    first.close()
    for _ in range(3):
        worker.step()
    assert [dataflow["over"] for dataflow in reporter.report()["dataflows"]] == [True, False]
    [run] = ReportAggregator().state([[reporter.report()]])
    assert [(each["path"], each["over"]) for each in run["dataflows"]] == [("/df", True), ("/df", False)]
    assert not run["workers"][0]["over"]
    second.close()
    worker.run()
    assert reporter.report()["over"]
    hold(worker).close()
    worker.run()
    assert reporter.report()["dataflows"][-1]["done"]["/df/map#1"][2:] == [3, 3]


def test_of_dataflows_without_end_the_newest_are_reported_and_what_is_over_is_forgotten() -> None:
    worker = timely.Worker()
    reporter = Reporter(worker)
    for _ in range(10):
        hold(worker).close()
        worker.run()
    assert reporter.tally.operators == {} and reporter.tally.ended == []
    assert [dataflow["over"] for dataflow in reporter.report()["dataflows"]] == [True] * 4
    inputs = [hold(worker) for _ in range(20)]
    assert len(reporter.report()["dataflows"]) == 16
    for numbers in inputs:
        numbers.close()
    worker.run()


def test_what_a_worker_that_failed_was_doing_is_not_going_on() -> None:
    worker = timely.Worker()
    reporter = Reporter(worker)
    with worker.dataflow(name="df") as scope:
        scope.to_stream([1]).map(lambda x: 1 // 0).probe()
    with pytest.raises(timely.OperatorError), worker:
        worker.run()
    report = reporter.report()
    assert report["over"] and report["dataflows"][0]["over"] and report["running"] == []


def test_a_dataflow_that_ends_while_it_is_looked_at_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STILL", 0.0)
    worker = timely.Worker()
    reporter = Reporter(worker)
    numbers = hold(worker)
    reporter.report()

    def look(scope: timely.ScopeBuilder[Any]) -> Any:
        result = snapshot(scope)
        monkeypatch.setattr(module, "snapshot", snapshot)
        numbers.close()
        worker.run()
        return result

    monkeypatch.setattr(module, "snapshot", look)
    [dataflow] = reporter.report()["dataflows"]
    assert dataflow["over"] and dataflow["stuck"] is None and dataflow["done"]["/df/map#1"][2:] == [3, 3]


def test_a_worker_that_is_gone_is_not_reported() -> None:
    reports: list[Any] = []
    before = set(threading.enumerate())
    worker = timely.Worker()
    module.report_always(worker, reports.append)
    hold(worker).close()
    worker.run()
    assert any(report["over"] for report in reports)
    [thread] = set(threading.enumerate()) - before
    del worker
    for _ in range(600):  # a report that is being put together keeps it for that long
        gc.collect()
        thread.join(0.1)
        if not thread.is_alive():
            break
    assert not thread.is_alive()


def test_the_last_report_is_sent_when_all_is_over_and_goes_through_json() -> None:
    reports: list[Any] = []
    with timely.Worker() as worker, reporting(worker, lambda report: reports.append(json.dumps(report))):
        hold(worker).close()
        worker.run()
    last = json.loads(reports[-1])
    assert last["over"] and last["dataflows"][0]["over"]
    assert last["dataflows"][0]["done"]["/df/map#1"][2:] == [3, 3]
    assert "[1, 2, 3]" not in reports[-1]


def test_a_run_goes_on_without_a_receiver_of_reports(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(report: Any) -> None:
        raise ConnectionError("nobody listens")

    with timely.Worker() as worker, reporting(worker, refuse):
        hold(worker).close()
        worker.run()
    assert caplog.text.count("could not be sent to the live page") == 1


def test_a_run_that_fails_is_over_too() -> None:
    reports: list[Any] = []

    def fail(worker: timely.Worker) -> None:
        with reporting(worker, reports.append):
            hold(worker)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        timely.execute(fail)
    assert reports[-1]["over"]


def test_shapes_go_through_json_unchanged_but_for_times_without_end() -> None:
    worker = timely.Worker()
    with worker.dataflow(name="df") as scope:
        numbers, stream = scope.new_input()
        with scope.iterative("loop") as loop:
            handle, again = loop.feedback()
            stream.enter(loop).concat(again).exchange(lambda x: x).connect_loop(handle)
        stream.unary(timely.Pipeline, "never reads", lambda capability, info: lambda input, output: None)
    before = snapshot(scope)
    assert shaped(json.loads(json.dumps(plain(before)))) == before
    for time in range(20):
        numbers.send(1)
        numbers.advance_to(time + 1)
    worker.step()
    after = shaped(json.loads(json.dumps(plain(snapshot(scope)))))
    waiting = {operator.name: operator.waiting for operator in after.operators()}["never reads"]
    assert len(waiting) == 9 and waiting[-1] == ("… 12 more", 12)
    assert "20 unread at 0, 1 and more" in Picture(after).svg()
    assert "20 unread at 0, 1 and 18 more" in Picture(snapshot(scope)).svg()


@pytest.mark.parametrize("nested", [False, True])
def test_of_a_dataflow_without_end_what_took_longest_is_reported(nested: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DRAWN", 5)
    worker = timely.Worker()
    reporter = Reporter(worker)
    with worker.dataflow(name="df") as scope:
        numbers, more = scope.new_input()
        with scope.region(name="part") if nested else contextlib.nullcontext(scope) as part:
            stream = part.to_stream(range(100))
            for _ in range(20):
                stream = stream.map(lambda x: x)
        (stream.leave() if nested else stream).concat(more).probe()
    worker.step()
    slowest = "/df/part#1/map#7" if nested else "/df/map#7"
    reporter.tally.operators[slowest].seconds = 100.0
    report = reporter.report()
    [dataflow] = ReportAggregator().state([[report]])[0]["dataflows"]
    assert bool(report["dataflows"][0]["shape"]) == bool(dataflow["drawings"]) == nested
    assert not nested or "21 operators" in dataflow["drawings"]["all scopes"]
    assert len(dataflow["operators"]) == 5 and not dataflow["edges"]
    assert dataflow["operators"][0]["path"] == slowest
    numbers.close()
    worker.run()


def report_of(worker: int, peers: int = 2, **more: Any) -> dict[str, Any]:
    """A report without dataflows."""
    who = {"reporter": 0, "number": 0, "worker": worker, "peers": peers, "host": "h", "process": 7}
    return {**who, "memory": 10, "over": False, "dataflows": [], **more}


def test_only_the_newest_attempt_of_a_run_is_shown_and_who_falls_silent() -> None:
    now = [0.0]
    board = ReportAggregator(lambda: now[0])
    hear = board.open("ranks")
    hear(0, 5, report_of(0))
    hear(1, 5, report_of(1, process=8))
    assert [worker["worker"] for worker in board.state([])[0]["workers"]] == [0, 1]
    assert board.state([])[0]["memory"] == 20
    hear(1, 9, report_of(1))
    hear(0, 5, report_of(0))
    now[0] = 4.0
    [run] = board.state([])
    assert [(worker["worker"], worker["silent"]) for worker in run["workers"]] == [(1, 4.0)]
    hear(1, 9, report_of(1, over=True))
    now[0] = 9.0
    assert board.state([])[0]["workers"][0]["silent"] == 0.0


def test_workers_that_are_peers_are_shown_together_and_others_apart() -> None:
    board = ReportAggregator()
    for process, (worker, peers) in enumerate([(0, 2), (0, 2), (1, 2), (0, 1), (1, 2)]):
        board.receive(report_of(worker, peers, process=process))
    runs = [[worker["process"] for worker in run["workers"]] for run in board.state([])]
    assert runs == [[0, 4], [1, 2], [3]]


def test_runs_are_forgotten_as_a_whole_those_first_that_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_aggregator, "_REMEMBERED", 2)
    monkeypatch.setattr(report_aggregator, "_AT_ONCE", 3)
    groups = RunGroups[tuple[str, int]](lambda member: member[0] != "on")
    for name in ("on", "a", "b", "c", "d"):
        for worker in range(3):
            groups.add(worker, 3, (name, worker))
    assert groups.all() == [[(name, worker) for worker in range(3)] for name in ("on", "b", "c", "d")]
    for number in range(9):
        groups.add(0, 1, ("on", number))
    assert [[number for _, number in group] for group in groups.all()] == [[4], [5], [6], [7], [8]]


def test_a_report_that_comes_late_is_not_shown() -> None:
    board = ReportAggregator()
    board.receive(report_of(0, 1, number=7, over=True))
    board.receive(report_of(0, 1, number=6))
    assert [worker["over"] for run in board.state([]) for worker in run["workers"]] == [True]
    board.receive(report_of(0, 1, number=0, reporter=1))  # of another worker that the process has had
    assert [worker["over"] for run in board.state([]) for worker in run["workers"]] == [True, False]


def test_what_several_workers_are_stuck_at_is_reported_once() -> None:
    def stuck(worker: int, words: str) -> dict[str, Any]:
        return report_of(
            worker, 4, dataflows=[{"number": 0, "path": "/df", "over": False, "stuck": words, "shape": None, "done": {}}]
        )

    same = [stuck(worker, f"the end on worker {worker} is not reached, because\n  - 'input' may still send") for worker in (0, 1)]
    other = [stuck(worker, "operator /df/map#1 is running, and has not returned") for worker in (2, 3)]
    [dataflow] = ReportAggregator().state([[*same, *other]])[0]["dataflows"]
    assert [each["workers"] for each in dataflow["stuck"]] == [[0, 1], [2, 3]]
