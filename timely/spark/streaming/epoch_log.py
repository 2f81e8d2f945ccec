"""How far each epoch of a stream is: ingested, committed, delivered. What is left to do for it follows.

A driver that starts again knows what its epoch log says. Each of its records is the whole log: the files of each ingested epoch,
those of its complete outputs, which will not be others, and the last delivered epoch. A new driver takes over with the protocol
of checkpoints (docs/recovery.md, "Runs that overlap"): it claims the log, and writes the newest record again as its own. A step
counts once its record is written and no newer driver has claimed the log by then.

The invariant: an epoch is ingested, committed and delivered in this order, before the next one is ingested. Nothing is undone but
this: an epoch whose rows the dataflow cannot take is withdrawn, and its rows are asked of the source again. So only a delivery
whose note was lost can repeat. Files are pruned when neither a restart nor the workers' checkpoints can ask for them.
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import attrs

from timely.errors import CheckpointError, OperatorError, SchemaError, file_error_text
from timely.recovery import Store
from timely.recovery.history import garbage
from timely.recovery.manifest import MANIFEST, checkpoint_name, records
from timely.recovery.ownership import FencedError, Ownership, chance


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
    """What others do with an epoch. A driver that starts again may repeat each for the same epoch."""

    def ingest(self, epoch: int) -> Sequence[File]:
        """Write the rows of the epoch to files."""

    def compute(self, epoch: int) -> Outputs:
        """Write the outputs of an ingested epoch to files. ``OperatorError`` or ``SchemaError`` for its rows."""

    def deliver(self, epoch: int, outputs: Outputs) -> None:
        """Deliver the outputs of the epoch to whom they are for."""


class EpochLog:
    """The epochs of one stream, as its files say and as they go on.

    ``CheckpointError`` where a file is damaged, or where an epoch does not follow the last one: then query and log do not belong
    together.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._number = 0
        self._boundaries: list[int] = []
        patience = 0.01
        while not self._take_over():
            chance.get().pause(patience)
            patience = min(2 * patience, 0.32)

    def _take_over(self) -> bool:
        """Adopt the newest record, and write it again; return whether no newer driver has started meanwhile."""
        try:
            self._owner = Ownership.claim(self._store)
            try:
                record = self._read()
            except BaseException:
                self._owner.withdraw()
                raise
            self._ingested, self._committed, self.delivered = record.ingested, record.committed, record.delivered
            self._put(record)
        except FencedError:
            return False
        except OSError as error:
            raise CheckpointError(f"the epoch log at {self._store} cannot be opened: {file_error_text(error)}") from error
        return True

    def _read(self) -> _Record:
        try:
            return _newest(self._store, self._owner.check())
        except FileNotFoundError:
            self._owner.check()  # a newer driver has deleted it
            raise

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
        self._write(f"taken-{epoch}", self._record(ingested={**self._ingested, epoch: listed}))
        self._ingested[epoch] = listed

    def commit(self, epoch: int, outputs: Outputs) -> None:
        """Note that the outputs of an epoch are complete, in these files."""
        if self.stage(epoch) is not Stage.INGESTED:
            raise CheckpointError(f"epoch {epoch} cannot be committed: it is {self.stage(epoch).value}")
        listed = {name: list(files) for name, files in outputs.items()}
        self._write(f"committed-{epoch}", self._record(committed={**self._committed, epoch: listed}))
        self._committed[epoch] = listed

    def withdraw(self, epoch: int) -> None:
        """Note that an epoch is not ingested after all: its rows are to come from the source again."""
        if self.stage(epoch) is not Stage.INGESTED:
            raise CheckpointError(f"epoch {epoch} cannot be withdrawn: it is {self.stage(epoch).value}")
        left = {other: files for other, files in self._ingested.items() if other != epoch}
        self._write(f"taken-{epoch}", self._record(ingested=left))
        self._ingested = left

    def deliver(self, epoch: int) -> None:
        """Note that an epoch has been delivered."""
        if self.stage(epoch) is not Stage.COMMITTED:
            raise CheckpointError(f"epoch {epoch} cannot be delivered: it is {self.stage(epoch).value}")
        self._write(f"delivered-{epoch}", self._record(delivered=epoch))
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
        """Forget an epoch, whose rows and outputs are to be deleted."""
        committed, ingested = dict(self._committed), dict(self._ingested)
        committed.pop(epoch, None)
        ingested.pop(epoch, None)
        self._write(f"taken-{epoch}", self._record(ingested=ingested, committed=committed))
        self._committed, self._ingested = committed, ingested

    def _mismatch(self, what: str) -> CheckpointError:
        return CheckpointError(
            f"{what}: the checkpoint of the streaming query is not the one that belongs to this stream. Use a new directory as"
            " checkpoint"
        )

    def check_owner(self, name: str) -> None:
        """Raise ``CheckpointError`` where another driver has taken the stream over, before ``name`` is written."""
        try:
            self._owner.check()
        except FencedError as error:
            raise self._fenced(name) from error

    def _fenced(self, what: str) -> CheckpointError:
        return CheckpointError(f"{what} cannot be written: this stream was started again elsewhere, from the same checkpoint")

    def _record(self, **changes: Any) -> _Record:
        return attrs.evolve(_Record(self._ingested, self._committed, self.delivered), **changes)

    def _write(self, what: str, record: _Record) -> None:
        try:
            self._put(record)
        except FencedError as error:
            raise self._fenced(what) from error
        except OSError as error:
            raise CheckpointError(f"{what} cannot be written to {self._store}: {file_error_text(error)}") from error

    def _put(self, record: _Record) -> None:
        """Write a record, and delete those before the last one, which a worker may be reading."""
        owner, name = self._owner, checkpoint_name(self._owner.run, self._number) + MANIFEST
        self._number += 1  # also if this fails: it may appear later
        owner.write(name, [record.encode()])
        names = owner.check()
        newest = set(sorted(records(names))[-2:])
        for old in garbage(names, [], owner.run):
            if old not in newest:
                self._store.delete(old)


