"""What tests of several workers and processes share: a dataflow that waits for its peers, interruptions, other Pythons, and
messages that cannot be read.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import timely


def exchanging(worker: timely.Worker) -> tuple[timely.InputHandle[int, int], timely.ProbeHandle[int]]:
    """A dataflow with an open input whose records go to all workers, and a probe behind them."""
    with worker.dataflow(int) as scope:
        numbers, stream = scope.new_input()
        probe = stream.exchange(lambda x: x).probe()
    return numbers, probe


@contextlib.contextmanager
def interrupted() -> Iterator[None]:
    """Expect ``KeyboardInterrupt`` of Python's own handler, which a run in the background of a shell does not have."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGINT, usual)


def python(*arguments: str, **more: Any) -> subprocess.Popen[str]:
    """Start another Python that finds what this one does; its output can be read."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | more.pop("environment", {})
    return subprocess.Popen([sys.executable, *arguments], env=environment, stdout=subprocess.PIPE, text=True, **more)


class Unreadable:
    """Can be pickled, and raises where it is read back."""

    def __init__(self, kind: type[Exception]) -> None:
        self.kind = kind

    def __reduce__(self) -> tuple[Any, ...]:
        return _raise, (self.kind,)


def _raise(kind: type[Exception]) -> None:
    raise kind("it cannot be read")
