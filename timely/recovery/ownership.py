"""Which of several runs owns a store: the newest that has claimed it.

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

from timely.errors import CheckpointError
from timely.recovery.manifest import CLAIM, FENCE, MANIFEST, generation_of, run_name, run_of
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


def marks(names: Iterable[str]) -> list[str]:
    """Return the names that show that their run has claimed a store.

    >>> marks(["00000001-0123abcd.claim", "00000001-0123abcd-00000000-00000.state", "notes.claim"])
    ['00000001-0123abcd.claim']
    """
    return [name for name in names if name.endswith((CLAIM, FENCE, MANIFEST)) and run_of(name) is not None]


def records(names: Iterable[str]) -> set[str]:
    """Return the names of records: what says where the next run starts from."""
    return {name for name in marks(names) if not name.endswith(CLAIM)}
