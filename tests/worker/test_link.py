"""Connections by themselves: frames however they are cut, and batches of progress as they were.

White box: frames are cut, forged and delayed on a socket of the test's own.
"""

from __future__ import annotations

import contextlib
import pickle
import socket
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from timely.errors import UnsendableError
from timely.order import Product
from timely.progress import ProgressBatch
from timely.worker.process_link import ROOM, Frames, Link
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
