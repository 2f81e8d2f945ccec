"""Processes of a run: spawned ones, those that an operator forks, the files that they may open, and the memory that they keep.

What checkpoints do without files stands with their other damage (``tests/recovery/test_damage.py``).

White box: that files run out at the very connection to a peer, and allocators without settings, are played.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import platform
import resource
import signal
import socket
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timely
from tests.worker.processes import python
from tests.worker.test_orphans import followed, has_ended
from timely import CaptureError, ConfigurationError, FileSink, FileSource, OperatorError, PeerLostError, WorkerError
from timely.memory.limits import keep_freed_memory
from timely.worker import mesh
from timely.worker.credentials import make_identity


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


ROWS = 200_000
"""More than a connection takes at once."""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_copy_that_goes_on_as_the_worker_sends_nothing(workers: int) -> None:
    """The original has sent its array, and nobody has read it, when the copy sends another one in its place."""
    sent, gone = os.pipe(), os.pipe()  # wake the copy, and who is to read
    copies: list[int] = []

    def twice(capability: Any, info: timely.OperatorInfo) -> Callable[..., None]:
        def logic(input: Any, output: Any) -> None:
            for cap, batch in input:
                for record in batch:
                    copies.append(os.fork())
                    if copies == [0]:
                        os.read(sent[0], 1)
                    output.session(cap).give_batch(np.full(ROWS, record + (copies == [0])))

        return logic

    def program(worker: timely.Worker) -> list[tuple[int, int]]:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            arrays = stream.unary(timely.Pipeline, "twice", twice).exchange(lambda array: 0 * array)
            captured = arrays.map_batch(lambda array: [(int(array.min()), int(array.max()))]).capture()
        if worker.index == worker.peers - 1:
            handle.send(7)
            worker.step()
            os.write(sent[1], b"!")
            os.waitpid(copies[0], 0)
            os.write(gone[1], b"!")
        elif worker.index == 0:
            os.read(gone[0], 1)
        handle.close()
        worker.run()
        return [pair for _, pairs in captured.messages for pair in pairs]

    try:
        assert timely.execute(program, workers=workers, processes=2)[0] == [(7, 7)]
    finally:
        for end in (*sent, *gone):
            os.close(end)


def open_files() -> list[int]:
    """Return the descriptors of this process."""
    with os.scandir("/proc/self/fd") as entries:
        collected = [int(entry.name) for entry in entries]
    return [file for file in collected if Path(f"/proc/self/fd/{file}").exists()]  # one was that of the directory


@contextlib.contextmanager
def room_for(files: int) -> Iterator[None]:
    """Let this process open so many more files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    last = max(open_files())
    held = [os.open(os.devnull, os.O_RDONLY)]
    while held[-1] < last:  # what was closed before leaves room in between
        held.append(os.open(os.devnull, os.O_RDONLY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (held[-1] + 1 + files, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for file in held:
            os.close(file)


def program(worker: timely.Worker) -> list[int]:
    """Send something to the next worker."""
    with worker.dataflow() as scope:
        seen = scope.to_stream([worker.index + 1]).exchange(lambda x: x).capture()
    worker.run()
    return [x for _, batch in seen.extract() for x in batch]


@pytest.mark.parametrize(("workers", "processes", "needed"), [(1, 2, 18), (1, 4, 40), (2, 2, 24)])
def test_workers_that_take_more_files_than_may_be_open(workers: int, processes: int, needed: int) -> None:
    right = timely.execute(program, workers=workers, processes=processes)
    asked = f"^workers={workers}, processes={processes} takes {needed} open files"
    for room in {0, 1, needed // 3, needed // 2, needed - 3, needed - 1}:
        message = rf"{asked} beside those .*: .*Too many open files; raise how many .* \(ulimit -n\), or take fewer workers$"
        before = open_files()
        with room_for(room), pytest.raises(ConfigurationError, match=message) as failure:
            timely.execute(program, workers=workers, processes=processes)
        assert isinstance(failure.value.__cause__, OSError)
        del failure  # with the frames that have the processes
        gc.collect()
        assert len(open_files()) <= len(before) + 2  # Python leaves a pipe open where there is no room for the second
    with room_for(needed):
        assert timely.execute(program, workers=workers, processes=processes) == right


def test_a_connection_that_a_worker_has_no_file_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "create_connection", none)
    with mesh.open_listener("127.0.0.1") as listener:
        addresses = {0: ("127.0.0.1", 1), 1: listener.getsockname()}
        with pytest.raises(PeerLostError, match=r"could not connect to worker 0 .* open files; raise how many .* fewer workers$"):
            mesh.connect_mesh(1, listener, addresses, make_identity("worker"), timeout=600)


def test_a_recording_that_there_is_no_file_for(tmp_path: Path) -> None:
    advice = r"Too many open files: .*; raise how many a process may have open \(ulimit -n\)"
    with room_for(0), pytest.raises(CaptureError, match=f"cannot be written: .*{advice}"):
        FileSink[int](tmp_path / "none")
    sink = FileSink[int](tmp_path / "one")
    sink.close()
    with room_for(0), pytest.raises(CaptureError, match=f"cannot be read: .*{advice}"):
        FileSource[int](tmp_path / "one")


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
    monkeypatch.delattr("select.poll")  # Windows has none
    assert keep_freed_memory() is False and timely.execute(lambda worker: worker.peers, workers=2) == [2, 2]


def test_what_it_needs_is_loaded_before_the_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ctypes", raising=False)
    timely.execute(lambda worker: None, processes=2)
    assert "ctypes" in sys.modules


def test_where_the_library_has_no_such_settings_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctypes", types.SimpleNamespace(CDLL=lambda name: object()))
    assert keep_freed_memory() is False
