"""What carries messages between workers: through memory within a process, through connected sockets between processes, and
for what is large through memory that two processes share, where they are of one run on one machine.

A transport never blocks on a send and never blocks on a receive; what the other side is not ready to take waits here, so that
two workers that send each other large messages cannot lock each other up. Messages from one worker to another arrive in the
order in which they were sent, which is all that the protocol of progress asks for. A peer that goes away without a word is a
``PeerLostError``, and so is one that sends what is no message: it is cut off before memory is taken for it.
"""

from __future__ import annotations

import contextlib
import queue
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from timely.errors import PeerLostError, RoutingError, UnsendableError, error_text
from timely.worker.link import ROOM, Frames, Link
from timely.worker.wire import LARGEST

if TYPE_CHECKING:
    from timely.worker.shared_memory import Shared

__all__ = [
    "Inbox",
    "LocalTransport",
    "PeerTransport",
    "SocketTransport",
    "Transport",
    "Waker",
    "thread_transports",
]


_LOOKS: Final = 10
"""How often to look, at a microsecond each, before going to sleep."""


class Transport(Protocol):
    """The connections of one worker to its peers."""

    @property
    def index(self) -> int:
        """This worker's number."""

    @property
    def peers(self) -> int:
        """How many workers there are."""

    def send(self, peer: int, message: Any) -> None:
        """Send a message to another worker; it goes out with the next ``flush`` at the latest."""

    def flush(self) -> None:
        """Pass on what was sent, as far as the other sides take it now; the rest goes when they do."""

    def receive(self) -> Sequence[tuple[int, Any]]:
        """Return ``(sender, message)`` for what has arrived, oldest first; nothing if nothing has."""

    def wait(self, timeout: float | None = None) -> None:
        """Wait until something may have arrived, or ``timeout`` seconds have passed."""

    def wake(self) -> None:
        """Have a ``wait`` that is under way, or else the next one, end at once. Any thread may call it."""

    def close(self, timeout: float = 5.0) -> None:
        """Send what is left, as far as peers take it in ``timeout`` seconds, and close every connection."""


class LocalTransport:
    """The transport of a worker without peers: nothing ever arrives."""

    index = 0
    peers = 1

    def __init__(self) -> None:
        self._woken: queue.SimpleQueue[None] = queue.SimpleQueue()  # whose put() may interrupt its get() on one thread

    def send(self, peer: int, message: Any) -> None:
        """There is nobody to send to."""
        raise PeerLostError(f"there is no worker {peer}: this one has no peers")

    def flush(self) -> None:
        """Nothing is waiting."""

    def receive(self) -> Sequence[tuple[int, Any]]:
        """Nothing arrives."""
        return ()

    def wait(self, timeout: float | None = None) -> None:
        """Wait to be woken: nothing else can happen."""
        with contextlib.suppress(queue.Empty):
            self._woken.get(timeout=None if timeout is None else max(timeout, 0.0))
            while True:
                self._woken.get_nowait()

    def wake(self) -> None:
        """Have the worker go on."""
        self._woken.put(None)

    def close(self, timeout: float = 5.0) -> None:
        """There is nothing to close."""


class Waker:
    """Wakes a thread that waits for descriptors; any thread may."""

    __slots__ = ("_bell", "_ear")

    def __init__(self) -> None:
        self._ear, self._bell = socket.socketpair()
        self._ear.setblocking(False)
        self._bell.setblocking(False)

    def wake(self) -> None:
        """Wake the owner, who waits or is about to."""
        try:
            self._bell.send(b"!")
        except OSError:
            pass  # it has been woken often enough, or is gone

    def fileno(self) -> int:
        """The descriptor that becomes readable when the owner is woken."""
        return self._ear.fileno()

    def hush(self) -> None:
        """Take note of having been woken."""
        try:
            self._ear.recv(4096)
        except OSError:
            pass  # it was not, or is closed

    def close(self) -> None:
        """Close both ends."""
        self._ear.close()
        self._bell.close()


