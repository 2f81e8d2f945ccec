"""How a run starts on a store that others may use: it reads, claims, reads again, and writes its fence.

Worker 0 does this; the workers verify files in between. The invariant: what the fence names was the newest good checkpoint when
every older run had been stopped. The protocol is in docs/recovery.md, "Runs that overlap".
"""

from __future__ import annotations

from timely.errors import ChangedDataflowError, CheckpointError
from timely.recovery.history import History
from timely.recovery.manifest import FENCE, Fence, Manifest
from timely.recovery.ownership import FencedError, Ownership, chance, records
from timely.recovery.store import Store

_SHORTEST = 0.01
_LONGEST = 0.32
"""Seconds of the first and the longest random back-off of runs that start at once, and stop each other."""


class Takeover:
    """The start of one run: call ``read`` and ``take`` in turn until ``take`` returns who owns the store."""

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
