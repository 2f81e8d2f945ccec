"""How far each epoch of a stream is: ingested, committed, delivered. What is left to do for it follows.

A driver that starts again knows what its epoch log's few small files say. Each appears as a whole or not at all:

========================  =============================================================================================
``taken-<epoch>``         ingested: the rows of the epoch are in these files, and are not asked of the source again
``committed-<epoch>``     the outputs of the epoch are complete, in these files, and will not be others
``delivered``             every epoch up to this one has been delivered
``owner``                 the driver that writes; one that finds another here writes nothing more
========================  =============================================================================================

The invariant: an epoch is ingested, committed and delivered in this order, before the next one is ingested. Nothing is undone but
this: an epoch whose rows the dataflow cannot take is withdrawn, and its rows are asked of the source again. So only a delivery
whose note was lost can repeat. Files are pruned when neither a restart nor the workers' checkpoints can ask for them.
"""

from __future__ import annotations

import enum
import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import attrs

from timely.errors import CheckpointError, OperatorError, SchemaError

_DELIVERED = "delivered"
_OWNER = "owner"


class LogFiles(Protocol):
    """Small files by name, each of which is written as a whole or not at all, and stays."""

    def write(self, name: str, data: bytes) -> None:
        """Write a file, in place of the one of that name."""

    def read(self, name: str) -> bytes:
        """Return what was written."""

    def names(self) -> Iterable[str]:
        """Return the names of all files."""

    def delete(self, name: str) -> None:
        """Delete a file; a missing one is a no-op."""


@attrs.frozen
class File:
    """A file of rows: its name, relative to the stream's directory, and how many rows it has."""

    name: str
    rows: int


Outputs = Mapping[str, Sequence[File]]
"""The files of each output of an epoch."""


class Stage(enum.Enum):
    """How far an epoch is."""

    NEW = "new"
    INGESTED = "ingested"
    COMMITTED = "committed"
    DELIVERED = "delivered"


class Steps(Protocol):
    """What is done with an epoch, by somebody else. A driver that starts again may repeat each for the same epoch."""

    def ingest(self, epoch: int) -> Sequence[File]:
        """Write the rows of the epoch to files."""

    def compute(self, epoch: int) -> Outputs:
        """Have the outputs of an ingested epoch written to files. ``OperatorError`` or ``SchemaError`` for its rows."""

    def deliver(self, epoch: int, outputs: Outputs) -> None:
        """Deliver the outputs of the epoch to whom they are for."""


