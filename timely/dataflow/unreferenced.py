"""``UnreferencedCapabilities``: the capabilities of a dataflow that nothing refers to any more, until they can be dropped.

Python lets go of an object in the middle of anything. One that is part of a cycle is found by the garbage collector, wherever
an object is made: between two lines of what counts capabilities, or on the thread of another worker. So what is let go of is only
noted there, which nothing can interrupt, and is dropped when an activation is over or between two steps. The invariant: what was
noted is dropped before the worker waits, and a worker that waits is woken for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from timely.dataflow.sync_activator import SyncActivator

if TYPE_CHECKING:
    from timely.dataflow.ports import OutputPort


class UnreferencedCapabilities:
    """Takes notes on any thread and at any moment; ``drop`` is for the worker's thread, when nothing else is going on.

    ``new_sync_activator`` is that of the allocator: what is noted while the operator does not run is dropped when the bell is
    answered.
    """

    __slots__ = ("_bell", "_ended", "noted")

    def __init__(self, new_sync_activator: Callable[[Callable[[], None]], SyncActivator]) -> None:
        self.noted: list[tuple[OutputPort[Any], Any]] = []
        self._bell = new_sync_activator(self.drop)
        self._ended = False

    def note(self, port: OutputPort[Any], time: Any) -> None:
        """Note a capability for ``time``. First of all, so that whoever runs the operator finds it when that is over."""
        if self._ended:
            return
        self.noted.append((port, time))
        operator = port.operator
        if operator.built and not operator.running:
            self._bell.ring()

    def drop(self) -> None:
        """Drop what was noted."""
        noted = self.noted
        while noted:
            port, time = noted.pop()
            port.hold.update_at(port.number, time, -1)
            if not port.operator.running:
                port.operator.touch()

    def end(self) -> None:
        """Note nothing any more: the dataflow is complete or dropped, and nobody counts what is held there."""
        self._ended = True
        self.noted.clear()
