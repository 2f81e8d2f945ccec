"""Operator state: how an operator registers its state, so that a checkpoint can save and restore it.

State is a sequence of pairs ``(route, item)``: the item belongs to worker ``route % peers``. ``load`` gets the items of the last
``save`` and of every ``append`` since, in order for each key. Source: Naiad section 3.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias

import attrs

Piece: TypeAlias = tuple[int | None, Any]
"""``(route, item)``: the item belongs to worker ``route % peers``; with ``None``, to the worker that saved it."""

Save: TypeAlias = Callable[[], Iterable[Piece]]
"""Returns all of the state. It is read to its end before the operator runs again."""

Load: TypeAlias = Callable[[Iterable[Any]], object]
"""Restores the items, in the constructor of a new operator. It must iterate to the end; they are read from a file meanwhile."""

Rescale: TypeAlias = Callable[[Sequence[Iterable[Any]]], object]
"""Restores, on another number of workers, the items without a route, by the worker that saved them.

It is called on every worker, after ``load`` has restored the items with a route.
"""


@attrs.define(eq=False)
class Log:
    """The changes of an operator's state since the last checkpoint."""

    kept: bool
    entries: list[Piece] = attrs.field(factory=list)

    def append(self, route: int | None, item: Any) -> None:
        """Add a change: an item that brings the state up to date when it is loaded after those before it."""
        if self.kept:
            self.entries.append((route, item))

    def drain(self) -> list[Piece]:
        """Return the changes since the last call."""
        entries, self.entries = self.entries, []
        return entries


class CheckpointFollower(Protocol):
    """What an operator whose state is a position outside, a source or a sink, does at checkpoints."""

    def stop(self) -> Any | None:
        """Send nothing until ``resume``; return the first time at which a checkpoint can be taken, ``None`` for any."""

    def advance(self, time: Any) -> None:
        """Advance to the time of the checkpoint, which is not before what ``stop`` returned."""

    def resume(self) -> None:
        """Go on: the checkpoint was taken, or failed."""

    def committed(self, oldest: Any) -> None:
        """Publish what the checkpoint holds; ``oldest`` is the time of the oldest that stays."""

    def close(self) -> None:
        """End: no checkpoint follows."""


@attrs.frozen(eq=False)
class StatePart:
    """One declaration of state: the ``number``-th of its operator.

    Without ``log`` the whole of it is saved in every checkpoint. With it, a checkpoint takes what has been added, and ``save``,
    if there is one, is called now and then, to begin anew when the log has grown. With ``at_rest`` it is saved only where
    nothing before the boundary is in flight.
    """

    number: int
    save: Save | None
    load: Load
    rescale: Rescale | None
    log: Log | None
    at_rest: bool = False
    follower: CheckpointFollower | None = None


class StatefulOperator(Protocol):
    """An operator as a state registry sees it: its ``OperatorInfo``."""

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def identity(self) -> str: ...

    @property
    def relation(self) -> str: ...

    @property
    def worker(self) -> int: ...

    @property
    def peers(self) -> int: ...


@attrs.frozen
class RelationStart:
    """How a named relation begins: anew, or with its state ``restored``.

    Where it ``migrates``, its rows are kept for readers to come. ``time`` is that of the checkpoint. ``before`` is its definition
    there, ``None`` where it was not there, and with ``dropped`` the program gives up its rows.
    """

    restored: bool = False
    migrates: bool = False
    time: Any = None
    before: str | None = None
    dropped: bool = False

    @property
    def rebuilt(self) -> bool:
        """Whether it had rows, and begins anew."""
        return self.before is not None and not self.restored


class StateRegistry(Protocol):
    """Keeps the state of one dataflow's operators."""

    def begins(self, relation: str) -> Any:
        """The time that a relation goes on from, all before it being complete; ``None`` where it begins anew."""

    def open(self, name: str, kind: str, definition: str, reads: tuple[str, ...]) -> RelationStart:
        """Note a named relation, before its operators are made; return how it begins."""

    def register(self, info: StatefulOperator, part: StatePart) -> None:
        """Register a part of an operator's state. Where the run resumes, the part has loaded its items when this returns."""

    def load_before(self, info: StatefulOperator, operator: str, part: StatePart) -> None:
        """Load a part that the checkpoint has of an operator of the relation of ``info``, which begins anew."""

    def built(self, scope: Any) -> None:
        """Note that the dataflow is built, before any of it runs; ``scope`` is its ``ScopeBuilder``."""


@attrs.define(eq=False)
class StateDeclarations:
    """How many ``parts`` of state one operator has registered; only the registry refers to them, and so to the state.

    It ``retains`` most of the objects that it makes: Python's full collections are to wait while its dataflow runs. ``function``
    is what it makes of records, for whoever asks why one is there.
    """

    registry: StateRegistry | None
    declared: bool = False
    parts: int = 0
    collection: bool = False
    retains: bool = False
    function: Any = None