class EpochLog:
    """The epochs of one stream, as its files say and as they go on.

    ``CheckpointError`` where a file is damaged, or where an epoch does not follow the last one: then query and log do not belong
    together.

    >>> log = EpochLog(MemoryLogFiles())
    >>> log.ingest(0, [File("inputs/0/a", 3)])
    >>> log.commit(0, {"counts": [File("outputs/0/a", 2)]})
    >>> log.stage(0), log.stage(1), log.delivered
    (<Stage.COMMITTED: 'committed'>, <Stage.NEW: 'new'>, -1)
    >>> log.deliver(0)
    >>> log.stage(0), log.delivered
    (<Stage.DELIVERED: 'delivered'>, 0)
    """

    def __init__(self, store: LogFiles) -> None:
        self._store = store
        self._me = secrets.token_hex(8)
        self._boundaries: list[int] = []
        self._ingested: dict[int, list[File]] = {}
        self._committed: dict[int, dict[str, list[File]]] = {}
        self.delivered = -1
        for name in store.names():
            kind, _, epoch = name.partition("-")
            if kind == "taken":
                self._ingested[int(epoch)] = files_of(store, int(epoch))
            elif kind == "committed":
                self._committed[int(epoch)] = {table: _files(files) for table, files in _read(store, name).items()}
            elif name == _DELIVERED:
                self.delivered = int(_read(store, name))
        store.write(_OWNER, self._me.encode())

    @property
    def committed(self) -> int:
        """The last committed epoch, ``-1`` before the first."""
        return max(self._committed, default=self.delivered)

    @property
    def last(self) -> int:
        """The last ingested epoch, ``-1`` before the first."""
        return max(max(self._ingested, default=-1), self.delivered)

    @property
    def oldest(self) -> int:
        """The first epoch whose rows are still there; the one after ``last`` if none is."""
        return min(self._ingested, default=self.last + 1)

    def stage(self, epoch: int) -> Stage:
        """Return how far an epoch is. ``CheckpointError`` for one long delivered, which no query gives again."""
        if epoch < self.delivered:
            raise self._mismatch(f"epoch {epoch} has come again after epoch {self.delivered} was delivered")
        if epoch <= self.delivered:
            return Stage.DELIVERED
        if epoch in self._committed:
            return Stage.COMMITTED
        return Stage.INGESTED if epoch in self._ingested else Stage.NEW

    def inputs(self, epoch: int) -> Sequence[File]:
        """Return the files of an ingested epoch. ``CheckpointError`` if they are pruned."""
        if epoch not in self._ingested:
            raise CheckpointError(f"the rows of epoch {epoch} are not kept any more; the oldest kept are of {self.oldest}")
        return self._ingested[epoch]

    def outputs(self, epoch: int) -> Outputs:
        """Return the output files of a committed epoch."""
        return self._committed[epoch]

    def ingest(self, epoch: int, files: Iterable[File]) -> None:
        """Note that the rows of an epoch are in these files."""
        if epoch != self.last + 1 or self.last != self.delivered:
            raise self._mismatch(
                f"epoch {epoch} was to be ingested after epoch {self.last}, of which {self.delivered} is delivered"
            )
        listed = list(files)
        self._write(f"taken-{epoch}", [[file.name, file.rows] for file in listed])
        self._ingested[epoch] = listed

    def commit(self, epoch: int, outputs: Outputs) -> None:
        """Note that the outputs of an epoch are complete, in these files."""
        if self.stage(epoch) is not Stage.INGESTED:
            raise CheckpointError(f"epoch {epoch} cannot be committed: it is {self.stage(epoch).value}")
        listed = {name: list(files) for name, files in outputs.items()}
        self._write(f"committed-{epoch}", {name: [[file.name, file.rows] for file in files] for name, files in listed.items()})
        self._committed[epoch] = listed

    def withdraw(self, epoch: int) -> None:
        """Note that an epoch is not ingested after all: its rows are to come from the source again."""
        if self.stage(epoch) is not Stage.INGESTED:
            raise CheckpointError(f"epoch {epoch} cannot be withdrawn: it is {self.stage(epoch).value}")
        self.check_owner(f"taken-{epoch}")
        self._store.delete(f"taken-{epoch}")
        del self._ingested[epoch]

    def deliver(self, epoch: int) -> None:
        """Note that an epoch has been delivered."""
        if self.stage(epoch) is not Stage.COMMITTED:
            raise CheckpointError(f"epoch {epoch} cannot be delivered: it is {self.stage(epoch).value}")
        self._write(_DELIVERED, epoch)
        self.delivered = epoch

    def cover(self, boundary: int) -> list[int]:
        """Note that the workers have a checkpoint of all epochs before ``boundary``; return, in order, the epochs to prune.

        Workers keep their last two checkpoints, since one may be damaged: the last but one counts.
        """
        if boundary not in self._boundaries:
            self._boundaries = [*self._boundaries[-1:], boundary]
        if len(self._boundaries) < 2:
            return []
        behind = min(*self._boundaries, self.delivered + 1)
        return sorted(epoch for epoch in {*self._ingested, *self._committed} if epoch < behind)

    def restored(self, boundary: int) -> None:
        """Note that the workers resume from their checkpoint at ``boundary``, and have no later one.

        ``CheckpointError`` if the rows since then are pruned, or it is past what is committed.
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
        self._store.delete(f"committed-{epoch}")
        self._store.delete(f"taken-{epoch}")
        self._committed.pop(epoch, None)
        self._ingested.pop(epoch, None)

    def _mismatch(self, what: str) -> CheckpointError:
        return CheckpointError(
            f"{what}: the checkpoint of the streaming query is not the one that belongs to this stream. Use a new directory as"
            " checkpoint"
        )

    def check_owner(self, name: str) -> None:
        """Raise ``CheckpointError`` where another driver has taken the stream over, before ``name`` is written."""
        if self._store.read(_OWNER) != self._me.encode():
            raise CheckpointError(f"{name} cannot be written: this stream was started again elsewhere, from the same checkpoint")

    def _write(self, name: str, value: Any) -> None:
        self.check_owner(name)
        text = json.dumps(value).encode()
        self._store.write(name, _digest(text) + b"\n" + text)


def process_epoch(epoch_log: EpochLog, epoch: int, steps: Steps) -> bool:
    """Do what is left to do for an epoch, and note each step when it is done; return whether anything was left.

    A second delivery, because the driver ended before the first was noted, has the same files. An epoch whose rows make the
    dataflow raise is withdrawn, so that they can be repaired at the source, or filtered out, before the next start.

    >>> class Printing:
    ...     def ingest(self, epoch): return [File(f"in {epoch}", 1)]
    ...     def compute(self, epoch): return {"all": [File(f"out {epoch}", 1)]}
    ...     def deliver(self, epoch, outputs): print(epoch, outputs["all"][0].name)
    >>> log = EpochLog(MemoryLogFiles())
    >>> process_epoch(log, 0, Printing()), process_epoch(log, 0, Printing())
    0 out 0
    (True, False)
    """
    stage = epoch_log.stage(epoch)
    if stage is Stage.DELIVERED:
        return False
    if stage is Stage.NEW:
        epoch_log.ingest(epoch, steps.ingest(epoch))
    if stage is not Stage.COMMITTED:
        try:
            outputs = steps.compute(epoch)
        except (OperatorError, SchemaError):
            epoch_log.withdraw(epoch)
            raise
        epoch_log.commit(epoch, outputs)
    steps.deliver(epoch, epoch_log.outputs(epoch))
    epoch_log.deliver(epoch)
    return True


class MemoryLogFiles:
    """Files in memory, for tests and examples."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def write(self, name: str, data: bytes) -> None:
        """Write a file."""
        self.files[name] = data

    def read(self, name: str) -> bytes:
        """Return a file."""
        return self.files[name]

    def names(self) -> Iterable[str]:
        """Return all names."""
        return list(self.files)

    def delete(self, name: str) -> None:
        """Delete a file."""
        self.files.pop(name, None)


def files_of(store: LogFiles, epoch: int) -> list[File]:
    """Return the files of an ingested epoch, for those who only read the log."""
    return _files(_read(store, f"taken-{epoch}"))


def _read(store: LogFiles, name: str) -> Any:
    digest, _, text = store.read(name).partition(b"\n")
    if digest != _digest(text):
        raise CheckpointError(f"the file {name!r} in the epoch log of this stream is damaged. Use a new directory as checkpoint")
    return json.loads(text)


def _files(listed: Iterable[Sequence[Any]]) -> list[File]:
    return [File(str(name), int(rows)) for name, rows in listed]


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=16).hexdigest().encode()
