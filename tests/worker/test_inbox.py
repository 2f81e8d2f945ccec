"""Where messages from other threads arrive: who waits is woken, and no more often than need be.

White box: how often a waiting worker is woken costs time and changes nothing else.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable

import timely
from timely.worker import PeerTransport, Worker, thread_transports
from timely.worker.internals import abort, sync_activator
from timely.worker.transport import Inbox


class Rung(Inbox):
    """Counts how often its owner is woken."""

    __slots__ = ("times",)

    def __init__(self) -> None:
        super().__init__()
        self.times = 0

    def wake(self) -> None:
        self.times += 1
        super().wake()


def test_who_waits_is_woken_once_for_all_that_comes_before_it_looks() -> None:
    inbox = Rung()
    inboxes: dict[int, Inbox] = {0: inbox, 1: Inbox()}
    transport, peer = (PeerTransport(index, inboxes, {}) for index in inboxes)
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
    transport.close()
    peer.close()


def test_who_does_not_wait_is_called_without_a_write_and_waits_no_more() -> None:
    inbox = Rung()
    inboxes: dict[int, Inbox] = {0: inbox, 1: Inbox()}
    transport, peer = (PeerTransport(index, inboxes, {}) for index in inboxes)
    for _ in range(3):
        transport.wake()
    assert inbox.times == 0
    transport.wait()  # it was called: it ends
    inbox.armed.append(None)  # as it is while it waits
    transport.wake()
    assert inbox.times == 1
    transport.wait()
    transport.close()
    peer.close()


def test_dropped_handles_and_dataflows_wake_no_running_worker() -> None:
    """A write to a socket gives up the interpreter's lock, and each would take 5 ms where another worker is busy."""
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


def test_no_wake_up_is_lost_between_threads() -> None:
    """Each waits for the other's message without a bound on the time, as often as there is to say."""
    one, two = thread_transports(2)
    rounds, seen = 3000, [0, 0]

    def play(transport: PeerTransport) -> None:
        while seen[transport.index] < rounds:
            transport.wait()
            for sender, _ in transport.receive():
                seen[transport.index] += 1
                transport.send(sender, ("data", seen[transport.index]))

    players = [threading.Thread(target=play, args=(transport,), daemon=True) for transport in (one, two)]
    for player in players:
        player.start()
    one.send(1, ("data", 0))
    for player in players:
        player.join(20)
    assert seen == [rounds, rounds]
    one.close()
    two.close()


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
        for number in range(20_000):
            done.append(number)
            activator.activate()

    writers = [threading.Thread(target=write, daemon=True) for _ in range(2)]
    for writer in writers:
        writer.start()
    until = time.monotonic() + 20
    while len(seen) < 40_000 and time.monotonic() < until:
        transport.wait(20)
        worker.step()
    assert Counter(seen) == Counter([*range(20_000), *range(20_000)])
    assert len(runs) <= 40_000
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
            may_write.wait(10)
            super().wake()

    inboxes: dict[int, Inbox] = {0: Slow(), 1: Inbox()}
    transport, peer = (PeerTransport(index, inboxes, {}) for index in inboxes)
    sender = threading.Thread(target=peer.send, args=(0, ("data", 1)))
    inboxes[0].armed.append(None)  # as it is while it waits
    sender.start()
    written.wait(10)
    assert not inboxes[0].armed
    transport.receive()
    inboxes[0].due += 1  # as it is when the wait ends without it
    closing = threading.Thread(target=transport.close)
    closing.start()
    closing.join(0.02)
    assert closing.is_alive()
    may_write.set()
    closing.join(10)
    sender.join(10)
    assert not closing.is_alive()
    peer.close()
