"""Transports by themselves: what cannot be sent, what waits for a peer that does not keep up, what goes over encrypted
connections, and parting from peers that are not done yet.

White box: messages are recognised by their type, and a connection's ends are made by hand.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from tests.worker.processes import Unreadable
from timely.dataflow import pickled
from timely.errors import PeerLostError, ProgressError, RoutingError, UnsendableError
from timely.progress import ProgressBatch, ProgressExchange
from timely.worker import PeerTransport, SocketTransport, Worker, credentials
from timely.worker import process_link as link
from timely.worker.batching import merge_progress
from timely.worker.credentials import make_identity
from timely.worker.transports import Inbox
from timely.worker.worker_messages import DataMessage, GraphsDoneMessage, ProgressMessage, unpack


def three_processes() -> list[SocketTransport]:
    """Three transports that are connected by sockets, as if each were in a process of its own."""
    sockets: dict[int, dict[int, socket.socket]] = {0: {}, 1: {}, 2: {}}
    for one, other in ((0, 1), (0, 2), (1, 2)):
        sockets[one][other], sockets[other][one] = socket.socketpair()
    return [SocketTransport(index, mine) for index, mine in sockets.items()]


def close_all(transports: list[Any]) -> None:
    threads = [threading.Thread(target=transport.close) for transport in transports]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_what_cannot_be_sent_is_named_and_is_not_in_the_way() -> None:
    transports = three_processes()
    bad = ("data", [1, lambda: 1])
    transports[0].send(1, bad)
    transports[0].send(2, ("data", [2]))
    with pytest.raises(UnsendableError, match="a record of type function cannot be pickled") as failure:
        transports[0].flush()
    assert failure.value.message is bad
    transports[0].send(1, ("abort", "it was no good"))
    transports[0].flush()
    assert transports[1].receive() == [(0, ("abort", "it was no good"))]
    assert transports[2].receive() == [(0, ("data", [2]))]
    close_all(list(transports))


class Patient(PeerTransport):
    """Counts how often it had to wait."""

    waits = 0

    def wait(self, timeout: float | None = None) -> None:
        self.waits += 1
        super().wait(timeout)


def test_parting_waits_although_messages_are_left_unread() -> None:
    inboxes = {0: Inbox(), 1: Inbox()}
    near, far = socket.socketpair()
    transport, other = Patient(0, inboxes, {2: near}), SocketTransport(2, {0: far})
    inboxes[0].put(1, ("progress", 0))
    parting = threading.Thread(target=transport.close)
    parting.start()
    parting.join(0.3)  # for as long as the other has not said goodbye
    other.close()
    parting.join()
    inboxes[1].close()
    assert transport.waits < 10


def test_a_lost_peer_is_found_out_while_others_keep_sending() -> None:
    ends = [socket.socketpair() for _ in range(2)]
    transport = SocketTransport(0, {1: ends[0][0], 2: ends[1][0]})
    busy = SocketTransport(2, {0: ends[1][1]})
    ends[0][1].close()
    arrived: list[Any] = []
    with pytest.raises(PeerLostError, match="worker 1 has gone"):
        for number in range(10):
            busy.send(0, ("data", number))
            busy.flush()
            arrived += transport.receive()
    close_all([transport, busy])


def test_what_comes_between_waiting_and_receiving_is_not_lost() -> None:
    transports = three_processes()
    transports[1].send(0, ("data", "early"))
    transports[1].flush()
    transports[0].wait()
    transports[2].send(0, ("data", "late"))
    transports[2].flush()
    transports[0].wake()
    transports[0].wait()
    transports[0].wait(0)  # which finds both once more, since nobody has received them
    got = [*transports[0].receive(), *transports[0].receive()]
    assert sorted(got) == [(1, ("data", "early")), (2, ("data", "late"))]
    assert transports[0].receive() == []
    close_all(list(transports))


class Counting(SocketTransport):
    """Counts how often it is asked."""

    received = 0

    def receive(self) -> Any:
        self.received += 1
        return super().receive()


def test_a_step_that_waits_takes_in_what_came_once() -> None:
    near, far = socket.socketpair()
    transports = [Counting(0, {1: near}), Counting(1, {0: far})]
    workers = [Worker(transport) for transport in transports]
    for worker in workers:
        with worker.dataflow(int) as scope:
            handle, again = scope.feedback(timely.Step(1, limit=50))
            scope.to_stream([0]).concat(again).exchange(lambda x: x).map(lambda x: x + 1).connect_loop(handle)
    steps = 0
    while [worker.run_step(0) for worker in workers] != [False, False]:
        steps += 1
    assert steps > 50
    assert {transport.received for transport in transports} == {steps + 1}
    close_all(list(transports))


# -- encrypted ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [KeyError, FileNotFoundError, BlockingIOError, ssl.SSLWantReadError])
@pytest.mark.parametrize("hidden", [False, True], ids=["plain", "encrypted"])
def test_what_reading_a_message_raises_is_not_reported_as_the_connections_fault(hidden: bool, kind: type[Exception]) -> None:
    ends = encrypted() if hidden else socket.socketpair()
    transports = [SocketTransport(0, {1: ends[0]}), SocketTransport(1, {0: ends[1]})]
    for _ in range(2):  # the second is still to be read when the connection is closed
        transports[0].send(1, ("data", Unreadable(kind), bytes(100_000)))
        transports[0].flush()
    with pytest.raises(RoutingError, match=f"worker 0 sent to worker 1 cannot be unpickled there, {kind.__name__}") as failure:
        for _ in range(100):
            transports[0].flush()
            transports[1].wait(0.1)
            transports[1].receive()
    assert isinstance(failure.value.__cause__, kind)
    with ThreadPoolExecutor() as pool:
        for closed in [pool.submit(transport.close) for transport in transports]:
            closed.result()


def encrypted() -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
    """Return the two ends of an encrypted connection."""
    identity = make_identity("worker")
    near, far = socket.socketpair()
    listening = credentials.listener(identity, identity.certificate)
    with ThreadPoolExecutor() as pool:
        accepted = pool.submit(listening.wrap_socket, far, server_side=True)
        dialled = credentials.speaker(identity, identity.certificate).wrap_socket(near)
        return dialled, accepted.result()


@pytest.fixture
def secure() -> Iterator[list[SocketTransport]]:
    near, far = encrypted()
    transports = [SocketTransport(0, {1: near}, 10_000_000), SocketTransport(1, {0: far}, 10_000_000)]
    yield transports
    close_all(list(transports))


def exchange(transports: list[SocketTransport], counts: list[int]) -> list[list[Any]]:
    """Step both transports, in one thread, until each has got so many messages."""
    got: list[list[Any]] = [[], []]
    while [len(some) for some in got] != counts:
        for index, transport in enumerate(transports):
            transport.flush()
            got[index] += [message for _, message in transport.receive()]
            transport.wait(0)
    return got


@given(sizes=st.lists(st.sampled_from([0, 1, 7, 100, 16_383, 16_384, 16_385, 65_536, 70_000, 300_000]), max_size=12))
def test_messages_of_any_size_arrive_in_order(sizes: list[int]) -> None:
    near, far = encrypted()
    transports = [SocketTransport(0, {1: near}), SocketTransport(1, {0: far})]
    messages = [("data", number, bytes([number]) * size) for number, size in enumerate(sizes)]
    for message in messages:
        transports[0].send(1, message)
        transports[0].flush()
    batch = pa.record_batch({"n": pa.array(range(len(sizes)))})
    transports[1].send(0, ("data", 0, batch))
    got = exchange(transports, [1, len(sizes)])
    assert got[1] == messages
    assert got[0] == [("data", 0, batch)]
    close_all(list(transports))


def test_a_message_that_is_too_large_is_refused_where_it_is_sent(secure: list[SocketTransport]) -> None:
    small, large = ("data", np.zeros(1_000_000)), ("data", np.zeros(2_000_000))
    for message in (small, small, large, small):
        secure[0].send(1, message)
    with pytest.raises(UnsendableError, match="send smaller batches") as failure:
        secure[0].flush()
    assert failure.value.message is large
    for _ in range(3):  # more than one may have, and each for itself is small enough
        secure[0].send(1, small)
    assert len(exchange(secure, [0, 3])[1]) == 3


# -- progress that waits -----------------------------------------------------------------------------------------------

updates = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([-1, 1])), max_size=4)
kinds = st.one_of(
    st.tuples(st.just("progress"), st.integers(0, 1), updates), st.tuples(st.just("data")), st.tuples(st.just("done"))
)


def with_batches(drawn: list[Any]) -> list[Any]:
    """Turn what was drawn into messages as a worker sends them."""
    sequences = {0: 0, 1: 0}
    messages: list[Any] = []
    for place, message in enumerate(drawn):
        if message[0] == "progress":
            _, number, changes = message
            message = ProgressMessage(number, ProgressBatch(0, sequences[number], tuple(changes)))
            sequences[number] += 1
        else:
            message = DataMessage(0, 0, place, []) if message[0] == "data" else GraphsDoneMessage(place)
        messages.append(message)
    return messages


def is_progress(message: Any, number: int) -> bool:
    return isinstance(message, ProgressMessage) and message.dataflow == number


def sums(messages: list[Any], number: int) -> dict[str, int]:
    exchange = ProgressExchange[str](1, 2)
    counts: dict[str, int] = {}
    for message in messages:
        if is_progress(message, number):
            for key, diff in exchange.receive(message.batch):  # which finds out about gaps and repetitions
                counts[key] = counts.get(key, 0) + diff
    return {key: count for key, count in counts.items() if count}


def fences(messages: list[Any]) -> list[int]:
    return [place for place, message in enumerate(messages) if not isinstance(message, DataMessage | ProgressMessage)]


@given(drawn=st.lists(kinds, max_size=12))
def test_progress_that_waits_is_merged_and_nothing_is_lost(drawn: list[Any]) -> None:
    messages = with_batches(drawn)
    merged = merge_progress(messages)
    others = [message for message in messages if not isinstance(message, ProgressMessage)]
    assert [message for message in merged if not isinstance(message, ProgressMessage)] == others
    edges = [(-1, *fences(messages), len(messages)), (-1, *fences(merged), len(merged))]
    for before, after in zip(*([(a + 1, b) for a, b in pairwise(edge)] for edge in edges), strict=True):
        stretch, shorter = messages[slice(*before)], merged[slice(*after)]
        for number in (0, 1):
            batches = [message.batch.count for message in shorter if is_progress(message, number)]
            assert len(batches) <= 1
            assert sum(batches) == sum(is_progress(message, number) for message in stretch)
        assert stretch[-1:] == [] or type(stretch[-1]) is type(shorter[-1])  # what went last still does
    for number in (0, 1):
        assert sums(merged, number) == sums(messages, number)


def test_the_sum_of_many_goes_with_the_last_of_them() -> None:
    batches = [ProgressMessage(0, ProgressBatch(0, number, ((number, 1),))) for number in range(4)]
    data = [DataMessage(0, 3, number, [number]) for number in range(3)]
    merged = merge_progress([batches[0], data[0], batches[1], data[1], batches[2], data[2], batches[3]])
    assert merged[:3] == data
    assert [message.batch.count for message in merged[3:]] == [4]


def test_only_batches_in_a_row_are_merged() -> None:
    first = ProgressBatch(0, 3, (("a", 1),))
    others: list[ProgressBatch[str]] = [ProgressBatch(0, 5, ()), ProgressBatch(1, 4, ()), ProgressBatch(0, 3, ())]
    for other in others:
        with pytest.raises(ProgressError, match="merge batches of one sender only"):
            first.merged([other])


def test_a_step_sends_each_peer_one_batch_and_a_slow_peer_gets_their_sum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    framed: list[list[Any]] = []

    def note(packed: list[Any]) -> Any:
        framed.append([message for message in map(unpack, packed) if isinstance(message, ProgressMessage)])
        return pickled(packed)

    monkeypatch.setattr(link, "pickled", note)
    near, far = socket.socketpair()
    workers = [Worker(SocketTransport(0, {1: near})), Worker(SocketTransport(1, {0: far}))]
    handles, seen = [], []
    for worker in workers:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            handles.append(handle)
            seen.append(stream.exchange(lambda _: 1).map(len).capture())
    handles[1].close()
    epochs, size = 300, 100_000
    for epoch in range(epochs):  # while the other worker does nothing
        if epoch < 20:
            handles[0].send(bytes(size))
        handles[0].advance_to(epoch + 1)
        workers[0].step()
    handles[0].close()
    while [worker.step() for worker in workers] != [False, False]:
        pass
    assert seen[1].extract() == [(epoch, [size]) for epoch in range(20)]
    assert seen[0].extract() == []
    sent = [message.batch for messages in framed for message in messages if message.batch.sender == 0]
    assert max(len(messages) for messages in framed) == 1
    assert sum(batch.count for batch in sent) > epochs  # so much was said,
    assert len(sent) < epochs / 2  # in so many messages
    close_all([worker.transport for worker in workers])


def test_a_message_to_all_peers_is_pickled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    transports = three_processes()
    framed: list[list[Any]] = []

    def note(packed: list[Any]) -> Any:
        framed.append(list(map(unpack, packed)))
        return pickled(packed)

    monkeypatch.setattr(link, "pickled", note)
    message = ProgressMessage(0, ProgressBatch(0, 0, (("a", 1),)))
    for extra in ([], [DataMessage(0, 0, 0, ["for worker 2 alone"])]):
        framed.clear()
        for peer in (1, 2):
            transports[0].send(peer, message)
        for data in extra:
            transports[0].send(2, data)
        transports[0].flush()
        assert framed == [[message], [message, *extra]][: 1 + len(extra)]
        for peer, result in ((1, []), (2, extra)):
            transports[peer].wait(600)
            assert transports[peer].receive() == [(0, message), *((0, data) for data in result)]
    monkeypatch.undo()
    for transport in transports:
        transport.close(0)
