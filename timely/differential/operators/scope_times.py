"""What operators with history ask of a scope's times: their bounds, and which complete times are processed.

In a loop, epoch ``e + 1`` enters while epoch ``e`` goes round. Processing round 0 immediately would make every later round
read all epochs in flight: ``n`` epochs would cost ``n`` squared. So inside loops epochs are processed one by one. That delays
no result: an epoch is complete outside only after those before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, TypeVar
from weakref import WeakSet

from timely.dataflow import ScopeBuilder
from timely.dataflow.origin import warn
from timely.order import PartialOrder, reaches
from timely.progress import Lattice, lattice

T = TypeVar("T", bound=PartialOrder)

Due: TypeAlias = Callable[[T, Sequence[T]], bool]
"""``due(time, frontier)``: whether ``time`` is to be processed now."""


_WARNED: Final[WeakSet[ScopeBuilder[Any]]] = WeakSet()
"""The dataflows that have been warned about."""


def bounds_in(scope: ScopeBuilder[Any]) -> Lattice[Any]:
    """Return the lattice of the scope's times; ``TimelyWarning``, once for a dataflow, if it has no ``glb``.

    >>> import timely
    >>> with timely.Worker().dataflow(int) as scope:
    ...     bounds_in(scope).lub(3, 5)
    5
    """
    bounds = lattice(scope.time)
    if bounds.glb is None and scope.root not in _WARNED:
        _WARNED.add(scope.root)
        warn(
            f"times of type {bounds.domain.name} have lub(other) and no glb(other): results are right, but history is only"
            " compacted while frontiers have one element, and may grow without bound. Give the type a method glb(other) that"
            " returns the latest time at or before both"
        )
    return bounds


def _complete(time: T, frontier: Sequence[T]) -> bool:
    return not reaches(frontier, time)  # type: ignore[arg-type]  # it only iterates


def due_in(scope: ScopeBuilder[T]) -> Due[T]:
    """Return what says which times of ``scope`` are due: complete ones, whose epoch no earlier epoch is in flight before.

    >>> import timely
    >>> from timely import Product
    >>> with timely.Worker().dataflow(int) as scope, scope.iterative() as loop:
    ...     due = due_in(loop)
    >>> due(Product(1, 0), [Product(1, 1)]), due(Product(1, 0), [Product(0, 5)])
    (True, False)
    """
    outward: list[Callable[[Any], Any]] = []
    around: ScopeBuilder[Any] | None = scope
    while around is not None and around.parent is not None:
        refinement = around.subgraph.refinement
        if not refinement.identity:
            outward.append(refinement.to_outer)
        around = around.parent
    if not outward:
        return _complete

    def epoch(time: Any) -> Any:
        for step in outward:
            time = step(time)
        return time

    def due(time: T, frontier: Sequence[T]) -> bool:
        if not _complete(time, frontier):
            return False
        mine = epoch(time)
        for element in frontier:
            other = epoch(element)
            if other <= mine and other != mine:
                return False
        return True

    return due
