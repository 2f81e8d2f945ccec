"""Pages in a temporary file: what is written is read.

White box: where a page lies in the file and when its space is free is nothing that a program sees.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from timely.errors import SpillError
from timely.memory import MemoryBudget
from timely.memory.paged_file import PagedFile, PageQueue

PIECES = st.lists(st.binary(max_size=40), min_size=1, max_size=5)


@given(st.lists(PIECES, min_size=1, max_size=20), st.sampled_from([1, 8]), st.randoms())
@example([[b"a", b""]], 8, Random(0))
def test_pages_are_read_in_any_order(pages: list[list[bytes]], align: int, random: Any) -> None:
    file = PagedFile(align=align)
    written = [(file.append(pieces), pieces) for pieces in pages]
    assert file.size % align == 0
    random.shuffle(written)
    for page, pieces in written:
        assert [bytes(piece) for piece in file.read(page)] == pieces
    file.close()


def test_arrays_come_back_where_arrays_may_begin() -> None:
    file = PagedFile(MemoryBudget())
    for _ in range(3):
        buffers: list[Any] = []
        head = pickle.dumps([np.arange(5), np.zeros(3, np.int8), np.ones(4)], 5, buffer_callback=buffers.append)
        arrays = file.load(file.append([head, *(buffer.raw() for buffer in buffers)]))
        assert [array.tolist() for array in arrays] == [[0, 1, 2, 3, 4], [0] * 3, [1] * 4]
        assert all(array.flags.aligned for array in arrays)
    file.close()


def test_the_budget_counts_the_bytes_until_the_file_is_closed() -> None:
    budget = MemoryBudget()
    file = PagedFile(budget)
    file.append([b"x" * 100])
    assert budget.on_disk == file.size == 104
    for _ in range(2):
        file.close()
        assert budget.on_disk == 0


def test_errors_name_the_directory_of_the_budget_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: open("/dev/full", "r+b", buffering=0))  # noqa: SIM115
    counted, plain = PagedFile(MemoryBudget(None, tmp_path)), PagedFile()
    with pytest.raises(SpillError, match=str(tmp_path)):
        counted.append([b"x"])
    with pytest.raises(OSError, match="No space left") as raised:
        plain.append([b"x"])
    assert type(raised.value) is OSError
    counted.close()
    plain.close()


def test_a_file_that_has_become_shorter_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  the paged file closes it
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: made)
    file = PagedFile(MemoryBudget())
    page = file.append([b"x" * 10])
    os.truncate(made.fileno(), 5)
    with pytest.raises(SpillError, match="ends too early"):
        file.read(page)
    file.close()


def test_a_queue_deletes_a_file_after_its_last_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timely.memory.paged_file.SEGMENT", 100)
    queue = PageQueue()
    stored = [queue.append([bytes([number]) * 48]) for number in range(7)]
    files = list(dict.fromkeys(file for file, _ in stored))
    assert len(files) == 3
    for number, (file, page) in enumerate(stored):
        assert set(*file.read(page)) == {number}
        queue.release(file)
        assert (file.size == 0) == (number in (2, 5, 6))
    queue.clear()
