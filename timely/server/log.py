"""The log of a durable server: the content of each epoch, on disk before anybody sees a result of it.

A log is a chain of segments. Each begins with a header that names the segment before it, and how many bytes of that are valid.
Then there is a frame for each epoch (:mod:`timely.operators.recordings.capture_events`). Invariant: at most the last frame of the
last segment was not synced. So the log ends at the first frame there that is not whole, and any other such frame is damage.
Epochs are pickles, as the checkpoints beside them are; headers are plain data, which is safe to read whoever wrote it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from timely.dataflow.containers.pickling import dumps
from timely.errors import CheckpointError, DiskFullError, ViewError, file_error_text
from timely.operators.recordings.capture_events import HEADER, Damaged, check_body, content_of, frame, parse_header
from timely.recovery.store import sync_directory

FORMAT: Final = 1
_KIND: Final = "timely log"
_NAME: Final = re.compile(r"[0-9]{8}-[0-9a-f]{8}-[0-9]{8}\.log")
_STEP: Final = 4 << 20
"""Bytes that are reserved at once: a full disk shows before a frame is begun, and a sync writes no metadata."""
_FULL: Final = frozenset({errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)})


class Frame(NamedTuple):
    """An epoch, and what was decided for it."""

    epoch: int
    content: Any


class SegmentEnd(NamedTuple):
    """A segment, and how many of its bytes are valid."""

    name: str
    size: int


Content: TypeAlias = Callable[..., Any]
"""Returns what a frame has: of a ``trusted`` one anything, else plain data alone."""


class _Segment(NamedTuple):
    """A segment: the epoch of its first frame, what it continues, and where its frames begin."""

    name: str
    epoch: int
    previous: SegmentEnd | None
    begin: int


class LogFile:
    """A segment that is written. Each method raises ``OSError`` where it fails."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)

    def reserve(self, begin: int, end: int) -> None:
        """Have the disk provide the bytes from ``begin`` to ``end``, which are zero."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._file, begin, end - begin)

    def write(self, at: int, data: bytes) -> None:
        """Write bytes at a place, which are durable after ``sync``."""
        rest = memoryview(data)
        os.lseek(self._file, at, os.SEEK_SET)
        while rest:
            rest = rest[os.write(self._file, rest) :]

    def sync(self) -> None:
        """Have what was written be durable; the name is once the disk's ``sync`` has returned."""
        getattr(os, "fdatasync", os.fsync)(self._file)

    def truncate(self, size: int) -> None:
        """Give back what was reserved behind ``size``."""
        os.ftruncate(self._file, size)

    def close(self) -> None:
        os.close(self._file)


