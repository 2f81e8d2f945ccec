"""Recorded streams in files and on connections, by the ids of docs/conformance.md, and what is read of strangers.

White box: no sink sends two events in one frame, so an encoder makes it.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import secrets
import subprocess
import sys
import threading
from collections import Counter
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from tests.conformance.recorded import complaint, read_until_error, record, recorded, replayed
from timely import (
    CaptureError,
    ConnectionSink,
    ConnectionSource,
    FileSink,
    FileSource,
    Messages,
    OperatorError,
    Progress,
)
from timely.operators import StreamState
from timely.operators.recordings.capture_events import Encoder  # white box: frames to be left out, repeated and swapped

SIZES = [(1, 1), (2, 1), (3, 1), (1, 2), (2, 2)]


def test_E1_through_a_file(tmp_path: Path) -> None:
    path = tmp_path / "recorded"
    recorded(path, epochs=3)
    assert (
        replayed(path)
        == replayed(str(path))
        == replayed(FileSource(path))
        == [(epoch, list(range(10 * epoch, 10 * epoch + 10))) for epoch in range(3)]
    )


@pytest.mark.parametrize(("workers", "processes"), SIZES)
@pytest.mark.parametrize("receivers", [1, 2, 3, 7])
def test_E10_any_number_of_workers_replays_what_five_have_recorded(
    workers: int, processes: int, receivers: int, tmp_path: Path
) -> None:
    def send(worker: timely.Worker) -> None:
        with worker.dataflow(int) as scope:
            handle = record(scope, tmp_path / f"part{worker.index}")
        handle.close()

    def receive(worker: timely.Worker) -> list[str]:
        printed: list[str] = []
        parts = sorted(tmp_path.iterdir())
        with worker.dataflow(int) as scope:
            mine = parts[worker.index :: worker.peers]
            scope.replay(*mine).inspect(lambda x: printed.append(f"replayed {x}"))
        worker.run()
        return printed

    if workers * processes == 1:
        timely.execute(send, workers=5)
        results = timely.execute(receive, workers=receivers)
        assert sum(map(len, results)) == 50
    else:
        timely.execute(send, workers=workers, processes=processes)
        results = timely.execute(receive, workers=receivers)
    senders = len(list(tmp_path.iterdir()))
    lines = Counter(line for part in results for line in part)
    assert lines == Counter({f"replayed {x}": senders for x in range(10)})
    assert [bool(part) for part in results] == [index < senders for index in range(receivers)]


def test_E9_a_file_cut_off_anywhere_is_an_error_with_the_number_of_good_events(tmp_path: Path) -> None:
    path, cut = tmp_path / "whole", tmp_path / "cut"
    recorded(path, epochs=3, each=4)
    whole = path.read_bytes()
    events: list[Any] = list(FileSource(path))
    good_before = 0
    positions: dict[int, int] = {}
    for size in range(len(whole)):
        cut.write_bytes(whole[:size])
        collected, error = read_until_error(cut)
        assert "breaks off" in str(error)
        assert collected == events[: len(collected)]
        assert len(collected) == error.events
        assert error.events >= good_before
        good_before = error.events
        state: StreamState[int] = StreamState()
        for event in events[: error.events]:
            state.apply(event)
        assert error.frontier == tuple(state.frontier)
        assert error.position is not None
        assert error.position <= size
        assert positions.setdefault(error.events, error.position) == error.position or error.events == 0
    assert sorted(positions.values()) == [positions[count] for count in sorted(positions)]
    assert good_before == len(events) - 1  # without the end that follows it, nobody can tell that the last is the last


def test_E9_a_file_with_any_one_byte_changed_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "changed"
    recorded(path, epochs=2, each=3)
    whole = path.read_bytes()
    events: list[Any] = list(FileSource(path))
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 0x10
        path.write_bytes(changed)
        collected, error = read_until_error(path)
        assert "is damaged" in str(error)
        assert collected == events[: len(collected)]


@pytest.mark.parametrize("most", [1, 2])
def test_E9_frames_that_are_missing_repeated_or_in_another_order_are_an_error(most: int, tmp_path: Path) -> None:
    path = tmp_path / "changed"
    encoder: Encoder[int] = Encoder()
    sent: list[Any] = [Progress([(0, 1)]), *(Messages(0, [i]) for i in range(4)), Progress([(0, -1), (1, 1)])]
    sent += [Messages(1, [5]), Progress([(1, -1)])]
    frames: list[bytes] = []
    left = sent
    while left:
        pieces, count = encoder.encode(left[:most])
        frames.append(b"".join(pieces))
        left = left[count:]
    assert len(frames) == (8 if most == 1 else 6)
    recorded(path)
    preamble = path.read_bytes()[:24]
    path.write_bytes(preamble + b"".join(frames))
    assert list(FileSource[int](path)) == sent
    for wrong in (frames[:2] + frames[3:], frames[:3] + frames[2:], [*frames[:2], frames[3], frames[2], *frames[4:]], frames * 2):
        path.write_bytes(preamble + b"".join(wrong))
        with pytest.raises(CaptureError, match=r"frame \d stands where frame \d should|bytes follow the end"):
            list(FileSource[int](path))


@given(data=st.data())
def test_E9_a_damaged_file_is_an_error(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("damaged")
    path = directory / "whole"
    recorded(path, epochs=2, each=3)
    whole = path.read_bytes()
    events: list[Any] = list(FileSource(path))
    kind = data.draw(st.sampled_from(["bit", "cut out", "repeated", "put in", "appended"]))
    at = data.draw(st.integers(0, len(whole) - 1))
    size = data.draw(st.integers(1, 200))
    changed = bytearray(whole)
    if kind == "bit":
        changed[at] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "cut out":
        del changed[at : at + size]
    elif kind == "repeated":
        changed[at:at] = whole[at : at + size]
    elif kind == "put in":
        changed[at:at] = data.draw(st.binary(min_size=size, max_size=size))
    else:
        changed += whole[-size:]
    if bytes(changed) == whole:
        return
    path.write_bytes(changed)
    collected, error = read_until_error(path)
    assert collected == events[: len(collected)]
    assert error.events >= len(collected)


def test_E9_replay_of_a_truncated_file_gives_the_good_part_and_then_the_error(tmp_path: Path) -> None:
    path = tmp_path / "cut"
    recorded(path, epochs=5)
    path.write_bytes(path.read_bytes()[:-150])
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        seen = scope.replay(path).capture()
    words = r"source 0 of replay: .* breaks off.*events are good, the first \d+ bytes"
    with pytest.raises(OperatorError, match=words) as failure:
        worker.run()
    cause = failure.value.__cause__
    assert isinstance(cause, CaptureError)
    good = [event for event in read_until_error(path)[0] if isinstance(event, Messages)]
    assert good
    assert seen.messages == [(event.time, event.batch) for event in good]


def test_files_that_are_no_recordings(tmp_path: Path) -> None:
    path = tmp_path / "other"
    with pytest.raises(CaptureError, match="cannot be read.*No such file"):
        FileSource(path)
    path.write_bytes(b"something else entirely")
    assert "does not begin as a recording does" in str(complaint(path))
    recorded(tmp_path / "good")
    data = bytearray((tmp_path / "good").read_bytes())
    data[16:24] = (7).to_bytes(8, "little")
    path.write_bytes(data)
    assert "its format is of version 7, and this library reads version 2" in str(complaint(path))


def test_a_file_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "recorded"
    recorded(path)
    before = path.read_bytes()
    with pytest.raises(CaptureError, match="there is a file .*recorded' already"):
        FileSink(path)
    assert path.read_bytes() == before
    with pytest.raises(CaptureError, match="cannot be written"):
        FileSink(tmp_path / "missing" / "recorded")


def test_a_sink_checks_what_it_is_given(tmp_path: Path) -> None:
    sink: FileSink[int] = FileSink(tmp_path / "recorded")
    wrong: Any
    for wrong in (Messages(0, [1]), Progress([(0, -1)]), "no event"):
        with pytest.raises(CaptureError):
            sink.append(wrong)
    sink.append(Progress([(0, 1)]))
    with pytest.raises(CaptureError, match="event 1 cannot be recorded"):
        sink.append(Messages(0, [lambda: None]))
    sink.append(Messages(0, ["fine"]))  # what was refused has left no trace
    sink.append(Progress([(0, -1)]))
    assert sink.closed
    with pytest.raises(CaptureError, match="takes no more events: it is complete"):
        sink.append(Progress([]))
    assert replayed(sink.path) == [(0, ["fine"])]


def test_records_are_good_where_the_progress_after_them_is_not(tmp_path: Path) -> None:
    sink: FileSink[int] = FileSink(tmp_path / "recorded")
    with pytest.raises(CaptureError, match="event 2 counts 5 down below zero"):
        sink.append_all([Progress([(0, 1)]), Messages(0, ["good"]), Progress([(5, -1)])])
    with pytest.raises(CaptureError, match="event 2 cannot be recorded"):
        sink.append_all([Messages(0, [lambda: None]), Progress([(0, -1)])])
    sink.append_all([Messages(0, ["too"]), Progress([(0, -1), (1, 1)]), Messages(1, []), Progress([(1, -1)])])
    assert replayed(sink.path) == [(0, ["good", "too"])]


def test_a_sink_that_was_closed_early_leaves_a_file_that_breaks_off(tmp_path: Path) -> None:
    sink: FileSink[int] = FileSink(tmp_path / "recorded")
    sink.append(Progress([(0, 1)]))
    sink.close()
    with pytest.raises(CaptureError, match="closed before the stream was over"):
        sink.append(Progress([(0, -1)]))
    assert complaint(sink.path).frontier == (0,)


EVENTS: list[Any] = [Progress([(0, 1)]), Messages(0, ["a"]), Progress([(0, -1), (2, 2)]), Messages(2, ["b"]), Progress([(2, -2)])]


@pytest.mark.parametrize("full_at", range(len(EVENTS)))
def test_where_the_disk_is_full_the_writers_error_agrees_with_the_readers(
    full_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, path = os.writev, tmp_path / "recorded"
    sink: FileSink[int] = FileSink(path)
    for event in EVENTS[:full_at]:
        sink.append(event)

    def write(file: int, pieces: list[Any]) -> int:
        monkeypatch.setattr(os, "writev", full)
        return real(file, [bytes(pieces[0])[:5]])

    def full(file: int, pieces: list[Any]) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "writev", write)
    with pytest.raises(CaptureError, match="cannot be written, and breaks off here.*No space left") as failure:
        sink.append(EVENTS[full_at])
    result, seen = complaint(path), failure.value
    assert (seen.events, seen.frontier) == (result.events, result.frontier)
    assert seen.events == full_at


PROGRAM = """
import sys, timely
worker = timely.Worker()
with worker.dataflow(int) as scope:
    handle, stream = scope.new_input()
    stream.capture_into(sys.argv[1])
for epoch in range(50):
    handle.send({"epoch": epoch, "text": "é"})
    handle.advance_to(epoch + 1)
    worker.step()
if sys.argv[2] == "end":
    handle.close()
    worker.run()
else:
    import os
    os._exit(9)
"""


@pytest.mark.parametrize("ending", ["end", "die"])
def test_another_process_is_followed_to_its_end(ending: str, tmp_path: Path) -> None:
    path = tmp_path / "live"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    writer = subprocess.Popen([sys.executable, "-c", PROGRAM, str(path), ending], env=environment)
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        seen = scope.replay(FileSource(path, follow=True)).capture()
    if ending == "end":
        worker.run()
    else:
        with pytest.raises(OperatorError, match="breaks off"):
            worker.run()
    writer.wait()
    assert seen.extract() == [(epoch, [{"epoch": epoch, "text": "é"}]) for epoch in range(50)]


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
