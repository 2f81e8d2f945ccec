"""The log: what is left of it after a loss of power at each system call, in each way in which a disk may lose it.

White box: the log is what a durable server relies on, and a server's own system calls are too many to try all that may be lost.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.simulated_disk import PowerLost, SimulatedDisk
from timely.errors import CheckpointError, DiskFullError, ViewError
from timely.server.log import Disk, Frame, LogReader, LogWriter, SegmentEnd, segments_before

ID = "0123456789abcdef"
RUN = "00000001-0123abcd"
STEP = 512


class Program:
    """Writes epochs, and knows which were acknowledged."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.acknowledged: list[str] = []
        self.uncertain: list[str] = []
        """What may be there or not: a write whose answer has not come, or said so."""

    def start(self, run: str = RUN, begin: int = 1) -> LogWriter:
        log = LogReader(self.disk, ID)
        frames = list(log.frames(begin))
        return LogWriter(self.disk, ID, run, begin + len(frames), log.end, step=STEP)

    def write(self, writer: LogWriter, text: str) -> None:
        before, self.uncertain = self.uncertain, [text]
        try:
            writer.append(Frame(len(self.acknowledged) + 1, text))
        except ViewError as error:
            if "nothing was changed" in str(error):
                self.uncertain = before
            raise
        self.acknowledged.append(text)
        self.uncertain = []


def write_three_segments(program: Program) -> None:
    writer = program.start()
    program.write(writer, "one")
    program.write(writer, "two " * 100)  # which needs more than was reserved
    writer.begin_segment(3)
    program.write(writer, "three")
    writer.close()
    writer = program.start("00000002-0123abcd")
    program.write(writer, "four")


def write_over_failures(program: Program) -> None:
    writer = program.start()
    for text in ("one " * 100, "two", "three"):
        with contextlib.suppress(ViewError):
            program.write(writer, text)
        if text == "two":
            with contextlib.suppress(OSError, ViewError):
                writer.begin_segment(len(program.acknowledged) + 1)
    writer.close()


def texts(files: dict[str, bytes]) -> list[str]:
    return [frame.content for frame in LogReader(SimulatedDisk(files), ID).frames(1)]


def check(program: Program) -> int:
    """Check what each crash now leaves, and that a log goes on from there; return how many there are."""
    count = 0
    for files in program.disk.survivors():
        left = texts(files)
        certain = len(program.acknowledged)
        assert left[:certain] == program.acknowledged, (left, program.acknowledged)
        assert left[certain:] in ([], program.uncertain), (left, program.acknowledged, program.uncertain)
        count += 1
    return count


@pytest.mark.parametrize("write", [write_three_segments, write_over_failures])
def test_a_crash_at_any_system_call_loses_nothing_that_was_acknowledged(write: Callable[[Program], None]) -> None:
    whole = Program(SimulatedDisk())
    write(whole)
    crashes = 0
    for lost in range(1, whole.disk.steps + 1):
        program = Program(SimulatedDisk(lost=lost))
        with pytest.raises(PowerLost):
            write(program)
        crashes += check(program)
    assert crashes > 50


def test_a_crash_while_a_log_is_opened_again_loses_nothing_either() -> None:
    """Twice: each disk that a crash leaves is opened, and the power goes at each step of that."""
    whole = Program(SimulatedDisk())
    write_three_segments(whole)
    checked = set()
    for lost in range(1, whole.disk.steps + 1):
        first = Program(SimulatedDisk(lost=lost))
        with pytest.raises(PowerLost):
            write_three_segments(first)
        for files in first.disk.survivors():
            state = tuple(sorted(files.items()))
            if state in checked:
                continue
            checked.add(state)
            for again in itertools.count(1):
                second = Program(SimulatedDisk(files, lost=again))
                second.acknowledged = texts(files)
                try:
                    second.write(second.start("00000003-0123abcd"), "next")
                except PowerLost:
                    check(second)
                else:
                    assert {tuple(texts(left)) for left in second.disk.survivors()} == {tuple(second.acknowledged)}
                    break
    assert len(checked) > 30


def test_a_kill_at_any_system_call_and_a_loss_of_power_after_the_restart_lose_nothing() -> None:
    """A restart reads what was written and not synced yet, and goes on from there."""
    whole = Program(SimulatedDisk())
    write_three_segments(whole)
    for lost in range(1, whole.disk.steps + 1):
        program = Program(SimulatedDisk(lost=lost))
        with pytest.raises(PowerLost):
            write_three_segments(program)
        program.disk.lost = None
        program.acknowledged = texts(program.disk.contents())
        program.write(program.start("00000003-0123abcd"), "next")
        assert {tuple(texts(files)) for files in program.disk.survivors()} == {tuple(program.acknowledged)}


