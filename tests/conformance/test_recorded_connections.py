"""Recorded streams on connections, by the ids of docs/conformance.md, and what is read of strangers.

White box: no sink sends two events in one frame, so an encoder makes it.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import threading
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import Any, cast

import pytest

import timely
from tests.conformance.recorded import complaint, record, recorded, replayed
from timely import (
    CaptureError,
    ConnectionSink,
    ConnectionSource,
    FileSink,
    FileSource,
    Messages,
    Progress,
)
from timely.operators.recordings.event_frames import Encoder

# -- connections ---------------------------------------------------------------------------------------------------------


def test_E2_over_a_connection_between_threads() -> None:
    secret = secrets.token_bytes(16)
    with Listener(("127.0.0.1", 0), authkey=secret) as listener:
        address = listener.address

        def send() -> None:
            with Client(address, authkey=secret) as connection:
                recorded(ConnectionSink(connection), epochs=20)

        sender = threading.Thread(target=send)
        sender.start()
        with listener.accept() as connection:
            outputs = replayed(ConnectionSource(connection))
        sender.join()
    assert outputs == [(epoch, list(range(10 * epoch, 10 * epoch + 10))) for epoch in range(20)]


def _send_and_go(connection: Any, finish: bool) -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle = record(scope, ConnectionSink(connection), epochs=3)
    worker.step()
    if finish:
        handle.close()
        worker.run()
    os._exit(0)


@pytest.mark.parametrize("finish", [True, False])
def test_E2_over_a_pipe_between_processes(finish: bool) -> None:
    here, there = multiprocessing.get_context("fork").Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_send_and_go, args=(there, finish))
    child.start()
    there.close()
    if finish:
        assert [time for time, _ in replayed(ConnectionSource(here))] == [0, 1, 2]
    else:
        assert "the connection ended in the middle of the stream" in str(complaint(ConnectionSource(here)))
    child.join()
    here.close()


def test_an_event_that_could_not_be_sent_does_not_count_as_good() -> None:
    here, there = multiprocessing.Pipe()
    sink: ConnectionSink[int] = ConnectionSink(there)
    sink.append(Progress([(0, 1)]))
    here.close()
    with there, pytest.raises(CaptureError, match="cannot be sent on.*1 events are good.*at or after 0") as failure:
        sink.append(Progress([(0, -1)]))
    assert (failure.value.events, failure.value.frontier) == (1, (0,))


def test_what_is_no_recording_on_a_connection() -> None:
    for wrong in (b"", b"short", b"x" * 100):
        here, there = multiprocessing.Pipe()
        there.send_bytes(wrong)
        there.close()
        assert complaint(ConnectionSource(here)).events == 0
        here.close()


def test_a_connection_has_one_event_in_each_frame() -> None:
    here, there = multiprocessing.Pipe()
    encoder: Encoder[int] = Encoder()
    for events in ([Progress([(0, 1)])], [Messages(0, [1]), Progress([(0, -1)])]):
        there.send_bytes(b"".join(encoder.encode(cast(Any, events))[0]))
    assert "it has two events where one is sent" in str(complaint(ConnectionSource(here)))


# -- trust ---------------------------------------------------------------------------------------------------------------


class Bomb:
    """What executes something when it is unpickled."""

    fired: list[str] = []  # noqa: RUF012  # shared on purpose

    def __reduce__(self) -> Any:
        return Bomb.fired.append, ("boom",)


class Plainish:
    """A record of one's own."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plainish)

    __hash__ = object.__hash__


@pytest.mark.parametrize("bad", [Bomb(), Plainish(), [Plainish()], {"deep": (Plainish(),)}])
def test_only_plain_data_is_read_from_files_of_strangers(bad: Any, tmp_path: Path) -> None:
    Bomb.fired.clear()
    path = tmp_path / "recorded"
    sink: FileSink[int] = FileSink(path)
    for event in (Progress([(0, 1)]), Messages(0, ["good"]), Messages(0, [bad]), Progress([(0, -1)])):
        sink.append(event)
    error = complaint(path)
    assert "which is not plain data" in str(error)
    assert "trusted=True" in str(error)
    assert error.events == 2
    assert Bomb.fired == []


def test_records_of_ones_own_are_read_from_files_that_are_trusted(tmp_path: Path) -> None:
    path = tmp_path / "recorded"
    sink: FileSink[int] = FileSink(path)
    for event in (Progress([(0, 1)]), Messages(0, [Plainish()]), Progress([(0, -1)])):
        sink.append(event)
    assert replayed(FileSource(path, trusted=True)) == [(0, [Plainish()])]
