"""Workers in one thread, and a network between them on which a message travels only when a test says so.

The invariant is that of every transport, and no more: what one worker sends to another arrives in the order in which it was
sent. When it arrives, and which worker does something next, is a decision of the test.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from timely import Worker


class Network:
    """What is on its way: ``sent[source, target]``, oldest first."""

    def __init__(self, peers: int) -> None:
        self.peers = peers
        self.sent: dict[tuple[int, int], deque[Any]] = {
            (source, target): deque() for source in range(peers) for target in range(peers) if source != target
        }
        self.inboxes: list[list[tuple[int, Any]]] = [[] for _ in range(peers)]

    def deliver(self, source: int, target: int, count: int) -> None:
        """Let at most ``count`` messages from one worker to another arrive."""
        queue = self.sent[source, target]
        while queue and count > 0:
            self.inboxes[target].append((source, queue.popleft()))
            count -= 1

    def waiting(self) -> list[tuple[int, int]]:
        """Return the pairs of workers between which something is on its way."""
        return [pair for pair, queue in self.sent.items() if queue]

    def messages(self) -> Iterator[tuple[int, Any]]:
        """Return ``(target, message)`` for all that no worker has received yet."""
        for (_, target), queue in self.sent.items():
            yield from ((target, message) for message in queue)
        for target, inbox in enumerate(self.inboxes):
            yield from ((target, message) for _, message in inbox)


class SimulatedTransport:
    """One worker's end of a ``Network``."""

    def __init__(self, network: Network, index: int) -> None:
        self.index = index
        self.peers = network.peers
        self._network = network

    def send(self, peer: int, message: Any) -> None:
        self._network.sent[self.index, peer].append(message)

    def flush(self) -> None:
        """What was sent is on its way already."""

    def receive(self) -> Sequence[tuple[int, Any]]:
        inbox = self._network.inboxes[self.index]
        arrived, inbox[:] = list(inbox), []
        return arrived

    def wait(self, timeout: float | None = None) -> None:
        raise AssertionError("a simulated worker is stepped by its test, and never waits")

    def close(self, timeout: float = 5.0) -> None:
        """There is nothing to close."""


def simulated_workers(peers: int) -> tuple[Network, list[Worker]]:
    """Return a network and the workers on it."""
    network = Network(peers)
    return network, [Worker(SimulatedTransport(network, index)) for index in range(peers)]
