"""A network between workers of one process, whose messages arrive in order when the schedule, or a test, delivers them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from timely.errors import StalledError


class Network:
    """``sent[source, target]`` are the messages in flight, ``inboxes[target]`` those that arrived and were not received.

    ``count`` is the number of messages ever sent. To break the order on purpose, override ``send`` or ``deliver``.

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
        """Return the transport of worker ``index``; ``pause(waits)`` is called before it receives anything."""
        return SimulatedTransport(self, index, pause)

    def send(self, source: int, target: int, message: Any) -> None:
        """Put a message in flight."""
        self.sent[source, target].append(message)

    def deliver(self, source: int, target: int, count: int = 1) -> int:
        """Let at most ``count`` messages from one worker to another arrive; return how many there were."""
        queue = self.sent[source, target]
        arrived = min(count, len(queue))
        for _ in range(arrived):
            self.inboxes[target].append((source, queue.popleft()))
        return arrived

    def deliver_all(self) -> None:
        """Let all messages in flight arrive."""
        for source, target in self.waiting():
            self.deliver(source, target, len(self.sent[source, target]))

    @property
    def quiet(self) -> bool:
        """Whether no message is in flight, or has arrived and was not received."""
        return not self.waiting() and not any(self.inboxes)

    def waiting(self) -> list[tuple[int, int]]:
        """Return the pairs of workers with messages in flight."""
        return [pair for pair, queue in self.sent.items() if queue]

    def messages(self) -> Iterator[tuple[int, Any]]:
        """Yield ``(target, message)`` for all that no worker has received yet."""
        for source, target in self.sent:
            yield from ((target, message) for message in self.between(source, target))

    def between(self, source: int, target: int) -> list[Any]:
        """Return the messages of one worker that another has not received, oldest first."""
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
        self._network.count += 1
        self._network.send(self.index, peer, message)

    def flush(self) -> None:
        """Do nothing: messages are in flight at once."""

    def receive(self) -> Sequence[tuple[int, Any]]:
        """Return what has arrived. A simulated worker pauses first."""
        if self._pause is not None and not self._rested:
            self._pause(False)
        self._rested = False
        inbox = self._network.inboxes[self.index]
        arrived, inbox[:] = list(inbox), []
        return arrived

    def crowded(self, limit: int) -> bool:
        """Return ``False``: the schedule says when messages arrive."""
        return False

    def wait(self, timeout: float | None = None) -> None:
        """Pause until the schedule resumes the worker; ``StalledError`` for a worker that is stepped by hand."""
        if self._pause is None:
            raise StalledError("this worker is stepped by hand, so nothing can arrive while it waits: use step(), and deliver()")
        self._pause(True)
        self._rested = True

    def wake(self) -> None:
        """Do nothing: the schedule resumes a worker."""

    def close(self, timeout: float = 5.0) -> None:
        """Do nothing."""
