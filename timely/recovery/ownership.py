"""Which of several runs owns a store: the newest that has claimed it. And how a run takes it over.

The protocol and its invariants are in docs/recovery.md, "Runs that overlap". A run is a ballot of Disk Paxos: it writes its
claim, and looks for newer ones after each file that others rely on. So it needs no lock and no create-if-absent.
"""

from __future__ import annotations

import contextlib
import random
import secrets
import time
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Final

import attrs

from timely.errors import ChangedDataflowError, CheckpointError
from timely.recovery.history import History
from timely.recovery.manifest import CLAIM, FENCE, Fence, Manifest, generation_of, marks, records, run_name, run_of
from timely.recovery.store import Store


@attrs.frozen
class Chance:
    """What runs leave to chance: the random part of their names, and for how long they wait for each other."""

    token: Callable[[], str]
    pause: Callable[[float], None]


_CHANCE: Final = Chance(lambda: secrets.token_hex(4), lambda patience: time.sleep(random.uniform(0.0, patience)))
chance: Final = ContextVar("chance", default=_CHANCE)
"""Chance, which a simulation of several runs decides."""


class FencedError(CheckpointError):
    """A newer run has claimed the store."""


@attrs.frozen
class Ownership:
    """A run that has claimed a store. Two runs never have the same name."""

    store: Store
    run: str

    @classmethod
    def claim(cls, store: Store) -> Ownership:
        """Claim the store for a new run, newer than those of all its files."""
        generations = (generation_of(name) for name in store.names() if run_of(name) is not None)
        run = run_name(max(generations, default=0) + 1, chance.get().token())
        owner = cls(store, run)
        try:
            store.write(run + CLAIM, [run.encode()])
        except BaseException as error:
            owner.withdraw()
            if isinstance(error, OSError):
                owner._refuse(owner._newer(store.names()))
            raise
        return owner

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Write a file. ``FencedError`` where that fails because a newer run has deleted it unfinished."""
        try:
            self.store.write(name, chunks)
        except OSError:
            self.check()
            raise

    def check(self, *, besides: str | None = None) -> list[str]:
        """Return the names in the store. ``FencedError`` where a newer run has claimed it, other than ``besides``.

        That a listing misses a newer claim is possible if an even newer run deletes it meanwhile; but it deletes ours first.
        """
        names = self.store.names()
        newer = self._newer(names, besides)
        if newer is None:
            try:
                self.store.open(self.run + CLAIM).close()
            except FileNotFoundError:
                newer = "that is newer"
        self._refuse(newer)
        return names

    def _newer(self, names: Iterable[str], besides: str | None = None) -> str | None:
        return max((run for name in marks(names) if (run := run_of(name)) and self.run < run != besides), default=None)

    def _refuse(self, newer: str | None) -> None:
        if newer is not None:
            raise FencedError(
                f"run {newer} has taken over at {self.store}, so that run {self.run} takes no more checkpoints there: end it"
            )

    def withdraw(self) -> None:
        """Delete the claim, if possible: only for a run that has not tried to write its first record."""
        with contextlib.suppress(OSError):
            self.store.delete(self.run + CLAIM)


_SHORTEST = 0.01
_LONGEST = 0.32
"""Seconds of the first and the longest random back-off of runs that start at once, and stop each other."""


class Takeover:
    """The start of one run, on worker 0: call ``read`` and ``take`` in turn until ``take`` returns who owns the store.

    The workers verify files in between. The invariant: what the fence names was the newest good checkpoint when every older run
    had been stopped.
    """

    def __init__(self, store: Store, version: str) -> None:
        self._store = store
        self._version = version
        self._owner: Ownership | None = None
        self._fenced = False
        self._patience = _SHORTEST
        self._history = History(store, ())

    def read(self) -> list[Manifest]:
        """Return the lineage up to the first other version; ``ChangedDataflowError`` if that is the newest."""
        self._history = history = History(self._store)
        manifests: list[Manifest] = []
        for manifest in history.lineage():
            if manifest.version != self._version:
                if manifests:
                    break
                raise ChangedDataflowError(
                    f"checkpoint {manifest.name} has version {manifest.version!r}, and this program has {self._version!r}: run"
                    " the program that wrote it, or use another directory to start anew"
                )
            manifests.append(manifest)
        return manifests

    def report_damage(self, why: str) -> None:
        """Note that a checkpoint that was read is not usable."""
        self._history.report_damage(why)

    def take(self, left: list[Manifest]) -> tuple[Ownership, list[str]] | None:
        """Write the fence of a run that resumes from the first of these checkpoints; return who owns the store, and its names.

        ``None`` where another run has committed or started since they were read: then all is done again.
        """
        if not left and self._history.damaged:
            if records(self._store.names()) != self._read_records():  # another run may have deleted what was to be read
                return None
            raise CheckpointError(
                f"no checkpoint at {self._store} is good: {'; '.join(self._history.damaged)}; use another directory to start anew"
            )
        try:
            return self._write_fence(left[0].name if left else None)
        except FencedError:
            self._owner, self._fenced = None, False
            chance.get().pause(self._patience)
            self._patience = min(2 * self._patience, _LONGEST)
            return None

    def _write_fence(self, start: str | None) -> tuple[Ownership, list[str]] | None:
        self._owner = owner = self._owner or Ownership.claim(self._store)
        if records(owner.check()) != self._read_records():
            return None  # older runs are stopped, so that this comes to an end
        self._fenced = True
        owner.write(owner.run + FENCE, [Fence(owner.run, start).encode()])
        return owner, owner.check()

    def _read_records(self) -> set[str]:
        return records(self._history.names)

    def abandon(self) -> None:
        """Withdraw a claim that would fence off older runs for nothing. What may have a fence keeps its claim."""
        if self._owner is not None and not self._fenced:
            self._owner.withdraw()


def end_line(owner: Ownership) -> tuple[Ownership, list[str]]:
    """Take over from a run with one that starts from nothing, as the next run will; return it, and the names in the store."""
    last = Ownership.claim(owner.store)
    try:
        owner.check(besides=last.run)
    except BaseException:
        last.withdraw()
        raise
    last.write(last.run + FENCE, [Fence(last.run, None).encode()])
    return last, last.check()
