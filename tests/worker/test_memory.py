"""How much memory a process has is told where the system tells it, and looking never fails."""

from __future__ import annotations

import builtins
import sys
from typing import Any

import pytest

from timely.worker.memory import record_memory, resident_memory


def test_what_a_process_takes_more_is_seen() -> None:
    before = resident_memory()
    held = bytearray(b"x" * (64 << 20))
    assert resident_memory() >= before + (32 << 20)
    assert record_memory() >= before + (32 << 20)
    assert len(held) == 64 << 20


def test_a_system_that_says_nothing_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: Any, *given: Any) -> Any:
        raise FileNotFoundError(name)

    monkeypatch.setattr(builtins, "open", refuse)
    assert resident_memory() == record_memory() > 0
    monkeypatch.setitem(sys.modules, "resource", None)
    assert resident_memory() == 0
