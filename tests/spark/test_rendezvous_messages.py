"""The rendezvous carries messages to whom they are for, in order, and errors as they are.

White box: workers that send, and do not listen, are played by threads.
"""

from __future__ import annotations

import queue
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from tests.spark.attempts import Note, Other, complete, leave, peers_of, register
from timely import errors
from timely.errors import (
    ConfigurationError,
    CycleError,
    OperatorError,
    PeerLostError,
    TimelyError,
    WorkerError,
)
from timely.spark import stage_messages as messages
from timely.spark.registration import Registration
from timely.spark.rendezvous import Rendezvous, RunEntry
from timely.spark.stage_messages import DRIVER, LARGEST, Done, Join, describe, framed, revive
from timely.worker.credentials import speaker
from timely.worker.mesh import Hello, dial


@pytest.mark.parametrize(
    "error",
    [OperatorError("a", "b", "c", 4), CycleError("round and round", ["a"]), WorkerError("w"), PeerLostError("p")],
)
def test_errors_survive_the_journey(error: TimelyError) -> None:
    back = revive(describe(error, 1))
    assert type(back) is type(error)
    assert str(back) == str(error)


class Mute(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise LookupError


def test_an_error_without_a_repr_is_reported_all_the_same() -> None:
    assert str(revive(describe(Mute(), 7))) == "worker 7 raised Mute, which raises LookupError when printed"


def test_what_is_not_ours_becomes_a_worker_error() -> None:
    back = revive(describe(KeyError("k"), 7))
    assert type(back) is WorkerError
    assert "worker 7 raised KeyError" in str(back)
    assert type(revive(describe(KeyError("k"), 7) | {"type": "Sequence"})) is WorkerError
    raised = OperatorError("failed", "map", "/map", 1)
    raised.__cause__ = ValueError("the cause")
    assert "ValueError: the cause" in revive(describe(raised, 1)).__notes__[0]
    assert len(str(revive(describe(ValueError("x" * 100_000), 0)))) < 10_000


@pytest.mark.parametrize("name", [name for name, kind in vars(errors).items() if isinstance(kind, type)])
def test_an_error_of_any_class_is_reported(name: str) -> None:
    message = describe(WorkerError("it failed"), 1) | {"type": name}
    assert str(revive(message)).endswith("it failed")


def wait_for(registration: Registration, count: int) -> list[Any]:
    """The contents of so many notes, once they have come."""
    arrived = threading.Event()
    registration.alert(arrived.set)
    contents: list[Any] = []
    while True:
        contents += [note.content for note in registration.receive(Note)]
        if len(contents) >= count or registration.stopped() is not None:
            return contents
        arrived.wait(600)
        arrived.clear()


def test_workers_and_driver_send_messages_in_order(server: Rendezvous, pool: ThreadPoolExecutor) -> None:
    run = server.open_run(2)
    received: queue.Queue[tuple[int, int, Any]] = queue.Queue()
    run.listen(Note, lambda worker, generation, note: received.put((worker, generation, note.content)))
    joined = complete(server, run, pool, 4)
    for number in range(100):
        joined[1].send(Note(number))
        joined[1].send(Other())
    assert [received.get(timeout=600) for _ in range(100)] == [(1, 4, number) for number in range(100)]
    assert run.generation == 4
    for number in range(100):
        assert run.send(0, Note(number**2))
    assert run.broadcast(Note("ü" * 1000)) == 2
    assert wait_for(joined[0], 101) == [number**2 for number in range(100)] + ["ü" * 1000]
    assert wait_for(joined[1], 1) == ["ü" * 1000]
    assert not joined[0].receive(Note) and not joined[1].receive(Other)
    leave(*joined)


def test_large_messages_both_ways_at_once(server: Rendezvous, pool: ThreadPoolExecutor) -> None:
    run = server.open_run(1)
    received: queue.Queue[int] = queue.Queue()
    run.listen(Note, lambda worker, generation, note: received.put(len(note.content)))
    (joined,) = complete(server, run, pool, 1)
    text = "x" * (LARGEST - 100)
    for _ in range(10):
        joined.send(Note(text))
        run.send(0, Note(text))
    assert wait_for(joined, 10) == [text] * 10
    assert [received.get(timeout=600) for _ in range(10)] == [LARGEST - 100] * 10
    leave(joined)


@pytest.mark.parametrize("content", ["x" * LARGEST, {1, 2}])
def test_what_cannot_be_sent_is_refused_at_the_sender(server: Rendezvous, pool: ThreadPoolExecutor, content: Any) -> None:
    run = server.open_run(1)
    (joined,) = complete(server, run, pool, 1)
    for send in (joined.send, partial(run.send, 0)):
        with pytest.raises(ConfigurationError, match="must be plain JSON|is too long"):
            send(Note(content))
    assert joined.stopped() is None
    leave(joined)


def test_only_the_newest_generation_gets_messages(server: Rendezvous, pool: ThreadPoolExecutor) -> None:
    run = server.open_run(2)
    assert run.generation is None
    assert run.broadcast(Note()) == 0
    received: queue.Queue[tuple[int, int]] = queue.Queue()
    run.listen(Other, lambda worker, generation, message: received.put((worker, generation)))
    old = complete(server, run, pool, 1)
    new = complete(server, run, pool, 3, stage=1)
    newer = complete(server, run, pool, 5)
    assert "a newer attempt" in str(old[0].stopped(600))
    old[0].send(Other())
    leave(*old)
    newer[0].send(Other())
    assert received.get(timeout=600) == (0, 5)
    assert run.broadcast(Note()) == 2
    assert wait_for(newer[1], 1) == [None]
    assert old[0].receive(Note) == new[0].receive(Note) == []
    leave(*new, *newer)


def test_a_listener_that_fails_is_logged_and_harms_nobody(
    server: Rendezvous, pool: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    run = server.open_run(1)
    received: queue.Queue[int] = queue.Queue()
    run.listen(Note, lambda worker, generation, note: 1 // note.content)
    run.listen(Note, lambda worker, generation, note: received.put(note.content))
    (joined,) = complete(server, run, pool, 1)
    joined.send(Note(0))
    joined.send(Note(1))
    assert [received.get(timeout=600) for _ in range(2)] == [0, 1]
    assert "ZeroDivisionError" in caplog.text
    leave(joined)


def dial_and_join(server: Rendezvous, run: RunEntry, index: int, generation: int) -> ssl.SSLSocket:
    """Return the connection of a worker that has joined, and neither reads nor gives signs of life."""
    context = speaker(run.identity, run.driver.certificate)
    sock = dial(server.address, context, Hello(run.id, generation, index, DRIVER), time.monotonic() + 600)
    sock.sendall(framed(Join(0, ["127.0.0.1", 1], "here")))
    return sock


def test_what_a_worker_sent_before_it_left_is_received_though_it_did_not_listen(server: Rendezvous) -> None:
    run = server.open_run(2)
    with register(server, run, 1, 1) as other:
        waiting = threading.Thread(target=peers_of, args=(other, 1, 1))
        waiting.start()
        deaf = dial_and_join(server, run, 0, 1)
        waiting.join()
        received = queue.SimpleQueue[int]()
        run.listen(Other, lambda worker, generation, message: received.put(worker))
        for _ in range(20):  # more than the connection holds, so that the driver has something left to send
            assert run.send(0, Note("x" * 1_000_000))
        other.send(Other())
        assert received.get(timeout=600) == 1  # the driver has sent what could be sent
        deaf.sendall(framed(Other()) + framed(Done()))
        deaf.close()
        assert received.get(timeout=600) == 0
        assert other.stopped(0.2) is None
        other.done()
    assert run.failure is None


def test_a_worker_that_does_not_take_what_it_is_sent_is_declared_gone_and_nothing_is_left_out(
    server: Rendezvous, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "_MOST_WAITING", 8 << 20)
    run = server.open_run(2)
    with register(server, run, 1, 1) as other:
        waiting = threading.Thread(target=peers_of, args=(other, 1, 1))
        waiting.start()
        with dial_and_join(server, run, 0, 1):
            waiting.join()
            for _ in range(40):
                run.send(0, Note("x" * 1_000_000))
            stopped = other.stopped(600)
    assert isinstance(stopped, PeerLostError)
    assert "worker 0 does not take what it is sent" in str(stopped)
