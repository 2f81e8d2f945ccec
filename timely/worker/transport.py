"""What carries messages between workers: through memory within a process, through connected sockets between processes.

A transport never blocks on a send and never blocks on a receive; what the other side is not ready to take waits here, so that
two workers that send each other large messages cannot lock each other up. Messages from one worker to another arrive in the
order in which they were sent, which is all that the protocol of progress asks for. A peer that goes away without a word is a
``PeerLostError``, and so is one that sends what is no message: it is cut off before memory is taken for it.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from timely.errors import PeerLostError, UnsendableError
from timely.worker.coalesce import coalesce
from timely.worker.wire import HEADER, LARGEST, FrameError, announced, decode, encode

_CHUNK: Final = 1 << 18
_MOST_PIECES: Final = 512
_SMALL: Final = 1 << 16
_RECORD: Final = 1 << 14
_MOST_TURNS: Final = 4096
_FEW: Final = 16

WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""What a socket raises, encrypted or not, that cannot go on just now."""


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
        self._woken = threading.Event()

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
        self._woken.wait(timeout)
        self._woken.clear()

    def wake(self) -> None:
        """Have the worker go on."""
        self._woken.set()

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

    __slots__ = ("items", "waiting")

    def __init__(self) -> None:
        super().__init__()
        self.items: deque[tuple[int, Any]] = deque()
        self.waiting = False

    def put(self, sender: int, message: Any) -> None:
        """Put a message in, and wake the owner if it waits."""
        self.items.append((sender, message))
        if self.waiting:
            self.wake()


