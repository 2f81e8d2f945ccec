"""``History``: what lies in a store, in the order in which a run may go on from it.

The past of a run is a *lineage*: its own checkpoints, the newest first, then the one that its fence says it began from, then
the older ones of that run, and so on. What a run committed after another had taken over from it is in no lineage and never
used. The invariants: the newest good checkpoint of the newest run's lineage is gone on from, and damage to it leads to the one
before; what ``keep`` checkpoints refer to is never deleted, and everything else is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

from timely.errors import CheckpointError
from timely.recovery.manifest import FENCE, MANIFEST, Fence, Manifest, generation_of, run_of
from timely.recovery.store import Store

_log = logging.getLogger("timely.recovery")


class History:
    """What was found in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.names = [name for name in store.names() if run_of(name) is not None]
        self.damaged: list[str] = []

    def milestones(self) -> set[str]:
        """Return the names by which it shows what has happened here: fences and manifests."""
        return {name for name in self.names if name.endswith((FENCE, MANIFEST))}

    def newest(self) -> str | None:
        """Return the newest run that has begun, if there is any: it has a fence, or a checkpoint, which comes after the fence."""
        return max((run for name in self.milestones() if (run := run_of(name))), default=None)

    def generation(self) -> int:
        """Return the greatest generation of anything here; 0 where there is nothing."""
        return max((generation_of(name) for name in self.names), default=0)

    def lineage(self) -> Iterator[Manifest]:
        """Yield the checkpoints that may be gone on from, best first, as far as their manifests are good.

        What is damaged is logged, and noted in ``damaged``. ``ChangedDataflowError`` for one of another format.
        """
        run, bound = self.newest(), None
        while run is not None:
            oldest: Manifest | None = None
            for name in self._of(run, bound):
                found = self._manifest(name)
                if found is not None:
                    yield found
                    oldest = found
            bound = self._start(run, oldest)
            run = None if bound is None else bound.rpartition("-")[0]

    def _start(self, run: str, oldest: Manifest | None) -> str | None:
        """Return which checkpoint a run began from; where its fence does not say, its oldest good one does."""
        fence = self.fence(run)
        if fence is not None:
            return fence.start
        if oldest is None:  # it may have begun from any that was there
            older = [name.removesuffix(MANIFEST) for name in self.names if name < run and name.endswith(MANIFEST)]
            return max(older, default=None)
        return oldest.parent if oldest.parent is not None and not oldest.parent.startswith(run) else None

    def _of(self, run: str, bound: str | None) -> list[str]:
        """The checkpoints of a run, newest first, none after ``bound``."""
        names = [name.removesuffix(MANIFEST) for name in self.names if name.startswith(run) and name.endswith(MANIFEST)]
        return sorted((name for name in names if bound is None or name <= bound), reverse=True)

    def _manifest(self, name: str) -> Manifest | None:
        try:
            with self._store.open(name + MANIFEST) as file:
                return Manifest.decode(file.read())
        except (OSError, CheckpointError) as error:
            self.blame(f"checkpoint {name}: {error}")
            return None

    def fence(self, run: str) -> Fence | None:
        if run + FENCE not in self.names:
            return None
        try:
            with self._store.open(run + FENCE) as file:
                return Fence.decode(file.read())
        except (OSError, CheckpointError) as error:
            self.blame(f"fence {run}: {error}")
            return None

    def blame(self, why: str) -> None:
        """Note, and log, that something is not good."""
        self.damaged.append(why)
        _log.warning("not used: %s", why)


def superfluous(names: Iterable[str], kept: Sequence[Manifest], run: str) -> list[str]:
    """Return which pieces the run may delete: all of its own and of older runs that the ``kept`` checkpoints do not need.

    Of the fences it keeps its own and those of the runs that wrote these checkpoints. Manifests come first, so that none is left
    without its files.
    """
    needed = {name for manifest in kept for name in (manifest.name + MANIFEST, manifest.run + FENCE, *manifest.files)}
    needed.add(run + FENCE)
    found = [name for name in names if (owner := run_of(name)) is not None and owner <= run and name not in needed]
    return sorted(found, key=lambda name: not name.endswith(MANIFEST))
