"""How far a dataflow is, in two numbers: the epoch that it is at, and the round of the loops in it.

Read from what is counted, on the worker's thread or on another that can bear a number which was true a moment ago. The invariant:
nothing that is outstanding, on any worker as far as is known here, is before the epoch that is named.
"""

from __future__ import annotations

from typing import Any

from timely.dataflow import ScopeBuilder
from timely.scopes import Subgraph


def standing(scope: ScopeBuilder[Any]) -> tuple[int | None, int | None]:
    """Return the least epoch at which something is outstanding in a dataflow whose times are integers, on any worker as far as is
    known here, and the greatest round of those in the loops in it; ``None`` where there is nothing.

    >>> from timely import Worker
    >>> worker = Worker()
    >>> with worker.dataflow(int) as scope:
    ...     numbers, stream = scope.new_input()
    ...     with scope.iterative() as loop:
    ...         handle, again = loop.feedback()
    ...         done, more = stream.enter(loop).concat(again).map(lambda x: x - 1).branch(lambda x: x > 0)
    ...         more.connect_loop(handle)
    ...         _ = done.leave()
    >>> numbers.send_batch([5])
    >>> numbers.advance_to(2)
    >>> for _ in range(4):
    ...     found = standing(scope)
    ...     more = worker.step()
    >>> found[0], found[1] > 0
    (0, True)
    >>> numbers.close()
    >>> worker.run()
    >>> standing(scope)
    (None, None)
    """
    rounds = [number for nested in scope.scopes if (number := rounds_of(nested)) is not None]
    return min(epochs(scope.subgraph), default=None), max(rounds, default=None)


def rounds_of(subgraph: Subgraph[Any, Any]) -> int | None:
    """Return the greatest round of what is outstanding in a loop; ``None`` where there is nothing, or no loop."""
    return max((number for each in subgraph.times() if (number := round_of(each)) is not None), default=None)


def epochs(subgraph: Subgraph[Any, Any]) -> set[Any]:
    """Return the times of what is outstanding in a scope and in those in it, as times of this scope."""
    found = subgraph.times()
    for child in subgraph.children:
        if isinstance(child.scope, Subgraph):
            found |= set(map(child.scope.refinement.to_outer, epochs(child.scope)))
    return found


def round_of(moment: object) -> int | None:
    """Return the round of the innermost loop that a time is in; ``None`` of a time that is in no loop.

    >>> from timely import LoopTime, Product
    >>> round_of(Product(Product(0, 3), 4)), round_of(LoopTime(0, (1, 2))), round_of(7)
    (4, 2, None)
    """
    inner = getattr(moment, "inner", None)
    if inner is None and (counters := getattr(moment, "counters", ())):
        inner = counters[-1]
    return inner if isinstance(inner, int) else None
