"""Transports: memory between threads, connected sockets between processes.

A send never blocks and neither does a receive: what the other side does not take yet waits here, so that two workers cannot
lock each other up. A receive takes a part of much that has arrived, so that it is worked off before more is read. Invariant:
messages from one worker to another arrive in the order in which they were sent, but for the last, that the sender has failed. A
peer whose connection ends without a goodbye, or that sends what is no message, is a ``PeerLostError``.
"""

from __future__ import annotations

import contextlib
import queue
import select
import socket
import sys
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from timely.errors import OUT_OF_MEMORY, OutOfMemoryError, PeerLostError, RoutingError, UnsendableError, error_text
from timely.memory import MemoryBudget
from timely.worker.peer_pressure import weight_of
from timely.worker.process_link import ROOM, TAKEN, Frames, Link
from timely.worker.wire import LARGEST
from timely.worker.worker_messages import AbortMessage, DataMessage

_UNDER_WAY: Final = 1000.0
"""Milliseconds for a wake-up that is under way. It never comes if its thread has ended meanwhile."""

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
        """Write what was sent, as far as the other sides take it now; the rest goes when they do."""

    def receive(self) -> Sequence[tuple[int, Any]]:
        """Return ``(sender, message)`` for what has arrived, oldest first; nothing if nothing has.

        Of much that has arrived it returns a part, and ``wait`` does not wait while there is more.
        """

    def crowded(self, limit: int) -> bool:
        """Return whether peers have not taken more than ``limit`` bytes; then ``wait`` ends also when they take some."""

    def wait(self, timeout: float | None = None) -> None:
        """Wait until something may have arrived, or ``timeout`` seconds have passed."""

    def wake(self) -> None:
        """End the current ``wait``, or else the next one, at once. Any thread may call it."""

    def close(self, timeout: float = 5.0) -> None:
        """Send what is left, as far as peers take it in ``timeout`` seconds, and close every connection."""


class Waker:
    """Wakes a thread that waits for descriptors; any thread may."""

    __slots__ = ("_reader", "_writer")

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def wake(self) -> None:
        try:
            self._writer.send(b"!")
        except OSError:
            pass  # it is full, or closed

    def fileno(self) -> int:
        """The descriptor that becomes readable when the owner is woken."""
        return self._reader.fileno()

    def hush(self) -> int:
        """Discard the wake-ups so far, and return how many there were."""
        try:
            return len(self._reader.recv(4096))
        except OSError:
            return 0  # there were none, or it is closed

    def close(self) -> None:
        """Close both ends."""
        self._reader.close()
        self._writer.close()


class Inbox:
    """Messages to one worker from others of its process; wakes it when it waits.

    No lock, since a finalizer may call it in the middle of itself. Threads meet in deques, whose appends and pops are atomic. A
    sender appends its message, and then pops from ``armed``; the owner appends to ``armed``, and then looks at what came. Whoever
    comes second finds what the first has appended, so no wake-up is lost. See ``docs/architecture.md``, threads.
    """

    __slots__ = ("_descriptor", "_woken", "armed", "called", "crowded", "due", "items", "taken")

    def __init__(self) -> None:
        self._woken: queue.SimpleQueue[None] = queue.SimpleQueue()
        """Wake-ups without a file, which do not release the interpreter's lock; a put may interrupt the get on its thread."""
        self._descriptor: Waker | None = None
        self.items: deque[tuple[int, Any, int]] = deque()
        self.taken: defaultdict[int, int] = defaultdict(int)
        """About how many bytes of each peer the owner has taken; only the owner writes it."""
        self.armed: deque[None] = deque(maxlen=1)
        """Has an element while the owner waits: the thread that pops it wakes the owner."""
        self.called: deque[None] = deque(maxlen=1)
        """Has an element if the next wait is to end at once."""
        self.crowded: deque[None] = deque(maxlen=1)
        """Has an element if the owner waits for its peers to take what it has sent: the thread that pops it calls the owner."""
        self.due = 0
        """How many wake-ups are under way, as the owner knows it."""

    def call(self) -> None:
        """End the current wait, or else the next one, at once."""
        self.called.append(None)
        self._wake_waiting()

    def put(self, sender: int, message: Any, weight: int = 0) -> None:
        """Add a message of approximately this size, and wake the owner if it waits."""
        if type(message) is AbortMessage:
            self.items.appendleft((sender, message, 0))  # nothing before it matters any more
        else:
            self.items.append((sender, message, weight))
        self._wake_waiting()

    def _wake_waiting(self) -> None:
        if popped(self.armed):  # one wake-up is enough until it has looked
            self.wake()

    def descriptor(self) -> int:
        """Return the descriptor that becomes readable by a wake-up, for an owner that waits for others too.

        From then on it cannot ``wait``. Only before anything waits.
        """
        if self._descriptor is None:
            self._descriptor = Waker()
        return self._descriptor.fileno()

    def wake(self) -> None:
        if self._descriptor is None:
            self._woken.put(None)
        else:  # only if needed: a write releases the interpreter's lock, which takes 5 ms to get back
            self._descriptor.wake()

    def wait(self, timeout: float | None) -> None:
        """Wait for a wake-up, and take those that are there."""
        try:
            self._woken.get(timeout=None if timeout is None else max(timeout, 0.0))
            self.due -= 1
            while not self._woken.empty():
                self._woken.get_nowait()
                self.due -= 1
        except queue.Empty:
            pass  # the time is up

    def hush(self) -> None:
        """Discard the wake-ups that have made the descriptor readable."""
        if self._descriptor is not None:
            self.due -= self._descriptor.hush()

    def close(self) -> None:
        """Close what it has open, after the last wake-up: a later one would be written to another file of the same number."""
        waker = self._descriptor
        if waker is not None:
            poll = select.poll()
            poll.register(waker.fileno(), select.POLLIN)
            while self.due > 0 and poll.poll(_UNDER_WAY):
                self.due -= waker.hush()
            waker.close()


