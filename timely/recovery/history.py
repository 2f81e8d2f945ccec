"""The checkpoints in a store, in the order in which a run may resume from them.

A run's *lineage*: its own checkpoints, newest first, then the one that its fence names, then the older ones of that run, and so
on. What a run committed after another had taken over is in no lineage. The invariants: a run resumes from the newest good
checkpoint of the newest lineage; garbage collection never deletes what a retained checkpoint refers to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from timely.errors import ChangedDataflowError, CheckpointError, error_text, file_error_text
from timely.recovery.manifest import CLAIM, FENCE, MANIFEST, Fence, FileInfo, Manifest, records, run_of
from timely.recovery.state_file import MALFORMED, StateFile
from timely.recovery.store import Store, is_lost

D = TypeVar("D", Manifest, Fence)

_log = logging.getLogger("timely.recovery")


class History:
    """The recovery files of a store, as listed when this was made; ``damaged`` describes those that turned out unusable.

    Manifests that are only ``described`` are read without pickle.
    """

    def __init__(self, store: Store, names: Iterable[str] | None = None, *, described: bool = False) -> None:
        self._store = store
        self._manifest = partial(Manifest.decode, described=described)
        self.names = [name for name in (store.names() if names is None else names) if run_of(name) is not None]
        self.damaged: list[str] = []

    def newest(self) -> str | None:
        """Return the newest run with a record. Claims do not count: they may be withdrawn."""
        return max((run for name in records(self.names) if (run := run_of(name))), default=None)

    def lineage(self) -> Iterator[Manifest]:
        """Yield the checkpoints with good manifests, best first. ``ChangedDataflowError`` for one of another format."""
        run, bound = self.newest(), None
        while run is not None:
            oldest: Manifest | None = None
            for name in self._checkpoints(run, bound):
                manifest = self._decode(f"checkpoint {name}", name + MANIFEST, self._manifest)
                if manifest is not None:
                    yield manifest
                    oldest = manifest
            bound = self._start(run, oldest)
            run = None if bound is None else bound.rpartition("-")[0]

    def _start(self, run: str, oldest: Manifest | None) -> str | None:
        """Return the checkpoint that a run resumed from: by its fence, else by its oldest good checkpoint."""
        fence = self.fence(run)
        if fence is not None:
            return fence.start
        if oldest is None:  # it may have resumed from any older checkpoint
            older = [name.removesuffix(MANIFEST) for name in self.names if name < run and name.endswith(MANIFEST)]
            return max(older, default=None)
        return oldest.parent if oldest.parent is not None and not oldest.parent.startswith(run) else None

    def _checkpoints(self, run: str, bound: str | None) -> list[str]:
        """Return the checkpoints of a run up to ``bound``, newest first."""
        names = [name.removesuffix(MANIFEST) for name in self.names if name.startswith(run) and name.endswith(MANIFEST)]
        return sorted((name for name in names if bound is None or name <= bound), reverse=True)

    def fence(self, run: str) -> Fence | None:
        """Return a run's fence; ``None`` where there is none, or it is damaged."""
        if run + FENCE not in self.names:
            return None
        return self._decode(f"fence {run}", run + FENCE, Fence.decode)

    def _decode(self, what: str, name: str, decode: Callable[[bytes], D]) -> D | None:
        """Return what a file holds, or ``None`` where it is damaged or holds another file's content.

        ``CheckpointError`` where it cannot be read now, since it may be good.
        """
        try:
            with self._store.open(name) as file:
                decoded = decode(file.read())
        except ChangedDataflowError as error:
            raise ChangedDataflowError(f"{name} at {self._store}: {error}") from error
        except (*MALFORMED, OSError, CheckpointError) as error:
            if isinstance(error, OSError) and not is_lost(error):
                raise CheckpointError(f"{name} at {self._store} cannot be read: {file_error_text(error)}") from error
            self.report_damage(f"{what}: {error if isinstance(error, OSError | CheckpointError) else error_text(error)}")
            return None
        if decoded.file != name:
            self.report_damage(f"{what}: the content of {name} was written as {decoded.file}")
            return None
        return decoded

    def report_damage(self, why: str) -> None:
        """Note and log that a file is not usable."""
        self.damaged.append(why)
        _log.warning("not used: %s", why)


class StateFiles:
    """The state files of a checkpoint, whose indexes are read once, until ``clear``."""

    def __init__(self, store: Store, manifest: Manifest) -> None:
        self._store = store
        self._infos = manifest.files
        self._opened: dict[str, StateFile] = {}

    def __getitem__(self, name: str) -> StateFile:
        if name not in self._opened:
            info = self._infos[name]
            self._opened[name] = StateFile(name, self._store.open, info.size, info.digest)
        return self._opened[name]

    def clear(self) -> None:
        """Release the indexes."""
        self._opened.clear()


def retained(line: Sequence[Manifest], keep: int, *, spare: bool = False) -> list[Manifest]:
    """Return the checkpoints of a lineage that stay: the ``keep`` newest.

    With ``spare`` at least one of them shares no file with the newest, if there is one.
    """
    newest = list(line[:keep])
    apart = (manifest for manifest in line if manifest.files.keys().isdisjoint(line[0].files))
    if spare and (manifest := next(apart, None)) is not None and manifest not in newest:
        newest.append(manifest)
    return newest


def collect_garbage(store: Store, names: Iterable[str], retained: Sequence[Manifest], run: str) -> None:
    """Delete what no retained checkpoint needs, as far as possible. The names are those that ``Ownership.check`` returned."""
    try:
        for name in garbage(names, retained, run):
            store.delete(name)
    except Exception as error:  # of any kind: the checkpoint is good without it
        _log.warning("older checkpoints at %s could not be deleted: %s", store, error)


def garbage(names: Iterable[str], retained: Sequence[Manifest], run: str) -> list[str]:
    """Return the files of ``run`` and older runs that no retained checkpoint needs, in the order in which to delete them.

    Marks of older runs go first, the oldest first: see ``Ownership.check``. A manifest never outlives its state files. The marks
    of ``run`` stay, and the fences of runs that wrote these checkpoints.
    """
    needed = {name for manifest in retained for name in (manifest.name + MANIFEST, manifest.run + FENCE, *manifest.files)}
    needed |= {run + FENCE, run + CLAIM}
    unneeded = [name for name in names if (owner := run_of(name)) is not None and owner <= run and name not in needed]
    return sorted(unneeded, key=lambda name: (not name.endswith((CLAIM, FENCE)), not name.endswith(MANIFEST), name))


def damage_of(files: Mapping[str, FileInfo], store: Store) -> str:
    """Return what is wrong with the files of a checkpoint, or ``""``; ``CheckpointError`` where they cannot be read now."""
    try:
        for name, info in sorted(files.items()):
            StateFile(name, store.open, info.size, info.digest).check()
    except CheckpointError as error:
        if isinstance(error.__cause__, OSError) and not is_lost(error.__cause__):
            raise  # they may be good
        return str(error)
    return ""
