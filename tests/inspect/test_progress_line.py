"""The progress line says how far a run is, on a terminal, when it takes longer than a moment; and is gone when it is over."""

from __future__ import annotations

import io
import itertools
import threading
from collections.abc import Iterator

import pytest

import timely
from tests.support.terminal import Terminal
from timely.inspect import ProgressLine


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    terminal.close()


def working() -> tuple[timely.Worker, timely.InputHandle[int, int]]:
    worker = timely.Worker()
    with worker.dataflow(name="df") as scope:
        numbers, stream = scope.new_input()
        with scope.iterative("loop") as loop:
            handle, again = loop.feedback()
            stream.enter(loop).concat(again).map(lambda x: x).connect_loop(handle)
    numbers.send_batch([1, 2])
    numbers.advance_to(3)
    for _ in range(10):
        worker.step()
    return worker, numbers


def test_it_names_the_epoch_and_the_round_and_what_is_under_way(terminal: Terminal) -> None:
    worker, _ = working()
    clock = itertools.count(0, 2)
    line = ProgressLine(terminal.stream, clock=lambda: next(clock))
    line.watch(worker)
    line.show()
    message = terminal.shown()
    assert "df: epoch 0, round " in message
    assert "2 records under way" in message
    assert "| 2 s" in message
    worker.close()


def test_it_waits_for_a_moment_and_leaves_an_empty_line(terminal: Terminal) -> None:
    worker, _ = working()
    with ProgressLine(terminal.stream, clock=lambda: 0.0) as line:
        line.watch(worker)
        line.show()
        assert terminal.shown() == ""
    clock = itertools.count(0, 2)
    with ProgressLine(terminal.stream, clock=lambda: next(clock)) as line:
        line.watch(worker)
        line.show()
    assert terminal.shown().endswith("\r\x1b[K")
    worker.close()


def test_it_is_quiet_where_nobody_reads_a_terminal() -> None:
    worker, _ = working()
    written, clock = io.StringIO(), itertools.count(0, 2)
    with ProgressLine(written, clock=lambda: next(clock)) as line:
        line.watch(worker)
        line.show()
    assert written.getvalue() == ""
    worker.close()


def test_it_shows_again_in_a_second_block(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, _ = working()
    shows, clock = threading.Event(), itertools.count(0, 2)
    line = ProgressLine(terminal.stream, clock=lambda: next(clock))
    line.watch(worker)
    with line:
        pass
    monkeypatch.setattr(line, "show", shows.set)
    with line:
        assert shows.wait(600)
    worker.close()
