"""``Allocator``: what a dataflow needs of its worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from timely.dataflow.operator_state import StateRegistry
from timely.dataflow.port_owner import UnreferencedCapabilities
from timely.dataflow.sync_activator import SyncActivator


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
