"""The live page is served to this machine only, to those who know its address.

White box: the limits of its connections are set.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import multiprocessing
import os
import socket
import threading
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import pytest

import timely
from timely.errors import ConfigurationError
from timely.inspect import LivePage, live


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
        idle = [stack.enter_context(socket.create_connection(address, timeout=600)) for _ in range(36)]
        assert b"503" in idle[-1].recv(100)
        assert threading.active_count() - before <= 32
        for connection in idle:
            connection.close()
        status = 503
        while status == 503:  # they are let go of on threads of their own
            with contextlib.suppress(OSError, http.client.HTTPException):
                status = ask(page, "/")[0]
        assert status == 200


def test_it_is_on_the_loopback_interface_and_a_port_in_use_is_refused() -> None:
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
            urllib.request.urlopen(urllib.request.Request(page.url, headers={"Host": "example.com"}), timeout=600)
        with urllib.request.urlopen(page.url, timeout=600) as answer:
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
    with LivePage() as page, socket.create_connection(("127.0.0.1", page.port), timeout=600) as idle:
        assert idle.recv(1) == b""
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_process_that_was_forked_from_it_can_close_its_own_end() -> None:
    with LivePage() as page:
        child = multiprocessing.get_context("fork").Process(target=page.close)
        child.start()
        child.join(600)
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
        with urllib.request.urlopen(page.url + "state.json", timeout=600) as answer:
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


def ask(page: LivePage, path: str, method: str = "GET", host: str | None = None) -> tuple[int, bytes]:
    """Ask for a path below the page's own."""
    return request(page, urllib.parse.urlsplit(page.url).path.removesuffix("/") + path, method, host)


def request(page: LivePage, path: str, method: str = "GET", host: str | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=600)
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
    with urllib.request.urlopen(urllib.request.Request(page.url + "state.json", headers=headers), timeout=600) as answer:
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
