"""``MemoryStateRegistry``: snapshots of operator state in memory, to test the recovery of your own operators.

Bring all workers to a boundary (``settle``), take a snapshot of each, and build the same dataflows on any number of other
workers. State is pickled, so that an operator shares nothing with the one that saved it.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import attrs

from timely.dataflow import Operator, ScopeBuilder
from timely.dataflow.custom_scope import CustomScope
from timely.dataflow.operator_state import Log, Piece, Save, StatefulOperator, StatePart
from timely.dataflow.pickling import dumps
from timely.errors import ChangedDataflowError, StateError
from timely.testing.transport import Network
from timely.worker import Worker
from timely.worker.internals import set_state_registries

Registration: TypeAlias = tuple[int, str, int]
"""One registration: the number of the dataflow, the path of the operator, and the number of the registration there."""

Snapshot: TypeAlias = dict[Registration, list[bytes]]
"""The state of one worker, in pieces pickled one by one."""


@attrs.define(eq=False)
class _Registered:
    """One registration; ``base`` are the pieces before its log began, ``None`` if ``save`` must be called first."""

    save: Save | None
    log: Log | None
    base: list[bytes] | None

    def pieces(self, label: str, *, compact: bool) -> list[bytes]:
        """Return all of the state."""
        save, log = self.save, self.log
        if log is None or self.base is None or (compact and save is not None):
            if save is None:
                raise StateError(f"{label}: there is nothing to ask for its state, neither save nor a log from the beginning")
            found = [_pickled(piece, label) for piece in save()]
            if log is not None:
                log.drain()
        else:
            found = self.base + [_pickled(piece, label) for piece in log.drain()]
        self.base = found
        return found


def _pickled(piece: Piece, label: str) -> bytes:
    try:
        return dumps(piece)
    except Exception as error:
        raise StateError(f"{label}: a piece of its state cannot be pickled: {error}") from error


class MemoryStateRegistry:
    """Holds the state of the dataflows that ``worker`` builds from now on; ``start`` are the snapshots that they resume from.

    Building a dataflow raises ``StateError`` for an operator that has not registered its state, and for state that cannot be
    repartitioned to another number of workers; ``ChangedDataflowError`` for a registration that the run before did not have.

    >>> import timely
    >>> def run(numbers, start=()):
    ...     worker = timely.Worker()
    ...     keeper = MemoryStateRegistry(worker, start)
    ...     with worker.dataflow(int) as scope:
    ...         handle, stream = scope.new_input()
    ...         total = stream.map(lambda x: ("all", x)).state_machine(lambda key, x, sum: ((sum or 0) + x, [(sum or 0) + x]))
    ...         seen = total.capture()
    ...     handle.send_batch(numbers)
    ...     settle([worker])
    ...     return seen.extract(), [keeper.snapshot()]
    >>> seen, snapshots = run([1, 2, 3])
    >>> seen
    [(0, [1, 3, 6])]
    >>> run([4], snapshots)[0]
    [(0, [10])]
    """

    def __init__(self, worker: Worker, start: Sequence[Snapshot] = ()) -> None:
        self._worker = worker
        self._start = list(start)
        self._registered: dict[Registration, tuple[str, _Registered]] = {}
        set_state_registries(worker, lambda number: _DataflowStateRegistry(self, number))

    def take(self, number: int, info: StatefulOperator, part: StatePart) -> None:
        """Register one part of an operator's state, and load it."""
        registration = (number, info.path, part.number)
        label = f"operator {info.name!r} ({info.path})"
        base = self._load(registration, label, part) if self._start else []
        self._registered[registration] = label, _Registered(part.save, part.log, base)

    def _load(self, registration: Registration, label: str, part: StatePart) -> list[bytes] | None:
        """Load the pieces of one registration; return them, unless they were repartitioned."""
        if not all(registration in snapshot for snapshot in self._start):
            number, _, part_number = registration
            raise ChangedDataflowError(f"{label}: declaration {part_number} of dataflow {number} was not there in the run before")
        index, peers = self._worker.index, self._worker.peers
        of_workers = [[pickle.loads(piece) for piece in snapshot.get(registration, ())] for snapshot in self._start]
        routed = [piece for pieces in of_workers for piece in pieces if piece[0] is not None and piece[0] % peers == index]
        if len(self._start) == peers:
            mine = [piece for piece in of_workers[index] if piece[0] is None]
            part.load([item for _, item in mine + routed])
            return [dumps(piece) for piece in mine + routed]
        unrouted = [[item for route, item in pieces if route is None] for pieces in of_workers]
        part.load([item for _, item in routed])
        if part.rescale is not None:
            part.rescale(unrouted)
            return None
        if any(unrouted):
            raise StateError(
                f"{label}: its state belongs to the {len(of_workers)} workers that it was kept on and cannot be dealt to {peers}:"
                f" go on with {len(of_workers)}"
            )
        return [dumps(piece) for piece in routed]

    def snapshot(self, *, compact: bool = False) -> Snapshot:
        """Return all registered state; ``compact`` replaces logs by what ``save`` returns. ``StateError`` if it has no pickle."""
        return {key: registered.pieces(label, compact=compact) for key, (label, registered) in self._registered.items()}


@attrs.frozen
class _DataflowStateRegistry:
    """The keeper of one dataflow."""

    keeper: MemoryStateRegistry
    number: int
    begins: None = None

    def built(self, scope: ScopeBuilder[Any]) -> None:
        missing = undeclared(scope)
        if missing:
            raise StateError(
                f"{', '.join(missing)}: not declared what is kept; call info.register_state(...) or"
                " info.declare_stateless() in the constructor"
            )

    def take(self, info: StatefulOperator, part: StatePart) -> None:
        self.keeper.take(self.number, info, part)


def undeclared(scope: ScopeBuilder[Any]) -> list[str]:
    """Return the paths of the operators and custom scopes of a dataflow that have not registered their state.

    >>> import timely
    >>> with timely.Worker().dataflow(int) as scope:
    ...     stream = scope.to_stream([1]).unary(timely.Pipeline, "mine", lambda capability, info: lambda input, output: None)
    >>> undeclared(scope)
    ['/dataflow0/mine#1']
    """
    return [child.path for child in _operators(scope) if not child.info.state.declared]


def _operators(scope: ScopeBuilder[Any]) -> Iterator[Operator[Any] | CustomScope[Any]]:
    for subgraph in scope.root.scopes:
        for child in subgraph.children:
            if isinstance(child.scope, Operator | CustomScope):
                yield child.scope


def settle(workers: Sequence[Worker], network: Network | None = None) -> None:
    """Step all ``workers`` of a run until none has anything to do and no message is in flight.

    >>> import timely
    >>> worker = timely.Worker()
    >>> with worker.dataflow(int) as scope:
    ...     seen = scope.to_stream(range(3)).capture()
    >>> settle([worker])
    >>> seen.extract()
    [(0, [0, 1, 2])]
    """
    while not all(worker.idle for worker in workers) or (network is not None and (network.waiting() or any(network.inboxes))):
        if network is not None:
            for source, target in network.waiting():
                network.deliver(source, target, len(network.sent[source, target]))
        for worker in workers:
            worker.step()
