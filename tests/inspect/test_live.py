"""The live page shows what runs, and changes nothing.

White box: what a page has for each state of a run is compared without a browser and without waiting, so clocks are set.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import timely
from tests.inspect.test_live_server import hold, refine, state
from timely.inspect import LivePage, live, report_aggregator, snapshot
from timely.inspect import report as module
from timely.inspect.report import Reporter

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)


def browse(tmp_path: Path, url: str) -> str:
    """What a browser makes of a page."""
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--dump-dom"]
    command += [f"--user-data-dir={tmp_path / 'browser'}", "--virtual-time-budget=3000", url]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout


@pytest.fixture
def page() -> Iterator[LivePage]:
    with LivePage() as page:
        yield page


@pytest.fixture
def worker(page: LivePage) -> timely.Worker:
    """A worker that is on the page."""
    worker = timely.Worker()
    page.watch(worker)
    return worker


def test_it_shows_frontiers_and_records_and_that_all_is_over(page: LivePage, worker: timely.Worker) -> None:
    numbers = hold(worker)
    [run] = state(page)["runs"]
    [dataflow] = run["dataflows"]
    rows = {row["path"]: row for row in dataflow["operators"]}
    assert rows["/df/input#0"]["held"] == [["7", 1]]
    assert rows["/df/map#1"]["frontiers"] == [["7"]]
    [[runs, seconds, read, sent]] = rows["/df/map#1"]["by_worker"]
    assert (read, sent) == (3, 3)
    assert runs >= 1 and seconds > 0
    assert rows["/df/map#1"]["built_at"].startswith("test_live_server.py:")
    [svg] = dataflow["drawings"].values()
    assert svg.startswith("<svg")
    assert not dataflow["over"]
    numbers.close()
    worker.run()
    [run] = state(page)["runs"]
    [dataflow] = run["dataflows"]
    rows = {row["path"]: row for row in dataflow["operators"]}
    assert run["workers"][0]["over"] and dataflow["over"]
    assert rows["/df/map#1"]["frontiers"] == [[]] and rows["/df/map#1"]["by_worker"][0][2:] == [3, 3]
    assert rows["/df/input#0"]["held"] == []


def test_a_browser_is_not_sent_again_what_it_has(page: LivePage, worker: timely.Worker) -> None:
    numbers = hold(worker)
    [first] = state(page)["runs"]
    [flow] = first["dataflows"]
    numbers.send(4)
    numbers.advance_to(8)
    for _ in range(3):
        worker.step()
    [second] = refine(page, **{"Timely-Drawn": f"x {flow['drawing']}"})["runs"]
    assert flow["drawings"] and second["dataflows"][0]["drawings"] is None
    assert second["dataflows"][0]["drawing"] == flow["drawing"]  # counts are not in it
    [third] = refine(page, **{"Timely-Drawn": ""})["runs"]
    assert third["samples"][0] == first["samples"][0] and third["dataflows"][0]["drawings"] == flow["drawings"]
    numbers.close()
    worker.run()


def test_it_shows_lag_unread_records_and_what_edges_carry_across_scopes(page: LivePage, worker: timely.Worker) -> None:
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
    by_name = {
        (path, wire.source, wire.target): records
        for path, wires in {"/df": shape.wires, **{child.path: child.wires for child in shape.children}}.items()
        for wire, records in zip(wires, flow["edges"].get(path, ()), strict=False)
    }
    assert flow["unread"] == 28 and flow["lag"] == 4  # nothing that is unread is complete
    into = {key: records for key, records in by_name.items() if key[0] == "/df/outer#1"}
    assert sorted(into.values()) == [8, 20, 20, 20]  # out of it, filtered; into it, to both; through it
    assert [records for key, records in by_name.items() if key[0] == "/df"] == [20, 20, 8, 28]
    assert flow["edges"]["/df/outer#1/inner#0"] == [20]
    worker.drop_dataflow(scope)


def test_a_report_has_all_of_it_in_one_file_whatever_the_names(page: LivePage, worker: timely.Worker, tmp_path: Path) -> None:
    with worker.dataflow(int, name="df") as scope:
        scope.to_stream([1, 2]).unary(timely.Pipeline, "</script><b>", lambda capability, info: lambda input, output: None)
    worker.step()
    worker.drop_dataflow(scope)
    page.close()
    page.save(tmp_path / "report.html")  # also when nobody serves it any more
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    result = re.findall(r'<script type="application/json" id="saved">(.*?)</script>', text)
    [run] = json.loads(result[0])["runs"]
    assert run["dataflows"][0]["operators"][1]["path"] == "/df/</script><b>#1"
    assert run["samples"] and run["workers"][0]["over"]
    assert text.count("</script>") == 2 and "src=" not in text


def test_a_browser_shows_the_page_and_a_report_that_was_saved(page: LivePage, worker: timely.Worker, tmp_path: Path) -> None:
    with worker.dataflow(int, name="df") as scope, scope.iterative("loop") as loop:
        handle, again = loop.feedback()
        scope.to_stream(range(5)).enter(loop).concat(again).filter(lambda x: x < 0).connect_loop(handle)
    worker.run()
    page.save(tmp_path / "report.html")
    if CHROMIUM is None:
        pytest.skip("there is no browser on this machine")
    live_page, shown = browse(tmp_path, page.url), browse(tmp_path, f"file://{tmp_path}/report.html")
    assert 'data-polled="yes"' in live_page and [len(re.findall(r"report of \d", each)) for each in (live_page, shown)] == [0, 1]
    assert all("0 workers busy of 1" in each and 'data-path="/df/loop#0/filter#2"' in each for each in (live_page, shown))
    assert shown.count('<option value="') == 3  # all scopes, the dataflow, and the loop
    assert "5 records in all" in shown


def test_colours_have_the_contrast_that_text_needs() -> None:
    css = Path(live.__file__).with_name("page.css").read_text(encoding="utf-8")
    colours = re.findall(r"--([a-z-]+): light-dark\(#([0-9a-f]+), #([0-9a-f]+)\)", css)
    schemes = [{name: pair[scheme] for name, *pair in colours} for scheme in range(2)]

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


def test_it_says_what_is_stuck(page: LivePage, worker: timely.Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STILL", 0.0)
    numbers = hold(worker)
    [stuck] = state(page)["runs"][0]["dataflows"][0]["stuck"]
    assert stuck["workers"] == [0]
    assert "'input' (/df/input#0" in stuck["words"]
    numbers.close()
    worker.run()


def test_workers_that_run_can_be_looked_at(page: LivePage) -> None:
    looked = threading.Event()
    collected: list[Any] = []

    def program(worker: timely.Worker) -> None:
        page.watch(worker)
        with worker.dataflow(name="df") as scope, scope.iterative("loop") as loop:
            handle, again = loop.feedback()
            numbers = scope.to_stream([worker.index]).enter(loop).concat(again).exchange(lambda x: x)
            numbers.map(lambda x: x + 1).filter(lambda x: not looked.is_set()).connect_loop(handle)
        worker.run()

    def look() -> None:
        for _ in range(20):
            collected.append(state(page))
        looked.set()

    looker = threading.Thread(target=look)
    looker.start()
    try:
        timely.execute(program, workers=2)
    finally:
        looked.set()
        looker.join()
    assert {worker["worker"] for seen in collected for run in seen["runs"] for worker in run["workers"]} <= {0, 1}
    assert all(len(seen["runs"]) <= 1 for seen in collected)
    assert len(collected) == 20


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_workers_in_processes_of_their_own_are_on_the_same_page(page: LivePage) -> None:
    def program(worker: timely.Worker) -> int:
        page.watch(worker)
        with worker.dataflow(name="df") as scope:
            scope.to_stream(range(10)).exchange(lambda x: x).map(str).probe()
        worker.run()
        return os.getpid()

    pids = timely.execute(program, workers=2, processes=2)
    [run] = state(page)["runs"]
    rows = {row["path"]: row for row in run["dataflows"][0]["operators"]}
    assert [(worker["worker"], worker["process"], worker["over"]) for worker in run["workers"]] == [
        (index, pid, True) for index, pid in enumerate(pids)
    ]
    assert [done[2] for done in rows["/df/map#2"]["by_worker"]] == [12, 12, 8, 8]
    assert run["dataflows"][0]["drawings"]


def test_what_another_thread_is_taking_in_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, goes_on = threading.Event(), threading.Event()
    report = {**Reporter(timely.Worker()).report(), "over": True}

    def take() -> list[dict[str, Any]]:
        if taken.is_set():
            return []
        taken.set()
        goes_on.wait(600)
        return [report]

    collected: list[Any] = []
    with LivePage() as page:  # its own thread takes the report
        monkeypatch.setattr(page._channel, "receive", take)
        assert taken.wait(600)
        asker = threading.Thread(target=lambda: collected.append(page.state()["runs"]))
        asker.start()
        asker.join(0.2)
        found_before = list(collected)
        goes_on.set()
        asker.join()
    assert not found_before
    [[run]] = collected
    assert [worker["over"] for worker in run["workers"]] == [True]


def test_workers_that_are_long_over_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_aggregator, "_REMEMBERED", 2)
    with LivePage() as page:
        for _ in range(6):
            worker = timely.Worker()
            page.watch(worker)
            hold(worker).close()
            worker.run()
        assert len(page.state()["runs"]) == 3


def test_a_report_of_another_process_is_lost_without_a_receiver() -> None:
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
