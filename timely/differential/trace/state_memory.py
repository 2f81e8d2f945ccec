"""``StateMemory``: what one trace counts in the memory budget of its process, and when a trace goes to disk.

Only a budget with a limit counts anything. The largest trace of the thread goes to disk first. Traces of less than their share of
a quarter of the limit stay: else small ones would be written again and again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import islice
from typing import Any, Final, Protocol
from weakref import WeakSet, finalize

from timely.dataflow import OperatorInfo
from timely.dataflow.containers.pickling import dumps
from timely.errors import OutOfMemoryError
from timely.memory import MemoryBudget

ENTRY: Final = 200
"""Bytes of an entry of rows without its key and value: its tuple, list and slot of a dictionary."""

OBJECTS: Final = 4
"""Bytes in memory for each byte of a pickle: texts take 50 more than their letters, whole numbers 28 for 2 to 5."""


class Spillable(Protocol):
    """A trace, as far as its memory is concerned."""

    def held(self) -> int:
        """Return about how many bytes it has in memory and could move to disk."""

    def recount(self) -> int:
        """Count anew what it has in memory, and return it."""

    def spill(self) -> None:
        """Move to disk what every cursor has seen."""


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.memories: WeakSet[StateMemory] = WeakSet()


_threads: Final = _OfThread()


class StateMemory:
    """What one trace has in memory, as the budget counts it."""

    __slots__ = ("__weakref__", "_counted", "_every", "_since", "budget", "trace")

    def __init__(self, budget: MemoryBudget, trace: Spillable, every: int) -> None:
        self.budget = budget
        self._every = every
        self.trace = trace
        self._counted = counted = [0]
        self._since = 0  # updates that were appended since
        finalize(self, lambda: budget.give_back(counted[0])).atexit = False

    def appended(self, updates: int) -> None:
        """Count the trace now and then; beyond the limit move the largest traces to disk."""
        self._since += updates
        if self._since < self._every:
            return
        self._since = 0
        _threads.memories.add(self)
        limit = self.budget.limit or 0
        while not self.count(self.trace.held()) or self.budget.used > limit:
            sizes = {each.trace: each.trace.held() for each in _threads.memories if each.budget is self.budget}
            largest = max(sizes, key=sizes.__getitem__)
            if sizes[largest] * 4 * len(sizes) <= limit:
                break
            largest.spill()
            if largest.recount() > sizes[largest] // 2:
                break

    def count(self, size: int) -> bool:
        """Count ``size`` bytes; return whether the budget allows that."""
        more = size - self._counted[0]
        if more > 0 and not self.budget.take(more):
            return False
        if more < 0:
            self.budget.give_back(-more)
        self._counted[0] = size
        return True

    def row_bytes(self, rows: dict[Any, Any]) -> int:
        """Return about how many bytes rows by key take, from some of them."""
        if not rows:
            return 0
        sample = list(islice(reversed(rows.items()), 8))  # the newest
        entries = sum(len(each) for _, each in sample)
        try:
            size = len(dumps(sample))
        except Exception:  # what cannot be pickled stays in memory
            size = 0
        return len(rows) * (OBJECTS * size + ENTRY * entries) // len(sample)


def guarded(info: OperatorInfo, logic: Callable[..., Any], sizes: Callable[[], str]) -> Callable[..., Any]:
    """Return the logic of an operator whose state is ``sizes()``; it raises ``OutOfMemoryError`` if the memory is not enough."""
    info.state.retains = True

    def run(*ports: Any) -> Any:
        try:
            return logic(*ports)
        except OutOfMemoryError:
            raise
        except MemoryError as error:
            budget = MemoryBudget.current()
            raise OutOfMemoryError(
                f"memory ran out, with {sizes()} in its state; the budget is {budget!r}. Give timely.execute memory=, or a"
                " timely.memory.MemoryBudget, below what the process may take: state goes to disk earlier. Or take more workers"
            ) from error

    return run


def memory_of(trace: Spillable, every: int) -> StateMemory | None:
    """Return what counts a trace in the current budget after ``every`` so many updates; ``None`` without a limit."""
    budget = MemoryBudget.current()
    return None if budget.limit is None else StateMemory(budget, trace, every)
