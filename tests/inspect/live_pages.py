"""A live page as tests ask it, and a dataflow to look at."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import timely
from timely.inspect import LivePage


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
