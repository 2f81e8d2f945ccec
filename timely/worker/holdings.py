"""What waits at the inputs of a worker's operators, for the error of a worker that has run out of memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from timely.dataflow import Operator, ScopeBuilder
from timely.dataflow.spill import SpillQueue
from timely.errors import brief
from timely.memory import size_text
from timely.worker.flow_control import weight_of


def largest_queue(scopes: Iterable[ScopeBuilder[Any]]) -> str:
    """Return which input holds most, and at which time; "" if nothing waits. What a queue has on disk does not count."""
    most, where, time_of_most = 0, "", None
    for scope in scopes:
        for subgraph in scope.scopes:
            for child in subgraph.children:
                if not isinstance(child.scope, Operator):
                    continue
                for port in child.scope.input_ports:
                    if isinstance(port.queue, SpillQueue):
                        continue
                    sizes: dict[Any, int] = {}
                    for time, batch, _ in port.queue:
                        sizes[time] = sizes.get(time, 0) + weight_of(batch)
                    total = sum(sizes.values())
                    if total > most:
                        most, where, time_of_most = total, port.label, max(sizes, key=sizes.__getitem__)
    if not most:
        return ""
    return f"most of what waits is at {where}: about {size_text(most)}, the largest part of it at time {brief(time_of_most)}"
