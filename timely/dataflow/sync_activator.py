"""``SyncActivator``: activates something on a worker's thread from any thread.

Nothing else of a dataflow may be touched from a thread other than its worker's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import Protocol


class SyncActivatorHost(Protocol):
    """Where activations from other threads are queued: a worker. ``thread`` is the one that steps it."""

    thread: int

    def receive_activation(self, activator: SyncActivator, /) -> None:
        """Queue an activation, from any thread, and wake the worker if it waits."""


class SyncActivator:
    """Has ``action()`` called on the worker's thread soon after ``activate()``, once for all activations since the last call.

    Set ``expected`` while another thread may still activate: the worker waits then where nothing else can happen any more.
    """

    __slots__ = ("_action", "_host", "_idle", "expected")

    def __init__(self, action: Callable[[], None], host: SyncActivatorHost) -> None:
        self.expected = False
        self._action = action
        self._host = host
        self._idle: deque[None] = deque([None], maxlen=1)
        """Has an element unless an activation is under way. The thread that pops it queues one: appends and pops are atomic."""

    def activate(self) -> None:
        """Request the action, from any thread."""
        try:
            self._idle.pop()
        except IndexError:
            return  # what the caller has done so far precedes the action, which runs after the next append
        self._host.receive_activation(self)

    def deliver(self) -> None:
        """Call the action; for the worker. Activations from now on are delivered anew."""
        self._idle.append(None)  # first: what is done after this is activated anew
        self._action()

    @property
    def here(self) -> bool:
        """Whether this thread steps the worker."""
        return get_ident() == self._host.thread
