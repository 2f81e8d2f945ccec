"""How far each epoch of a stream has got: taken in, committed, delivered. What is left to do for it follows.

The driver of a stream may end at any moment and start again. What it knows then is what stands in the ledger's few small files,
each of which appears as a whole or not at all:

========================  =============================================================================================
``taken-<epoch>``         the rows of the epoch are on disk, in these files; they will not be asked of the source again
``committed-<epoch>``     the outputs of the epoch are complete and on disk, in these files; they will not be others
``delivered``             every epoch up to this one has been handed over
``owner``                 who goes on: one who finds somebody else there notes nothing more
========================  =============================================================================================

The invariant: an epoch is taken in before it is committed, committed before it is delivered, and delivered before the next
one is taken in; none of it is ever taken back. So whoever starts again does what is missing and nothing else, and the one
step that may be repeated is the one between handing an epoch over and noting that. A caller may assume that files are pruned
only when neither a restart nor the workers' checkpoints can ask for them.
"""

from __future__ import annotations

import enum
import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import attrs

from timely.errors import CheckpointError

_DELIVERED = "delivered"
_OWNER = "owner"


class LogFiles(Protocol):
    """Small files by name, each of which is written as a whole or not at all, and is there to stay once written."""

    def write(self, name: str, data: bytes) -> None:
        """Write a file, in place of the one of that name."""

    def read(self, name: str) -> bytes:
        """Return what was written."""

    def names(self) -> Iterable[str]:
        """Return the names of all files."""

    def delete(self, name: str) -> None:
        """Delete a file; nothing is done where there is none."""


@attrs.frozen
class File:
    """A file of rows: its name, relative to the place of the stream, and how many rows it has."""

    name: str
    rows: int


Outputs = Mapping[str, Sequence[File]]
"""The files of each output of an epoch."""


class Stage(enum.Enum):
    """How far an epoch has got."""

    NEW = "not taken in"
    TAKEN = "taken in"
    COMMITTED = "committed"
    DELIVERED = "delivered"


class Steps(Protocol):
    """What is done with an epoch, by somebody else. Each may be tried again for the same epoch after the driver has ended in
    it.
    """

    def take(self, epoch: int) -> Sequence[File]:
        """Write the rows of the epoch to files."""

    def compute(self, epoch: int) -> Outputs:
        """Have the outputs of the epoch written to files; it has been taken in."""

    def hand_over(self, epoch: int, outputs: Outputs) -> None:
        """Hand the outputs of the epoch to whom they are for."""


