"""A client of the server: requests, and server-sent events as they come."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self


class Event(NamedTuple):
    """One server-sent event."""

    id: str | None
    name: str
    data: Any


class Reply(NamedTuple):
    """What was answered: the content is read as JSON where it is such."""

    status: int
    headers: Mapping[str, str]
    content: Any


def ask(port: int, path: str, method: str = "GET", body: Any = None, **headers: str) -> Reply:
    """Send a request, with a body as JSON unless it is text; names of headers have ``_`` for ``-``."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    try:
        connection.request(method, path, *_content(body, headers))
        answer = connection.getresponse()
        kind = answer.headers.get_content_type()
        content = b"" if kind == "text/event-stream" else answer.read()  # which has no end
        return Reply(answer.status, dict(answer.headers), json.loads(content) if kind == "application/json" else content)
    finally:
        connection.close()


def _content(body: Any, headers: Mapping[str, str]) -> tuple[bytes | None, dict[str, str]]:
    options = {name.replace("_", "-"): value for name, value in headers.items()}
    if body is None or isinstance(body, str):
        return None if body is None else body.encode(), options
    return json.dumps(body).encode(), {"Content-Type": "application/json", **options}


class Events:
    """The events of one connection, for a ``with`` block: ``next()`` waits for one."""

    def __init__(self, port: int, path: str, method: str = "GET", body: Any = None, **headers: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        self._connection.request(method, path, *_content(body, headers))
        self.answer = self._connection.getresponse()
        assert self.answer.status == 200, self.answer.read()
        assert self.answer.headers["Content-Type"] == "text/event-stream"
        self._events = self._read()

    def _read(self) -> Iterator[Event]:
        fields: dict[str, str] = {}
        while line := self.answer.readline():
            text = line.decode().rstrip("\n")
            if text:
                name, _, value = text.partition(":")
                fields[name] = value.removeprefix(" ")
            else:
                if "data" in fields:
                    yield Event(fields.get("id"), fields["event"], json.loads(fields["data"]))
                fields = {}

    def next(self) -> Event:
        """Return the next event; ``StopIteration`` when the stream is over."""
        return next(self._events)

    def rest(self) -> list[Event]:
        """Return all events up to the end."""
        return list(self._events)

    def close(self) -> None:
        """Go away."""
        self.answer.close()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
