"""``TableCheckpoints``: what a durable server has at one epoch, in the files and by the protocol of ``timely.recovery``.

A part of the state is written in full, or as what has changed since the checkpoint before. Invariant: of several servers at one
store only the newest takes checkpoints, and those that stay refer to files that are there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from timely.errors import CheckpointError
from timely.recovery.history import damage_of, garbage, retained
from timely.recovery.manifest import MANIFEST, FileInfo, Layer, Manifest, checkpoint_name, state_name
from timely.recovery.ownership import Ownership
from timely.recovery.relations import by_path
from timely.recovery.state_file import Key, StateFile, StateWriter
from timely.recovery.state_registry import FLOOR, LAYERS
from timely.recovery.store import Store
from timely.recovery.takeover import Takeover

VERSION: Final = "timely serve"
"""The version of the manifests, so that no other program takes them for its own."""
_STAY: Final = 2

_log = logging.getLogger("timely.recovery")


class CheckpointPart(NamedTuple):
    """A part of the state: all of it, or what has changed."""

    key: Key
    full: bool
    items: Iterable[Any]


class TableCheckpoints:
    """Takes over a store from any server before; ``last`` is the checkpoint to go on from, ``owner`` the claim on the store.

    ``CheckpointError`` where the store cannot be read, or has no good checkpoint.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._number = 0
        takeover = Takeover(store, VERSION)
        taken: tuple[Ownership, list[str]] | None = None
        try:
            while taken is None:
                left = takeover.read()
                while left and (damage := damage_of(left[0].files, store)):
                    takeover.report_damage(f"checkpoint {left[0].name}: {damage}")
                    left = left[1:]
                taken = takeover.take(left)
        except BaseException:
            takeover.abandon()
            raise
        self.owner, names = taken
        self.good = retained(left, _STAY)
        self._collect(names)

    @property
    def last(self) -> Manifest | None:
        """The newest checkpoint."""
        return self.good[0] if self.good else None

    def items(self, key: Key) -> Iterator[Iterator[Any]]:
        """Yield the layers of a part in the last checkpoint, the oldest first: one in full, then changes."""
        last = self.last
        for layer in [] if last is None else last.layers.get(key, []):
            name = state_name(layer.checkpoint, 0)
            assert last is not None
            info = last.files[name]
            yield StateFile(name, self._store.open, info.size, info.digest).own(key)

    def wants_full(self, key: Key) -> bool:
        """Return whether the next checkpoint has a part in full: there is none yet, or its changes have become many."""
        layers = [] if self.last is None else self.last.layers.get(key, [])
        changes = sum(layer.bytes for layer in layers if not layer.full)
        whole = sum(layer.bytes for layer in layers if layer.full)
        return not layers or len(layers) >= LAYERS or changes > max(2 * whole, FLOOR)

    def write(self, time: int, notes: Any, descriptions: list[str], parts: Iterable[CheckpointPart]) -> Manifest:
        """Take a checkpoint of everything before ``time``. ``OSError`` where that fails, ``FencedError`` for a newer server."""
        name, last = checkpoint_name(self.owner.run, self._number), self.last
        self._number += 1
        self.owner.check()
        before = {} if last is None else last.layers
        full: dict[Key, bool] = {}

        def contents() -> Iterator[tuple[Key, Iterator[tuple[None, Any]]]]:
            for part in parts:
                full[part.key] = part.full
                yield part.key, ((None, item) for item in part.items)

        writer = StateWriter(state_name(name, 0))
        self.owner.write(writer.name, writer.chunks(contents()))
        layers: dict[Key, list[Layer]] = {}
        for key, whole in full.items():
            new = Layer(name, 1, whole, writer.sizes.get(key, 0))
            layers[key] = [new] if whole else [*before.get(key, []), *([new] if new.bytes else [])]
        needed = {state_name(layer.checkpoint, 0) for stack in layers.values() for layer in stack}
        files = {} if last is None else {file: info for file, info in last.files.items() if file in needed}
        files[writer.name] = FileInfo(writer.size, writer.digest)
        parent = None if last is None else last.name
        manifest = Manifest(name, VERSION, parent, time, [notes], 1, [by_path(tuple(descriptions))], layers, files)
        self.owner.write(name + MANIFEST, [manifest.encode()])
        names = self.owner.check()
        missing = sorted(files.keys() - set(names))
        if missing:
            self._store.delete(name + MANIFEST)
            self.good = []  # so that the next one is written in full
            raise CheckpointError(f"{missing[0]} at {self._store} is gone: let nothing else delete files there")
        self.good = retained([manifest, *self.good], _STAY)
        self._collect(names)
        return manifest

    def _collect(self, names: list[str]) -> None:
        try:
            for name in garbage(names, self.good, self.owner.run):
                self._store.delete(name)
        except OSError as error:  # the checkpoint is good without it
            _log.warning("older checkpoints at %s could not be deleted: %s", self._store, error)
