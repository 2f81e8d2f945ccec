"""``timely checkpoint``: what a run could resume from, what it holds, whether it is whole, and what a program would do with it.

Nothing is changed. All but ``diff``, which runs a program, unpickle nothing: a directory may be anybody's.
"""

from __future__ import annotations

import contextlib
import runpy
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import timely.recovery
from timely import Worker
from timely.errors import CheckpointError, ConfigurationError
from timely.memory import size_text
from timely.recovery import MemoryStore, Recovery, Store, open_store
from timely.recovery.history import History, StateFiles, damage_of
from timely.recovery.manifest import Layer, Manifest, generation_of, state_name
from timely.recovery.state_file import Key
from timely.recovery.store import is_uri

Say = Callable[[str], object]


def _directory(place: str) -> Path | None:
    """Return the data of a server, if that is what is there."""
    return Path(place) if not is_uri(place) and (Path(place) / "state").is_dir() and (Path(place) / "log").is_dir() else None


def _read(place: str) -> tuple[Store, History, list[Manifest]]:
    data = _directory(place)
    store = open_store(place if data is None else data / "state")
    history = History(store, described=True)
    manifests = list(history.lineage())
    if not manifests and not history.damaged:
        raise ConfigurationError(f"there is no checkpoint in {place!r}")
    return store, history, manifests


def list_checkpoints(place: str, name: str | None, say: Say) -> None:
    if name is not None:
        raise ConfigurationError(f"list has no checkpoint {name}: it lists all; timely checkpoint show DIR {name} shows one")
    for each in _read(place)[2]:
        what = ", with messages in flight" if each.in_flight else ""
        say(
            f"{each.name}  at {each.time}, run {generation_of(each.run)}, {_counted(each.peers, 'worker')},"
            f" {_counted(len(each.layers), 'part')} of state, {size_text(sum(info.size for info in each.files.values()))}{what}"
        )


def show_checkpoint(place: str, name: str | None, say: Say) -> None:
    """Say what a checkpoint holds: its dataflows, and the items and bytes of each part of the state."""
    store, _, manifests = _read(place)
    chosen = next((each for each in manifests if name in (None, each.name)), None)
    if chosen is None:
        known = ", ".join(each.name for each in manifests) or "none that is good"
        raise ConfigurationError(f"there is no checkpoint {name} in {place!r}: there are {known}")
    say(f"checkpoint {chosen.name} at {chosen.time}, version {chosen.version!r}, of {_counted(chosen.peers, 'worker')}")
    for number, relations in enumerate(chosen.dataflows):
        say(f"dataflow {number}:")
        for relation, of in relations.items():
            if relation:
                say(f"  {of.kind or 'named'} {relation}: {of.definition}".rstrip(" :"))
            for line in of.lines:
                say(f"  {'  ' if relation else ''}{line}")
    files = StateFiles(store, chosen)
    say(f"{'items':>12} {'size':>10} {'layers':>6}  part")
    for key, layers in chosen.layers.items():
        dataflow, path, part = key
        items, size = _items(files, chosen, key, layers), size_text(sum(layer.bytes for layer in layers))
        say(f"{items:>12} {size:>10} {len(layers):>6}  {path}, part {part} of dataflow {dataflow}")


def _items(files: StateFiles, manifest: Manifest, key: Key, layers: list[Layer]) -> str:
    """Return how many items a part has, all layers together."""
    count = 0
    for layer in layers:
        for worker in range(layer.peers):
            name = state_name(layer.checkpoint, worker)
            if name not in manifest.files:
                raise CheckpointError(f"checkpoint {manifest.name} has no file {name}, which has state of it")
            count += files[name].count(layer.key or key)
    return f"{count:,}"


def verify_checkpoints(place: str, name: str | None, say: Say) -> None:
    """Read all files of all checkpoints, and a server's log; ``CheckpointError`` where something is damaged."""
    store, history, manifests = _read(place)
    damaged = list(history.damaged)
    good: list[Manifest] = []
    for each in manifests:
        damage = damage_of(each.files, store) if name in (None, each.name) else ""
        say(f"{each.name}: {damage or 'good'}")
        if damage:
            damaged.append(f"checkpoint {each.name}: {damage}")
        else:
            good.append(each)
    data = _directory(place)
    if data is not None:
        from timely.server.log import Disk, LogReader

        reader = LogReader(Disk(data / "log"), (data / "id").read_text(encoding="ascii").strip())
        count = reader.count(int(good[0].time) if good and good[0].time.isdecimal() else 1)
        torn = f", and {_counted(reader.torn, 'byte')} of one that was not whole" if reader.torn else ""
        say(f"the log behind them: {_counted(count, 'epoch')}{torn}")
    if damaged:
        raise CheckpointError(f"{place!r} is damaged: {'; '.join(damaged)}")


class _Built(Exception):
    """The dataflows of a program are built, and it would take its first step."""


def compare_program(place: str, name: str | None, say: Say) -> None:
    """Run a program on a copy of the checkpoints until its dataflows are built, and say what it would do with the newest.

    ``ChangedDataflowError`` where it would be refused.
    """
    if name is None:
        raise ConfigurationError("diff needs a program: timely checkpoint diff DIR program.py")
    store, _, _ = _read(place)
    copy = MemoryStore({file: b"".join(_content(store, file)) for file in store.names()})
    made: list[Recovery] = []

    def stop(*arguments: object, **options: object) -> None:
        raise _Built

    class Rehearsal(Recovery):
        def __init__(self, worker: Worker, where: object, **options: Any) -> None:
            super().__init__(worker, copy, **options)
            made.append(self)
            for step in ("step", "step_or_park", "step_while", "rest", "run", "run_step"):
                setattr(worker, step, stop)
            self.checkpoint = stop  # type: ignore[assignment, method-assign]

    replaced = patch.object(timely, "Recovery", Rehearsal), patch.object(timely.recovery, "Recovery", Rehearsal)
    with replaced[0], replaced[1], contextlib.suppress(_Built):
        runpy.run_path(name, run_name="__main__")
    if not made:
        raise ConfigurationError(f"{name} made no timely.Recovery, so that there is nothing to compare")
    for number, comparison in enumerate(made[0].comparisons):
        say(f"dataflow {number}:")
        for kind in ("same", "new", "gone"):
            for relation in getattr(comparison, kind):
                say(f"  {kind:7}  {relation}")
        for relation, difference in comparison.changed.items():
            say(f"  changed  {relation}: {difference}")


def _content(store: Store, name: str) -> Iterator[bytes]:
    with store.open(name) as file:
        yield file.read()


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


ACTIONS: Final[Mapping[str, Callable[[str, str | None, Say], Any]]] = {
    "diff": compare_program,
    "list": list_checkpoints,
    "show": show_checkpoint,
    "verify": verify_checkpoints,
}
