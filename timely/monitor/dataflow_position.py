"""How far a dataflow is: its least outstanding epoch, and the round of its loops, for any thread."""

from __future__ import annotations

from typing import Any

from timely.dataflow import Operator, ScopeBuilder
from timely.progress import Source
from timely.scopes import INGRESS, Subgraph


def position_of(scope: ScopeBuilder[Any]) -> tuple[int | None, int | None]:
    """Return the least outstanding epoch of a dataflow with ``int`` times, and the greatest round in its loops.

    On any worker, as far as is known here; ``None`` where nothing is outstanding.
    """
    rounds = [number for nested in scope.scopes if (number := rounds_of(nested)) is not None]
    return min(epochs(scope.subgraph), default=None), max(rounds, default=None)


def lag(scope: ScopeBuilder[Any]) -> int | None:
    """Return how many epochs a dataflow's frontier is behind the latest time in use; ``None`` unless the times are integers."""
    times = epochs(scope.subgraph)
    return max(times) - min(times) if times and all(isinstance(time, int) for time in times) else None


def rounds_of(subgraph: Subgraph[Any, Any]) -> int | None:
    """Return the greatest round of what is outstanding in a loop; ``None`` where there is nothing, or no loop."""
    return max((number for each in subgraph.times() if (number := round_of(each)) is not None), default=None)


def top_round(subgraph: Subgraph[Any, Any]) -> int | None:
    """Return the least ``int`` time of a dataflow that is outstanding in nothing but its own loop; ``None`` otherwise."""
    children = [child.scope for child in subgraph.children]
    if not any(isinstance(scope, Operator) and goes_round(scope) for scope in children):
        return None
    counts = subgraph.trackers[0].counts()
    held = [(at, time) for (at, time), count in counts.items() if count > 0 and at.node != INGRESS]
    may_send = any(isinstance(at, Source) and not children[at.node].inputs for at, _ in held)
    times = [time for _, time in held if isinstance(time, int)]
    return None if may_send or len(times) < len(held) else min(times, default=None)


def goes_round(operator: Operator[Any]) -> bool:
    """Return whether records go round a loop by this operator: a time advances in it."""
    return bool(operator.output_ports) and any(not port.identities for port in operator.input_ports)


def epochs(subgraph: Subgraph[Any, Any]) -> set[Any]:
    """Return the times of what is outstanding in a scope and those nested in it, as times of this scope."""
    times = subgraph.times()
    for child in subgraph.children:
        if isinstance(child.scope, Subgraph):
            times |= set(map(child.scope.refinement.to_outer, epochs(child.scope)))
    return times


def round_of(moment: object) -> int | None:
    """Return the round of the innermost loop of a time; ``None`` of a time that is in no loop."""
    inner = getattr(moment, "inner", None)
    if inner is None and (counters := getattr(moment, "counters", ())):
        inner = counters[-1]
    return inner if isinstance(inner, int) else None
