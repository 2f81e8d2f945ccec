"""``execute(start_method="spawn")``: as with forked processes, but that the program must be importable."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import timely
from tests.worker.processes import python
from tests.worker.test_orphans import followed, has_ended
from timely import ConfigurationError, OperatorError, WorkerError


def spawn(program: Callable[[timely.Worker], Any], **arguments: Any) -> list[Any]:
    return timely.execute(program, processes=2, start_method="spawn", **arguments)


def count(worker: timely.Worker) -> tuple[int, int, list[Any]]:
    with worker.dataflow() as scope:
        seen = scope.to_stream(["a", "b", "c", "a"], on="each").value_counts().capture()
    worker.run()
    return worker.index, os.getpid(), sorted(record for _, batch in seen.extract() for record in batch)


def divide(worker: timely.Worker) -> None:
    with worker.dataflow() as scope:
        scope.to_stream([0, 1], on="each").exchange(lambda x: x).map(lambda x: 1 // (1 - x)).probe()
    worker.run()


def die(worker: timely.Worker) -> None:
    if worker.index == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with worker.dataflow() as scope:
        scope.to_stream([1], on="each").exchange(lambda x: x).probe()


def leave(worker: timely.Worker) -> None:
    sys.exit(7)


def test_the_results_are_those_of_forked_processes() -> None:
    result = spawn(count, workers=2)
    assert [index for index, *_ in result] == [0, 1, 2, 3]
    assert len({process for _, process, _ in result} - {os.getpid()}) == 2
    assert sorted(record for *_, records in result for record in records) == [("a", 8), ("b", 4), ("c", 4)]
    forked = timely.execute(count, workers=2, processes=2, start_method="fork")
    assert [records for *_, records in forked] == [records for *_, records in result]


def test_errors_arrive() -> None:
    with pytest.raises(OperatorError, match="on worker 1 raised ZeroDivisionError") as failure:
        spawn(divide)
    assert isinstance(failure.value.__cause__, ZeroDivisionError)


def test_a_process_that_dies() -> None:
    with pytest.raises(WorkerError, match=r"process 1 \(workers 1 to 1\) ended with exit code -9 and no result$"):
        spawn(die)


def test_an_exit_of_a_program_is_the_callers() -> None:
    with pytest.raises(SystemExit) as exit:
        spawn(leave)
    assert exit.value.code == 7


def test_a_program_that_cannot_be_pickled_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"pickles the program, and <function .*<lambda>.* cannot be.*that a module def"):
        spawn(lambda worker: None)


def test_other_start_methods_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="start_method='forkserver': give 'fork' or 'spawn'"):
        timely.execute(count, start_method="forkserver")  # type: ignore[arg-type]


SCRIPT = """
import timely

def program(worker):
    return worker.index

{guard}
    print(timely.execute(program, processes=2, start_method="spawn"))
"""

WAITING = """
import os
import timely

def program(worker):
    with worker.dataflow() as scope:
        scope.new_input()[1].exchange(lambda x: x).probe()
    os.write(1, f"{os.getpid()}\\n".encode())
    while True:
        worker.step_or_park(None)

if __name__ == "__main__":
    timely.execute(program, processes=2, start_method="spawn")
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs descriptors of processes")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_processes_end_with_the_one_that_started_them(tmp_path: Path, number: signal.Signals) -> None:
    with contextlib.ExitStack() as stack:
        parent = stack.enter_context(python(script(tmp_path, WAITING)))
        stack.callback(parent.kill)
        assert parent.stdout is not None
        children = [stack.enter_context(followed(int(parent.stdout.readline()))) for _ in range(2)]
        parent.send_signal(number)
        assert [has_ended(child) for child in children] == [True, True]
        assert parent.wait() == -number


def script(folder: Path, source: str) -> str:
    """Write a script, and return its path."""
    (folder / "script.py").write_text(source)
    return str(folder / "script.py")


def run(*command: str) -> tuple[int, str, str]:
    """Return the status of another Python, and what it has written to its outputs."""
    with python(*command, stderr=subprocess.PIPE) as process:
        out, error = process.communicate()
    return process.returncode, out, error


def test_a_script_with_its_call_under_the_main_guard(tmp_path: Path) -> None:
    assert run(script(tmp_path, SCRIPT.format(guard='if __name__ == "__main__":')))[1] == "[0, 1]\n"


def test_a_script_without_the_main_guard_is_an_error(tmp_path: Path) -> None:
    status, _, error = run(script(tmp_path, SCRIPT.format(guard="if True:")))
    last = error.splitlines()[-1]
    assert status == 1 and "timely.errors.WorkerError: process" in last
    assert last.endswith("a file that calls execute under if __name__ == '__main__':")
    assert "ConfigurationError: start_method='spawn' imports the main script again" in error


def test_a_program_that_a_process_cannot_import() -> None:
    _, _, error = run("-c", SCRIPT.format(guard="if True:"))
    assert "ConfigurationError: the program cannot be read in a spawned process" in error
