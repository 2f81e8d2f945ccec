"""Memory that is freed in a process of our own is there for the next batch.

White box: systems whose allocator has no such settings are played.
"""

from __future__ import annotations

import platform
import sys
import types

import pytest

import timely
from timely.memory.limits import keep_freed_memory

resource = pytest.importorskip("resource", reason="counts page faults")

SIZE = 1 << 23
PAGE = 4096


def faults(rounds: int) -> int:
    """Return how many pages the system had to give while memory of ``SIZE`` bytes was taken and freed so often."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        bytearray(SIZE)
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only the GNU C library has these settings")
def test_processes_of_a_run_use_freed_memory_again() -> None:
    def program(worker: timely.Worker) -> int:
        faults(2)
        return faults(20)

    for result in timely.execute(program, processes=2):
        assert result < 5 * SIZE // PAGE


def test_where_python_cannot_ask_the_library_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctypes", None)  # so that it cannot be imported
    assert keep_freed_memory() is False


def test_what_it_needs_is_loaded_before_the_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ctypes", raising=False)
    timely.execute(lambda worker: None, processes=2)
    assert "ctypes" in sys.modules


def test_where_the_library_has_no_such_settings_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctypes", types.SimpleNamespace(CDLL=lambda name: object()))
    assert keep_freed_memory() is False
