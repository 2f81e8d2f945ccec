"""Where messages from other threads arrive: who waits is woken, and no more often than need be.

White box: how often a waiting worker is woken changes nothing but the time. The steps of another thread are put between
two of a wait.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import timely
from timely.worker import PeerTransport, SocketTransport, Worker, thread_transports
from timely.worker.internals import abort, sync_activator
from timely.worker.transports import Inbox
from timely.worker.worker_messages import DataMessage


class Rung(Inbox):
    """Counts how often its owner is woken."""

    __slots__ = ("times",)

    def __init__(self) -> None:
        super().__init__()
        self.times = 0

    def wake(self) -> None:
        self.times += 1
        super().wake()


@pytest.fixture
def rung() -> Iterator[tuple[Rung, PeerTransport, PeerTransport]]:
    """An inbox that counts, the transport of its owner, and that of a peer."""
    inbox = Rung()
    inboxes: dict[int, Inbox] = {0: inbox, 1: Inbox()}
    transport, peer = (PeerTransport(index, inboxes, {}) for index in inboxes)
    yield inbox, transport, peer
    transport.close()
    peer.close()


def test_who_waits_is_woken_once_for_all_that_comes_before_it_looks(rung: tuple[Rung, PeerTransport, PeerTransport]) -> None:
    inbox, transport, peer = rung
    for rings in (1, 2):
        inbox.armed.append(None)  # as it is while it waits
        for number in range(3):
            peer.send(0, ("data", number))
        assert inbox.times == rings
        transport.wait()  # the bell was rung: it ends
        assert transport.receive() == [(1, ("data", number)) for number in range(3)]
    peer.send(0, ("data", "not waited for"))
    assert inbox.times == 2
    transport.wait()  # there is something to read
    assert transport.receive() == [(1, ("data", "not waited for"))]


def test_who_does_not_wait_is_called_without_a_write_and_waits_no_more(rung: tuple[Rung, PeerTransport, PeerTransport]) -> None:
    inbox, transport, _ = rung
    for _ in range(3):
        transport.wake()
    assert inbox.times == 0
    transport.wait()  # it was called: it ends
    inbox.armed.append(None)  # as it is while it waits
    transport.wake()
    assert inbox.times == 1
    transport.wait()


def test_dropped_handles_and_dataflows_wake_no_running_worker() -> None:
    """Each wake-up costs a running worker a system call, or with sockets the interpreter's lock for 5 ms."""
    inbox = Rung()
    inboxes: dict[int, Inbox] = {0: inbox, 1: Inbox()}
    worker = Worker(PeerTransport(0, inboxes, {}))
    handles = []
    for _ in range(10):
        with worker.dataflow() as scope:
            handle, stream = scope.new_input()
            stream.probe()
        handles.append(handle)
    del handle
    handles.clear()
    for scope in worker.scopes:
        worker.drop_dataflow(scope)
    assert inbox.times == 0
    abort(worker, RuntimeError("the test is over"))
    worker.close()
    inboxes[1].close()


def test_only_who_waits_for_other_processes_too_has_files_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    transports = thread_transports(3)
    assert len(os.listdir("/proc/self/fd")) == before
    near, far = socket.socketpair()
    transports.append(SocketTransport(0, {1: near}))
    assert len(os.listdir("/proc/self/fd")) == before + 4
    far.close()
    for transport in transports:
        transport.close()
    assert len(os.listdir("/proc/self/fd")) == before


class Late(deque[Any]):
    """Has ``then()`` called on another thread right after somebody has looked whether there is anything."""

    then: Callable[[], object] | None = None

    def __len__(self) -> int:
        result = super().__len__()
        then, self.then = self.then, None
        if then is not None:
            on_another_thread(then)
        return result


class LateCounts(defaultdict[int, int]):
    """Has ``then()`` called on another thread right after somebody has read a count."""

    then: Callable[[], object] | None = None

    def get(self, key: int, default: int = 0) -> int:  # type: ignore[override]
        result = super().get(key, default)
        then, self.then = self.then, None
        if then is not None:
            on_another_thread(then)
        return result


def on_another_thread(action: Callable[[], object]) -> None:
    thread = threading.Thread(target=action)
    thread.start()
    thread.join()