def popped(tokens: deque[None]) -> bool:
    """Pop an element, and return whether there was one. Only one thread gets each."""
    try:
        tokens.pop()
    except IndexError:
        return False
    return True


def _linked(sock: socket.socket, largest: int, room: bytearray, in_memory: int) -> Link:
    """Return the link over a socket; whoever made an ``ssl.SSLSocket`` has loaded ``ssl``."""
    ssl = sys.modules.get("ssl")
    if ssl is None or not isinstance(sock, ssl.SSLSocket):
        return Link(sock, room=room, in_memory=in_memory)
    from timely.worker.secure_link import SecureLink

    return SecureLink(sock, largest, room, in_memory)


class PeerTransport:
    """Connects one worker to peers in its own process (``inboxes``) and in others (``sockets``), both by worker number.

    ``receive`` raises ``PeerLostError`` when a connection ends that ``close`` on the other side did not end, and
    ``RoutingError`` when what came over one cannot be unpickled. Over encrypted sockets a message has at most ``largest``
    bytes, in either direction.
    """

    def __init__(
        self, index: int, inboxes: Mapping[int, Inbox], sockets: Mapping[int, socket.socket], largest: int = LARGEST
    ) -> None:
        self.index = index
        self.peers = len({index, *inboxes, *sockets})
        self._inbox = inboxes[index]
        self._inboxes = inboxes
        room = bytearray(ROOM if sockets else 0)
        in_memory = MemoryBudget.current().in_flight // max(len(sockets), 1) if sockets else 0
        self._links = {peer: _linked(sock, largest, room, in_memory) for peer, sock in sockets.items()}
        self._sent: defaultdict[int, int] = defaultdict(int)
        """About how many bytes went to each inbox."""
        self._most = 0
        """What has not been taken, at most, and was weighed."""
        self._finished: set[int] = set()
        self._lost: list[int] = []
        self._ready: list[tuple[int, int]] = []
        """What the last ``wait`` found, for ``receive``, which need not poll again."""
        if sockets:
            self._poll = select.poll()  # which Windows has not
            self._poll.register(self._inbox.descriptor(), select.POLLIN)
        self._by_descriptor = {link.sock.fileno(): peer for peer, link in self._links.items()}
        for descriptor in self._by_descriptor:
            self._poll.register(descriptor, select.POLLIN)

    @property
    def connections(self) -> list[socket.socket]:
        """The sockets to other processes."""
        return [link.sock for link in self._links.values()]

    def send(self, peer: int, message: Any) -> None:
        link = self._links.get(peer)
        if type(message) is DataMessage:
            weight = weight_of(message.batch)
            self._most += weight
            if link is None:
                self._sent[peer] += weight
                self._inboxes[peer].put(self.index, message, weight)
            else:
                link.send(message, weight)
        elif link is not None:
            link.pending.append(message)
        else:
            self._inboxes[peer].put(self.index, message)

    def flush(self) -> None:
        """Write what was sent to other processes. ``UnsendableError`` after all the rest has been written."""
        refused: UnsendableError | None = None
        frames: Frames | None = {} if len(self._links) > 1 else None
        for link in self._links.values():
            if link.pending or link.backlog or link.refused:
                try:
                    link.flush(frames)
                except UnsendableError as error:
                    refused = error
        if refused is not None:
            raise refused

    def receive(self) -> Sequence[tuple[int, Any]]:
        arrived: list[tuple[int, Any]] = []
        known = bool(self._lost)  # then all messages of a lost peer have been handed out
        if self._inbox.items:
            self._take(arrived)
        if self._links:
            ready, self._ready = self._ready or self._poll.poll(0), []
            for descriptor, _ in ready:
                peer = self._by_descriptor.get(descriptor)
                if peer is not None:
                    self._read(peer, arrived)
            if self._lost and (known or not arrived):
                raise PeerLostError(self._why_lost(self._lost[0]))
        return arrived

    def _take(self, arrived: list[tuple[int, Any]]) -> None:
        """Take messages of other threads, and wake those that wait for that."""
        items, taken, total = self._inbox.items, self._inbox.taken, 0
        while items and total < TAKEN:
            sender, message, weight = items.popleft()
            arrived.append((sender, message))
            if weight:
                taken[sender] += weight
                total += weight
        if total:
            for sender in taken:
                if popped((inbox := self._inboxes[sender]).crowded):
                    inbox.call()

    def held(self) -> Iterator[tuple[str, list[Any], int]]:
        """Yield what is in memory here: where, messages, and bytes of those that are framed already. Any thread may ask."""
        yield f"the inbox of worker {self.index}", [message for _, message, _ in tuple(self._inbox.items)], 0
        for peer, link in self._links.items():
            yield f"what waits for worker {peer}", list(link.pending), link.framed

    def crowded(self, limit: int) -> bool:
        if self._most <= limit:
            return False
        self._inbox.crowded.append(None)  # before it looks: who takes more from now on calls
        index, total = self.index, 0
        for link in self._links.values():
            total += link.waiting
        for peer, sent in self._sent.items():
            total += sent - self._inboxes[peer].taken.get(index, 0)
        self._most = total
        if total > limit:
            return True
        popped(self._inbox.crowded)
        return False

    def _why_lost(self, peer: int) -> str:
        """Return what an error says of a lost peer."""
        fault = self._links[peer].fault
        if fault:
            return f"worker {peer} is cut off from worker {self.index}: {fault}"
        return f"worker {peer} has gone: its connection to worker {self.index} ended without a word"

    def _read(self, peer: int, arrived: list[tuple[int, Any]]) -> None:
        link = self._links[peer]
        messages: list[Any] = []
        try:
            link.read(messages)
        except MemoryError as error:
            raise OutOfMemoryError(
                f"what worker {peer} sent to worker {self.index} leaves no memory to read it there: send smaller batches or"
                f" records. {OUT_OF_MEMORY}",
                worker=self.index,
            ) from error
        except Exception as error:  # a record's own unpickling may raise anything
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
        inbox.armed.append(None)  # before it looks: who adds something from now on wakes it
        try:
            if inbox.called or inbox.items or self._lost:
                return
            if not self._links:
                inbox.wait(timeout)
                return
            backlog = [link for link in self._links.values() if link.backlog and not link.gone and not link.closed]
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
            if not popped(inbox.armed):
                inbox.due += 1
            popped(inbox.called)

    def _look(self) -> list[tuple[int, int]]:
        """Return what has arrived by now: peers in step answer sooner than a sleeping thread wakes up."""
        for _ in range(_LOOKS):
            if ready := self._poll.poll(0):
                return ready
        return []

    def wake(self) -> None:
        self._inbox.call()

    def close(self, timeout: float = 5.0) -> None:
        """Send every peer in another process a goodbye, wait for theirs, and close the connections."""
        for link in self._links.values():
            link.pending.append(None)
        try:
            self.flush()
            self._await_goodbyes(time.monotonic() + timeout)
        finally:
            for link in self._links.values():
                link.sock.close()
            self._inbox.close()

    def _await_goodbyes(self, deadline: float) -> None:
        """Wait until every peer has sent its goodbye and has taken what was left for it, or until the deadline."""
        while (left := deadline - time.monotonic()) > 0:
            peers = [peer for peer, link in self._links.items() if not link.gone and (peer not in self._finished or link.busy)]
            if not peers:
                break
            self._lost.clear()
            while self._inbox.items:
                self._inbox.items.popleft()
            self.wait(min(0.2, left))
            self.flush()
            self._drain(peers)

    def _drain(self, peers: Sequence[int]) -> None:
        """Read and discard what still comes: an unread socket that is closed cuts off what the peer has yet to read."""
        discarded: list[tuple[int, Any]] = [(self.index, None)]
        for peer in peers:
            if not self._links[peer].gone:
                with contextlib.suppress(Exception):  # what cannot be read is discarded as well
                    self._read(peer, discarded)


class LocalTransport(PeerTransport):
    """The transport of a worker without peers: nothing ever arrives."""

    def __init__(self) -> None:
        super().__init__(0, {0: Inbox()}, {})


class SocketTransport(PeerTransport):
    """Connects a worker to peers that are all in other processes, given connected sockets, encrypted or not, by worker number."""

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