@attrs.frozen
class _Record:
    """The whole log, as one of its files has it."""

    ingested: dict[int, list[File]] = attrs.field(factory=dict)
    committed: dict[int, dict[str, list[File]]] = attrs.field(factory=dict)
    delivered: int = -1

    def encode(self) -> bytes:
        text = json.dumps(
            {
                "ingested": [[epoch, _rows(files)] for epoch, files in self.ingested.items()],
                "committed": [
                    [epoch, {table: _rows(files) for table, files in tables.items()}] for epoch, tables in self.committed.items()
                ],
                "delivered": self.delivered,
            }
        ).encode()
        return _digest(text) + b"\n" + text

    @classmethod
    def decode(cls, name: str, data: bytes) -> _Record:
        content = _unseal(name, data)
        committed = {epoch: {table: _files(files) for table, files in tables.items()} for epoch, tables in content["committed"]}
        return cls({epoch: _files(files) for epoch, files in content["ingested"]}, committed, content["delivered"])


def _newest(store: Store, names: Iterable[str]) -> _Record:
    """Return the newest record; an empty one where there is none."""
    name = max(records(names), default=None)
    if name is None:
        return _Record()
    with store.open(name) as file:
        return _Record.decode(name, file.read())


def _unseal(name: str, data: bytes) -> Any:
    digest, _, text = data.partition(b"\n")
    if digest != _digest(text):
        raise CheckpointError(f"the file {name!r} in the epoch log of this stream is damaged. Use a new directory as checkpoint")
    return json.loads(text)


def process_epoch(epoch_log: EpochLog, epoch: int, steps: Steps) -> bool:
    """Do what is left to do for an epoch, and note each step when it is done; return whether anything was left.

    A second delivery, because the driver ended before the first was noted, has the same files. An epoch whose rows make the
    dataflow raise is withdrawn, so that they can be repaired at the source, or filtered out, before the next start.
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


def files_of(store: Store, epoch: int) -> list[File]:
    """Return the files of an ingested epoch, for those who only read the log. ``CheckpointError`` if they are pruned."""
    while True:
        names = store.names()
        try:
            ingested = _newest(store, names).ingested
        except FileNotFoundError:
            if store.names() == names:
                raise
            continue  # the driver has gone on meanwhile
        if epoch not in ingested:
            raise CheckpointError(f"the rows of epoch {epoch} are not kept any more")
        return ingested[epoch]


def has_epochs(store: Store) -> bool:
    """Return whether any epoch has been ingested."""
    record = _newest(store, store.names())
    return bool(record.ingested) or record.delivered >= 0


def _rows(files: Iterable[File]) -> list[list[Any]]:
    return [[file.name, file.rows] for file in files]


def _files(listed: Iterable[Sequence[Any]]) -> list[File]:
    return [File(str(name), int(rows)) for name, rows in listed]


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=16).hexdigest().encode()
