"""``Tracer``: receives what a worker does, as it does it; ``timely.inspect.EventLog`` is one.

Workers without a tracer pay for a look at an empty list in each step. Tracers are called on the worker's thread, and must
change nothing.
"""

from __future__ import annotations

from typing import Any, Protocol

from timely.dataflow import ScopeBuilder
from timely.progress import ProgressBatch


class Tracer(Protocol):
    """Receives the trace events of one worker."""

    def built(self, number: int, scope: ScopeBuilder[Any]) -> None:
        """A dataflow was built, and has not run yet."""

    def sent(self, number: int, batch: ProgressBatch[Any]) -> None:
        """This worker reported progress of a dataflow to its peers."""

    def received(self, number: int, sender: int, batch: ProgressBatch[Any]) -> None:
        """A peer reported progress of a dataflow, its own or what it passes on."""

    def waited(self, seconds: float) -> None:
        """The worker had nothing to do for so long."""

    def stepped(self) -> None:
        """A step is over."""

    def ended(self, number: int) -> None:
        """A dataflow is complete here, or was dropped."""
