"""How much memory a process has, where the system says it; reading it never fails.

White box: no public function returns how much memory the process has.
"""

from __future__ import annotations

import builtins
import subprocess
import sys
from typing import Any

import pytest

from timely.monitor.memory import record_memory, resident_memory


def test_what_a_process_takes_more_is_seen() -> None:
    before = resident_memory()
    held = bytearray(b"x" * (64 << 20))
    assert resident_memory() >= before + (32 << 20)
    assert record_memory() >= before + (32 << 20)
    assert len(held) == 64 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell it apart")
def test_a_record_is_that_of_the_program_and_not_of_who_started_it() -> None:
    held = bytearray(b"x" * (128 << 20))
    program = "from timely.monitor.memory import record_memory; print(record_memory())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) < len(held) < record_memory()


def test_a_system_without_memory_figures_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: Any, *inputs: Any) -> Any:
        raise FileNotFoundError(name)

    monkeypatch.setattr(builtins, "open", refuse)
    assert resident_memory() == record_memory() > 0
    monkeypatch.setitem(sys.modules, "resource", None)
    assert resident_memory() == 0
