"""The registered operator state of one worker: restored while a dataflow is built, saved by each checkpoint.

Two invariants. An operator restores what was saved under its own path in a dataflow with the same graph, or an error says what
differs. No dataflow runs in which an operator has not registered its state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import Any, Final

from timely.dataflow import ScopeBuilder
from timely.dataflow.operator_names import without_functions
from timely.dataflow.operator_state import Piece, StatefulOperator, StatePart
from timely.errors import ChangedDataflowError, RecoveryError, StateError
from timely.recovery.in_flight import MessagesInFlight, check_scopes, messages_key, restore_messages
from timely.recovery.manifest import Layer, Manifest, state_name
from timely.recovery.state_file import Key, StateFile
from timely.recovery.store import Store
from timely.scopes import Subgraph
from timely.worker.graph_check import describe

LAYERS: Final = 16
"""Layers of a logged part after which a checkpoint takes a full snapshot of it."""
FLOOR: Final = 1 << 16
"""Bytes of changes up to which a full snapshot does not pay."""
_NOTHING: Final = object()


class RegisteredState:
    """One state part of an operator, and its changes that no checkpoint holds yet."""

    __slots__ = ("at_rest", "info", "log", "number", "save", "unsaved")

    def __init__(self, info: StatefulOperator, part: StatePart) -> None:
        # No reference to part.load: it may refer to the operator's initial capability, and would hold that.
        self.info = info
        self.number = part.number
        self.save = part.save
        self.log = part.log
        self.at_rest = part.at_rest
        self.unsaved: list[Piece] = []

    def is_full(self, layers: Sequence[Layer], whole: bool) -> bool:
        """Return whether the next checkpoint takes a full snapshot, and not only the changes since ``layers``.

        With ``whole`` it does wherever it can: a log without ``save`` has nothing else.
        """
        if self.log is None:
            return True
        if self.save is None or not (layers or whole):
            return False
        if whole:
            return True
        if len(layers) >= LAYERS or layers[-1].peers != self.info.peers:
            return True
        full = sum(layer.bytes for layer in layers if layer.full)
        return sum(layer.bytes for layer in layers if not layer.full) > max(2 * full, FLOOR)

    def items(self, full: bool) -> Iterator[Piece]:
        """Yield the items for the next checkpoint. ``StateError`` where ``save`` raises."""
        if self.log is not None:
            self.unsaved += self.log.drain()
        if not full or self.save is None:
            yield from self.unsaved
            return
        try:
            yield from self.save()
        except Exception as error:
            raise StateError(f"{self.label} raised {type(error).__name__} while its state was saved: {error}") from error

    def committed(self) -> None:
        """Forget the changes: a checkpoint holds them."""
        self.unsaved = []

    def close(self) -> None:
        """Stop logging: no further checkpoint will be taken."""
        self.unsaved = []
        if self.log is not None:
            self.log.kept = False
            self.log.drain()

    @property
    def holder(self) -> str:
        """The beginning of an error about the content."""
        return f"{self.label} has state"

    @property
    def label(self) -> str:
        """The name of the part in errors."""
        number = f", part {self.number}," if self.number else ""
        return f"operator {self.info.name!r} ({self.info.path}){number} on worker {self.info.worker}"


class WorkerState:
    """The state parts of a worker's recoverable dataflows, and the checkpoint that they resume from, if any."""

    def __init__(self, index: int, peers: int, store: Store, start: Manifest | None) -> None:
        self.index = index
        self.peers = peers
        self.start = start
        self.store = store
        self.parts: dict[Key, RegisteredState] = {}
        self.scopes: list[ScopeBuilder[Any]] = []
        self.messages: dict[Key, MessagesInFlight] = {}
        self._lines: dict[int, list[str]] = {}
        self._opened = 0
        self._files: dict[str, StateFile] = {}

    def open(self, number: int) -> DataflowStateRegistry:
        """Return the registry of the next dataflow."""
        self._opened += 1
        return DataflowStateRegistry(self, self._opened - 1)

    def add(self, number: int, scope: ScopeBuilder[Any], lines: list[str], parts: dict[Key, RegisteredState]) -> None:
        """Add a dataflow that is built."""
        self.scopes.append(scope)
        self.messages[messages_key(number)] = MessagesInFlight(scope)
        self.parts.update(parts)
        self._lines[number] = lines

    @property
    def descriptions(self) -> list[list[str]]:
        """The graphs of the dataflows by number; empty for one whose ``with`` block raised."""
        return [self._lines.get(number, []) for number in range(self._opened)]

    def check_in_flight(self) -> None:
        """Raise ``StateError`` for an operator whose state is not whole while messages are in flight."""
        check_scopes(self.scopes)
        for state in self.parts.values():
            if state.at_rest:
                raise StateError(
                    f"{state.label} has state that is whole only between two times, so that no checkpoint can be taken while"
                    " messages are in flight: give the rows epochs, and take checkpoints between them"
                )

    def close(self) -> None:
        """Release the state and the state files."""
        for state in self.parts.values():
            state.close()
        self.parts.clear()
        self.messages.clear()
        self.scopes.clear()
        self.forget_files()

    def forget_files(self) -> None:
        """Release the indexes of the state files that were read."""
        self._files.clear()

    def check_complete(self) -> None:
        """Raise ``ChangedDataflowError`` if a dataflow of the checkpoint was not built again: its state would be lost."""
        had = {} if self.start is None else {number: lines for number, lines in enumerate(self.start.dataflows) if lines}
        lost = sorted(had.keys() - self._lines.keys())
        if self.start is not None and lost:
            raise ChangedDataflowError(
                f"checkpoint {self.start.name} has {len(had)} dataflows, and only {len(had) - len(lost)} of them were built"
                f" again before the next checkpoint ({had[lost[0]][0]} was not): build them all first, or use another directory"
            )

    def file(self, name: str) -> StateFile:
        """Return a state file of the checkpoint to resume from."""
        assert self.start is not None
        if name not in self._files:
            info = self.start.files[name]
            self._files[name] = StateFile(name, self.store.open, info.size, info.digest)
        return self._files[name]

    def restore(self, key: Key, part: StatePart, state: RegisteredState) -> None:
        """Restore a part from the checkpoint. ``StateError`` where its ``load`` leaves some of it unread."""
        try:
            calls = list(self._calls(key, part, state))
            for function, group in groupby(calls, lambda call: call[0]):
                arguments = [argument for _, argument in group]
                if function is part.load:
                    items = chain.from_iterable(arguments)
                    function(items)
                    if next(items, _NOTHING) is not _NOTHING:
                        raise StateError(
                            f"{state.label} has a load that returned before it had read all of its items, and the rest would be"
                            " lost: read them there, and not later; a function with yield in it reads nothing when it is called"
                        )
                else:
                    for argument in arguments:
                        function(argument)
        except RecoveryError:
            raise
        except Exception as error:
            raise StateError(
                f"{state.label} raised {type(error).__name__} while it restored its state: {error}; if the program was changed so"
                " that it cannot read its older state, start anew in another directory"
            ) from error

    def restore_messages(self, number: int, scope: ScopeBuilder[Any]) -> None:
        """Put the messages of the checkpoint, if it has any, into the queues of a dataflow that is built."""
        key = messages_key(number)
        if self.start is not None and key in self.start.layers:
            restore_messages(scope, self._items(key, self.start.layers[key], self.index))

    def _calls(self, key: Key, part: StatePart, state: RegisteredState) -> Iterator[tuple[Callable[[Any], object], Any]]:
        """Yield what to call with what. Only a log without ``save`` has layers of several worker counts."""
        assert self.start is not None
        for peers, group in groupby(self.start.layers.get(key, []), lambda layer: layer.peers):
            layers = list(group)
            if peers == self.peers:
                yield part.load, self._items(key, layers, self.index)
                continue
            files = [self.file(state_name(layer.checkpoint, worker)) for layer in layers for worker in range(peers)]
            yield part.load, self._items(key, layers, None)
            if part.rescale is not None:
                yield part.rescale, [self._own(key, layers, worker) for worker in range(peers)]
            elif any(file.has_own(key) for file in files):
                raise StateError(
                    f"{state.label} has state that belongs to a worker and not to a key, and was saved on {peers} workers: it"
                    f" cannot go on with {self.peers}. Run {peers} workers, or give info.register_state(...) a"
                    f" rescale function, or routes"
                )

    def _items(self, key: Key, layers: Iterable[Layer], own: int | None) -> Iterator[Any]:
        """Yield this worker's items with a route, and those without a route of the worker ``own``."""
        for layer in layers:
            if own is not None:
                yield from self.file(state_name(layer.checkpoint, own)).own(key)
            for worker in range(layer.peers):
                yield from self.file(state_name(layer.checkpoint, worker)).routed(key, self.index, self.peers)

    def _own(self, key: Key, layers: Iterable[Layer], worker: int) -> Iterator[Any]:
        for layer in layers:
            yield from self.file(state_name(layer.checkpoint, worker)).own(key)


