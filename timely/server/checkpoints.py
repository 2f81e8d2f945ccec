"""``ServerCheckpoints``: what a durable server has at one epoch, in the files and by the protocol of ``timely.recovery``.

A part of the state is written in full, or as what has changed since the checkpoint before. Invariant: of several servers at one
store only the newest takes checkpoints, and those that stay refer to files that are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import attrs

from timely.errors import CheckpointError
from timely.recovery.history import StateFiles, collect_garbage, damage_of, retained
from timely.recovery.manifest import MANIFEST, FileInfo, Layer, Manifest, checkpoint_name, state_name
from timely.recovery.ownership import Ownership, Takeover
from timely.recovery.relations import Relations
from timely.recovery.state_file import Key, StateWriter
from timely.recovery.state_registry import WorkerState, outgrown
from timely.recovery.store import Store

VERSION: Final = "timely serve"
"""The version of the manifests, so that no other program takes them for its own."""
_STAY: Final = 2


class CheckpointPart(NamedTuple):
    """A part of the state: all of it, or what has changed."""

    key: Key
    full: bool
    items: Iterable[tuple[None, Any]]


class ServerCheckpoints:
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
        self._files = None if self.last is None else StateFiles(store, self.last)
        collect_garbage(store, names, self.good, self.owner.run)

    @property
    def last(self) -> Manifest | None:
        return self.good[0] if self.good else None

    def items(self, key: Key) -> Iterator[Iterator[Any]]:
        """Yield the layers of a part in the last checkpoint, the oldest first: one in full, then changes."""
        for layer in self.layers.get(key, []):
            assert self._files is not None
            yield self._files[state_name(layer.checkpoint, 0)].own(key)

    def computations(self, epochs: Mapping[str, int]) -> dict[str, WorkerState]:
        """Return what computations go on from, by their names; each is complete up to an epoch of its own."""
        last = self.last
        if last is None:
            return {}
        relations = last.dataflows[0]
        layers: dict[str, dict[Key, list[Layer]]] = {}
        for key, stack in last.layers.items():
            layers.setdefault(key[1].partition("/")[0], {})[key] = stack
        return {
            name: WorkerState(
                0,
                1,
                attrs.evolve(
                    last, time=time, dataflows=[{each: relations[each] for each in ("", name)}], layers=layers.get(name, {})
                ),
                self._files,
            )
            for name, time in epochs.items()
        }

    @property
    def layers(self) -> dict[Key, list[Layer]]:
        """What the last checkpoint has of each part."""
        return {} if self.last is None else self.last.layers

    def wants_full(self, key: Key) -> bool:
        """Return whether the next checkpoint has a part in full: there is none yet, or its changes have become many."""
        return outgrown(self.layers.get(key, []))

    def write(self, time: int, notes: Any, relations: Relations, parts: Iterable[CheckpointPart]) -> Manifest:
        """Take a checkpoint of everything before ``time``. ``OSError`` where that fails, ``FencedError`` for a newer server."""
        name, last = checkpoint_name(self.owner.run, self._number), self.last
        self._number += 1
        self.owner.check()
        before = self.layers
        full: dict[Key, bool] = {}

        def contents() -> Iterator[tuple[Key, Iterator[tuple[None, Any]]]]:
            for part in parts:
                full[part.key] = part.full
                yield part.key, iter(part.items)

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
        manifest = Manifest(name, VERSION, parent, time, [notes], 1, [relations], layers, files)
        self.owner.write(name + MANIFEST, [manifest.encode()])
        names = self.owner.check()
        missing = sorted(files.keys() - set(names))
        if missing:
            self._store.delete(name + MANIFEST)
            self.good = []  # so that the next one is written in full
            raise CheckpointError(f"{missing[0]} at {self._store} is gone: let nothing else delete files there")
        self.good = retained([manifest, *self.good], _STAY)
        collect_garbage(self._store, names, self.good, self.owner.run)
        return manifest