@pytest.mark.parametrize("calls", [False, True], ids=["message", "call"])
def test_what_comes_right_after_the_owner_has_looked_ends_its_wait(calls: bool) -> None:
    one, two = thread_transports(2)
    late = one._inbox.items = Late()
    late.then = one.wake if calls else lambda: two.send(0, ("data", 1))
    begun = time.monotonic()
    one.wait(600)
    assert time.monotonic() - begun < 300
    assert one.receive() == ([] if calls else [(1, ("data", 1))])
    one.close()
    two.close()


def test_what_is_received_right_after_the_sender_has_counted_ends_its_wait() -> None:
    one, two = thread_transports(2)
    one.send(1, DataMessage(0, 0, 0, [b"x" * 1000] * 10))
    late = two._inbox.taken = LateCounts(int)
    late.then = two.receive
    assert one.crowded(5000)  # as far as it saw
    begun = time.monotonic()
    one.wait(600)
    assert time.monotonic() - begun < 300
    assert not one.crowded(5000)
    one.close()
    two.close()


def test_what_activates_while_the_action_runs_has_it_run_again() -> None:
    worker = Worker()
    runs: list[int] = []

    def action() -> None:
        runs.append(len(runs))
        if len(runs) == 1:
            on_another_thread(activator.activate)

    activator = sync_activator(worker, action)
    activator.activate()
    worker.step()
    worker.step()
    worker.step()
    assert runs == [0, 1]


def test_no_activation_is_lost_between_threads() -> None:
    """What another thread has done before it activates is there when the action runs, and the action runs once for it."""
    done: deque[int] = deque()
    seen: list[int] = []
    runs: list[int] = []

    def read() -> None:
        runs.append(len(seen))
        while done:
            seen.append(done.popleft())

    transport = thread_transports(1)[0]
    worker = Worker(transport)
    activator = sync_activator(worker, read)

    def write() -> None:
        for number in range(5_000):
            done.append(number)
            activator.activate()

    writers = [threading.Thread(target=write, daemon=True) for _ in range(2)]
    for writer in writers:
        writer.start()
    until = time.monotonic() + 600
    while len(seen) < 10_000 and time.monotonic() < until:
        transport.wait(600)
        worker.step()
    assert Counter(seen) == Counter([*range(5_000), *range(5_000)])
    assert len(runs) <= 10_000
    worker.close()


def test_a_capability_that_another_thread_lets_go_of_is_dropped_also_while_its_operator_runs() -> None:
    """The operator's own check at its end need not see what the other thread has noted."""
    holder: list[timely.Capability[int]] = []
    worker = Worker()

    def constructor(capability: timely.Capability[int], info: timely.OperatorInfo) -> Callable[..., None]:
        holder.append(capability)

        def logic(output: timely.OutputPort[int]) -> None:
            if holder:
                thread = threading.Thread(target=holder.clear)
                thread.start()
                thread.join()

        return logic

    with worker.dataflow(int) as scope:
        probe = scope.source("holds", constructor).probe()
    worker.run()
    assert probe.done()


def test_an_inbox_is_closed_after_the_wake_up_that_is_under_way() -> None:
    """One that comes later would be written to another file of the same number."""
    written, may_write = threading.Event(), threading.Event()

    class Slow(Inbox):
        __slots__ = ()

        def wake(self) -> None:
            written.set()
            may_write.wait(600)
            super().wake()

    inboxes: dict[int, Inbox] = {0: Slow(), 1: Inbox()}
    inboxes[0].descriptor()  # as a worker needs it that has peers in other processes
    transport, peer = (PeerTransport(index, inboxes, {}) for index in inboxes)
    sender = threading.Thread(target=peer.send, args=(0, ("data", 1)))
    inboxes[0].armed.append(None)  # as it is while it waits
    sender.start()
    written.wait(600)
    assert not inboxes[0].armed
    transport.receive()
    inboxes[0].due += 1  # as it is when the wait ends without it
    closing = threading.Thread(target=transport.close)
    closing.start()
    closing.join(0.02)
    assert closing.is_alive()
    may_write.set()
    closing.join(600)
    sender.join(600)
    assert not closing.is_alive()
    peer.close()
