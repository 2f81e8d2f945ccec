"""A connection that takes no more, and the bounds of what it takes: what waits is merged now and then, and goes later, whole.

White box: a connection that takes no more is a socket of the test's own.
"""

from __future__ import annotations

import socket
from typing import Any

import pytest

from timely.progress import ProgressBatch
from timely.worker import process_link as link
from timely.worker.batching import merge_progress
from timely.worker.process_link import Link
from timely.worker.worker_messages import DataMessage, ProgressMessage


def progress(number: int) -> Any:
    return ProgressMessage(0, ProgressBatch(0, number, (((0, 0, number), 1),)))


def test_what_waits_is_looked_at_again_when_it_is_twice_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum of all looks is no more than a small multiple of what waits, however often the link is flushed."""
    looked: list[int] = []

    def counting(messages: list[Any]) -> list[Any]:
        looked.append(len(messages))
        return merge_progress(messages)

    monkeypatch.setattr(link, "merge_progress", counting)
    near, far = socket.socketpair()
    sender, receiver = Link(near), Link(far)
    got: list[Any] = []
    with near, far:
        sender.pending.append(DataMessage(0, 1, 0, [bytes(1 << 23)]))
        sender.flush()
        assert (sender.backlog, sender.busy) == (True, True)
        for number in range(1000):
            sender.pending += [progress(number), DataMessage(0, 1, number, [number])]
            sender.flush()
        assert sum(looked) < 8 * 2000
        while sender.busy or len(got) < 1002:
            sender.flush()
            receiver.read(got)
    assert [message.time for message in got if isinstance(message, DataMessage)] == [0, *range(1000)]
    [batch] = [message.batch for message in got if isinstance(message, ProgressMessage)]
    assert (batch.sequence, batch.count, len(batch.updates)) == (0, 1000, 1000)


def test_a_closed_peer_keeps_nobody_busy() -> None:
    near, far = socket.socketpair()
    sender = Link(near)
    states = [sender.busy]
    sender.pending.append(DataMessage(0, 1, 0, [1]))
    states.append(sender.busy)
    far.close()
    sender.flush()
    sender.pending.append(DataMessage(0, 1, 0, [2]))
    assert sender.closed
    assert [*states, sender.busy] == [False, True, False]
    sender.flush()
    assert not sender.pending
    near.close()


def test_small_frames_do_not_wait_for_more_to_go_with_them() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sock:
        Link(sock)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
