"""The live page shows what runs, to this machine only, and changes nothing."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import subprocess
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import timely
from timely.errors import ConfigurationError
from timely.inspect import LivePage
from timely.inspect import live as module

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def ask(page: LivePage, path: str, method: str = "GET", host: str | None = None) -> tuple[int, bytes]:
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
        [dataflow] = state(page)["workers"][0]["dataflows"]
        rows = {row["path"]: row for row in dataflow["operators"]}
        assert rows["/df/input#0"]["held"] == [["7", 1]]
        assert rows["/df/map#1"]["frontiers"] == [["7"]]
        assert (rows["/df/map#1"]["read"], rows["/df/map#1"]["sent"]) == (3, 3)
        assert rows["/df/map#1"]["runs"] >= 1
        assert rows["/df/map#1"]["built_at"].startswith("test_live.py:")
        assert dataflow["svg"].startswith("<svg")
        numbers.close()
        worker.run()
        assert state(page)["workers"][0]["dataflows"] == []


def test_it_says_what_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STILL", 0.0)
    worker = timely.Worker()
    with LivePage() as page:
        page.watch(worker)
        numbers = hold(worker)
        assert "'input' (/df/input#0" in state(page)["workers"][0]["dataflows"][0]["stuck"]
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
    assert {worker["index"] for seen in found for worker in seen["workers"]} <= {0, 1}
    assert len(found) == 20


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


def test_it_is_on_the_loopback_interface_and_a_port_that_is_taken_is_refused() -> None:
    with LivePage() as page:
        assert page.url == f"http://127.0.0.1:{page.port}/"
        with pytest.raises(ConfigurationError, match="cannot be served there"):
            LivePage(page.port)


def test_it_can_be_served_over_ipv6() -> None:
    try:
        with socket.socket(socket.AF_INET6) as free:
            free.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    with LivePage(host="::1") as page:
        assert page.url == f"http://[::1]:{page.port}/"
        with urllib.request.urlopen(page.url + "state.json", timeout=30) as answer:
            assert json.load(answer)["workers"] == []


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


@pytest.mark.skipif(CHROMIUM is None, reason="there is no browser on this machine")
def test_a_browser_draws_it(tmp_path: Path) -> None:
    worker = timely.Worker()
    with LivePage() as page:
        page.watch(worker)
        numbers = hold(worker)
        command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
        command += ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--dump-dom"]
        command += [f"--user-data-dir={tmp_path}", "--virtual-time-budget=3000", page.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        numbers.close()
        worker.run()
    assert 'data-polled="yes"' in done.stdout
    assert "/df on worker 0" in done.stdout
    assert 'data-path="/df/map#1"' in done.stdout
    assert "<svg" in done.stdout
