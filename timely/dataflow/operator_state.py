"""What an operator says of its state, so that a checkpoint can hold it: pieces to save, and how to take them back.

State is kept in *pieces*. A piece is ``(route, item)``: ``route`` is the number that its key is dealt by, so that the item
belongs to worker ``route % peers`` however many workers there are; ``None`` is for what belongs to this worker whatever its keys
are. The invariant: what ``load`` is given are the items of every ``save`` and every ``append`` since, in that order for each key,
and the operator that has loaded them goes on as the one that saved them would have. Nothing here writes anything: that is what a
``StateRegistry`` is for, and without one a declaration costs nothing. Source: Naiad section 3.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias

import attrs

Piece: TypeAlias = tuple[int | None, Any]
"""``(route, item)``: the item belongs to worker ``route % peers``; with ``None``, to the worker that saved it."""

Save: TypeAlias = Callable[[], Iterable[Piece]]
"""Gives all of the state in pieces. It is read to its end before the operator runs again."""

Load: TypeAlias = Callable[[Iterable[Any]], object]
"""Takes the items back, in the constructor of a new operator. They are read from a file while it iterates, to their end."""

Rescale: TypeAlias = Callable[[Sequence[Iterable[Any]]], object]
"""Takes back, on another number of workers, the items that were saved without a route: those of each worker that there was.

It is called on every worker, after ``load`` was given the items with a route.
"""


class Log:
    """The changes of an operator's state since the last checkpoint, where it writes them as it goes."""

    __slots__ = ("entries", "kept")

    def __init__(self, kept: bool) -> None:
        self.kept = kept
        self.entries: list[Piece] = []

    def append(self, route: int | None, item: Any) -> None:
        """Add a change: an item which, loaded after those before it, brings the state up to date."""
        if self.kept:
            self.entries.append((route, item))

    def drain(self) -> list[Piece]:
        """Return what has been added since the last time."""
        entries, self.entries = self.entries, []
        return entries


@attrs.frozen(eq=False)
class StatePart:
    """One declaration of state: the ``number``-th of its operator.

    Without ``log`` the whole of it is saved in every checkpoint. With it, a checkpoint takes what has been added, and ``save``,
    if there is one, is called now and then, to begin anew when the log has grown.
    """

    number: int
    save: Save | None
    load: Load
    rescale: Rescale | None
    log: Log | None


class StatefulOperator(Protocol):
    """An operator as a state registry sees it: its ``OperatorInfo``."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def path(self) -> str:
        """Its path, the same on every worker."""

    @property
    def worker(self) -> int:
        """The worker that it is on."""

    @property
    def peers(self) -> int:
        """How many workers there are."""


class StateRegistry(Protocol):
    """Keeps the state of one dataflow's operators."""

    @property
    def begins(self) -> Any:
        """The time that the dataflow goes on from, all before it being complete; ``None`` where it begins anew."""

    def take(self, info: StatefulOperator, part: StatePart) -> None:
        """Take note of a part of an operator's state; where the dataflow goes on from a checkpoint, have the part load its
        items, or rescale them, before this returns.
        """

    def built(self, scope: Any) -> None:
        """Take note that the dataflow is built, before any of it runs; ``scope`` is its ``ScopeBuilder``."""


class StateDeclarations:
    """How many ``parts`` of state one operator has registered; only the registry refers to them, and so to the state."""

    __slots__ = ("declared", "parts", "registry")

    def __init__(self, registry: StateRegistry | None) -> None:
        self.registry = registry
        self.declared = False
        self.parts = 0
