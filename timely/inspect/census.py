"""Who in this process holds the capabilities of an operator, and who has its messages: counted when somebody asks.

The runtime counts pointstamps of all workers together, since that is all that progress needs. Which worker has how many is found
out by looking for the capabilities that live and the queues that are not empty, through the garbage collector's list: slow, and
at no cost to who does not ask. The invariant: nothing is counted twice, and nothing that is not there is counted.
"""

from __future__ import annotations

import gc
from typing import Any

from timely.dataflow import Capability, Operator


class Census:
    """What lives in this process at the moment when it is first asked.

    Other workers of the process may be running meanwhile: what they have is then as it was at some moment during the count.
    Operators are told apart by their paths: of other workers' dataflows, those that are called the same count as one.
    """

    def __init__(self) -> None:
        self._taken = False
        self._capabilities: dict[str, list[Capability[Any]]] = {}
        self._operators: dict[str, list[Operator[Any]]] = {}

    def _take(self) -> None:
        if self._taken:
            return
        self._taken = True
        for thing in _everything():
            if type(thing) is Capability:
                port = thing.port
                if port is not None:
                    self._capabilities.setdefault(port.operator.path, []).append(thing)
            elif type(thing) is Operator:
                self._operators.setdefault(thing.path, []).append(thing)

    def capabilities(self, like: Operator[Any], port: int, time: Any) -> dict[int, int]:
        """Return how many capabilities for ``time`` each worker's copy of an operator holds on an output."""
        self._take()
        found: dict[int, int] = {}
        for capability in self._capabilities.get(like.path, ()):
            held_on = capability.port
            if held_on is not None and held_on.index == port and capability.time == time:
                worker = held_on.operator.info.worker
                if worker != like.info.worker or held_on.operator is like:
                    found[worker] = found.get(worker, 0) + 1
        return found

    def records(self, like: Operator[Any], port: int, time: Any) -> dict[int, int]:
        """Return how many records at ``time`` wait at an input of each worker's copy of an operator."""
        self._take()
        found: dict[int, int] = {}
        for operator in self._operators.get(like.path, ()):
            worker = operator.info.worker
            if worker == like.info.worker and operator is not like:
                continue  # of another run
            count = sum(records for at, _, records in tuple(operator.input_ports[port].queue) if at == time)
            if count:
                found[worker] = found.get(worker, 0) + count
        return found


def _everything() -> list[Any]:
    """Return all that the garbage collector knows of, with what was set aside (``gc.freeze``), which is set aside again."""
    if not gc.get_freeze_count():
        return gc.get_objects()
    gc.unfreeze()
    try:
        return gc.get_objects()
    finally:
        gc.freeze()
