"""How much memory a process has, where the system says it; and who holds most where it runs out.

White box: no public function returns how much memory the process has.
"""

from __future__ import annotations

import builtins
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import timely
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


def never(_: Any, info: timely.OperatorInfo) -> Callable[..., None]:
    return lambda input, output: None


def greedy(batch: Any) -> list[int]:
    raise MemoryError


def test_who_holds_most_is_named_with_the_time() -> None:
    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            stream.unary(timely.Pipeline, "hoard", never)
            stream.filter(lambda record: len(record) < 10).unary(timely.Pipeline, "small hoard", never)
            stream.filter(lambda record: record == "now").map(greedy)
        for time, size in enumerate((1000, 300_000, 2000)):
            handle.send_batch([f"{number:0{size}d}" for number in range(10)])
            handle.advance_to(time + 1)
        worker.step()
        handle.send("now")
        worker.step()

    for workers in (1, 2):
        with pytest.raises(timely.OutOfMemoryError, match="operator 'map · greedy'") as caught:
            timely.execute(program, workers=workers)
        [note] = [note for note in caught.value.__notes__ if "held by" in note]
        held = r"Most of it is held by input 0 of operator 'hoard' \(/dataflow0/hoard#1\) on worker \d: about 2\.9 MB"
        assert re.match(held, note)  # of the worker that came first
        assert "2.9 MB in 10 records at time 1; 'hoard' was built at test_memory.py:" in note