class DataflowStateRegistry:
    """The ``StateRegistry`` of the ``number``-th recoverable dataflow."""

    def __init__(self, state: WorkerState, number: int) -> None:
        self._state = state
        self._number = number
        start = state.start
        self._before = (start.dataflows[number] or None) if start is not None and number < len(start.dataflows) else None
        self._parts: dict[Key, RegisteredState] = {}
        self._built = False
        self._unclaimed = set() if start is None else {key for key in start.layers if key[0] == number}
        self._unclaimed.discard(messages_key(number))

    @property
    def begins(self) -> Any:
        """The time that the dataflow resumes from; ``None`` for a fresh start."""
        start = self._state.start
        return None if start is None or self._before is None else start.time

    def register(self, info: StatefulOperator, part: StatePart) -> None:
        """Register a part, and restore it."""
        path = without_functions(info.path)
        key = (self._number, path, part.number)
        state = RegisteredState(info, part)
        if self._built:
            raise StateError(
                f"{state.label} declares state when its dataflow is built already: call info.register_state in its constructor"
            )
        self._parts[key] = state
        if self._before is None:
            return
        if not any(line.startswith(f"operator {path} ") for line in self._before):
            raise self._changed(f"it has no operator {path}")
        if key not in self._unclaimed:
            raise self._changed(f"its operator {path} had no part {part.number} of state")
        self._unclaimed.discard(key)
        self._state.restore(key, part, state)

    def built(self, scope: ScopeBuilder[Any]) -> None:
        """Compare the graph with the checkpoint's, and check that every operator has declared its state."""
        lines = list(map(without_functions, describe(scope)))
        if self._before is not None and lines != self._before:
            pairs = zip([*self._before, "nothing more"], [*lines, "nothing more"])
            was, now = next((was, now) for was, now in pairs if was != now)
            raise self._changed(f"it has {was}, and now there is {now}")
        for _, path, part in sorted(self._unclaimed):
            raise self._changed(f"its operator {path} had a part {part} of state, which it does not declare now")
        undeclared = list(_undeclared(scope.subgraph))
        if undeclared:
            raise StateError(
                f"dataflow {scope.name!r} is recoverable, and it is not known what state these operators have:"
                f" {', '.join(undeclared)}. Have their constructors call info.register_state(save, load), or"
                f" info.declare_stateless() where"
                " nothing outlives an activation"
            )
        self._state.restore_messages(self._number, scope)
        self._built = True
        self._state.add(self._number, scope, lines, self._parts)
        self._parts = {}

    def _changed(self, difference: str) -> ChangedDataflowError:
        assert self._state.start is not None
        return ChangedDataflowError(
            f"checkpoint {self._state.start.name} is of another dataflow: {difference}. Run the program that wrote it, or use"
            " another directory to start anew"
        )


def _undeclared(subgraph: Subgraph[Any, Any]) -> Iterator[str]:
    """Yield the operators that have not declared their state, nested scopes included."""
    for child in subgraph.children:
        scope: Any = child.scope
        if isinstance(scope, Subgraph):
            yield from _undeclared(scope)
            continue
        state = getattr(getattr(scope, "info", scope), "state", None)
        if state is None or not state.declared:
            yield f"{child.name!r} ({subgraph.path}/{child.name}#{child.index})"
