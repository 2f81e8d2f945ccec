"""How far a dataflow is: its least outstanding epoch, and the round of its loops, for any thread."""

from __future__ import annotations

from typing import Any

from timely.dataflow import ScopeBuilder
from timely.scopes import Subgraph


def position_of(scope: ScopeBuilder[Any]) -> tuple[int | None, int | None]:
    """Return the least outstanding epoch of a dataflow with ``int`` times, and the greatest round in its loops.

    On any worker, as far as is known here; ``None`` where nothing is outstanding.

    >>> from timely import Worker
    >>> worker = Worker()
    >>> with worker.dataflow(int) as scope:
    ...     numbers, stream = scope.new_input()
    >>> numbers.advance_to(2)
    >>> _ = worker.step()
    >>> position_of(scope)
    (2, None)
    """
    rounds = [number for nested in scope.scopes if (number := rounds_of(nested)) is not None]
    return min(epochs(scope.subgraph), default=None), max(rounds, default=None)


def rounds_of(subgraph: Subgraph[Any, Any]) -> int | None:
    """Return the greatest round of what is outstanding in a loop; ``None`` where there is nothing, or no loop."""
    return max((number for each in subgraph.times() if (number := round_of(each)) is not None), default=None)


def epochs(subgraph: Subgraph[Any, Any]) -> set[Any]:
    """Return the times of what is outstanding in a scope and those nested in it, as times of this scope."""
    found = subgraph.times()
    for child in subgraph.children:
        if isinstance(child.scope, Subgraph):
            found |= set(map(child.scope.refinement.to_outer, epochs(child.scope)))
    return found


def round_of(moment: object) -> int | None:
    """Return the round of the innermost loop of a time; ``None`` of a time that is in no loop.

    >>> from timely import LoopTime, Product
    >>> round_of(Product(Product(0, 3), 4)), round_of(LoopTime(0, (1, 2))), round_of(7)
    (4, 2, None)
    """
    inner = getattr(moment, "inner", None)
    if inner is None and (counters := getattr(moment, "counters", ())):
        inner = counters[-1]
    return inner if isinstance(inner, int) else None
