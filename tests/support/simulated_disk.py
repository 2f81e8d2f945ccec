"""A disk in memory that may lose what was not synced: what a log keeps is tried at every system call, not hoped for.

``SimulatedDisk.survivors`` yields each content that the disk may have after a loss of power: any names that were made or deleted
since the directory was synced, and any of the writes to a file since that was synced, whole, torn, or with a hole of zeros.

White box: it stands in for the disk of a log, which nobody outside the server uses.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from timely.server.log import Disk, LogFile

_SECTOR: Final = 64
"""Bytes that are written whole or not at all, in a small log."""


class PowerLost(BaseException):
    """The machine has stopped before a system call."""


@attrs.define(eq=False)
class _Inode:
    """A file: what is durable, and what was written since."""

    durable: bytes = b""
    writes: list[tuple[int, bytes | None]] = attrs.Factory(list)
    """Places with bytes; ``None`` cuts the file there."""

    def content(self) -> bytes:
        """Return what a reader sees."""
        data = self.durable
        for at, written in self.writes:
            data = _applied(data, at, written)
        return data

    def survivors(self) -> set[bytes]:
        """Return what may be left of it."""
        results = {self.durable}
        for at, written in self.writes:
            for data in list(results):
                results.add(_applied(data, at, written))
                if written:
                    middle = max(_SECTOR, len(written) // 2 // _SECTOR * _SECTOR)
                    results.add(_applied(data, at, written[:middle]))
                    results.add(_applied(data, at, bytes(min(middle, len(written))) + written[middle:]))
        return results


def _applied(data: bytes, at: int, written: bytes | None) -> bytes:
    if written is None:
        return data[:at]
    return data[:at].ljust(at, b"\0") + written + data[at + len(written) :]


class SimulatedDisk(Disk):
    """A disk. At the ``lost``-th of its ``steps`` the power goes, each of ``failing`` raises ``OSError``.

    A failed write may have happened or not. ``space`` bounds the bytes of all files.

    >>> disk = SimulatedDisk()
    >>> file = disk.create("a")
    >>> file.write(0, b"hello")
    >>> sorted(files.get("a", b"none") for files in disk.survivors())
    [b'', b'\\x00\\x00\\x00\\x00\\x00', b'hello', b'none']
    """

    def __init__(
        self,
        files: Mapping[str, bytes] | None = None,
        *,
        lost: int | None = None,
        failing: frozenset[int] = frozenset(),
        space: int | None = None,
    ) -> None:
        self.steps = 0
        self.space = space
        self.lost = lost
        self._failing = failing
        self._durable = {name: _Inode(data) for name, data in (files or {}).items()}
        self._present = dict(self._durable)

    def step(self) -> None:
        """Begin a system call that changes something."""
        self.steps += 1
        if self.steps == self.lost:
            raise PowerLost
        if self.steps in self._failing:
            raise OSError(errno.EIO, "the disk has failed")

    def survivors(self) -> Iterator[dict[str, bytes]]:
        """Yield each content that the disk may have if the power goes now."""
        names = sorted(self._durable.keys() | self._present.keys())
        choices: list[list[tuple[str, bytes | None]]] = []
        for name in names:
            inodes = {self._durable.get(name), self._present.get(name)}
            contents: set[bytes | None] = {data for inode in inodes if inode is not None for data in inode.survivors()}
            choices.append([(name, data) for data in (contents | {None} if None in inodes else contents)])
        for chosen in itertools.product(*choices):
            yield {name: data for name, data in chosen if data is not None}

    def contents(self) -> dict[str, bytes]:
        """Return all files as a reader sees them."""
        return {name: self.read(name) for name in self.names()}

    def names(self) -> list[str]:
        """Return the names of all files."""
        return sorted(self._present)

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        return self._present[name].content()

    def create(self, name: str) -> SimulatedFile:
        """Make a file."""
        self.step()
        assert name not in self._present
        inode = self._present[name] = _Inode()
        return SimulatedFile(self, inode)

    def delete(self, name: str) -> None:
        """Delete a file."""
        self.step()
        self._present.pop(name, None)

    def cut(self, name: str, size: int) -> None:
        """Have a file end at ``size``, durably."""
        file = SimulatedFile(self, self._present[name])
        file.truncate(size)
        file.sync()

    def sync(self) -> None:
        """Have names be durable."""
        self.step()
        self._durable = dict(self._present)

    def check_space(self, more: int) -> None:
        """Raise ``OSError`` where there is no space for ``more`` bytes."""
        if self.space is not None and sum(len(each.content()) for each in self._present.values()) + more > self.space:
            raise OSError(errno.ENOSPC, "No space left on device")


class SimulatedFile(LogFile):
    """A file of a :class:`SimulatedDisk`."""

    def __init__(self, disk: SimulatedDisk, inode: _Inode) -> None:
        self._disk = disk
        self._inode = inode

    def reserve(self, begin: int, end: int) -> None:
        """Have the file have zeros up to ``end``."""
        self._disk.step()
        self._disk.check_space(end - begin)
        self._inode.writes.append((begin, bytes(end - begin)))

    def write(self, at: int, data: bytes) -> None:
        """Write bytes, also where that fails: as a kernel does that cannot write them back."""
        self._inode.writes.append((at, data))
        self._disk.step()

    def sync(self) -> None:
        """Have what was written be durable."""
        self._disk.step()
        self._inode.durable, self._inode.writes = self._inode.content(), []

    def truncate(self, size: int) -> None:
        """Cut the file."""
        self._disk.step()
        self._inode.writes.append((size, None))

    def close(self) -> None:
        """Do nothing: what was not synced may still be lost."""
