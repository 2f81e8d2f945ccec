"""Whatever is changed in the files of a checkpoint: they are read as they were written, or refused with a ``CheckpointError``.

White box: a run would take seconds for each change.
"""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timely.errors import ChangedDataflowError, CheckpointError
from timely.recovery.manifest import FileInfo, Layer, Manifest, state_name
from timely.recovery.relations import RelationGraph
from timely.recovery.state_file import StateFile, StateWriter

KEY = (0, "/flow/count#1", 0)
ITEMS: list[tuple[int | None, str]] = [(number, str(number)) for number in range(50)] + [(None, "own")]
MANIFEST = Manifest(
    name="00000001-ab-000000003",
    version="1",
    parent=None,
    time=3,
    notes=[{"a": 1}],
    peers=1,
    dataflows=[{"": RelationGraph("", "", (), ("/flow/count#1",))}],
    layers={KEY: [Layer("00000001-ab-000000003", 1, True, 10)]},
    files={state_name("00000001-0123abcd-00000003", 0): FileInfo(10, "ab")},
)

changes = st.lists(st.tuples(st.floats(0, 0.9999), st.binary(max_size=3)), max_size=3)


def changed(data: bytes, changes: list[tuple[float, bytes]], share: float) -> bytes:
    result = bytearray(data)
    for where, what in changes:
        at = int(where * len(result))
        result[at : at + len(what)] = what
    return bytes(result[: int(share * len(result)) if share < 0.5 else len(result)])


def check_state(edits: list[tuple[float, bytes]], share: float) -> None:
    writer = StateWriter("one")
    written = b"".join(writer.chunks([(KEY, ITEMS)]))
    data = changed(written, edits, share)
    try:
        file = StateFile("one", lambda name: io.BytesIO(data), len(written), writer.digest)
        collected: list[Any] = [*file.routed(KEY, 0, 1), *file.own(KEY)]
    except CheckpointError:
        assert data != written
    else:
        assert collected == [item for _, item in ITEMS]


def check_manifest(edits: list[tuple[float, bytes]], share: float) -> None:
    data = changed(MANIFEST.encode(), edits, share)
    try:
        result = Manifest.decode(data)
    except (CheckpointError, ChangedDataflowError):
        assert data != MANIFEST.encode()
    else:
        assert result == MANIFEST


@given(changes, st.floats(0, 1))
def test_a_changed_state_file_is_refused(edits: list[tuple[float, bytes]], share: float) -> None:
    check_state(edits, share)


@given(changes, st.floats(0, 1))
def test_a_changed_manifest_is_refused(edits: list[tuple[float, bytes]], share: float) -> None:
    check_manifest(edits, share)


@pytest.mark.soak
@pytest.mark.parametrize("check", [check_state, check_manifest])
def test_very_many_changed_files_are_refused(check: Any) -> None:
    settings(max_examples=4_000)(given(changes, st.floats(0, 1))(lambda edits, held: check(edits, held)))()
