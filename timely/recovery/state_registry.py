"""The registered operator state of one worker: restored while a dataflow is built, saved by each checkpoint.

Two invariants. An operator restores what was saved under its own path in a dataflow with the same graph, or an error says what
differs. No dataflow runs in which an operator has not registered its state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, count, groupby
from typing import Any, Final

import attrs

from timely.dataflow import ScopeBuilder, warn
from timely.dataflow.identity import name_within, without_functions
from timely.dataflow.info import CheckpointFollower, OperatorInfo, Piece, RelationStart, StatePart
from timely.errors import ChangedDataflowError, RecoveryError, StateError, brief
from timely.recovery.changed_programs import Change, check_migration
from timely.recovery.history import StateFiles
from timely.recovery.in_flight import MessagesInFlight, check_scopes, children, messages_key, restore_messages
from timely.recovery.manifest import Layer, Manifest, state_name
from timely.recovery.relations import UNNAMED, Comparison, Relations, called, compare, name_of, reading, relations_of
from timely.recovery.state_file import Key, StateFile

LAYERS: Final = 16
"""Layers of a logged part after which a checkpoint takes a full snapshot of it."""
FLOOR: Final = 1 << 16
"""Bytes of changes up to which a full snapshot does not pay."""
REBUILT: Final = ("table", "view", "output")
"""Kinds of relations that are made anew where their definition has changed."""
_NO_CHANGE: Final = Change()
_NOTHING: Final = object()


def outgrown(layers: Sequence[Layer]) -> bool:
    """Return whether a full snapshot of a part pays, or has to be, where a checkpoint has it in these layers."""
    changes = sum(layer.bytes for layer in layers if not layer.full)
    return not layers or len(layers) >= LAYERS or changes > max(2 * sum(layer.bytes for layer in layers if layer.full), FLOOR)


class RegisteredState:
    """One state part of an operator, and its changes that no checkpoint holds yet."""

    __slots__ = ("at_rest", "follower", "info", "log", "number", "save", "unsaved")

    def __init__(self, info: OperatorInfo, part: StatePart) -> None:
        # No reference to part.load: it may refer to the operator's initial capability, and would hold that.
        self.info = info
        self.number = part.number
        self.save = part.save
        self.log = part.log
        self.at_rest = part.at_rest
        self.follower = part.follower
        self.unsaved: list[Piece] = []

    def is_full(self, layers: Sequence[Layer], whole: bool) -> bool:
        """Return whether the next checkpoint takes a full snapshot, and not only the changes since ``layers``.

        With ``whole`` it does wherever it can: a log without ``save`` has nothing else.
        """
        if self.log is None:
            return True
        if self.save is None or not (layers or whole):
            return False
        return whole or outgrown(layers) or layers[-1].peers != self.info.peers

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

    def __init__(
        self, index: int, peers: int, start: Manifest | None = None, files: StateFiles | None = None, change: Change = _NO_CHANGE
    ) -> None:
        self.index = index
        self.peers = peers
        self.start = start
        self._files = files
        self.change = change
        self.comparisons: dict[int, Comparison] = {}
        self.layers: dict[Key, list[Layer]] = {}
        """What the checkpoint before has of each part, by the key that the part has now."""
        self.parts: dict[Key, RegisteredState] = {}
        self.endings: list[Callable[[], object]] = []  # also of dataflows that could not be built
        self.scopes: list[ScopeBuilder[Any]] = []
        self.messages: dict[Key, MessagesInFlight] = {}
        self._relations: dict[int, Relations] = {}
        self._expected = [] if start is None else [name_of(relations) for relations in start.dataflows]
        self._opened = set[int]()

    def open(self, _: int, name: str) -> DataflowStateRegistry:
        """Return the registry of a dataflow, whose number is that of the one with its name in the checkpoint.

        ``ChangedDataflowError`` where there is none, and some of the checkpoint are not built yet.
        """
        left = [number for number in range(len(self._expected)) if number not in self._opened]
        names = {without_functions(name), ""}  # the number of one whose block raised is anybody's
        number = next((number for number in left if self._expected[number] in names), None)
        if number is None and left and self.start is not None:
            names_left = brief([self._expected[each] for each in left])
            raise ChangedDataflowError(
                f"checkpoint {self.start.name} is of another dataflow: it has {names_left}, and now there is"
                f" {name!r}. Give it the name that it had, and build new dataflows behind those of the checkpoint"
            )
        if number is None:
            number = next(new for new in count(len(self._expected)) if new not in self._opened)
        self._opened.add(number)
        return DataflowStateRegistry(self, number)

    def add(self, number: int, scope: ScopeBuilder[Any], relations: Relations, parts: dict[Key, RegisteredState]) -> None:
        """Add a dataflow that is built."""
        self.scopes.append(scope)
        self.messages[messages_key(number)] = MessagesInFlight(scope)
        self.parts.update(parts)
        self._relations[number] = relations

    def in_order(self) -> list[tuple[Key, RegisteredState]]:
        """Return the parts in the order in which they are saved: of operators downstream first.

        Where one of them makes results only to save them, that may still change what it shares upstream.
        """
        place = {key[:2]: number for number, key in enumerate(self.parts)}
        return sorted(self.parts.items(), key=lambda part: (-place[part[0][:2]], part[0][2]))

    @property
    def descriptions(self) -> list[Relations]:
        """The relations of the dataflows by number; empty for one whose ``with`` block raised."""
        return [self._relations.get(number, {}) for number in range(max(self._opened, default=-1) + 1)]

    @property
    def followers(self) -> list[CheckpointFollower]:
        """What is called around each checkpoint, in the order in which it was built."""
        return [state.follower for state in self.parts.values() if state.follower is not None]

    def stop(self, otherwise: int) -> int:
        """Stop the followers, whose times are whole numbers; return the first at which they allow a checkpoint."""
        times = [follower.stop() for follower in self.followers]
        return max((time for time in times if time is not None), default=otherwise)

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
        """Release the state and the state files, and close sources and sinks."""
        for end in self.endings:
            end()
        for state in self.parts.values():
            state.close()
        self.parts.clear()
        self.messages.clear()
        self.scopes.clear()
        self.forget_files()

    def forget_files(self) -> None:
        """Release the indexes of the state files that were read."""
        if self._files is not None:
            self._files.clear()

    def check_complete(self) -> None:
        """Raise ``ChangedDataflowError`` if a dataflow of the checkpoint was not built again: its state would be lost."""
        had = (
            {}
            if self.start is None
            else {number: relations for number, relations in enumerate(self.start.dataflows) if relations}
        )
        lost = sorted(had.keys() - self._relations.keys())
        if self.start is not None and lost:
            first = had[lost[0]][""].lines[0]
            raise ChangedDataflowError(
                f"checkpoint {self.start.name} has {len(had)} dataflows, and only {len(had) - len(lost)} of them were built"
                f" again before the next checkpoint ({first} was not): build them all first, or use another directory"
            )

    def file(self, name: str) -> StateFile:
        """Return a state file of the checkpoint to resume from."""
        assert self._files is not None
        return self._files[name]

    def restore(self, key: Key, part: StatePart, state: RegisteredState) -> None:
        """Restore a part from ``key`` of the checkpoint. ``StateError`` where its ``load`` leaves some of it unread."""
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

    def claim(self, stored: Key, key: Key) -> None:
        """Note that what the checkpoint has as ``stored`` is restored, as part ``key``: the next checkpoint may build on it."""
        assert self.start is not None
        layers = self.start.layers.get(stored, [])
        self.layers[key] = layers if key == stored else [attrs.evolve(layer, key=layer.key or stored) for layer in layers]

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
            files = [
                (self.file(state_name(layer.checkpoint, worker)), layer.key or key) for layer in layers for worker in range(peers)
            ]
            yield part.load, self._items(key, layers, None)
            if part.rescale is not None:
                yield part.rescale, [self._own(key, layers, worker) for worker in range(peers)]
            elif any(file.has_own(stored) for file, stored in files):
                raise StateError(
                    f"{state.label} has state that belongs to a worker and not to a key, and was saved on {peers} workers: it"
                    f" cannot go on with {self.peers}. Run {peers} workers, or give info.register_state(...) a"
                    f" rescale function, or routes"
                )

    def _items(self, key: Key, layers: Iterable[Layer], own: int | None) -> Iterator[Any]:
        """Yield this worker's items with a route, and those without a route of the worker ``own``."""
        for layer in layers:
            if own is not None:
                yield from self.file(state_name(layer.checkpoint, own)).own(layer.key or key)
            for worker in range(layer.peers):
                file = self.file(state_name(layer.checkpoint, worker))
                yield from file.routed(layer.key or key, self.index, self.peers)

    def _own(self, key: Key, layers: Iterable[Layer], worker: int) -> Iterator[Any]:
        for layer in layers:
            yield from self.file(state_name(layer.checkpoint, worker)).own(layer.key or key)


