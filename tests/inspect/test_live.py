"""The live page shows what runs, to this machine only, and changes nothing.

White box: what a report has for each state of a run is compared without a browser and without waiting, so clocks and limits are
set.
"""

from __future__ import annotations

import contextlib
import gc
import http.client
import json
import multiprocessing
import os
import re
import shutil
import socket
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import timely
from timely.errors import ConfigurationError
from timely.inspect import LivePage, Picture, live, report_aggregator, snapshot
from timely.inspect import report as module
from timely.inspect.report import Reporter, plain, reporting, shaped
from timely.inspect.report_aggregator import ReportAggregator, RunGroups

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)


def ask(page: LivePage, path: str, method: str = "GET", host: str | None = None) -> tuple[int, bytes]:
    """Ask for a path below the page's own."""
    return request(page, urllib.parse.urlsplit(page.url).path.removesuffix("/") + path, method, host)


def request(page: LivePage, path: str, method: str = "GET", host: str | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=30)
    try:
        connection.request(method, path, headers={"Host": host or f"127.0.0.1:{page.port}"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def state(page: LivePage) -> Any:
    status, content = ask(page, "/state.json")
    assert status == 200
    return json.loads(content)


def refine(page: LivePage, **headers: str) -> Any:
    """The state, as a browser asks that has something already."""
    with urllib.request.urlopen(urllib.request.Request(page.url + "state.json", headers=headers), timeout=30) as answer:
        return json.load(answer)


def hold(worker: timely.Worker) -> timely.InputHandle[int, Any]:
    """A dataflow with an open input that has sent three records."""
    with worker.dataflow(name="df") as scope:
        numbers, stream = scope.new_input()
        stream.map(str).probe()
    numbers.send_batch([1, 2, 3])
    numbers.advance_to(7)
    for _ in range(3):
        worker.step()
    return numbers


def test_it_shows_frontiers_and_records_and_that_all_is_over() -> None:
    worker = timely.Worker()
    with LivePage() as page:
        page.watch(worker)
        numbers = hold(worker)
        [run] = state(page)["runs"]
        [dataflow] = run["dataflows"]
        rows = {row["path"]: row for row in dataflow["operators"]}
        assert rows["/df/input#0"]["held"] == [["7", 1]]
        assert rows["/df/map#1"]["frontiers"] == [["7"]]
        [[runs, seconds, read, sent]] = rows["/df/map#1"]["by_worker"]
        assert (read, sent) == (3, 3)
        assert runs >= 1 and seconds > 0
        assert rows["/df/map#1"]["built_at"].startswith("test_live.py:")
        assert dataflow["svg"].startswith("<svg")
        assert not dataflow["over"]
        numbers.close()
        worker.run()
        [run] = state(page)["runs"]
        [dataflow] = run["dataflows"]
        rows = {row["path"]: row for row in dataflow["operators"]}
        assert run["workers"][0]["over"] and dataflow["over"]
        assert rows["/df/map#1"]["frontiers"] == [[]] and rows["/df/map#1"]["by_worker"][0][2:] == [3, 3]
        assert rows["/df/input#0"]["held"] == []


def test_a_browser_is_not_sent_again_what_it_has() -> None:
    worker = timely.Worker()
    with LivePage() as page:
        page.watch(worker)
        numbers = hold(worker)
        [first] = state(page)["runs"]
        [flow] = first["dataflows"]
        known = {"Timely-Drawn": f"x {flow['drawing']}", "Timely-Since": str(first["samples"][-1]["at"])}
        numbers.send(4)
        numbers.advance_to(8)
        for _ in range(3):
            worker.step()
        [second] = refine(page, **known)["runs"]
        assert flow["svg"].startswith("<svg") and second["dataflows"][0]["svg"] is None
        assert second["dataflows"][0]["drawing"] == flow["drawing"]  # counts are not in it
        assert second["samples"] == [sample for sample in second["samples"] if sample["at"] > first["samples"][-1]["at"]]
        [third] = refine(page, **{"Timely-Since": "never", "Timely-Drawn": ""})["runs"]
        assert third["samples"][0] == first["samples"][0] and third["dataflows"][0]["svg"] == flow["svg"]
        numbers.close()
        worker.run()


def test_it_shows_lag_unread_records_and_what_edges_carry_into_out_of_and_through_scopes() -> None:
    worker = timely.Worker()
    with LivePage() as page:
        page.watch(worker)
        with worker.dataflow(int, name="df") as scope:
            numbers, stream = scope.new_input()
            with scope.region(name="outer") as outer:
                entered = stream.enter(outer)
                with outer.region(name="inner") as inner:
                    through = entered.enter(inner).leave().leave()
                evens = entered.filter(lambda x: x % 2 == 0).leave()
            through.concat(evens).unary(timely.Pipeline, "never reads", lambda capability, info: lambda input, output: None)
        for time in range(4):
            numbers.send_batch([1, 2, 3, 4, 5])
            numbers.advance_to(time + 1)
        for _ in range(4):
            worker.step()
        [flow] = state(page)["runs"][0]["dataflows"]
        shape = snapshot(scope)
        found = {
            (path, wire.source, wire.target): records
            for path, wires in {"/df": shape.wires, **{child.path: child.wires for child in shape.children}}.items()
            for wire, records in zip(wires, flow["edges"].get(path, ()), strict=False)
        }
        assert flow["unread"] == 28 and flow["lag"] == 4  # nothing that is unread is complete
        into = {key: records for key, records in found.items() if key[0] == "/df/outer#1"}
        assert sorted(into.values()) == [8, 20, 20, 20]  # out of it, filtered; into it, to both; through it
        assert [records for key, records in found.items() if key[0] == "/df"] == [20, 20, 8, 28]
        assert flow["edges"]["/df/outer#1/inner#0"] == [20]
        worker.drop_dataflow(scope)


def test_a_report_has_all_of_it_in_one_file_whatever_names_there_are(tmp_path: Path) -> None:
    worker = timely.Worker()
    with LivePage() as page:
        page.watch(worker)
        with worker.dataflow(int, name="df") as scope:
            scope.to_stream([1, 2]).unary(timely.Pipeline, "</script><b>", lambda capability, info: lambda input, output: None)
        worker.step()
        worker.drop_dataflow(scope)
    page.save(tmp_path / "report.html")  # also when nobody serves it any more
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    found = re.findall(r'<script type="application/json" id="saved">(.*?)</script>', text)
    [run] = json.loads(found[0])["runs"]
    assert run["dataflows"][0]["operators"][1]["path"] == "/df/</script><b>#1"
    assert run["samples"] and run["workers"][0]["over"]
    assert text.count("</script>") == 2 and "src=" not in text


def test_a_report_that_was_saved_shows_itself(tmp_path: Path) -> None:
    worker = timely.Worker()
    with LivePage() as page:
        page.watch(worker)
        with worker.dataflow(int, name="df") as scope, scope.iterative("loop") as loop:
            handle, again = loop.feedback()
            scope.to_stream(range(5)).enter(loop).concat(again).filter(lambda x: x < 0).connect_loop(handle)
        worker.run()
        page.save(tmp_path / "report.html")
    if CHROMIUM is None:
        pytest.skip("there is no browser on this machine")
    shown = browse(tmp_path, f"file://{tmp_path}/report.html")
    assert "report of " in shown and "0 of 1 worker at work" in shown
    assert 'data-path="/df/loop#0/filter#2"' in shown
    assert shown.count('aria-expanded="true"') == 1  # of the loop
    assert "5 records in all" in shown


def test_colours_have_the_contrast_that_text_needs() -> None:
    css = Path(live.__file__).with_name("page.css").read_text(encoding="utf-8")
    schemes = [dict(re.findall(r"--([a-z-]+): #([0-9a-f]+)", block)) for block in re.findall(r"{([^{}]*--page: [^{}]*)}", css)]
    assert len(schemes) == 3 and schemes[1] == schemes[2]

    def rgb(scheme: dict[str, str], name: str) -> tuple[float, ...]:
        digits = scheme[name] if len(scheme[name]) == 6 else "".join(2 * digit for digit in scheme[name])
        return tuple(int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4))

    def light(colour: tuple[float, ...]) -> float:
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
        dark, bright = sorted([light(one), light(other)])
        return (bright + 0.05) / (dark + 0.05)

    for scheme in schemes:
        hottest = tuple(0.45 * hot + 0.55 * box for hot, box in zip(rgb(scheme, "hot"), rgb(scheme, "box"), strict=True))
        backs = [rgb(scheme, "page"), rgb(scheme, "card"), rgb(scheme, "box")]
        for name in ("text", "soft", "accent", "warn"):
            assert min(contrast(rgb(scheme, name), back) for back in backs) >= 4.5, name
        assert contrast(rgb(scheme, "text"), hottest) >= 4.5
        assert contrast(rgb(scheme, "text"), rgb(scheme, "warn-back")) >= 4.5
        assert contrast((1.0, 1.0, 1.0), rgb(scheme, "head")) >= 4.5


def test_it_says_what_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STILL", 0.0)
    worker = timely.Worker()
    with LivePage() as page:
        page.watch(worker)
        numbers = hold(worker)
        [stuck] = state(page)["runs"][0]["dataflows"][0]["stuck"]
        assert stuck["workers"] == [0]
        assert "'input' (/df/input#0" in stuck["words"]
        numbers.close()
        worker.run()


def test_workers_that_run_can_be_looked_at() -> None:
    looked = threading.Event()
    found: list[Any] = []

    def program(worker: timely.Worker) -> None:
        page.watch(worker)
        with worker.dataflow(name="df") as scope, scope.iterative("loop") as loop:
            handle, again = loop.feedback()
            numbers = scope.to_stream([worker.index]).enter(loop).concat(again).exchange(lambda x: x)
            numbers.map(lambda x: x + 1).filter(lambda x: not looked.is_set()).connect_loop(handle)
        worker.run()

    def look() -> None:
        for _ in range(20):
            found.append(state(page))
        looked.set()

    with LivePage() as page:
        looker = threading.Thread(target=look)
        looker.start()
        try:
            timely.execute(program, workers=2)
        finally:
            looked.set()
            looker.join()
    assert {worker["worker"] for seen in found for run in seen["runs"] for worker in run["workers"]} <= {0, 1}
    assert all(len(seen["runs"]) <= 1 for seen in found)
    assert len(found) == 20


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_workers_in_processes_of_their_own_are_on_the_same_page() -> None:
    def program(worker: timely.Worker) -> int:
        page.watch(worker)
        with worker.dataflow(name="df") as scope:
            scope.to_stream(range(10)).exchange(lambda x: x).map(str).probe()
        worker.run()
        return os.getpid()

    with LivePage() as page:
        pids = timely.execute(program, workers=2, processes=2)
        [run] = state(page)["runs"]
        rows = {row["path"]: row for row in run["dataflows"][0]["operators"]}
        assert [(worker["worker"], worker["process"], worker["over"]) for worker in run["workers"]] == [
            (index, pid, True) for index, pid in enumerate(pids)
        ]
        assert [done[2] for done in rows["/df/map#2"]["by_worker"]] == [12, 12, 8, 8]
        assert run["dataflows"][0]["svg"].startswith("<svg")


def test_what_another_thread_is_taking_in_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, goes_on = threading.Event(), threading.Event()
    report = {**Reporter(timely.Worker()).report(), "over": True}

    def take() -> list[dict[str, Any]]:
        if taken.is_set():
            return []
        taken.set()
        goes_on.wait(60)
        return [report]

    found: list[Any] = []
    with LivePage() as page:  # its own thread takes the report
        monkeypatch.setattr(page._channel, "receive", take)
        assert taken.wait(60)
        asker = threading.Thread(target=lambda: found.append(page.state()["runs"]))
        asker.start()
        asker.join(0.2)
        found_before = list(found)
        goes_on.set()
        asker.join()
    assert not found_before
    [[run]] = found
    assert [worker["over"] for worker in run["workers"]] == [True]


def test_an_operator_that_does_not_return_is_what_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STILL", 0.0)
    worker, found = timely.Worker(), []
    reporter = Reporter(worker)
    with worker.dataflow(name="df") as scope:
        scope.to_stream([1]).map(lambda x: found.append(reporter.report())).probe()
    reporter.report()
    worker.run()
    assert found[0]["running"] == ["/df/map#1"]
    assert found[0]["dataflows"][0]["stuck"] == "operator /df/map#1 is running, and has not returned"


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


def test_dataflows_of_one_name_are_told_apart() -> None:
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


def test_of_dataflows_without_end_the_newest_are_told_and_what_is_over_is_forgotten() -> None:
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
        found = snapshot(scope)
        monkeypatch.setattr(module, "snapshot", snapshot)
        numbers.close()
        worker.run()
        return found

    monkeypatch.setattr(module, "snapshot", look)
    [dataflow] = reporter.report()["dataflows"]
    assert dataflow["over"] and dataflow["stuck"] is None and dataflow["done"]["/df/map#1"][2:] == [3, 3]


def test_nobody_tells_of_a_worker_that_is_gone() -> None:
    told: list[Any] = []
    before = set(threading.enumerate())
    worker = timely.Worker()
    module.report_always(worker, told.append)
    hold(worker).close()
    worker.run()
    assert any(report["over"] for report in told)
    [thread] = set(threading.enumerate()) - before
    del worker
    for _ in range(600):  # a report that is being put together keeps it for that long
        gc.collect()
        thread.join(0.1)
        if not thread.is_alive():
            break
    assert not thread.is_alive()


def test_what_is_told_last_is_told_when_all_is_over_and_goes_through_json() -> None:
    told: list[Any] = []
    with timely.Worker() as worker, reporting(worker, lambda report: told.append(json.dumps(report))):
        hold(worker).close()
        worker.run()
    last = json.loads(told[-1])
    assert last["over"] and last["dataflows"][0]["over"]
    assert last["dataflows"][0]["done"]["/df/map#1"][2:] == [3, 3]
    assert "[1, 2, 3]" not in told[-1]


def test_a_run_goes_on_where_nobody_takes_what_is_told(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(report: Any) -> None:
        raise ConnectionError("nobody listens")

    with timely.Worker() as worker, reporting(worker, refuse):
        hold(worker).close()
        worker.run()
    assert caplog.text.count("could not be sent to the live page") == 1


def test_what_another_process_tells_is_lost_where_nobody_takes_it() -> None:
    wire = live._Channel()
    for number in range(2_000):
        wire.send({"number": number, "much": os.urandom(500).hex()})
    taken = [report["number"] for report in wire.receive()]
    assert taken == list(range(len(taken))) and 0 < len(taken) < 2_000
    assert wire.receive() == []
    wire.send({"number": -1, "more": "than a datagram has room for", "much": os.urandom(1 << 20).hex()})
    assert wire.receive() == []
    wire.close()
    wire.send({"number": 0})


def test_a_run_that_fails_is_over_too() -> None:
    told: list[Any] = []

    def fail(worker: timely.Worker) -> None:
        with reporting(worker, told.append):
            hold(worker)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        timely.execute(fail)
    assert told[-1]["over"]


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
    assert len(waiting) == 9 and waiting[-1] == ("…", 12)
    assert "20 unread at 0, 1 and more" in Picture(after).svg()
    assert "20 unread at 0, 1 and 18 more" in Picture(snapshot(scope)).svg()


def test_of_a_dataflow_without_end_what_took_longest_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DRAWN", 5)
    worker = timely.Worker()
    reporter = Reporter(worker)
    with worker.dataflow(name="df") as scope:
        stream = scope.to_stream(range(100))
        for _ in range(20):
            stream = stream.map(lambda x: x)
        numbers, more = scope.new_input()
        stream.concat(more).probe()
    worker.step()
    reporter.tally.operators["/df/map#7"].seconds = 100.0
    report = reporter.report()
    [dataflow] = ReportAggregator().state([[report]])[0]["dataflows"]
    assert report["dataflows"][0]["shape"] is None and dataflow["svg"] is None
    assert len(dataflow["operators"]) == 5
    assert dataflow["operators"][0]["path"] == "/df/map#7"
    numbers.close()
    worker.run()


def told(worker: int, peers: int = 2, **more: Any) -> dict[str, Any]:
    """A report without dataflows."""
    who = {"reporter": 0, "number": 0, "worker": worker, "peers": peers, "host": "h", "process": 7}
    return {**who, "memory": 10, "over": False, "dataflows": [], **more}


def test_only_the_newest_attempt_of_a_run_is_shown_and_who_falls_silent() -> None:
    now = [0.0]
    board = ReportAggregator(lambda: now[0])
    hear = board.open("ranks")
    hear(0, 5, told(0))
    hear(1, 5, told(1, process=8))
    assert [worker["worker"] for worker in board.state([])[0]["workers"]] == [0, 1]
    assert board.state([])[0]["memory"] == 20
    hear(1, 9, told(1))
    hear(0, 5, told(0))
    now[0] = 4.0
    [run] = board.state([])
    assert [(worker["worker"], worker["silent"]) for worker in run["workers"]] == [(1, 4.0)]
    hear(1, 9, told(1, over=True))
    now[0] = 9.0
    assert board.state([])[0]["workers"][0]["silent"] == 0.0


def test_workers_that_are_peers_are_shown_together_and_others_apart() -> None:
    board = ReportAggregator()
    for process, (worker, peers) in enumerate([(0, 2), (0, 2), (1, 2), (0, 1), (1, 2)]):
        board.receive(told(worker, peers, process=process))
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
    board.receive(told(0, 1, number=7, over=True))
    board.receive(told(0, 1, number=6))
    assert [worker["over"] for run in board.state([]) for worker in run["workers"]] == [True]
    board.receive(told(0, 1, number=0, reporter=1))  # of another worker that the process has had
    assert [worker["over"] for run in board.state([]) for worker in run["workers"]] == [True, False]


def test_what_several_workers_are_stuck_at_is_said_once() -> None:
    def stuck(worker: int, words: str) -> dict[str, Any]:
        return told(worker, 4, dataflows=[{"number": 0, "path": "/df", "over": False, "stuck": words, "shape": None, "done": {}}])

    same = [stuck(worker, f"the end on worker {worker} is not reached, because\n  - 'input' may still send") for worker in (0, 1)]
    other = [stuck(worker, "operator /df/map#1 is running, and has not returned") for worker in (2, 3)]
    [dataflow] = ReportAggregator().state([[*same, *other]])[0]["dataflows"]
    assert [each["workers"] for each in dataflow["stuck"]] == [[0, 1], [2, 3]]


def test_workers_that_are_long_over_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_aggregator, "_REMEMBERED", 2)
    with LivePage() as page:
        for _ in range(6):
            worker = timely.Worker()
            page.watch(worker)
            hold(worker).close()
            worker.run()
        assert len(page.state()["runs"]) == 3


@pytest.mark.parametrize(
    ("path", "method", "host", "status"),
    [
        ("/", "GET", None, 200),
        ("/", "GET", "localhost:1", 200),
        ("/", "GET", "localhost", 200),
        ("/", "GET", "[::1]:1", 200),
        ("/", "GET", "example.com", 403),
        ("/state.json", "GET", "example.com:80", 403),
        ("/../live.py", "GET", None, 404),
        ("/state.json", "POST", None, 501),
        ("/state.json", "DELETE", None, 501),
    ],
)
def test_only_two_pages_are_given_and_only_under_their_own_name(path: str, method: str, host: str | None, status: int) -> None:
    with LivePage() as page:
        assert ask(page, path, method, host)[0] == status


def test_only_who_knows_the_token_is_answered() -> None:
    with LivePage() as page, LivePage() as other:
        token = urllib.parse.urlsplit(page.url).path.strip("/")
        assert len(token) >= 32 and token not in other.url
        for path in ("/", "/state.json", "/?token=", f"/{token[:-1]}/", f"/{token}x/state.json", "/%00/", "/" * 70):
            status, content = request(page, path)
            assert status == 403 and token.encode() not in content, path
        assert request(other, f"/{token}/state.json")[0] == 403
        assert ask(page, "/state.json")[0] == 200


def test_no_more_than_a_bounded_number_of_connections_is_served() -> None:
    with LivePage() as page, contextlib.ExitStack() as stack:
        before = threading.active_count()
        address = ("127.0.0.1", page.port)
        idle = [stack.enter_context(socket.create_connection(address, timeout=60)) for _ in range(36)]
        assert b"503" in idle[-1].recv(100)
        assert threading.active_count() - before <= 32
        for connection in idle:
            connection.close()
        status = 503
        while status == 503:  # they are let go of on threads of their own
            with contextlib.suppress(OSError, http.client.HTTPException):
                status = ask(page, "/")[0]
        assert status == 200


def test_it_is_on_the_loopback_interface_and_a_port_that_is_taken_is_refused() -> None:
    with LivePage() as page:
        assert page.url.startswith(f"http://127.0.0.1:{page.port}/")
        with pytest.raises(ConfigurationError, match="cannot be served there"):
            LivePage(page.port)


def test_other_addresses_of_this_machine_are_for_it_alone_too() -> None:
    try:
        page = LivePage(host="127.0.0.2")
    except ConfigurationError:
        pytest.skip("this machine has one address on its loopback interface")
    with page:
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(urllib.request.Request(page.url, headers={"Host": "example.com"}), timeout=30)
        with urllib.request.urlopen(page.url, timeout=30) as answer:
            assert answer.status == 200


def test_it_asks_nobody_what_this_machine_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str = "") -> str:
        raise AssertionError(f"{name!r} was looked up")

    monkeypatch.setattr(socket, "getfqdn", refuse)
    with LivePage() as page:
        assert ask(page, "/")[0] == 200