@pytest.mark.parametrize("failures", [1, 2])
def test_a_failed_call_and_then_a_crash_at_any_later_one(failures: int) -> None:
    whole = Program(SimulatedDisk())
    write_over_failures(whole)
    steps = range(1, whole.disk.steps + 6)  # which failures make more
    for failing in itertools.combinations(steps, failures):
        for lost in range(failing[0] + 1, steps.stop + 1):
            program = Program(SimulatedDisk(failing=frozenset(failing), lost=lost))
            try:
                write_over_failures(program)
            except (PowerLost, OSError):
                pass
            check(program)


def test_a_full_disk_refuses_a_write_and_takes_the_next_when_there_is_space() -> None:
    program = Program(SimulatedDisk(space=STEP))
    writer = program.start()
    program.write(writer, "one")
    with pytest.raises(DiskFullError, match="nothing was changed"):
        program.write(writer, "two " * 100)
    program.write(writer, "small")
    with pytest.raises(OSError, match="No space left"):
        writer.begin_segment(3)
    program.disk.space = None
    program.write(writer, "two " * 100)
    assert {tuple(texts(files)) for files in program.disk.survivors()} == {("one", "small", "two " * 100)}


def test_a_torn_tail_is_cut_and_counted() -> None:
    program = Program(SimulatedDisk())
    writer = program.start()
    program.write(writer, "one")
    program.write(writer, "two")
    files = program.disk.contents()
    [(name, data)] = files.items()
    torn = {name: data.rstrip(b"\0")[:-9]}
    log = LogReader(SimulatedDisk(torn), ID)
    assert [frame.content for frame in log.frames(1)] == ["one"] and log.torn > 30
    assert [frame.epoch for frame in LogReader(SimulatedDisk(files), ID).frames(2)] == [2]
    following = LogWriter(disk := SimulatedDisk(torn), ID, RUN.replace("1-", "2-"), 2, log.end, step=STEP)
    following.append(Frame(2, "other"))
    assert texts(disk.contents()) == ["one", "other"]


def damaged_segments() -> list[tuple[str, dict[str, bytes]]]:
    program = Program(SimulatedDisk())
    writer = program.start()
    for text in ("one", "two", "three"):
        program.write(writer, text)
    writer.begin_segment(4)
    program.write(writer, "four")
    program.write(writer, "five")
    files = program.disk.contents()
    first, second = sorted(files)
    data = files[first]
    at = data.index(b"two")
    flipped = data[:at] + b"T" + data[at + 1 :]
    later = files[second].replace(b"four", b"Four")
    return [
        (f"{first} is damaged at byte", {**files, first: flipped}),
        (f"{first} is damaged", {**files, first: data.rstrip(b"\0")[:-9]}),
        (f"{second} is damaged at byte", {**files, second: later}),
        (f"{second} is damaged: ", {**files, second: b"\1" + files[second][1:]}),
        (f"{first} is missing, which {second} continues", {second: files[second]}),
        ("the log is missing, with the epochs from 4 on", {}),
        ("has epoch 2, and 1 comes next", {first: damaged_order(data)}),
    ]


def damaged_order(data: bytes) -> bytes:
    """Return a segment whose first epoch is not there: its second frame stands in its place, as frame 1."""
    writer = LogWriter(disk := SimulatedDisk(), ID, RUN, 1, None, step=STEP)
    writer.append(Frame(2, "two"))
    return disk.contents()[f"{RUN}-00000000.log"]


@pytest.mark.parametrize(("message", "files"), damaged_segments())
def test_damage_elsewhere_than_at_the_end_is_an_error(message: str, files: dict[str, bytes]) -> None:
    with pytest.raises(CheckpointError, match=message):
        list(LogReader(SimulatedDisk(files), ID).frames(1 if files else 4))


def test_frames_of_a_fenced_server_are_void() -> None:
    program = Program(SimulatedDisk())
    old = program.start()
    program.write(old, "one")
    new = program.start("00000002-0123abcd")
    old.append(Frame(2, "of the old server"))
    old.begin_segment(3)
    old.append(Frame(3, "also"))
    new.append(Frame(2, "two"))
    assert {tuple(texts(files)) for files in program.disk.survivors()} == {("one", "two")}
    with pytest.raises(CheckpointError, match="is of directory"):
        list(LogReader(program.disk, "another").frames(1))


def test_segments_on_a_local_disk(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    writer = LogWriter(disk, ID, RUN, 1, None)
    writer.append(Frame(1, ["one", (1, 2.5)]))
    first = writer.end
    writer.begin_segment(2)
    assert (tmp_path / first.name).stat().st_size == first.size  # what was reserved is given back
    writer.append(Frame(2, "two"))
    writer.close()
    with pytest.raises(ViewError, match="cannot be written any more"):
        writer.append(Frame(3, "three"))
    log = LogReader(disk, ID)
    assert list(log.frames(1)) == [(1, ["one", (1, 2.5)]), (2, "two")]
    assert log.end == writer.end == SegmentEnd(f"{RUN}-00000001.log", writer.end.size)
    for name in segments_before(disk.names(), writer.end.name):
        disk.delete(name)
    assert [frame.epoch for frame in LogReader(disk, ID).frames(2)] == [2]
