"""``FlowControl``: the sources of all workers wait while one worker has sent more than its peers take. A pure state machine.

Invariant: only operators without inputs wait. What is under way goes on, loops included, so that waiting ends by itself. A source
that has waited for ``PATIENCE`` seconds runs once all the same, since what is under way may wait for what it sends.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import getsizeof
from typing import Any, Final

MUCH: Final = 1 << 20
"""Bytes of messages to one peer that are not held back any more, to go with others."""

PATIENCE: Final = 1.0
"""Seconds that a source waits at most."""


class FlowControl:
    """What one worker knows of who is crowded: has more on its way than its ``credit``."""

    __slots__ = ("_credit", "_index", "_since", "crowded", "here", "limit", "waiting")

    def __init__(self, index: int, credit: int) -> None:
        self._index = index
        self.crowded: set[int] = set()
        """The workers that are crowded: sources wait while there are any."""
        self.waiting: dict[Callable[[], None], None] = {}
        """What runs the sources of this worker that wait."""
        self._since = 0.0
        self._credit = credit
        self.limit = credit
        """The bytes on their way above which this worker is crowded: half of the credit has to be free again."""
        self.here = False
        """Whether this worker is crowded."""

    def note(self, worker: int, crowded: bool) -> bool:
        """Note whether a worker, or this one, is crowded; return whether that is news."""
        if crowded == (worker in self.crowded):
            return False
        if crowded:
            self.crowded.add(worker)
        else:
            self.crowded.discard(worker)
        if worker == self._index:
            self.here, self.limit = crowded, self._credit // 2 if crowded else self._credit
        return True

    def defer(self, action: Callable[[], None]) -> bool:
        """Call ``action()``, which runs a source, when there is room; return whether there is none now."""
        if not self.crowded:
            return False
        self.waiting[action] = None
        return True

    def release(self, now: float) -> None:
        """Run the sources that wait, if there is room, or if the first has waited for long."""
        if self.crowded:
            if not self._since:
                self._since = now
            if now < self._since + PATIENCE:
                return
        self._since = 0.0
        waiting, self.waiting = self.waiting, {}
        for action in waiting:
            action()


def weight_of(batch: Any) -> int:
    """Return about how many bytes a container takes, at a glance: ``nbytes``, or by the first and the last record of a list."""
    if type(batch) is not list:
        size = getattr(batch, "nbytes", None)
        return size if isinstance(size, int) else 64 * len(batch)
    many = len(batch)
    if many == 1:
        return _weight(batch[0])
    return many * (_weight(batch[0]) + _weight(batch[-1])) // 2 if many else 0


def _weight(record: Any) -> int:
    size = 8 + getsizeof(record)
    return sum(map(getsizeof, record), size) if type(record) is tuple else size