class Link:
    """One connection to a worker in another process: frames out, frames in, nothing blocking.

    No frame has a body of more than ``largest`` bytes, where that is given, in either direction. While the other side does not
    take what it is sent, messages wait as they are, and the batches of progress among them become fewer.
    """

    __slots__ = (
        *("_at", "_body", "_buffers", "_head", "_held", "_out"),
        *("deaf", "fault", "gone", "largest", "pending", "sock"),
    )

    def __init__(self, sock: socket.socket, largest: int | None = None) -> None:
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.largest = largest
        self.gone = False
        self.deaf = False
        self.fault = ""
        self.pending: list[Any] = []
        self._held = 0
        self._out: deque[memoryview] = deque()
        self._head = bytearray()
        self._body: memoryview | None = None
        self._buffers = 0
        self._at = 0

    @property
    def backlog(self) -> bool:
        """Whether something is waiting for the other side to take it."""
        return bool(self._out)

    @property
    def busy(self) -> bool:
        """Whether there is anything that has not been sent yet."""
        return not self.deaf and bool(self.pending or self.backlog)

    def flush(self) -> None:
        """Put what was sent into a frame, unless the one before is still on its way, and write as much as the connection takes.

        ``UnsendableError`` if it cannot be pickled or is too large; then none of it is sent, and the next flush starts anew.
        """
        if self.backlog:
            self.write()
            if self.backlog:
                self._hold()
                return
        if self.deaf:
            self.pending.clear()
        if self.pending:
            pending, self.pending = self.pending, []
            if self._held:
                pending, self._held = coalesce(pending), 0
            self._out.extend(memoryview(piece) for piece in self._frame(pending) if len(piece))  # an empty one never goes
            self.write()

    def _hold(self) -> None:
        """Have messages wait; whenever they have become twice as many, see which of them can be merged."""
        if len(self.pending) >= 2 * self._held:
            self.pending = coalesce(self.pending)
            self._held = max(len(self.pending), _FEW)

    def _frame(self, messages: list[Any]) -> list[bytes | memoryview]:
        """Return the pieces of a frame with these messages, or of several where one would be too large."""
        try:
            pieces = encode(messages)
        except Exception as error:
            raise _unsendable(messages) from error
        if self.largest is None or (size := sum(map(len, pieces)) - HEADER.size) <= self.largest:
            return pieces
        if len(messages) == 1:
            raise UnsendableError(
                f"{size} bytes in one message are too many for a worker on another machine, which takes {self.largest} at most:"
                " send smaller batches",
                messages[0],
            )
        half = len(messages) // 2
        return self._frame(messages[:half]) + self._frame(messages[half:])

    def write(self) -> None:
        """Write as much of what waits to be written as the connection takes."""
        out = self._out
        while out and not self.deaf:
            pieces = [out[i] for i in range(min(len(out), _MOST_PIECES))]
            try:
                sent = self.sock.sendmsg(pieces)
            except BlockingIOError:
                return
            except OSError:
                self._stop_writing()
                return
            while sent:
                first = out[0]
                if sent < len(first):
                    out[0] = first[sent:]
                    break
                sent -= len(first)
                out.popleft()

    def _stop_writing(self) -> None:
        """Let go of what can never be sent."""
        self._out.clear()
        self.deaf = True

    def read(self, into: list[Any]) -> None:
        """Read what has arrived, and append the messages of every complete frame."""
        try:
            self._read(into)
        except FrameError as error:
            self._end(str(error))
        except BaseException:
            self._end()  # whatever comes after what cannot be read was sent by somebody who relied on it
            raise

    def _end(self, fault: str = "") -> None:
        """Read no more: the connection has ended, or what comes over it is not to be trusted."""
        self.gone = True
        self.fault = fault
        self._body = None

    def _read(self, into: list[Any]) -> None:
        while not self.gone:
            if self._body is not None:
                if not self._fill():
                    return
                self._take(into)
                continue
            try:
                data = self.sock.recv(_CHUNK)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._end()
                return
            self._split(data, into)
            if self._body is None and len(data) < _CHUNK:
                return

    def _take(self, into: list[Any]) -> None:
        """Append the messages of the frame that is complete now."""
        assert self._body is not None
        into.extend(decode(self._body, self._buffers))  # which raises what it likes, an OSError too
        self._body = None

    def _split(self, data: bytes, into: list[Any]) -> None:
        """Take the complete frames off what has been read, and start on a frame that is not complete."""
        head, at = self._head, 0
        head += data
        while len(head) - at >= HEADER.size:
            size, buffers = announced(head, at, self.largest)
            at += HEADER.size
            body = memoryview(bytearray(size))
            have = min(size, len(head) - at)
            body[:have] = head[at : at + have]
            at += have
            if have < size:
                self._body, self._buffers, self._at = body, buffers, have
                break
            into.extend(decode(body, buffers))
        del head[:at]

    def _fill(self) -> bool:
        """Read on into the frame that is not complete; return whether it is now."""
        body = self._body
        assert body is not None
        while self._at < len(body):
            try:
                count = self.sock.recv_into(body[self._at :])
            except BlockingIOError:
                return False
            except OSError:
                count = 0
            if count == 0:
                self._end()
                return False
            self._at += count
        return True


