"""``bounds_in``: the bounds of a scope's times, with a warning where history cannot always be compacted."""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakSet

from timely.dataflow import ScopeBuilder
from timely.dataflow.origin import warn
from timely.progress import Lattice, lattice

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
