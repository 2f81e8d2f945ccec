"""``Allocator``: what a dataflow needs of its worker. ``Activator``: runs one operator again, with or without input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, SupportsFloat

import attrs

from timely.dataflow.operator_state import StateRegistry
from timely.dataflow.port_owner import UnreferencedCapabilities
from timely.dataflow.sync_activator import SyncActivator
from timely.errors import ConfigurationError
from timely.scopes import Subgraph


class Allocator(Protocol):
    """A worker as one dataflow sees it: its place among its peers, and channels between them."""

    @property
    def index(self) -> int:
        """This worker's number, from 0."""

    @property
    def peers(self) -> int:
        """How many workers there are."""

    @property
    def registry(self) -> StateRegistry | None:
        """Where operators register their state; ``None`` without recovery."""

    @property
    def unreferenced(self) -> UnreferencedCapabilities:
        """Where capabilities that nothing refers to are noted."""

    def open_channel(self, deliver: Callable[[Any, Any, int], None], label: str) -> int:
        """Open the next channel of the dataflow being built, and return its number.

        ``deliver(time, batch, records)`` gets what peers send on it; ``label`` is the receiver's name in errors.
        """

    def send(self, peer: int, channel: int, time: Any, batch: Any) -> None:
        """Send a container on a channel to a peer."""

    def defer(self, action: Callable[[], None]) -> bool:
        """Call ``action()``, which runs an operator without inputs, when peers take more; return whether they do not now."""

    def call_after(self, seconds: float, action: Callable[[], None]) -> None:
        """Call ``action()`` on the worker's thread after ``seconds``, unless the dataflow is complete by then."""

    def new_sync_activator(self, action: Callable[[], None]) -> SyncActivator:
        """Return an activator for any thread that has ``action()`` called on the worker's."""


@attrs.define(eq=False, repr=False)
class Activator:
    """Activates one operator, from its worker's thread."""

    _scope: Subgraph[Any, Any]
    _child: int
    _allocator: Allocator
    _run_loops: Callable[[], None] | None = None
    _waits: bool = False

    def activate(self) -> None:
        """Run the operator soon; one without inputs waits until peers have taken enough of what was sent to them."""
        if not self._waits or not self._allocator.defer(self._activate):
            self._scope.activate(self._child)

    def _activate(self) -> None:
        self._scope.activate(self._child)

    def wait_for_peers(self) -> None:
        """Run the operator, which has no inputs, only when peers take what it sends."""
        self._waits = True

    def activate_after(self, seconds: SupportsFloat) -> None:
        """Run the operator once after ``seconds``; a waiting worker wakes up in time.

        ``ConfigurationError`` for negative seconds. A dataflow that is complete before does not wait for it.
        """
        if not isinstance(seconds, int | float) or not seconds >= 0:
            raise ConfigurationError(f"activate_after({seconds!r}): give a number of seconds of at least 0")
        self._allocator.call_after(seconds, self.activate)

    def new_sync_activator(self) -> SyncActivator:
        """Return an activator of the operator for any thread."""
        return self._allocator.new_sync_activator(self.activate)

    def run_loops(self) -> None:
        """Run those operators now that read this one's output and feed its input, for bounded re-entrancy (Naiad section 3.2).

        To be called while the operator runs. Operators that are running are left alone.
        """
        if self._run_loops is not None:
            self._run_loops()