def test_who_connects_and_says_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    assert live._Handler.timeout is not None
    monkeypatch.setattr(live._Handler, "timeout", 0.01)
    with LivePage() as page, socket.create_connection(("127.0.0.1", page.port), timeout=60) as idle:
        assert idle.recv(1) == b""
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_process_that_was_forked_from_it_can_close_its_own_end() -> None:
    with LivePage() as page:
        child = multiprocessing.get_context("fork").Process(target=page.close)
        child.start()
        child.join(60)
        ended = child.exitcode
        child.kill()
        child.join()
        assert ended == 0
        assert ask(page, "/")[0] == 200


def test_it_can_be_served_over_ipv6() -> None:
    try:
        with socket.socket(socket.AF_INET6) as free:
            free.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    with LivePage(host="::1") as page:
        assert page.url.startswith(f"http://[::1]:{page.port}/")
        with urllib.request.urlopen(page.url + "state.json", timeout=30) as answer:
            assert json.load(answer)["runs"] == []


def test_a_browser_that_goes_away_is_no_news_for_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with LivePage() as page:
        server = page._server
        for error in (BrokenPipeError(), ConnectionResetError()):
            try:
                raise error
            except OSError:
                server.handle_error(None, ("127.0.0.1", 1))
        assert capfd.readouterr().err == ""


def test_closing_it_twice_does_nothing_more() -> None:
    with LivePage() as page:
        page.close()


def browse(tmp_path: Path, url: str) -> str:
    """What a browser makes of a page."""
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--dump-dom"]
    command += [f"--user-data-dir={tmp_path / 'browser'}", "--virtual-time-budget=3000", url]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


@pytest.mark.skipif(CHROMIUM is None, reason="there is no browser on this machine")
def test_a_browser_draws_it(tmp_path: Path) -> None:
    worker = timely.Worker()
    with LivePage() as page:
        page.watch(worker)
        numbers = hold(worker)
        shown = browse(tmp_path, page.url)
        numbers.close()
        worker.run()
    assert 'data-polled="yes"' in shown
    assert 'data-path="/df/map#1"' in shown
    assert "1 of 1 worker at work" in shown
    assert "<svg" in shown
