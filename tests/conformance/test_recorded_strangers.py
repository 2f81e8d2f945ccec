"""Recordings with good checksums and bad contents give a ``CaptureError``.

White box: no sink writes such files, so the frames are made here.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely import CaptureError, FileSource, Messages, Progress
from timely.dataflow import PlainPickles
from timely.operators import StreamState
from timely.operators.recordings.event_frames import frame
from timely.operators.recordings.recording import MAGIC, VERSION

PREAMBLE = MAGIC + struct.pack("<Q", VERSION)

WRONG_TIMES: list[Any] = [[], "a", None, 1j, np.array([1, 2])]
WRONG_EVENTS: list[Any] = [event for time in WRONG_TIMES for event in (("messages", time, [1]), ("progress", [(time, 1)]))]
WRONG_CHANGES: list[Any] = [None, 5, [5], [(0,)], [(0, "x")], [(0, 1.5)], [(0, None)], {1: 2}]


def recording(directory: Path, *contents: Any) -> FileSource[Any]:
    path = directory / "made"
    path.write_bytes(
        PREAMBLE + b"".join(b"".join(frame(number, PlainPickles().pickled(content))) for number, content in enumerate(contents))
    )
    return FileSource(path)


OPENING = ("progress", [(0, 1)])


@pytest.mark.parametrize("content", WRONG_EVENTS)
def test_E9_a_time_that_does_not_compare_in_a_file_is_an_error(content: Any, tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="does not go with those before") as raised:
        list(recording(tmp_path, OPENING, content))
    assert raised.value.events == 1
    assert raised.value.frontier == (0,)


@pytest.mark.parametrize("changes", WRONG_CHANGES)
def test_E9_changes_that_are_no_changes_are_an_error(changes: Any, tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="pairs of a time and a whole number"):
        Progress(changes)
    for before in ([], [OPENING]):
        with pytest.raises(CaptureError, match="pairs of a time and a whole number") as raised:
            list(recording(tmp_path, *before, ("progress", changes)))
        assert raised.value.events == len(before)


def test_E9_progress_after_records_in_a_frame_keeps_the_rules_too(tmp_path: Path) -> None:
    source = recording(tmp_path, OPENING, ("messages", 0, ["a"], [(5, -1)]))
    assert (source.take(), source.take()) == (Progress([(0, 1)]), Messages(0, ["a"]))
    with pytest.raises(CaptureError, match="event 2 counts 5 down below zero; 2 events are good") as raised:
        source.take()
    assert raised.value.frontier == (0,)


def test_E8_times_that_do_not_go_together_open_no_stream() -> None:
    state: StreamState[Any] = StreamState()
    with pytest.raises(CaptureError, match="does not go with those before"):
        state.apply(Progress([("a", 1), (1, 1)]))
    assert (state.events, state.over, state.frontier.elements) == (0, False, ())
    state.apply(Progress([(1, 1)]))
    assert state.frontier.elements == (1,)


@given(
    body=st.one_of(st.binary(max_size=40), st.binary(max_size=24).map(lambda pickled: struct.pack("<Q", len(pickled)) + pickled)),
    pieces=st.sampled_from([0, 1, 2, 3, 10**6]),
)
def test_E9_a_frame_of_anything_at_all_is_an_error(body: bytes, pieces: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("made") / "made"
    head = struct.pack("<QQII", 0, len(body), pieces, zlib.crc32(body))
    path.write_bytes(PREAMBLE + head + struct.pack("<Q", zlib.crc32(head)) + body)
    with pytest.raises(CaptureError, match="is damaged") as raised:
        list(FileSource(path))
    assert (raised.value.events, raised.value.position) == (0, len(PREAMBLE))


def test_a_file_that_breaks_off_is_called_only_that(tmp_path: Path) -> None:
    with pytest.raises(CaptureError) as raised:
        list(recording(tmp_path, OPENING))
    assert str(raised.value).count("breaks off") == 1
    assert "no recording" not in str(raised.value)


def test_a_writer_that_died_in_its_first_bytes_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "made"
    path.write_bytes(PREAMBLE[:7])
    with pytest.raises(CaptureError, match="breaks off"):
        FileSource(path, follow=True).take()
    path.write_bytes(b"")  # nobody can tell yet: the writer may be about to begin
    assert FileSource(path, follow=True).take() is None
