"""``MemoryStateRegistry``: snapshots of operator state in memory, for workers that are stepped by hand.

White box: what registers the state of a dataflow has no public name.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, TypeAlias

import attrs

from timely.dataflow import Operator, OperatorInfo, ScopeBuilder
from timely.dataflow.containers.pickling import dumps
from timely.dataflow.custom_scope import CustomScope
from timely.dataflow.info import RelationStart, StatePart
from timely.errors import StateError
from timely.recovery.in_flight import MessagesInFlight, messages_key, restore_messages
from timely.testing import Network
from timely.worker import Worker
from timely.worker.internals import set_state_registries

Registration: TypeAlias = tuple[int, str, int]
"""The number of a dataflow, the path of an operator, and the number of the registration there."""

Snapshot: TypeAlias = dict[Registration, list[bytes]]
"""The state of one worker, in pieces pickled one by one."""


@attrs.define(eq=False)
class _Registered:
    """One registration; ``base`` are the pieces before its log began, ``None`` if ``save`` must be called first."""

    label: str
    part: StatePart
    base: list[bytes] | None

    def pieces(self, *, compact: bool) -> list[bytes]:
        save, log = self.part.save, self.part.log
        if log is not None and self.base is not None and not (compact and save is not None):
            self.base = self.base + list(map(dumps, log.drain()))
            return self.base
        assert save is not None
        self.base = list(map(dumps, save()))
        if log is not None:
            log.drain()
        return self.base


class MemoryStateRegistry:
    """Holds the state of the dataflows that ``worker`` builds from now on; ``start`` are the snapshots that they resume from.

    Building a dataflow raises ``StateError`` for an operator that has not registered its state, and for state that cannot be
    repartitioned to another number of workers.
    """

    def __init__(self, worker: Worker, start: Sequence[Snapshot] = ()) -> None:
        self._worker = worker
        self._start = list(start)
        self._registered: dict[Registration, _Registered] = {}
        self._messages: dict[Registration, MessagesInFlight] = {}
        set_state_registries(worker, lambda number, name: _DataflowStateRegistry(self, number))

    def take(self, number: int, info: OperatorInfo, part: StatePart) -> None:
        """Register one part of an operator's state, and load it."""
        registered = _Registered(f"operator {info.name!r} ({info.path})", part, [])
        registration = (number, info.path, part.number)
        if self._start:
            self._load(registration, registered)
        self._registered[registration] = registered

    def _load(self, registration: Registration, registered: _Registered) -> None:
        label, part = registered.label, registered.part
        index, peers = self._worker.index, self._worker.peers
        by_worker = [[pickle.loads(piece) for piece in snapshot[registration]] for snapshot in self._start]
        mine = [piece for pieces in by_worker for piece in pieces if piece[0] is not None and piece[0] % peers == index]
        if len(self._start) == peers:
            mine = [piece for piece in by_worker[index] if piece[0] is None] + mine
        registered.base = [dumps(piece) for piece in mine]
        part.load([item for _, item in mine])
        if len(self._start) == peers:
            return
        unrouted = [[item for route, item in pieces if route is None] for pieces in by_worker]
        if part.rescale is not None:
            part.rescale(unrouted)
            registered.base = None
        elif any(unrouted):
            saved = len(by_worker)
            cannot = f"its state belongs to the {saved} workers that saved it and cannot be repartitioned to {peers}"
            raise StateError(f"{label}: {cannot}: resume with {saved}")

    def built(self, number: int, scope: ScopeBuilder[Any]) -> None:
        """Restore the messages that were in flight in a dataflow."""
        key = messages_key(number)
        self._messages[key] = MessagesInFlight(scope)
        if any(key in snapshot for snapshot in self._start):
            assert len(self._start) == self._worker.peers
            restore_messages(scope, [pickle.loads(piece)[1] for piece in self._start[self._worker.index][key]])

    def snapshot(self, *, compact: bool = False, in_flight: bool = False) -> Snapshot:
        """Return all registered state; ``compact`` replaces logs by what ``save`` returns.

        With ``in_flight`` the messages that wait at operators are in it. All workers are paused then (``pause``).
        """
        saved = {key: registered.pieces(compact=compact) for key, registered in self._registered.items()}
        if in_flight:
            saved |= {key: [dumps(piece) for piece in messages.items(True)] for key, messages in self._messages.items()}
        return saved


@attrs.frozen
class _DataflowStateRegistry:
    registry: MemoryStateRegistry
    number: int

    def begins(self, relation: str) -> None:
        return None

    def open(self, name: str, kind: str, definition: str, reads: tuple[str, ...]) -> RelationStart:
        return RelationStart()

    def load_before(self, info: OperatorInfo, operator: str, part: StatePart) -> None:
        raise NotImplementedError

    def built(self, scope: ScopeBuilder[Any]) -> None:
        missing = undeclared(scope)
        if missing:
            raise StateError(
                f"{', '.join(missing)}: no operator state is registered; call info.register_state(...) or"
                " info.declare_stateless() in the constructor"
            )
        self.registry.built(self.number, scope)

    def register(self, info: OperatorInfo, part: StatePart) -> None:
        self.registry.take(self.number, info, part)


def undeclared(scope: ScopeBuilder[Any]) -> list[str]:
    """Return the paths of the operators and custom scopes of a dataflow that have not registered their state."""
    scopes = [child.scope for subgraph in scope.root.scopes for child in subgraph.children]
    operators = [node for node in scopes if isinstance(node, Operator | CustomScope)]
    return [operator.path for operator in operators if not operator.info.state.declared]


def settle(workers: Sequence[Worker], network: Network | None = None) -> None:
    """Step all ``workers`` of a run until none has anything to do and no message is in flight."""
    while not all(worker.idle for worker in workers) or (network is not None and not network.quiet):
        if network is not None:
            network.deliver_all()
        for worker in workers:
            worker.step()


def pause(workers: Sequence[Worker], network: Network | None = None) -> None:
    """Step all ``workers`` of a run once, pause them, and let all that they sent each other arrive."""
    for worker in workers:
        worker.step()  # what was sent between two steps leaves with this one
        worker.paused = True
    while network is not None and not network.quiet:
        network.deliver_all()
        for worker in workers:
            worker.step()
