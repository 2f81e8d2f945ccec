"""A process may have so many files open, and no more: what a run does that takes more, and what recordings say.

What checkpoints do stands with their other damage (``tests/recovery/test_damage.py``).

White box: that files run out at the very connection to a peer is played on one side of a mesh.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import timely
from timely import CaptureError, ConfigurationError, FileSink, FileSource, PeerLostError
from timely.worker import mesh
from timely.worker.credentials import make_identity


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