class DataflowStateRegistry:
    """The ``StateRegistry`` of the ``number``-th recoverable dataflow."""

    def __init__(self, state: WorkerState, number: int) -> None:
        self._state = state
        self._number = number
        start = state.start
        self._before = (start.dataflows[number] or None) if start is not None and number < len(start.dataflows) else None
        self._change = state.change.within(self._before or {})
        self._parts: dict[Key, RegisteredState] = {}
        self._built = False
        self._missing: list[Key] = []
        self._fresh: set[str] = set()
        self._tables: set[str] = set()  # of those, the tables that the checkpoint has too: what came before it came before
        self._unclaimed = set() if start is None else {key for key in start.layers if key[0] == number}
        self._unclaimed.discard(messages_key(number))

    def begins(self, relation: str) -> Any:
        """The time that a relation resumes from; ``None`` where it begins anew."""
        start = self._state.start
        if start is None or self._before is None or (relation in self._fresh and relation not in self._tables):
            return None
        return start.time

    def open(self, name: str, kind: str, definition: str, reads: tuple[str, ...]) -> RelationStart:
        """Note a named relation; return how it begins."""
        start, change, before = self._state.start, self._change, self._before
        if before is None or start is None:
            return RelationStart(False, change.migrate)
        relation = before.get(change.former(name))
        if relation is None:
            self._fresh.add(name)
            return RelationStart(False, change.migrate, start.time)
        relation = reading(relation, change.renamed)
        is_same = (relation.kind, relation.definition, relation.reads) == (kind, definition, reads)
        dropped = name in change.dropped and (kind == "view" or (kind == "table" and not is_same))
        if dropped or (change.migrate and not is_same and kind == relation.kind and kind in REBUILT):
            self._fresh.add(name)
            if kind == "table":
                self._tables.add(name)
        return RelationStart(name not in self._fresh, change.migrate, start.time, relation.definition, dropped)

    def load_before(self, info: OperatorInfo, operator: str, part: StatePart) -> None:
        """Load what the checkpoint has of an operator of a relation that begins anew."""
        former = self._change.former(info.relation)
        before = f"{former}/{name_within(former, operator)}#"
        keys = [key for key in self._unclaimed if key[1].startswith(before) and key[2] == part.number]
        if len(keys) != 1:
            raise self._changed(f"it has no rows of {info.relation!r}, whose definition has changed")
        self._state.restore(keys[0], part, RegisteredState(info, part))

    def register(self, info: OperatorInfo, part: StatePart) -> None:
        """Register a part, and restore it."""
        identity = without_functions(info.identity)
        key = stored = (self._number, identity, part.number)
        state = RegisteredState(info, part)
        if part.follower is not None:
            self._state.endings.append(part.follower.close)
        if self._built:
            raise StateError(
                f"{state.label} declares state when its dataflow is built already: call info.register_state in its constructor"
            )
        self._parts[key] = state
        if self._before is None or info.relation in self._fresh:
            return
        if info.relation or self._change.migrate:
            former = self._change.former(info.relation)
            stored = (self._number, former + identity.removeprefix(info.relation), part.number)
            if stored not in self._unclaimed:
                self._missing.append(stored)  # most likely its relation has changed, and `built` says how
                return
        else:
            if not any(line.startswith(f"operator {identity} ") for line in self._before[""].lines):
                raise self._changed(f"it has no operator {identity}")
            if stored not in self._unclaimed:
                raise self._changed(f"its operator {identity} had no part {part.number} of state")
        self._unclaimed.discard(stored)
        self._state.restore(stored, part, state)
        self._state.claim(stored, key)

    def built(self, scope: ScopeBuilder[Any]) -> None:
        """Compare the graph with the checkpoint's, and check that every operator has declared its state."""
        relations = relations_of(scope)
        if self._before is not None:
            self._check_changes(scope, relations)
        for _, name, part in self._missing:
            raise self._changed(f"its operator {name} had no part {part} of state")
        for _, name, part in sorted(self._unclaimed):
            raise self._changed(f"its operator {name} had a part {part} of state, which it does not declare now")
        undeclared = [f"{part.info.name!r} ({part.path})" for part in children(scope.subgraph) if not part.info.state.declared]
        if undeclared:
            raise StateError(
                f"dataflow {scope.name!r} is recoverable, and it is not known what state these operators have:"
                f" {', '.join(undeclared)}. Have their constructors call info.register_state(save, load), or"
                f" info.declare_stateless() where"
                " nothing outlives an activation"
            )
        self._state.restore_messages(self._number, scope)
        self._built = True
        self._state.add(self._number, scope, relations, self._parts)
        self._parts = {}

    def _check_changes(self, scope: ScopeBuilder[Any], relations: Relations) -> None:
        assert self._before is not None
        change, start = self._change, self._state.start
        comparison = self._state.comparisons[self._number] = compare(self._before, relations, change.renamed)
        idle = change.dropped & {*comparison.same} - self._fresh
        if idle and self._state.index == 0:
            warn(f"dropped={set(idle)}: nothing of it has changed; leave it out, or its rows go when its columns change next")
        if comparison.is_same and not self._fresh:
            return
        if change.migrate and start is not None and not start.in_flight:
            check_migration(scope, self._before, comparison, self._fresh, change, self._changed)
            self._unclaimed -= {key for key in self._unclaimed if self._goes(key[1], comparison)}
            return
        if comparison == Comparison((), (), (), comparison.changed):  # nothing has a name
            raise self._changed(comparison.changed[UNNAMED])
        raise self._changed(f"{comparison}")

    def _goes(self, identity: str, comparison: Comparison) -> bool:
        """Return whether what the checkpoint has of an operator belongs to a relation that is gone, or begins anew."""
        assert self._before is not None
        former = max((name for name in self._before if identity.startswith(f"{name}/")), key=len, default="")
        name = called(former, self._change.renamed)
        return name != "" and (name in comparison.gone or name in self._fresh)

    def _changed(self, difference: str) -> ChangedDataflowError:
        assert self._state.start is not None
        return ChangedDataflowError(
            f"checkpoint {self._state.start.name} is of another dataflow: {difference}. Run the program that wrote it, or use"
            " another directory to start anew"
        )
