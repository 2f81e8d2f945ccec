"""``MemoryStateRegistry``: keeps the state of a worker's dataflows in memory, for tests of operators of one's own.

What ``timely.recovery`` does with files and agreement, without either: a test brings its workers to a boundary (``settle``),
takes a snapshot of each, and builds the same dataflows on other workers, as many as it likes, that go on from there. The
invariant: what an operator loads was pickled and unpickled, so that nothing is shared with the one that saved it. A caller sees
to it that nothing is on its way when a snapshot is taken.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import attrs

from timely.dataflow import Operator, OperatorInfo, ScopeBuilder
from timely.dataflow.custom_scope import CustomScope
from timely.dataflow.operator_state import Log, Piece, Save, StatePart
from timely.dataflow.pickling import dumps
from timely.errors import ChangedDataflowError, StateError
from timely.testing.network import Network
from timely.worker import Worker
from timely.worker.internals import set_state_registries

Place: TypeAlias = tuple[int, str, int]
"""One declaration: the number of the dataflow, the path of the operator, and the number of the declaration there."""

Snapshot: TypeAlias = dict[Place, list[bytes]]
"""The pieces of all that was declared on one worker, pickled one by one, in order."""


@attrs.define(eq=False)
class _Taken:
    """A declaration, and the pieces that were there before its log began; ``None`` where ``save`` has to be asked first."""

    save: Save | None
    log: Log | None
    base: list[bytes] | None

    def pieces(self, label: str, *, compact: bool) -> list[bytes]:
        """Return all of the state; ``StateError`` for what cannot be pickled."""
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
    """Keeps the state of the dataflows that ``worker`` builds from now on, which go on from ``start`` where that is given: the
    snapshots of all workers of a run, of as many as there are now, or of another number.

    ``StateError`` while a dataflow is built, for operators that have not declared what they keep, and for state that cannot be
    dealt to another number of workers; from ``snapshot``, for what cannot be pickled. ``ChangedDataflowError`` for a declaration
    that the run before did not have.

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
        self._taken: dict[Place, tuple[str, _Taken]] = {}
        set_state_registries(worker, lambda number: _Kept(self, number))

    def take(self, number: int, info: OperatorInfo, part: StatePart) -> None:
        """Take note of a declaration, and have it load what it is to go on from."""
        place = (number, info.path, part.number)
        label = f"operator {info.name!r} ({info.path})"
        self._taken[place] = label, _Taken(part.save, part.log, self._load(place, label, part) if self._start else [])

    def _load(self, place: Place, label: str, part: StatePart) -> list[bytes] | None:
        """Have one declaration load its pieces; return them, as far as they were not dealt anew."""
        if not all(place in snapshot for snapshot in self._start):
            raise ChangedDataflowError(f"{label}: declaration {place[2]} of dataflow {place[0]} was not there in the run before")
        index, peers = self._worker.index, self._worker.peers
        of_workers = [[pickle.loads(piece) for piece in snapshot.get(place, ())] for snapshot in self._start]
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
        """Return the state of all that was declared. With ``compact`` logs are begun anew, where their operators can ``save``.

        ``StateError`` for an operator that cannot be asked, or whose state cannot be pickled.
        """
        return {place: taken.pieces(label, compact=compact) for place, (label, taken) in self._taken.items()}


@attrs.frozen
class _Kept:
    """The keeper of one dataflow."""

    keeper: MemoryStateRegistry
    number: int
    begins: None = None

    def built(self, scope: ScopeBuilder[Any]) -> None:
        missing = undeclared(scope)
        if missing:
            raise StateError(
                f"{', '.join(missing)}: not declared what is kept; call info.keep(...) or info.keep_nothing() in the constructor"
            )

    def take(self, info: OperatorInfo, part: StatePart) -> None:
        self.keeper.take(self.number, info, part)


def undeclared(scope: ScopeBuilder[Any]) -> list[str]:
    """Return the paths of the operators and foreign scopes of a dataflow that have not declared what they keep.

    >>> import timely
    >>> with timely.Worker().dataflow(int) as scope:
    ...     stream = scope.to_stream([1]).unary(timely.Pipeline, "mine", lambda capability, info: lambda input, output: None)
    >>> undeclared(scope)
    ['/dataflow0/mine#1']
    """
    return [child.path for child in _operators(scope) if not child.info.keeping.declared]


def _operators(scope: ScopeBuilder[Any]) -> Iterator[Operator[Any] | CustomScope[Any]]:
    for subgraph in scope.root.scopes:
        for child in subgraph.children:
            if isinstance(child.scope, Operator | CustomScope):
                yield child.scope


def settle(workers: Sequence[Worker], network: Network | None = None) -> None:
    """Step all ``workers`` of a run until none of them has anything to do and nothing is on its way between them.

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
