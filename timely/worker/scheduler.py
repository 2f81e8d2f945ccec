"""``Scheduler``: chooses the dataflows that run in a step, and what an idle worker does.

Scheduling affects latency, never results. Liveness is the scheduler's: it chooses an active dataflow after finitely many steps.
Without one, a step runs every active dataflow once, in the order in which they were built.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Scheduler(Protocol):
    """Chooses what a worker does next."""

    def choose(self, active: Sequence[int]) -> Sequence[int]:
        """Return the active dataflows (numbers, ascending) that run in this step, in the order in which they run."""

    def park(self, timeout: float | None) -> None:
        """Wait until something may have arrived, for at most ``timeout`` seconds: nothing is active."""
