"""Transports by themselves: what cannot be sent, and parting from peers that are not done yet."""

from __future__ import annotations

import socket
import threading
from typing import Any

import numpy as np
import pytest

from timely.errors import UnsendableError
from timely.worker.transport import Inbox, PeerTransport, SocketTransport


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


@pytest.mark.parametrize("array", [np.empty(0), np.empty((0, 2), np.int64), np.arange(3)])
def test_arrays_without_elements_arrive(array: Any) -> None:
    transports = three_processes()
    transports[0].send(1, ("data", [("first", array), ("last", array)]))
    transports[0].flush()
    ((sender, (_, records)),) = transports[1].receive()
    assert sender == 0
    assert [(name, found.tolist(), found.dtype) for name, found in records] == [
        (name, array.tolist(), array.dtype) for name in ("first", "last")
    ]
    close_all(list(transports))
