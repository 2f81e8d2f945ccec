"""``Ledger``: what one worker knows of the state of the dataflows that are kept, and the ``StateRegistry`` of each of them.

Operators declare their parts while a dataflow is built; where the run goes on from a checkpoint, they have their items back
before the declaration returns. The invariants: an operator gets what was saved under its own path, in a dataflow with the same
graph, or else there is an error that says what differs; and no dataflow runs in which an operator has not said what its state
is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import Any, Final

from timely.dataflow import ScopeBuilder
from timely.dataflow.operator_state import Piece, StatefulOperator, StatePart
from timely.errors import ChangedDataflowError, RecoveryError, StateError
from timely.recovery.manifest import Layer, Manifest, state_name
from timely.recovery.state_file import Key, StateFile
from timely.recovery.store import Store
from timely.scopes import Subgraph
from timely.worker.graph_check import describe

LAYERS: Final = 16
"""The most changes of a logged part that a checkpoint refers to, before all of it is saved anew."""
FLOOR: Final = 1 << 16
"""Bytes of changes that are not worth saving all of a part anew."""
_NOTHING: Final = object()


class RegisteredState:
    """One part of an operator's state, and the changes of it that no checkpoint holds yet.

    Of its ``load`` nothing is kept: that may refer to the operator's initial capability, which would be held as long.
    """

    __slots__ = ("info", "log", "number", "save", "unsaved")

    def __init__(self, info: StatefulOperator, part: StatePart) -> None:
        self.info = info
        self.number = part.number
        self.save = part.save
        self.log = part.log
        self.unsaved: list[Piece] = []

    def is_full(self, layers: Sequence[Layer]) -> bool:
        """Return whether the next checkpoint is to hold all of it; what was added since may be enough."""
        if self.log is None:
            return True
        if self.save is None or not layers:
            return False
        if len(layers) >= LAYERS or layers[-1].peers != self.info.peers:
            return True
        full = sum(layer.bytes for layer in layers if layer.full)
        return sum(layer.bytes for layer in layers if not layer.full) > max(2 * full, FLOOR)

    def pieces(self, full: bool) -> Iterator[Piece]:
        """Yield what the next checkpoint is to hold. ``StateError`` where that cannot be had."""
        if self.log is not None:
            self.unsaved += self.log.drain()
        if not full or self.save is None:
            yield from self.unsaved
            return
        try:
            yield from self.save()
        except Exception as error:
            raise StateError(f"{self.label} raised {type(error).__name__} while its state was saved: {error}") from error

    def saved(self) -> None:
        """Take note that a checkpoint holds all of it."""
        self.unsaved = []

    def end(self) -> None:
        """Write down no more changes: no checkpoint will take them."""
        self.unsaved = []
        if self.log is not None:
            self.log.kept = False
            self.log.drain()

    @property
    def label(self) -> str:
        """How errors call it."""
        number = f", part {self.number}," if self.number else ""
        return f"operator {self.info.name!r} ({self.info.path}){number} on worker {self.info.worker}"


class Ledger:
    """The parts of all kept dataflows of a worker, and the checkpoint that they begin from, if any."""

    def __init__(self, index: int, peers: int, store: Store, start: Manifest | None) -> None:
        self.index = index
        self.peers = peers
        self.start = start
        self.store = store
        self.parts: dict[Key, RegisteredState] = {}
        self.scopes: list[ScopeBuilder[Any]] = []
        self._lines: dict[int, list[str]] = {}
        self._opened = 0
        self._files: dict[str, StateFile] = {}

    def open(self, number: int) -> DataflowStateRegistry:
        """Return the keeper of the next dataflow that is built."""
        self._opened += 1
        return DataflowStateRegistry(self, self._opened - 1)

    def add(self, number: int, scope: ScopeBuilder[Any], lines: list[str], parts: dict[Key, RegisteredState]) -> None:
        """Take in a dataflow that is built."""
        self.scopes.append(scope)
        self.parts.update(parts)
        self._lines[number] = lines

    @property
    def descriptions(self) -> list[list[str]]:
        """The graphs of the dataflows by their numbers, in the order in which they were begun; nothing for one given up."""
        return [self._lines.get(number, []) for number in range(self._opened)]

    def close(self) -> None:
        """Let go of the state, and of where it came from."""
        for kept in self.parts.values():
            kept.end()
        self.parts.clear()
        self.scopes.clear()
        self.forget_files()

    def layers_of(self, key: Key) -> list[Layer]:
        """Return what the checkpoint that the run began from has of a part."""
        return [] if self.start is None else self.start.layers.get(key, [])

    def forget_files(self) -> None:
        """Let go of the indexes of the files that state was taken from."""
        self._files.clear()

    def check_complete(self) -> None:
        """Raise ``ChangedDataflowError`` if the checkpoint has dataflows that were not built again: their state would be lost."""
        had = {} if self.start is None else {number: lines for number, lines in enumerate(self.start.dataflows) if lines}
        lost = sorted(had.keys() - self._lines.keys())
        if self.start is not None and lost:
            raise ChangedDataflowError(
                f"checkpoint {self.start.name} has {len(had)} dataflows, and only {len(had) - len(lost)} of them were built"
                f" again before the next checkpoint ({had[lost[0]][0]} was not): build them all first, or use another directory"
            )

    # -- taking back ---------------------------------------------------------------------------------------------------

    def file(self, name: str) -> StateFile:
        """Return a state file of the checkpoint."""
        assert self.start is not None
        if name not in self._files:
            info = self.start.files[name]
            self._files[name] = StateFile(name, lambda: self.store.open(name), info.size, info.digest)
        return self._files[name]

    def restore(self, key: Key, part: StatePart, kept: RegisteredState) -> None:
        """Have a part take back what the checkpoint has of it. ``StateError`` where its ``load`` leaves some of it unread."""
        try:
            portions = list(self._portions(key, part, kept))
            for take, group in groupby(portions, lambda portion: portion[0]):
                found = [items for _, items in group]
                if take is part.load:
                    everything = chain.from_iterable(found)
                    take(everything)
                    if next(everything, _NOTHING) is not _NOTHING:
                        raise StateError(
                            f"{kept.label} has a load that returned before it had read all of its items, and the rest would be"
                            " lost: read them there, and not later; a function with yield in it reads nothing when it is called"
                        )
                else:
                    for items in found:
                        take(items)
        except RecoveryError:
            raise
        except Exception as error:
            raise StateError(
                f"{kept.label} raised {type(error).__name__} while it took its state back: {error}; if the program was changed so"
                " that it cannot read its older state, start anew in another directory"
            ) from error

    def _portions(self, key: Key, part: StatePart, kept: RegisteredState) -> Iterator[tuple[Callable[[Any], object], Any]]:
        """Yield what is to be called with what. Layers of several numbers of workers are those of a log that is never saved anew:
        what was appended on so many workers comes on top of what had been dealt to them.
        """
        layers = self.layers_of(key)
        for peers, group in groupby(layers, lambda layer: layer.peers):
            found = list(group)
            if peers == self.peers:
                yield part.load, self._items(key, found, self.index)
                continue
            files = [self.file(state_name(layer.checkpoint, worker)) for layer in found for worker in range(peers)]
            yield part.load, self._items(key, found, None)
            if part.rescale is not None:
                yield part.rescale, [self._own(key, found, worker) for worker in range(peers)]
            elif any(file.has_own(key) for file in files):
                raise StateError(
                    f"{kept.label} has state that belongs to a worker and not to a key, and was saved on {peers} workers: it"
                    f" cannot go on with {self.peers}. Run {peers} workers, or give info.register_state(...) a rescale function,"
                    " or routes"
                )

    def _items(self, key: Key, layers: Iterable[Layer], own: int | None) -> Iterator[Any]:
        """Yield the items with a route that belong to this worker, and those without one of the worker ``own``."""
        for layer in layers:
            if own is not None:
                yield from self.file(state_name(layer.checkpoint, own)).own(key)
            for worker in range(layer.peers):
                yield from self.file(state_name(layer.checkpoint, worker)).routed(key, self.index, self.peers)

    def _own(self, key: Key, layers: Iterable[Layer], worker: int) -> Iterator[Any]:
        for layer in layers:
            yield from self.file(state_name(layer.checkpoint, worker)).own(key)


class DataflowStateRegistry:
    """The keeper of one dataflow, the ``number``-th that is kept."""

    def __init__(self, ledger: Ledger, number: int) -> None:
        self._ledger = ledger
        self._number = number
        start = ledger.start
        self._before = (start.dataflows[number] or None) if start is not None and number < len(start.dataflows) else None
        self._parts: dict[Key, RegisteredState] = {}
        self._built = False
        self._left = set() if start is None else {key for key in start.layers if key[0] == number}

    @property
    def begins(self) -> Any:
        """The boundary of the checkpoint that the dataflow goes on from; ``None`` where it begins anew."""
        start = self._ledger.start
        return None if start is None or self._before is None else start.time

    def take(self, info: StatefulOperator, part: StatePart) -> None:
        """Take note of a part; have it take back its items."""
        key = (self._number, info.path, part.number)
        kept = RegisteredState(info, part)
        if self._built:
            raise StateError(
                f"{kept.label} declares state when its dataflow is built already: call info.register_state in its constructor"
            )
        self._parts[key] = kept
        if self._before is None:
            return
        if not any(line.startswith(f"operator {info.path} ") for line in self._before):
            raise self._changed(f"it has no operator {info.path}")
        if key not in self._left:
            raise self._changed(f"its operator {info.path} had no part {part.number} of state")
        self._left.discard(key)
        self._ledger.restore(key, part, kept)

    def built(self, scope: ScopeBuilder[Any]) -> None:
        """Compare the graph with that of the checkpoint, and see to it that every operator has declared its state."""
        lines = list(describe(scope))
        if self._before is not None and lines != self._before:
            pairs = zip([*self._before, "nothing more"], [*lines, "nothing more"])
            was, now = next((was, now) for was, now in pairs if was != now)
            raise self._changed(f"it has {was}, and now there is {now}")
        for _, path, part in sorted(self._left):
            raise self._changed(f"its operator {path} had a part {part} of state, which it does not declare now")
        undeclared = list(_undeclared(scope.subgraph))
        if undeclared:
            raise StateError(
                f"dataflow {scope.name!r} is to be kept, and it is not known what state these operators have:"
                f" {', '.join(undeclared)}. Have their constructors call info.register_state(save, load), or"
                " info.declare_stateless() where nothing outlives an activation"
            )
        self._built = True
        self._ledger.add(self._number, scope, lines, self._parts)
        self._parts = {}

    def _changed(self, difference: str) -> ChangedDataflowError:
        assert self._ledger.start is not None
        return ChangedDataflowError(
            f"checkpoint {self._ledger.start.name} is of another dataflow: {difference}. Run the program that wrote it, or use"
            " another directory to start anew"
        )


def _undeclared(subgraph: Subgraph[Any, Any]) -> Iterator[str]:
    """Yield the operators that have not said what state they have, nested scopes included."""
    for child in subgraph.children:
        scope: Any = child.scope
        if isinstance(scope, Subgraph):
            yield from _undeclared(scope)
            continue
        state = getattr(getattr(scope, "info", scope), "state", None)
        if state is None or not state.declared:
            yield f"{child.name!r} ({subgraph.path}/{child.name}#{child.index})"