class Inbox(Waker):
    """Where one worker's messages from others in its process arrive, and how it is woken when it waits."""

    __slots__ = ("called", "items", "waiting")

    def __init__(self) -> None:
        super().__init__()
        self.items: deque[tuple[int, Any]] = deque()
        self.called = False
        self.waiting = False

    def call(self) -> None:
        """Have a wait that is under way, or else the next one, end at once."""
        self.called = True
        if self.waiting:
            self.waiting = False
            self.wake()  # only now: a write lets other threads run, and the interpreter's lock is had back 5 ms later

    def put(self, sender: int, message: Any) -> None:
        """Put a message in, and wake the owner if it waits."""
        self.items.append((sender, message))
        if self.waiting:
            self.waiting = False  # it is awake with this: what comes before it has looked need not ring once more
            self.wake()


def _linked(sock: socket.socket, largest: int, room: bytearray, shared: Shared | None) -> Link:
    """Return the link over a socket, which may be encrypted (``ssl.SSLSocket``): whoever has made one has loaded ``ssl``."""
    ssl = sys.modules.get("ssl")
    if ssl is None or not isinstance(sock, ssl.SSLSocket):
        return Link(sock, room=room, shared=shared)
    from timely.worker.secure_link import SecureLink

    return SecureLink(sock, largest, room)


