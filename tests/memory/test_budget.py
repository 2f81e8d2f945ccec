"""Memory budgets and pages in temporary files: what is in memory and what on disk, when space is free, and what full disks raise.

White box: where a page lies in the file and when its space is free is nothing that a program sees.
"""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import timely
from timely.errors import ConfigurationError, SpillError
from timely.memory import MemoryBudget, Spool, bytes_of, control_group_left, memory_limit, size_text
from timely.memory.paged_file import PagedFile, PageQueue

KB = 1 << 10


def test_half_of_a_small_budget_may_be_in_flight() -> None:
    limits = (None, "1GB", 20 << 20, 3 << 20, 1)
    assert [MemoryBudget(limit).in_flight for limit in limits] == [32 << 20, 32 << 20, 10 << 20, (3 << 20) // 2, 1 << 20]


def test_a_budget_goes_to_another_process_with_all_that_was_given(tmp_path: Path) -> None:
    budget = MemoryBudget("5MB", tmp_path, in_flight=7, total="9MB")
    budget.take(1000)
    copy = pickle.loads(pickle.dumps(budget))
    assert (copy.limit, copy.directory, copy.in_flight, copy.total) == (5 << 20, str(tmp_path), 7, 9 << 20)
    assert copy.used == 0


def test_workers_are_measured_again_when_they_may_hold_more_than_the_total() -> None:
    budget = MemoryBudget(total=1000)
    budget.note_measured(5000, held=600.0, again=9.0)
    assert [budget.is_unmeasured(size, 10.0) for size in (5000, 5400, 5401)] == [False, False, True]
    assert [budget.is_unmeasured(size, 8.0) for size in (5500, 5700)] == [False, True]  # a pause, if they do not grow much
    budget.note_measured(32_000, held=999.0, again=9.0)
    assert [budget.is_unmeasured(32_000 + grown, 10.0) for grown in (2000, 2001)] == [False, True]  # noise of a large process


def test_what_arrow_cannot_read_back_stays_in_memory() -> None:
    views = pa.DictionaryArray.from_arrays(pa.array([0, 1] * 20_000), pa.array(["a", "b"], pa.string_view()))
    batch, spool = pa.record_batch({"x": views}), Spool(MemoryBudget(1))
    spool.append(batch)
    assert next(iter(spool)).equals(batch)


def test_nothing_is_lost_when_threads_take_and_give_back_at_once() -> None:
    budget = MemoryBudget(300 * KB)

    def work() -> None:
        for _ in range(50):
            spool = Spool(budget)
            spool.append(np.ones(100 * KB, np.uint8))
            assert sum(int(part.sum()) for part in spool) == 100 * KB

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert (budget.used, budget.on_disk) == (0, 0)


def test_temporary_files_have_no_name(tmp_path: Path) -> None:
    spool = Spool(MemoryBudget(1, tmp_path))
    spool.append(np.ones(1 << 20, np.uint8))
    assert (list(tmp_path.iterdir()), spool.on_disk) == ([], 1 << 20)


def test_a_full_disk_is_an_error_that_names_the_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = MemoryBudget(100 * KB, tmp_path)
    spool = Spool(budget)
    spool.append(np.arange(10_000))
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: open("/dev/full", "r+b", buffering=0))  # noqa: SIM115
    with pytest.raises(
        SpillError, match=r"781 KB cannot go to a temporary file in .*No space left.*directory=.*memory="
    ) as raised:
        spool.append(np.arange(100_000))
    assert str(tmp_path) in str(raised.value)
    assert (budget.used, budget.on_disk, [len(part) for part in spool]) == (80_000, 0, [10_000])


@pytest.mark.parametrize("limit", [0, -1, "", "lots", "0MB", 1.5, True])
def test_sizes_that_cannot_be_are_refused(limit: int) -> None:
    with pytest.raises(ConfigurationError, match="640MB"):
        MemoryBudget(limit)


def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="directory="):
        MemoryBudget(1, tmp_path / "none")


def test_sizes_as_text_are_read_back_within_their_precision() -> None:
    for size in (5, 3 << 10, 700 << 20, 12 << 30):
        assert bytes_of(size_text(size).replace(" bytes", "")) == size


def test_the_budget_of_a_run_is_current_in_all_its_workers() -> None:
    def program(worker: timely.Worker) -> tuple[int | None, int]:
        budget = MemoryBudget.current()
        return budget.limit, os.getpid()

    budget = MemoryBudget(123_456)
    for threads, processes in ((1, 1), (2, 1), (1, 2)):
        results = timely.execute(program, workers=threads, processes=processes, memory=budget)
        assert [limit for limit, _ in results] == [123_456] * threads * processes
        assert len({pid for _, pid in results}) == processes
    with budget:
        assert timely.execute(program, workers=2)[1][0] == 123_456
    assert MemoryBudget.current() is not budget


def test_the_memory_of_a_run_is_less_what_the_process_has_and_room_to_work() -> None:
    (limit,) = timely.execute(lambda worker: MemoryBudget.current().limit, memory="1TB")
    assert limit is not None
    assert 1 << 38 < limit < 1 << 39
    with pytest.raises(ConfigurationError, match="640MB"):
        timely.execute(lambda worker: None, memory="much")


LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
from timely.memory import MemoryBudget
print(MemoryBudget.current().limit)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems ignore RLIMIT_AS")
def test_the_default_follows_the_limit_of_the_address_space() -> None:
    unset = {name: value for name, value in os.environ.items() if name != "TIMELY_MEMORY"}
    completed = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, check=True, env=unset)
    assert 1 << 29 < int(completed.stdout) <= 1 << 30


def test_the_environment_has_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELY_MEMORY", "none")
    assert MemoryBudget.of_process().limit is None
    monkeypatch.setenv("TIMELY_MEMORY", "100TB")
    assert (MemoryBudget.of_process().limit or 0) > 1 << 40
    assert (MemoryBudget.of_process("50TB").limit or 0) < 1 << 45
    monkeypatch.setenv("TIMELY_MEMORY", "much")
    with pytest.raises(ConfigurationError, match="memory='much': give bytes above 0"):
        MemoryBudget.of_process()


@pytest.mark.parametrize("version", [1, 2])
def test_the_limit_of_a_control_group_is_read(tmp_path: Path, version: int) -> None:
    base = tmp_path / "memory" if version == 1 else tmp_path
    (base / "outer" / "inner").mkdir(parents=True)
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    limit, usage, cached = names if version == 1 else ("memory.max", "memory.current", "inactive_file")

    def write(folder: Path, most: str, used: int) -> None:
        (folder / limit).write_text(f"{most}\n")
        (folder / usage).write_text(f"{used}\n")
        (folder / "memory.stat").write_text(f"{cached} 100\nother 7\n")

    groups = tmp_path / "groups"
    groups.write_text("5:cpu,memory:/outer/inner\n" if version == 1 else "0::/outer/inner\n")
    assert control_group_left(str(tmp_path), str(groups)) is None
    none = "9223372036854771712" if version == 1 else "max"
    write(base / "outer" / "inner", none, 500)
    assert control_group_left(str(tmp_path), str(groups)) is None
    write(base / "outer", "2000", 600)
    assert control_group_left(str(tmp_path), str(groups)) == 1500
    write(base / "outer" / "inner", "1000", 500)
    assert control_group_left(str(tmp_path), str(groups)) == 600
    assert control_group_left(str(tmp_path), str(tmp_path / "none")) is None


def test_processes_share_what_a_control_group_has_left() -> None:
    one, four = memory_limit(), memory_limit(4)
    assert (one is None) == (four is None)
    assert one is None or four is None or four <= one


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
