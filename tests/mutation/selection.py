"""Plugins for pytest: which functions does each test call, and: run these tests only, in this order.

The invariant: a test that is not chosen for a mutant never runs its function. What a test calls while it is collected or set
up does not count. A caller may rely on times being those of one run, and on names being pytest's own.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from types import FrameType
from typing import Any

import attrs
import pytest


@attrs.define
class Record:
    """What is known of a test: CPU seconds, and where the functions that it called begin, ``(file, line)``."""

    seconds: float
    called: set[tuple[str, int]]


class Recorder:
    """Notes what every test that passes calls in the folder ``root``: ``records`` by its name; ``failed`` are the others."""

    def __init__(self, root: Path) -> None:
        self._prefix = f"{root}/"
        self._called: set[tuple[str, int]] = set()
        self.records: dict[str, Record] = {}
        self.failed: list[str] = []

    def _enter(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(self._prefix):
            self._called.add((code.co_filename[len(self._prefix) :], code.co_firstlineno))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self._called = set()
        before = process_time()
        threading.setprofile(self._enter)
        sys.setprofile(self._enter)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        self.records[item.nodeid] = Record(process_time() - before, self._called)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


class Chosen:
    """Runs the named tests in the order of the names, and no others, each with so many CPU seconds as it is given.

    A test that needs more ends the process, by a signal; so does one that waits for ten times as long.
    """

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds
        self._places = {name: place for place, name in enumerate(seconds)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((item for item in items if item.nodeid in self._places), key=lambda item: self._places[item.nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        signal.setitimer(signal.ITIMER_PROF, self._seconds[item.nodeid])
        signal.setitimer(signal.ITIMER_REAL, 10 * self._seconds[item.nodeid])
        return (yield)
