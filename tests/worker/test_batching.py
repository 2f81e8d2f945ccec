"""What is put together before it leaves, or while a connection takes no more: nobody can tell, except by the number of messages.

White box: results do not show how many messages carried them, and a connection that takes no more is a socket of the test's own.
"""

from __future__ import annotations

import socket
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely.dataflow.ports import FLUSH_AT
from timely.progress import ProgressBatch
from timely.worker import batching as module
from timely.worker import process_link as link
from timely.worker.batching import MessageBatcher, merge_progress
from timely.worker.process_link import Link
from timely.worker.worker_messages import DataMessage, ProgressMessage

puts = st.tuples(
    st.integers(1, 2),
    st.integers(0, 1),
    st.integers(0, 2),
    st.one_of(st.lists(st.integers(), max_size=3), st.integers(1, 3).map(np.arange), st.just([0] * FLUSH_AT)),
)


def records(batch: Any) -> list[Any]:
    result: list[Any] = batch if isinstance(batch, list) else batch.tolist()
    return result


@given(st.lists(st.one_of(puts, st.none()), max_size=20))
def test_each_channel_gives_what_was_sent_in_order_at_its_times(steps: list[Any]) -> None:
    seen: dict[Any, list[Any]] = defaultdict(list)
    sent: dict[Any, list[Any]] = defaultdict(list)
    lists: list[tuple[list[Any], list[Any]]] = []
    kinds: dict[Any, list[type]] = defaultdict(list)

    def send(peer: int, message: Any) -> None:
        number, channel, time, batch = message
        assert (type(message), number) == (DataMessage, 7)
        seen[peer, channel] += [(time, record) for record in records(batch)]
        kinds[peer, channel] += [type(batch)] * len(batch)

    batcher = MessageBatcher(7, send)
    expected: dict[Any, list[type]] = defaultdict(list)
    for step in (*steps, None):
        if step is None:
            batcher.flush()
            assert seen == sent  # nothing is held any longer
            continue
        peer, channel, time, batch = step
        if isinstance(batch, list):
            lists.append((batch, list(batch)))
        sent[peer, channel] += [(time, record) for record in records(batch)]
        seen[peer, channel] += []
        expected[peer, channel] += [type(batch)] * len(batch)
        batcher.send(peer, channel, time, batch)
    assert {key: result for key, result in kinds.items() if result} == {key: result for key, result in expected.items() if result}
    assert all(batch == before for batch, before in lists)  # what others may have as well is not changed


def test_what_is_held_grows_up_to_as_much_as_a_session_gathers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FLUSH_AT", 3)
    reports: list[Any] = []
    batcher = MessageBatcher(7, lambda peer, message: reports.append(message.batch))
    seen = []
    for batch in ([1], [2], [3], [4], [5, 6, 7], [8, 9], [10, 11], [12]):
        batcher.send(1, 0, 0, batch)
        seen.append(len(reports))
    assert seen == [0, 0, 0, 1, 3, 3, 3, 4]  # at once, where it is as much as that by itself
    batcher.flush()
    assert reports == [[1, 2, 3], [4], [5, 6, 7], [8, 9, 10, 11], [12]]


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
