"""Where messages from other threads arrive: who waits is woken, and no more often than need be.

White box: how often a waiting worker is woken costs time and changes nothing else.
"""

from __future__ import annotations

from timely.worker import PeerTransport, Worker
from timely.worker.internals import abort
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
