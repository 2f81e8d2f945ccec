"""``SyncActivator``: activates something on a worker's thread from any thread.

Nothing else of a dataflow may be touched from a thread other than its worker's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class SyncActivatorHost(Protocol):
    """Where activations from other threads are queued: a worker."""

    def receive_activation(self, activator: SyncActivator, /) -> None:
        """Queue an activation, from any thread, and wake the worker if it waits."""


class SyncActivator:
    """Has ``action()`` called on the worker's thread soon after ``activate()``, once for all activations since the last call.

    Set ``expected`` while another thread may still activate: the worker waits then where nothing else can happen any more.
    """

    __slots__ = ("_action", "_active", "_host", "expected")

    def __init__(self, action: Callable[[], None], host: SyncActivatorHost) -> None:
        self.expected = False
        self._action = action
        self._host = host
        self._active = False

    def activate(self) -> None:
        """Have the action called, from any thread."""
        if not self._active:
            self._active = True
            self._host.receive_activation(self)

    def ring(self) -> None:
        """Deprecated: use ``activate``."""
        self.activate()

    def deliver(self) -> None:
        """Call the action; for the worker. Activations from now on are delivered anew."""
        self._active = False
        self._action()
