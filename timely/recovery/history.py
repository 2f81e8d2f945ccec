"""``History``: what lies in a store, in the order in which a run may go on from it.

The past of a run is a *lineage*: its own checkpoints, the newest first, then the one that its fence says it began from, then
the older ones of that run, and so on. What a run committed after another had taken over from it is in no lineage and never
used. The invariants: the newest good checkpoint of the newest run's lineage is gone on from, and damage to it leads to the one
before; what ``keep`` checkpoints refer to is never deleted, and everything else is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from timely.errors import ChangedDataflowError, CheckpointError, file_error_text
from timely.recovery.manifest import CLAIM, FENCE, MANIFEST, Fence, Manifest, generation_of, run_of
from timely.recovery.store import Store, is_lost

D = TypeVar("D", Manifest, Fence)

_log = logging.getLogger("timely.recovery")


class History:
    """What was found in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.names = [name for name in store.names() if run_of(name) is not None]
        self.damaged: list[str] = []

    def milestones(self) -> set[str]:
        """Return the names by which it shows what has happened here: claims, fences and manifests."""
        return {name for name in self.names if name.endswith((CLAIM, FENCE, MANIFEST))}

    def newest(self) -> str | None:
        """Return the newest run that has begun, if there is any: it has a fence, or a checkpoint, which comes after the fence."""
        return max((run for name in self.milestones() if (run := run_of(name))), default=None)

    def _heir(self) -> str | None:
        """Return the newest run that did not only claim to begin, if there is any."""
        return max((run for name in self.milestones() if not name.endswith(CLAIM) and (run := run_of(name))), default=None)

    def generation(self) -> int:
        """Return the greatest generation of anything here; 0 where there is nothing."""
        return max((generation_of(name) for name in self.names), default=0)

    def lineage(self) -> Iterator[Manifest]:
        """Yield the checkpoints that may be gone on from, best first, as far as their manifests are good.

        What is damaged is logged, and noted in ``damaged``. ``ChangedDataflowError`` for one of another format.
        """
        run, bound = self._heir(), None
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
        return self._decoded(f"checkpoint {name}", name + MANIFEST, Manifest.decode, lambda found: found.name + MANIFEST)

    def fence(self, run: str) -> Fence | None:
        """Return what a run began from; ``None`` where its fence, or its claim, does not say, which is noted if there is one."""
        kind = FENCE if run + FENCE in self.names else CLAIM
        if run + kind not in self.names:
            return None
        return self._decoded(f"fence {run}", run + kind, Fence.decode, lambda found: found.run + kind)

    def _decoded(self, what: str, name: str, decode: Callable[[bytes], D], own_name: Callable[[D], str]) -> D | None:
        """Return what a piece says, if it is good: not damaged, and not another piece under this name.

        ``CheckpointError`` where that is not known, since it cannot be read now.
        """
        try:
            with self._store.open(name) as file:
                found = decode(file.read())
        except ChangedDataflowError as error:
            raise ChangedDataflowError(f"{name} at {self._store}: {error}") from error
        except (OSError, CheckpointError) as error:
            if isinstance(error, OSError) and not is_lost(error):
                raise CheckpointError(f"{name} at {self._store} cannot be read: {file_error_text(error)}") from error
            self.blame(f"{what}: {error}")
            return None
        if own_name(found) != name:
            self.blame(f"{what}: what {name} has in it was written as {own_name(found)}")
            return None
        return found

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
