"""A network between workers of one process on which a message travels only when somebody says so.

The invariant is that of every transport, and no more: what one worker sends to another arrives in the order in which it was
sent. When it arrives is a decision of whoever holds the network: the simulator's schedule, or a test that steps its workers
by hand. A caller may look at what is on its way at any time; to break the rule on purpose, derive from ``Network``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from timely.errors import StalledError


class Network:
    """What is on its way: ``sent[source, target]`` was sent, ``inboxes[target]`` has arrived and was not received; oldest first.

    ``count`` is how many messages were sent in all.

    >>> network = Network(2)
    >>> zero, one = network.transport(0), network.transport(1)
    >>> zero.send(1, "hello")
    >>> one.receive()
    []
    >>> network.deliver(0, 1)
    1
    >>> one.receive()
    [(0, 'hello')]
    """

    def __init__(self, peers: int) -> None:
        self.peers = peers
        self.count = 0
        self.sent: dict[tuple[int, int], deque[Any]] = {
            (source, target): deque() for source in range(peers) for target in range(peers) if source != target
        }
        self.inboxes: list[list[tuple[int, Any]]] = [[] for _ in range(peers)]

    def transport(self, index: int, pause: Callable[[bool], None] | None = None) -> SimulatedTransport:
        """Return the end of worker ``index``; ``pause`` is called, with whether it waits, before it receives anything."""
        return SimulatedTransport(self, index, pause)

    def send(self, source: int, target: int, message: Any) -> None:
        """Take a message on its way."""
        self.sent[source, target].append(message)

    def deliver(self, source: int, target: int, count: int = 1) -> int:
        """Let at most ``count`` messages from one worker to another arrive; return how many there were."""
        queue = self.sent[source, target]
        arrived = min(count, len(queue))
        for _ in range(arrived):
            self.inboxes[target].append((source, queue.popleft()))
        return arrived

    def waiting(self) -> list[tuple[int, int]]:
        """Return the pairs of workers between which something is on its way."""
        return [pair for pair, queue in self.sent.items() if queue]

    def messages(self) -> Iterator[tuple[int, Any]]:
        """Return ``(target, message)`` for all that no worker has received yet."""
        for source, target in self.sent:
            yield from ((target, message) for message in self.between(source, target))

    def between(self, source: int, target: int) -> list[Any]:
        """Return all that one worker has sent to another and the other has not received yet, oldest first."""
        arrived = [message for sender, message in self.inboxes[target] if sender == source]
        return [*arrived, *self.sent[source, target]]


class SimulatedTransport:
    """One worker's end of a ``Network``: a ``timely.worker.Transport``."""

    def __init__(self, network: Network, index: int, pause: Callable[[bool], None] | None) -> None:
        self.index = index
        self.peers = network.peers
        self._network = network
        self._pause = pause
        self._rested = False

    def send(self, peer: int, message: Any) -> None:
        """Send a message to another worker."""
        self._network.count += 1
        self._network.send(self.index, peer, message)

    def flush(self) -> None:
        """What was sent is on its way already."""

    def receive(self) -> Sequence[tuple[int, Any]]:
        """Return what has arrived; a simulated worker comes to a halt before that, until it is its turn."""
        if self._pause is not None and not self._rested:
            self._pause(False)
        self._rested = False
        inbox = self._network.inboxes[self.index]
        arrived, inbox[:] = list(inbox), []
        return arrived

    def wait(self, timeout: float | None = None) -> None:
        """Come to a halt until something has arrived, or the schedule has it that the time is up.

        ``StalledError`` for a worker that is stepped by hand: nothing can arrive while it waits.
        """
        if self._pause is None:
            raise StalledError("this worker is stepped by hand, so nothing can arrive while it waits: use step(), and deliver()")
        self._pause(True)
        self._rested = True

    def wake(self) -> None:
        """A simulated worker goes on when the schedule has it so."""

    def close(self, timeout: float = 5.0) -> None:
        """There is nothing to close."""
