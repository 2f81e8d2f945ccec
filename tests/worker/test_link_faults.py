"""Connections on which something goes wrong, or that never come to an end: what the worker gets to know of it, and when.

White box: the faults are those of a socket that the test plays.
"""

from __future__ import annotations

import pickle
import socket
from typing import Any, cast

import pytest

from tests.worker.processes import Unreadable
from timely.errors import UnsendableError
from timely.worker import secure_link
from timely.worker.process_link import Link
from timely.worker.secure_link import SecureLink
from timely.worker.wire import encode
from timely.worker.worker_messages import DataMessage, pack


def test_after_what_cannot_be_read_nothing_more_is() -> None:
    near, far = socket.socketpair()
    receiver = Link(far)
    received: list[Any] = []
    with near, far:
        near.sendall(b"".join(encode([Unreadable(LookupError)])))
        with pytest.raises(LookupError):
            receiver.read(received)
        assert (receiver.gone, receiver.fault) == (True, "")
        near.sendall(b"".join(encode([("relies on it",)])))
        receiver.read(received)
    assert received == []


class Socket:
    """Stands in for a connected one: gives these pieces, one at a time, and then raises; ``asked`` is how often it was."""

    family = socket.AF_UNIX

    def __init__(self, *pieces: bytes, behind: int = 0) -> None:
        self.pieces = list(pieces)
        self.behind = behind
        self.asked = 0

    def setblocking(self, blocking: bool) -> None:
        assert not blocking

    def recv_into(self, room: memoryview) -> int:
        self.asked += 1
        if not self.pieces:
            raise ConnectionResetError
        piece = self.pieces.pop(0)
        room[: len(piece)] = piece
        return len(piece)

    def pending(self) -> int:
        """Return how much waits in the TLS layer, where no poll sees it."""
        return max(self.behind - self.asked, 0)


@pytest.mark.parametrize("received", [0, 1, 20, 70])
def test_a_connection_that_is_lost_in_a_frame_is_gone(received: int) -> None:
    frame = b"".join(bytes(piece) for piece in encode([pack(DataMessage(0, 1, 0, [bytes(100)]))]))
    broken: Any = Socket(*([frame[:received]] if received else []))
    receiver, arrived = Link(broken), list[Any]()
    for _ in range(2):
        receiver.read(arrived)
    assert (receiver.gone, arrived) == (True, [])


@pytest.mark.parametrize(("behind", "expected"), [(0, 5), (9, 9)])
def test_a_peer_that_never_stops_does_not_starve_others(behind: int, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """But not before all has been taken that nobody would find later."""
    frames = [b"".join(encode([pack(("number", number))])) for number in range(100)]
    monkeypatch.setattr(secure_link, "TAKEN", 5 * len(frames[0]))
    endless: Any = Socket(*frames, behind=behind)
    received: list[Any] = []
    SecureLink(endless).read(received)
    assert received == [("number", number) for number in range(expected)]


class Once:
    """Fails to be pickled the first time."""

    failed = False

    def __reduce__(self) -> Any:
        if not Once.failed:
            Once.failed = True
            raise TypeError("not now")
        return Once, ()


def test_what_cannot_be_sent_only_now_and_then_is_an_error_too() -> None:
    near, far = socket.socketpair()
    sender = Link(near)
    sender.pending += [DataMessage(0, 1, 0, [Once()]), DataMessage(0, 1, 1, []), DataMessage(0, 1, 2, [])]
    last = sender.pending[-1]
    with near, far, pytest.raises(UnsendableError, match="cannot be pickled") as caught:
        sender.flush()
    assert caught.value.message is last


class Interrupted(socket.socket):
    """A connected socket; what is sent on it goes, and then comes an interruption, the first time."""

    interrupted = False

    def send(self, data: Any, flags: int = 0) -> int:
        return self._interrupted(super().send(data, flags))

    def sendmsg(self, buffers: Any, *others: Any) -> int:
        return self._interrupted(super().sendmsg(buffers, *others))

    def _interrupted(self, sent: int) -> int:
        if not self.interrupted:
            self.interrupted = True
            raise KeyboardInterrupt
        return sent


def after_an_interruption(sender: Link, far: socket.socket, *first: Any) -> tuple[list[Any], bool, bool]:
    """Send a message and be interrupted, then another; return what arrives, whether the link is gone, and whether it is busy."""
    receiver, received = Link(far), list[Any]()
    sender.pending += first
    with pytest.raises(KeyboardInterrupt):
        sender.flush()
    sender.pending.append(("second",))
    sender.flush()
    for _ in range(3):
        receiver.read(received)
    return received, receiver.gone, sender.busy


@pytest.mark.parametrize("pieces", [1, 2], ids=["one piece", "two"])
def test_after_an_interruption_nothing_is_sent_twice_or_left_out(pieces: int) -> None:
    near, far = socket.socketpair()
    first = ("first", *[pickle.PickleBuffer(bytes(100_000))] * (pieces - 1))
    with Interrupted(fileno=near.detach()) as near, far:
        received, gone, busy = after_an_interruption(Link(near), far, first)
    assert ([kind for kind, *_ in received], gone, busy) == (["first"], True, False)


class Interrupting:
    """Is interrupted when it is pickled, the first time."""

    interrupted = False

    def __reduce__(self) -> Any:
        if not self.interrupted:
            self.interrupted = True
            raise KeyboardInterrupt
        return Interrupting, ()


@pytest.mark.parametrize("kind", [Link, SecureLink], ids=["plain", "encrypted"])
def test_what_was_interrupted_when_it_was_made_ready_is_not_left_out(kind: Any) -> None:
    near, far = socket.socketpair()
    with near, far:
        assert after_an_interruption(kind(near), far, ("first",), (Interrupting(),)) == ([], True, False)


class Hasty(SecureLink):
    """Is interrupted between taking what is to be written next and writing it."""

    __slots__ = ()

    def _next(self) -> bytes | memoryview:
        super()._next()
        raise KeyboardInterrupt


def test_what_was_interrupted_before_it_was_written_is_not_left_out() -> None:
    near, far = socket.socketpair()
    with near, far:
        assert after_an_interruption(Hasty(cast(Any, near)), far, ("first",)) == ([], True, False)