class SecureLink(Link):
    """A link over TLS, where bytes get into the socket and out of it in another way.

    TLS goes out in records of at most 16 KB, and a write that could not be finished has to be repeated with the very same bytes.
    So what waits is written in pieces that are kept until they have gone: slices of large buffers, and small ones joined. What
    comes is read record by record, and no part of one is left behind in the TLS layer, where no poll could see it.
    """

    __slots__ = ("_leaving",)

    sock: ssl.SSLSocket

    def __init__(self, sock: ssl.SSLSocket, largest: int | None = LARGEST) -> None:
        super().__init__(sock, largest)
        self._leaving: bytes | memoryview = b""

    @property
    def backlog(self) -> bool:
        """Whether something is waiting for the other side to take it."""
        return bool(self._leaving or self._out)

    def write(self) -> None:
        """Write as much of what waits to be written as the connection takes."""
        while not self.deaf and (self._leaving or self._out):
            if not self._leaving:
                self._leaving = self._next()
            try:
                self._leaving = self._leaving[self.sock.send(self._leaving) :]
            except WOULD_BLOCK:
                return
            except OSError:
                self._stop_writing()

    def _next(self) -> bytes | memoryview:
        """Take the next piece to be written off what waits."""
        out = self._out
        first = out.popleft()
        if len(first) > _CHUNK:
            out.appendleft(first[_CHUNK:])
            return first[:_CHUNK]
        if len(first) >= _SMALL or not out:
            return first
        joined = bytearray(first)
        while out and len(joined) + len(out[0]) <= _SMALL:
            joined += out.popleft()
        return bytes(joined)

    def _stop_writing(self) -> None:
        super()._stop_writing()
        self._leaving = b""

    def _read(self, into: list[Any]) -> None:
        turns = 0
        while not self.gone:
            data = b""
            try:
                if self._body is not None:
                    count = self.sock.recv_into(self._body[self._at :])
                else:
                    data = self.sock.recv(_RECORD)
                    count = len(data)
            except WOULD_BLOCK:
                return
            except OSError as error:
                self._end(str(error) if isinstance(error, ssl.SSLError) else "")
                return
            if count == 0:
                self._end()
            elif self._body is None:
                self._split(data, into)
            else:
                self._at += count
                if self._at == len(self._body):
                    self._take(into)
            turns += 1
            if turns >= _MOST_TURNS and self.sock.pending() == 0:
                return  # the poll finds what else there is, after the other peers have had their turn


class PeerTransport:
    """Connects one worker to peers in its own process (``inboxes``) and in others (``sockets``), both by worker number.

    ``PeerLostError`` from ``receive`` when a connection ends that was not closed by ``close`` on the other side. Over sockets
    that are encrypted, no message may have more than ``largest`` bytes, and none that is announced to have more is taken in.
    """

    def __init__(
        self, index: int, inboxes: Mapping[int, Inbox], sockets: Mapping[int, socket.socket], largest: int = LARGEST
    ) -> None:
        self.index = index
        self.peers = len({index, *inboxes, *sockets})
        self._inbox = inboxes[index]
        self._inboxes = inboxes
        self._links = {
            peer: SecureLink(sock, largest) if isinstance(sock, ssl.SSLSocket) else Link(sock) for peer, sock in sockets.items()
        }
        self._finished: set[int] = set()
        self._lost: list[int] = []
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
        for link in self._links.values():
            if link.pending or link.backlog:
                try:
                    link.flush()
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
            for descriptor, _ in self._poll.poll(0):
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
            if inbox.items or self._lost:
                return
            backlog = [link for link in self._links.values() if link.backlog and not link.gone and not link.deaf]
            for link in backlog:
                self._poll.modify(link.sock.fileno(), select.POLLIN | select.POLLOUT)
            ready = self._poll.poll(None if timeout is None else timeout * 1000)
            for link in backlog:
                self._poll.modify(link.sock.fileno(), select.POLLIN)
                link.write()
            if any(descriptor == inbox.fileno() for descriptor, _ in ready):
                inbox.hush()
        finally:
            inbox.waiting = False

    def wake(self) -> None:
        """Have the worker go on."""
        self._inbox.wake()

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


def _unsendable(pending: Sequence[Any]) -> UnsendableError:
    """Return the error about the first of the pending messages that cannot be pickled, and about what it carries."""
    for message in pending:
        try:
            encode(message)
        except Exception as error:
            return UnsendableError(f"{_culprit(message[-1])} cannot be pickled for a worker in another process: {error}", message)
    return UnsendableError("what goes to a worker in another process cannot be pickled", pending[-1])


def _culprit(carried: Any) -> str:
    """Return, for an error, what in the content of a message cannot be pickled: its first such record, or all of it."""
    for record in carried if isinstance(carried, list) else ():
        try:
            encode(record)
        except Exception:
            return f"a record of type {type(record).__name__}"
    return f"a {type(carried).__name__}"


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