class Disk:
    """The directory of a log. Each method raises ``OSError`` where it fails."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def names(self) -> list[str]:
        return sorted(os.listdir(self._directory))

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        return (self._directory / name).read_bytes()

    def create(self, name: str) -> LogFile:
        """Make a file that is not there yet, for its owner only."""
        return LogFile(self._directory / name)

    def delete(self, name: str) -> None:
        """Delete a file; a missing one is no error."""
        (self._directory / name).unlink(missing_ok=True)

    def cut(self, name: str, size: int) -> None:
        """Have a file end at ``size``, durably."""
        with open(self._directory / name, "r+b") as file:
            file.truncate(size)
            os.fsync(file.fileno())

    def sync(self) -> None:
        """Have names be durable."""
        sync_directory(os.fspath(self._directory))


class LogReader:
    """Reads a log: ``frames`` yields the epochs; then ``end`` is where it ends, and ``torn`` how many bytes behind that were cut.

    What is only counted is not unpickled.

    ``CheckpointError`` where it is damaged, or cannot be read.
    """

    def __init__(self, disk: Disk, id: str) -> None:
        self.end: SegmentEnd | None = None
        self.torn = 0
        self._disk = disk
        self._id = id
        self._names = [name for name in disk.names() if _NAME.fullmatch(name)]

    def frames(self, begin: int) -> Iterator[Frame]:
        """Yield the frames from epoch ``begin`` on; ``CheckpointError`` where one of them is missing."""
        for epoch, content in self._epochs(begin):
            try:
                each = Frame(*content(trusted=True))
            except (Damaged, TypeError) as error:
                raise CheckpointError(f"epoch {epoch} of the log cannot be read by this program: {error}") from error
            if each.epoch != epoch:
                raise CheckpointError(f"the log has epoch {each.epoch}, and {epoch} comes next")
            yield each

    def count(self, begin: int) -> int:
        """Return how many whole frames there are from epoch ``begin`` on; errors are those of ``frames``."""
        return sum(1 for _ in self._epochs(begin))

    def _epochs(self, begin: int) -> Iterator[tuple[int, Content]]:
        chain = self._chain(begin)
        if not chain and begin > 1:
            raise CheckpointError(f"the log is missing, with the epochs from {begin} on")
        if chain and chain[0].epoch > begin:
            raise CheckpointError(f"log segment {chain[0].name} begins with epoch {chain[0].epoch}, and {begin} comes next")
        expected = chain[0].epoch if chain else begin
        for place, segment in enumerate(chain):
            following = chain[place + 1].previous if place + 1 < len(chain) else None
            if segment.epoch != expected:
                raise CheckpointError(f"log segment {segment.name} begins with epoch {segment.epoch}, and {expected} comes next")
            for content in self._read(segment, None if following is None else following.size):
                expected += 1
                if expected > begin:
                    yield expected - 1, content

    def _chain(self, begin: int) -> list[_Segment]:
        """Return the segments with the frames from ``begin`` on, oldest first: those that the newest one continues."""
        newest = next((segment for name in reversed(self._names) if (segment := self._opened(name, last=True))), None)
        chain = [] if newest is None else [newest]
        while chain and chain[-1].epoch > begin and (previous := chain[-1].previous) is not None:
            if previous.name not in self._names:
                raise CheckpointError(f"log segment {previous.name} is missing, which {chain[-1].name} continues")
            segment = self._opened(previous.name, last=False)
            assert segment is not None
            chain.append(segment)
        return chain[::-1]

    def _opened(self, name: str, *, last: bool) -> _Segment | None:
        """Read the header of a segment; ``None`` for a last one that was being made: nothing was answered from it."""
        data = self._data(name)
        try:
            end, content = _frame_at(data, 0, 0)
            kind, version, id, epoch, previous = content(trusted=False)
        except (Damaged, ValueError, TypeError) as error:
            if last and not _good_frame(data, 0, 0):
                return None
            raise CheckpointError(f"log segment {name} is damaged: {error}") from error
        if (kind, version) != (_KIND, FORMAT) or id != self._id:
            raise CheckpointError(
                f"log segment {name} is of directory {id!r}, format {version}, and not of {self._id!r}, {FORMAT}"
            )
        return _Segment(name, epoch, None if previous is None else SegmentEnd(*previous), end)

    def _data(self, name: str) -> bytes:
        try:
            return self._disk.read(name)
        except OSError as error:
            raise CheckpointError(f"log segment {name} cannot be read: {file_error_text(error)}") from error

    def _read(self, segment: _Segment, valid: int | None) -> Iterator[Content]:
        """Yield the contents of a segment up to its ``valid`` length; without one, up to the first that is not whole."""
        at, number, data = segment.begin, 1, self._data(segment.name)
        while at != valid:
            try:
                end, content = _frame_at(data, at, number)
                if valid is not None and end > valid:
                    raise Damaged(f"frame {number} ends at {end}, behind the {valid} valid bytes")
            except Damaged as error:
                if valid is not None or _good_frame(data, at, number):
                    raise CheckpointError(f"log segment {segment.name} is damaged at byte {at}: {error}") from error
                self.torn = len(data[at:].rstrip(b"\0"))
                break
            yield content
            at, number = end, number + 1
        self.end = SegmentEnd(segment.name, at)


def _frame_at(data: bytes, at: int, number: int) -> tuple[int, Content]:
    """Return the end of a frame, and what reads its content; ``Damaged`` where it is not whole."""
    begin = at + HEADER
    if len(data) < begin:
        raise Damaged(f"frame {number} breaks off")
    header = parse_header(memoryview(data)[at:begin], number, trusted=True)
    end = begin + header.size
    body = memoryview(data)[begin:end]
    check_body(header, body, number)
    return end, partial(content_of, header, body, number)


def _good_frame(data: bytes, at: int, number: int) -> bool:
    """Return whether a later frame than ``number`` is whole behind ``at``: then the one at ``at`` was, and is damaged."""
    try:
        at += HEADER + parse_header(memoryview(data)[at : at + HEADER], number, trusted=True).size
    except (Damaged, struct.error):
        pass  # where it ends is not known
    end = len(data.rstrip(b"\0"))
    for place in range(at, end, 8):
        following = int.from_bytes(data[place : place + 8], "little")
        if number < following <= number + end // HEADER:
            try:
                _frame_at(data, place, following)
            except Damaged:
                continue
            return True
    return False


class LogWriter:
    """Writes a log, from the epoch ``epoch`` on, behind ``previous``: what ``append`` has returned from is durable.

    ``OSError`` where no segment can be made.
    """

    def __init__(self, disk: Disk, id: str, run: str, epoch: int, previous: SegmentEnd | None, *, step: int = _STEP) -> None:
        self._disk = disk
        self._id = id
        self._run = run
        self._step = step
        self._count = 0
        self._previous = previous
        self._file: LogFile | None = None
        self._name = ""
        if previous is not None:
            disk.cut(*previous)  # its last frame may have been written by a server that was killed before the sync
        self._begin(epoch)

    def _begin(self, epoch: int) -> None:
        """Begin a segment; it replaces the present one once it is durable. ``OSError`` where there is no space for it.

        With any other error the log is closed: it may exist, and leave out what is appended to the present one.
        """
        name = f"{self._run}-{self._count:08d}.log"
        self._count += 1
        head = _encoded(0, (_KIND, FORMAT, self._id, epoch, None if self._previous is None else tuple(self._previous)))
        file = self._disk.create(name)
        reserved = self._step
        try:
            try:
                file.reserve(0, reserved)
            except OSError as error:  # the disk is nearly full, and a checkpoint behind this segment may make space
                if error.errno not in _FULL:
                    raise
                file.reserve(0, reserved := len(head))
        except BaseException:
            file.close()
            with contextlib.suppress(OSError):
                self._disk.delete(name)
            raise
        try:
            file.write(0, head)
            file.sync()
            self._disk.sync()
        except BaseException:
            file.close()
            self.close()
            raise
        self._finish()
        self._file, self._name, self._size, self._reserved, self._number = file, name, len(head), reserved, 1

    def _finish(self) -> None:
        """Close the present segment. What was reserved goes, if possible: nobody relies on it."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.truncate(self._size)
            file.close()

    @property
    def end(self) -> SegmentEnd:
        return SegmentEnd(self._name, self._size)

    @property
    def closed(self) -> bool:
        """Whether nothing can be written any more."""
        return self._file is None

    def append(self, frame: Frame) -> None:
        """Write a frame. ``DiskFullError`` where there is no space, and nothing has happened; ``ViewError`` where it has failed.

        A failed write is not tried again in the same file, since the kernel may have dropped what it has not written. A new
        segment leaves the frame out. Where that cannot be made either, nothing is written any more.
        """
        file = self._open_file()
        data = _encoded(self._number, tuple(frame))
        end = self._size + len(data)
        try:
            if end > self._reserved:
                reserved = -(-end // self._step) * self._step
                file.reserve(self._reserved, reserved)
                self._reserved = reserved
        except OSError as error:
            if error.errno in _FULL:
                raise DiskFullError(f"the disk of the log is full, and nothing was changed: {file_error_text(error)}") from error
            self._replace(frame.epoch, error)
        try:
            file.write(self._size, data)
            file.sync()
        except OSError as error:
            self._replace(frame.epoch, error)
        self._size, self._number = end, self._number + 1

    def _replace(self, epoch: int, error: OSError) -> None:
        """Begin a segment without the frame that could not be written, and raise ``ViewError``."""
        before, self._previous = self._previous, self.end
        try:
            self._begin(epoch)
        except OSError as another:
            self._previous = before
            self.close()
            raise ViewError(
                f"it is not known whether this was written ({file_error_text(error)}; {file_error_text(another)}): repeat it with"
                " the same key when the server has been started again"
            ) from error
        raise ViewError(f"nothing was changed, since the log could not be written: {file_error_text(error)}") from error

    def begin_segment(self, epoch: int) -> None:
        """Begin a segment for the frames from ``epoch`` on. ``OSError`` where there is no space: then the present one goes on."""
        self._open_file()
        before, self._previous = self._previous, self.end
        try:
            self._begin(epoch)
        except BaseException:
            self._previous = before
            raise

    def _open_file(self) -> LogFile:
        if self._file is None:
            raise ViewError("nothing was changed: the log cannot be written any more; repair the disk, and start again")
        return self._file

    def close(self) -> None:
        """Close the log; a no-op when it is closed."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()


def _encoded(number: int, content: Any) -> bytes:
    return b"".join(frame(number, [dumps(content)]))


def segments_before(names: list[str], first: str) -> list[str]:
    """Return the segments that are older than ``first``, among the names of a log."""
    return [name for name in names if _NAME.fullmatch(name) and name < first]