class PeerTransport:
    """Connects one worker to peers in its own process (``inboxes``) and in others (``sockets``), both by worker number.

    ``PeerLostError`` from ``receive`` when a connection ends that was not closed by ``close`` on the other side, ``RoutingError``
    when what came over one cannot be unpickled. Over sockets
    that are encrypted, no message may have more than ``largest`` bytes, and none that is announced to have more is taken in. With
    peers that have memory in common with this worker, ``shared`` is that.
    """

    def __init__(
        self,
        index: int,
        inboxes: Mapping[int, Inbox],
        sockets: Mapping[int, socket.socket],
        largest: int = LARGEST,
        shared: Mapping[int, Shared] | None = None,
    ) -> None:
        self.index = index
        self.peers = len({index, *inboxes, *sockets})
        self._inbox = inboxes[index]
        self._inboxes = inboxes
        room = bytearray(ROOM if sockets else 0)
        shared = shared or {}
        self._links = {peer: _linked(sock, largest, room, shared.get(peer)) for peer, sock in sockets.items()}
        self._finished: set[int] = set()
        self._lost: list[int] = []
        self._ready: list[tuple[int, int]] = []
        """What the last ``wait`` found, until ``receive`` looks at it: it need not ask once more."""
        self._poll = select.poll()
        self._poll.register(self._inbox.fileno(), select.POLLIN)
        self._by_descriptor = {link.sock.fileno(): peer for peer, link in self._links.items()}
        for descriptor in self._by_descriptor:
            self._poll.register(descriptor, select.POLLIN)

    @property
    def connections(self) -> list[socket.socket]:
        """The sockets that lead to other processes, for those who want to know how much went over them."""
        return [link.sock for link in self._links.values()]

    def send(self, peer: int, message: Any) -> None:
        """Send a message to another worker."""
        link = self._links.get(peer)
        if link is not None:
            link.pending.append(message)
        else:
            self._inboxes[peer].put(self.index, message)

    def flush(self) -> None:
        """Pass on what was sent to other processes. ``UnsendableError`` after all the rest has been passed on."""
        refused: UnsendableError | None = None
        frames: Frames | None = {} if len(self._links) > 1 else None
        for link in self._links.values():
            if link.pending or link.backlog:
                try:
                    link.flush(frames)
                except UnsendableError as error:
                    refused = error
        if refused is not None:
            raise refused

    def receive(self) -> Sequence[tuple[int, Any]]:
        """Return what has arrived."""
        items = self._inbox.items
        arrived: list[tuple[int, Any]] = []
        known = bool(self._lost)  # then the last words of who is lost have been handed out
        while items:
            arrived.append(items.popleft())
        if self._links:
            ready, self._ready = self._ready or self._poll.poll(0), []
            for descriptor, _ in ready:
                peer = self._by_descriptor.get(descriptor)
                if peer is not None:
                    self._read(peer, arrived)
            if self._lost and (known or not arrived):
                raise PeerLostError(self._epitaph(self._lost[0]))
        return arrived

    def _epitaph(self, peer: int) -> str:
        """Return what is to be said of a peer that is lost."""
        fault = self._links[peer].fault
        if fault:
            return f"worker {peer} is cut off from worker {self.index}: {fault}"
        return f"worker {peer} has gone: its connection to worker {self.index} ended without a word"

    def _read(self, peer: int, arrived: list[tuple[int, Any]]) -> None:
        link = self._links[peer]
        messages: list[Any] = []
        try:
            link.read(messages)
        except Exception as error:  # of a record that says how it is to be read, and is wrong
            raise RoutingError(
                f"what worker {peer} sent to worker {self.index} cannot be unpickled there, {error_text(error)}: send records"
                " that can be, or plain data to make them of"
            ) from error
        finally:
            if link.gone:
                self._poll.unregister(link.sock.fileno())
        for message in messages:
            if message is None:
                self._finished.add(peer)
            else:
                arrived.append((peer, message))
        if link.gone and peer not in self._finished:
            self._lost.append(peer)

    def wait(self, timeout: float | None = None) -> None:
        """Wait until something has arrived, a peer can take more, or the time is up."""
        inbox = self._inbox
        inbox.waiting = True
        try:
            if inbox.called or inbox.items or self._lost:
                return
            backlog = [link for link in self._links.values() if link.backlog and not link.gone and not link.deaf]
            for link in backlog:
                self._poll.modify(link.sock.fileno(), select.POLLIN | select.POLLOUT)
            self._ready = self._look() or self._poll.poll(None if timeout is None else timeout * 1000)
            for link in backlog:
                self._poll.modify(link.sock.fileno(), select.POLLIN)
                link.write()
            for descriptor, _ in self._ready:
                if descriptor not in self._by_descriptor:
                    inbox.hush()
        finally:
            inbox.waiting = inbox.called = False

    def _look(self) -> list[tuple[int, int]]:
        """Return what has come by now, if anything has: peers in step answer sooner than one who sleeps is woken."""
        for _ in range(_LOOKS):
            if ready := self._poll.poll(0):
                return ready
        return []

    def wake(self) -> None:
        """Have the worker go on."""
        self._inbox.call()

    def close(self, timeout: float = 5.0) -> None:
        """Say goodbye to every peer in another process, wait for theirs, and close the connections."""
        for link in self._links.values():
            link.pending.append(None)
        try:
            self.flush()
            self._part(time.monotonic() + timeout)
        finally:
            for link in self._links.values():
                link.sock.close()
            self._inbox.close()

    def _part(self, deadline: float) -> None:
        """Wait until every peer has said goodbye and has taken what was left for it, or until the deadline."""
        while (left := deadline - time.monotonic()) > 0:
            peers = [peer for peer, link in self._links.items() if not link.gone and (peer not in self._finished or link.busy)]
            if not peers:
                break
            self._lost.clear()
            self._inbox.items.clear()
            self.wait(min(0.2, left))
            self.flush()
            self._drain(peers)

    def _drain(self, peers: Sequence[int]) -> None:
        """Read and discard what still comes, so that nobody's last words are cut off."""
        discarded: list[tuple[int, Any]] = [(self.index, None)]
        for peer in peers:
            if not self._links[peer].gone:
                with contextlib.suppress(Exception):  # what cannot be read is discarded as well
                    self._read(peer, discarded)


class SocketTransport(PeerTransport):
    """The transport of a worker all of whose peers are in other processes, given connected sockets by worker number.

    They may be encrypted (``ssl.SSLSocket``) or not; ``largest`` is as for ``PeerTransport``.
    """

    def __init__(self, index: int, sockets: Mapping[int, socket.socket], largest: int = LARGEST) -> None:
        super().__init__(index, {index: Inbox()}, sockets, largest)


def thread_transports(workers: int) -> list[PeerTransport]:
    """Return connected transports for ``workers`` workers that are threads of this process, in order.

    >>> one, two = thread_transports(2)
    >>> one.send(1, "hello")
    >>> two.receive()
    [(0, 'hello')]
    >>> one.close()
    >>> two.close()
    """
    inboxes = {index: Inbox() for index in range(workers)}
    return [PeerTransport(index, inboxes, {}) for index in range(workers)]
