"""Nothing that a client was told is lost or there twice, whenever its server is killed; soak has 300 kills."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import random
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from tests.server.client import ask
from timely.server import Limits, Views, ViewServer


@pytest.mark.parametrize("kills", [8, pytest.param(300, marks=pytest.mark.soak)])
def test_a_server_that_is_killed_loses_nothing_that_was_acknowledged(kills: int, tmp_path: Path) -> None:
    assert check_kills(tmp_path / "data", kills, seed=kills) > kills


_WORLD = multiprocessing.get_context("forkserver")
_WORLD.set_forkserver_preload(["tests.server.test_kills"])

ROWS = 3
"""Rows of a request, all of which are there, or none."""


def serve(data: Path, port: Connection) -> None:
    """Serve durable views in this process, with checkpoints all the time, until it is killed."""
    views = Views(Limits(replay_seconds=0.05), data=data)
    views.table("t", "request long, place long")
    views.view("counts", "select request, count(*) as n, min(place) + max(place) as m from t group by request")
    views.view("halves", f"select request from counts where n <> {ROWS} or m <> {ROWS - 1}")
    views.view("size", "select count(*) as n from t")
    with ViewServer(views, writable=True) as server:
        port.send(server.port)
        threading.Event().wait()


class Client(threading.Thread):
    """Writes one request after another to the server at ``port``; one without an answer is repeated until there is one."""

    def __init__(self, numbers: range) -> None:
        super().__init__(daemon=True)
        self.acknowledged: dict[int, int] = {}
        """The epochs of requests."""
        self.wrong: list[str] = []
        self.port: int | None = None
        self.over = False
        self._numbers = numbers

    def run(self) -> None:
        for number in self._numbers:
            while number not in self.acknowledged:
                if self.over:
                    return
                self._write(number)
            if number % 7 == 0:
                before = self.acknowledged[number]
                if self._write(number) not in (None, before):
                    self.wrong.append(f"request {number} had epoch {before}, and then {self.acknowledged[number]}")

    def _write(self, number: int) -> int | None:
        body = {"insert": [{"request": number, "place": place} for place in range(ROWS)]}
        try:
            answer = ask(self.port or 1, "/tables/t", "POST", body, Idempotency_Key=f"request {number}")
        except (OSError, http.client.HTTPException, json.JSONDecodeError):
            time.sleep(0.01)
            return None
        if answer.status != 200:
            self.wrong.append(f"request {number}: {answer.content}")
            self.over = True
            return None
        self.acknowledged[number] = answer.content["time"]
        return self.acknowledged[number]


def check_kills(data: Path, kills: int, seed: int, clients: int = 3) -> int:
    """Kill a server so often, and check after each start, and at the end, what is there; return how many writes there were."""
    chance = random.Random(seed)
    writers = [Client(range(number, 10**9, clients)) for number in range(clients)]
    for writer in writers:
        writer.start()
    for _ in range(kills):
        ours, theirs = _WORLD.Pipe()
        process = _WORLD.Process(target=serve, args=(data, theirs), daemon=True)
        process.start()
        theirs.close()
        killed_at_start = chance.random() < 0.2
        if killed_at_start:
            time.sleep(chance.random() * 0.3)
        else:
            known = {number: epoch for writer in writers for number, epoch in list(writer.acknowledged.items())}
            port = ours.recv()
            answer = ask(port, "/views/counts")
            check(known, answer.content, ask(port, "/views/halves").content)
            for writer in writers:
                writer.port = port
            time.sleep(chance.random() * 0.4)
        process.kill()
        process.join()
        ours.close()
        for writer in writers:
            writer.port = None
    for writer in writers:
        writer.over = True
    for writer in writers:
        writer.join()
    with Views(data=data) as views:
        final = {row[0]: row[1] for row, _ in views.read("counts").rows}
        acknowledged = {number for writer in writers for number in writer.acknowledged}
        assert not [problem for writer in writers for problem in writer.wrong]
        assert acknowledged <= final.keys() and len(final) <= len(acknowledged) + clients
        assert set(final.values()) <= {ROWS} and views.read("halves").rows == []
    return len(acknowledged)


def check(known: dict[int, int], counts: Any, halves: Any) -> None:
    """Check that what was acknowledged is there once, at a time that is not before it, and nothing is half there."""
    numbers = [row["request"] for row in counts["rows"]]
    missing = known.keys() - set(numbers)
    assert not missing, f"acknowledged, and gone: {sorted(missing)[:5]}"
    assert counts["time"] >= max(known.values(), default=0)
    assert halves["rows"] == [] and all(row["n"] == ROWS for row in counts["rows"])