class EpochLog:
    """The epochs of one stream, as its files say and as they go on.

    ``CheckpointError`` where a file is damaged, or where an epoch does not follow the last one: then the query that numbers the
    epochs and this ledger do not belong together.

    >>> ledger = EpochLog(MemoryFiles())
    >>> ledger.take(0, [File("inputs/0/a", 3)])
    >>> ledger.commit(0, {"counts": [File("outputs/0/a", 2)]})
    >>> ledger.stage(0), ledger.stage(1), ledger.delivered
    (<Stage.COMMITTED: 'committed'>, <Stage.NEW: 'not taken in'>, -1)
    >>> ledger.deliver(0)
    >>> ledger.stage(0), ledger.delivered
    (<Stage.DELIVERED: 'delivered'>, 0)
    """

    def __init__(self, notes: LogFiles) -> None:
        self._notes = notes
        self._me = secrets.token_hex(8)
        self._boundaries: list[int] = []
        self._taken: dict[int, list[File]] = {}
        self._committed: dict[int, dict[str, list[File]]] = {}
        self.delivered = -1
        for name in notes.names():
            kind, _, epoch = name.partition("-")
            if kind == "taken":
                self._taken[int(epoch)] = files_of(notes, int(epoch))
            elif kind == "committed":
                self._committed[int(epoch)] = {table: _files(files) for table, files in _read(notes, name).items()}
            elif name == _DELIVERED:
                self.delivered = int(_read(notes, name))
        notes.write(_OWNER, self._me.encode())

    @property
    def committed(self) -> int:
        """The last epoch that is committed, ``-1`` before the first."""
        return max(self._committed, default=self.delivered)

    @property
    def last(self) -> int:
        """The last epoch that has been taken in, ``-1`` before the first."""
        return max(max(self._taken, default=-1), self.delivered)

    @property
    def oldest(self) -> int:
        """The first epoch whose rows are still there; the one after ``last`` if none is."""
        return min(self._taken, default=self.last + 1)

    def stage(self, epoch: int) -> Stage:
        """Return how far an epoch has got. ``CheckpointError`` for one that is long delivered, which no query gives again."""
        if epoch < self.delivered:
            raise self._strange(f"epoch {epoch} has come again after epoch {self.delivered} was delivered")
        if epoch <= self.delivered:
            return Stage.DELIVERED
        if epoch in self._committed:
            return Stage.COMMITTED
        return Stage.TAKEN if epoch in self._taken else Stage.NEW

    def inputs(self, epoch: int) -> Sequence[File]:
        """Return the files of an epoch that has been taken in. ``CheckpointError`` if they are not kept any more."""
        if epoch not in self._taken:
            raise CheckpointError(f"the rows of epoch {epoch} are not kept any more; the oldest kept are of {self.oldest}")
        return self._taken[epoch]

    def outputs(self, epoch: int) -> Outputs:
        """Return the output files of an epoch that is committed."""
        return self._committed[epoch]

    def take(self, epoch: int, files: Iterable[File]) -> None:
        """Note that the rows of an epoch are in these files."""
        if epoch != self.last + 1 or self.last != self.delivered:
            raise self._strange(
                f"epoch {epoch} was to be taken in after epoch {self.last}, of which {self.delivered} is delivered"
            )
        kept = list(files)
        self._write(f"taken-{epoch}", [[file.name, file.rows] for file in kept])
        self._taken[epoch] = kept

    def commit(self, epoch: int, outputs: Outputs) -> None:
        """Note that the outputs of an epoch are complete, in these files."""
        if self.stage(epoch) is not Stage.TAKEN:
            raise CheckpointError(f"epoch {epoch} cannot be committed: it is {self.stage(epoch).value}")
        kept = {name: list(files) for name, files in outputs.items()}
        told = {name: [[file.name, file.rows] for file in files] for name, files in kept.items()}
        self._write(f"committed-{epoch}", told)
        self._committed[epoch] = kept

    def deliver(self, epoch: int) -> None:
        """Note that an epoch has been handed over."""
        if self.stage(epoch) is not Stage.COMMITTED:
            raise CheckpointError(f"epoch {epoch} cannot be delivered: it is {self.stage(epoch).value}")
        self._write(_DELIVERED, epoch)
        self.delivered = epoch

    def cover(self, boundary: int) -> list[int]:
        """Note that the workers have a checkpoint with all epochs before ``boundary`` in it; return the epochs of which
        nothing is needed any more, in order. They are forgotten when :meth:`forget` is told so.

        Workers keep their last two checkpoints, since one may turn out damaged, so it is the last but one that counts.
        """
        if boundary not in self._boundaries:
            self._boundaries = [*self._boundaries[-1:], boundary]
        if len(self._boundaries) < 2:
            return []
        behind = min(*self._boundaries, self.delivered + 1)
        return sorted(epoch for epoch in {*self._taken, *self._committed} if epoch < behind)

    def restored(self, boundary: int) -> None:
        """Note that the workers go on from their checkpoint at ``boundary``, and so have no later one.

        ``CheckpointError`` if that is too far back for the rows that are kept, or further than what is committed.
        """
        if boundary < self.oldest or boundary > self.committed + 1:
            raise CheckpointError(
                f"the workers' newest good checkpoint holds all epochs before {boundary}, and the epochs that this stream has"
                f" rows of are {self.oldest} to {self.last}: their checkpoints have been damaged or deleted. Use a new directory"
                " as checkpoint"
            )
        self._boundaries = [boundary]

    def forget(self, epoch: int) -> None:
        """Forget an epoch, whose rows and outputs have been deleted."""
        self._notes.delete(f"committed-{epoch}")
        self._notes.delete(f"taken-{epoch}")
        self._committed.pop(epoch, None)
        self._taken.pop(epoch, None)

    def _strange(self, what: str) -> CheckpointError:
        return CheckpointError(
            f"{what}: the checkpoint of the streaming query is not the one that belongs to this stream. Use a new directory as"
            " checkpoint"
        )

    def _write(self, name: str, value: Any) -> None:
        if self._notes.read(_OWNER) != self._me.encode():
            raise CheckpointError(f"{name} cannot be noted: this stream was started again elsewhere, from the same checkpoint")
        text = json.dumps(value).encode()
        self._notes.write(name, _digest(text) + b"\n" + text)


def go_through(ledger: EpochLog, epoch: int, steps: Steps) -> bool:
    """Do what is left to do for an epoch, and note each step when it is done; return whether anything was left.

    An epoch that is handed over for a second time, because the driver ended before the first was noted, has the same files.

    >>> class Printing:
    ...     def take(self, epoch): return [File(f"in {epoch}", 1)]
    ...     def compute(self, epoch): return {"all": [File(f"out {epoch}", 1)]}
    ...     def hand_over(self, epoch, outputs): print(epoch, outputs["all"][0].name)
    >>> ledger = EpochLog(MemoryFiles())
    >>> go_through(ledger, 0, Printing()), go_through(ledger, 0, Printing())
    0 out 0
    (True, False)
    """
    stage = ledger.stage(epoch)
    if stage is Stage.DELIVERED:
        return False
    if stage is Stage.NEW:
        ledger.take(epoch, steps.take(epoch))
    if stage is not Stage.COMMITTED:
        ledger.commit(epoch, steps.compute(epoch))
    steps.hand_over(epoch, ledger.outputs(epoch))
    ledger.deliver(epoch)
    return True


class MemoryFiles:
    """Notes in memory, for tests and examples."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def write(self, name: str, data: bytes) -> None:
        """Keep ``data`` under ``name``."""
        self.files[name] = data

    def read(self, name: str) -> bytes:
        """Return what is kept under ``name``."""
        return self.files[name]

    def names(self) -> Iterable[str]:
        """Return all names."""
        return list(self.files)

    def delete(self, name: str) -> None:
        """Keep nothing under ``name``."""
        self.files.pop(name, None)


def files_of(notes: LogFiles, epoch: int) -> list[File]:
    """Return the files of an epoch that has been taken in, for those who only read the ledger."""
    return _files(_read(notes, f"taken-{epoch}"))


def _read(notes: LogFiles, name: str) -> Any:
    digest, _, text = notes.read(name).partition(b"\n")
    if digest != _digest(text):
        raise CheckpointError(f"the file {name!r} in the ledger of this stream is damaged. Use a new directory as checkpoint")
    return json.loads(text)


def _files(told: Iterable[Sequence[Any]]) -> list[File]:
    return [File(str(name), int(rows)) for name, rows in told]


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=16).hexdigest().encode()
