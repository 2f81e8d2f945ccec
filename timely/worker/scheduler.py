"""The scheduler: in which order a worker's dataflows run in a step, and what the worker does when it has nothing to do.

It is injectable, so that a test can make a run a function of its own decisions. The invariant it must keep is liveness alone:
a dataflow that is active is chosen after finitely many steps. Progress is right under every schedule. Without a scheduler, a
worker runs every active dataflow once in each step, in the order in which they were made, and waits on its transport.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Scheduler(Protocol):
    """Chooses what a worker does next."""

    def choose(self, active: Sequence[int]) -> Sequence[int]:
        """Return which of the active dataflows (numbers, ascending) run in this step, in the order in which they run."""

    def park(self, timeout: float | None) -> None:
        """Wait until something may have arrived, no longer than ``timeout`` seconds, as nothing is active."""
