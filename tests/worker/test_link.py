"""Connections by themselves: frames however they are cut, batches of progress as they were, and what is known of each fault.

White box: frames are cut, forged and delayed, and faults played, on a socket of the test's own.
"""

from __future__ import annotations

import contextlib
import pickle
import socket
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.worker.processes import Unreadable
from timely.errors import UnsendableError
from timely.order import Product
from timely.progress import ProgressBatch
from timely.worker import secure_link
from timely.worker.process_link import ROOM, Frames, Link
from timely.worker.secure_link import SecureLink
from timely.worker.wire import encode
from timely.worker.worker_messages import DataMessage, ProgressMessage, pack, unpack

times = st.one_of(st.integers(), st.builds(Product, st.integers(0, 9), st.integers(0, 9)), st.text(max_size=3))
updates = st.lists(st.tuples(st.tuples(st.integers(0, 3), st.integers(-3, 9), times), st.integers(-5, 5)), max_size=4)
batches = st.builds(ProgressBatch, st.integers(0, 9), st.integers(0, 1 << 40), updates.map(tuple), st.integers(1, 5))
data = st.one_of(st.lists(st.integers(), max_size=5), st.binary(max_size=20), st.integers(0, 5000).map(np.arange))
messages = st.one_of(
    st.builds(ProgressMessage, st.integers(0, 3), batches),
    st.builds(DataMessage, st.just(0), st.just(1), times, data),
    st.none(),
)


def plain(message: Any) -> Any:
    """Return a message with lists for its arrays, which are compared as a whole."""
    if message is not None and isinstance(message[-1], np.ndarray):
        return *message[:-1], message[-1].tolist(), str(message[-1].dtype)
    return message


@given(sent=st.lists(st.lists(messages, min_size=1, max_size=3), max_size=4), cuts=st.lists(st.integers(0, 200), max_size=6))
@example(sent=[[DataMessage(0, 1, 0, np.arange(ROOM // 4))]] * 2, cuts=[8, 16, 17, ROOM, ROOM + 16, 2 * ROOM + 40])
@example(sent=[[DataMessage(0, 1, 0, np.arange(2))], [None]], cuts=list(range(1, 400)))
def test_frames_arrive_whole_and_in_order_however_they_are_cut(sent: list[list[Any]], cuts: list[int]) -> None:
    near, far = socket.socketpair()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    link = Link(far)
    stream = b"".join(bytes(piece) for frame in sent for piece in encode([pack(message) for message in frame]))
    got: list[Any] = []
    with near, far:
        near.setblocking(False)
        for start, end in pairwise([0, *sorted({min(cut, len(stream)) for cut in cuts}), len(stream)]):
            left = memoryview(stream)[start:end]
            while left:
                left = left[near.send(left) :]
                link.read(got)
        link.read(got)
        assert not link.gone
    assert [plain(message) for message in got] == [plain(message) for frame in sent for message in frame]


@given(
    numbers=st.lists(st.one_of(st.integers(0, 40), st.integers(0, (1 << 64) - 1)), min_size=2, max_size=6),
    rest=st.one_of(st.binary(max_size=40), st.just(bytes(4)).map(lambda pad: b"".join(map(bytes, encode([None]))) + pad)),
)
@example(numbers=[(1 << 64) - 1, 1], rest=b"")
@example(numbers=[16, (1 << 64) - 1], rest=b"")
@example(numbers=[8, 1, (1 << 64) - 1], rest=b"")
def test_a_frame_of_any_numbers_is_read_or_ends_the_connection(numbers: list[int], rest: bytes) -> None:
    """No opcode of a pickle that does anything is among these bytes; peers hold the key of the run."""
    near, far = socket.socketpair()
    link, got = Link(far, largest=1 << 12), list[Any]()
    with near, far:
        near.sendall(b"".join(number.to_bytes(8, "little") for number in numbers) + rest.translate(bytes(range(64)) * 4))
        near.shutdown(socket.SHUT_WR)
        with contextlib.suppress(pickle.UnpicklingError, EOFError, ValueError, TypeError, IndexError, KeyError, AttributeError):
            link.read(got)
        assert link.gone and got == []


@given(batch=batches)
def test_a_batch_of_progress_comes_out_as_it_went_in(batch: ProgressBatch[Any]) -> None:
    number, result = unpack(pack(ProgressMessage(3, batch)))
    assert number == 3
    assert (result, result.count, type(result)) == (batch, batch.count, ProgressBatch)


def test_arrays_that_arrived_stay_as_they_are_when_more_arrives() -> None:
    near, far = socket.socketpair()
    sender, receiver = Link(near), Link(far)
    held: list[Any] = []
    with near, far:
        for number in range(20):
            sender.pending.append(DataMessage(0, 1, number, np.full(100, number)))
            sender.flush()
            receiver.read(held)
    assert [sorted(set(message[-1].tolist())) for message in held] == [[number] for number in range(20)]


def test_what_one_link_may_send_another_may_not() -> None:
    (near, _), (far, _) = pairs = socket.socketpair(), socket.socketpair()
    message = DataMessage(0, 1, 0, [bytes(2000)])
    frames: Frames = {}
    one, other = Link(near), Link(far, largest=1000)
    one.pending.append(message)
    other.pending.append(message)
    one.flush(frames)
    with pytest.raises(UnsendableError, match="1000 at most"):
        other.flush(frames)
    for sock in (*pairs[0], *pairs[1]):
        sock.close()


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
