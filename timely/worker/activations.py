"""``SyncActivations``: activations that other threads requested, to be run between two steps of a worker."""

from __future__ import annotations

from collections import deque

from timely.dataflow import SyncActivator
from timely.worker.transport import Transport


class SyncActivations:
    """The host of a worker's ``SyncActivator`` objects."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.pending: deque[SyncActivator] = deque()

    def receive_activation(self, activator: SyncActivator) -> None:
        """Run an activator in the next step, and wake the worker if it waits. Any thread may call this."""
        self.pending.append(activator)
        self._transport.wake()

    def run(self) -> None:
        """Run the activators that are pending now."""
        for _ in range(len(self.pending)):
            self.pending.popleft().deliver()
