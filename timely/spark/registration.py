"""A worker's end of its connection to the driver (:mod:`timely.spark.rendezvous` is the other end).

The invariant: what a worker sent before it closed the connection arrives, unless the driver takes nothing for seconds. Every wait
ends, in a result or in a :class:`~timely.errors.SparkError`: a thread reads, writes and gives signs of life whatever the worker
does, so that a driver that hangs is found out.
"""

from __future__ import annotations

import math
import os
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from timely.errors import AuthenticationError, PeerLostError, SparkError, TimelyError
from timely.spark.stage_messages import (
    DRIVER,
    HEARTBEAT,
    Done,
    Failed,
    Frames,
    Granted,
    Invitation,
    Join,
    Message,
    Peers,
    Pulse,
    Returning,
    Stop,
    describe,
    framed,
    revive,
)
from timely.worker import credentials
from timely.worker.mesh import Address, Hello, dial
from timely.worker.transports import Waker

M = TypeVar("M", bound=Message)

_NEEDED = ("the driver's machine: see spark.driver.host and spark.driver.bindAddress", "each other, at any port")
"""What the executors must be able to connect to, where the driver serves the rendezvous and where a worker does."""

_FLUSH_WITHIN = 5.0
"""Seconds that the driver has to take what a worker sent last."""


class Registration:
    """A worker's connection to the driver, as a context manager; :meth:`peers` is called first.

    Raises :class:`~timely.errors.SparkError` where the driver cannot be reached within ``timeout`` seconds, and
    :class:`~timely.errors.AuthenticationError` where somebody else answers.
    """

    def __init__(
        self, invitation: Invitation, *, index: int, generation: int, stage: int, task: int = -1, timeout: float = 120.0
    ) -> None:
        self._index = index
        self._stage, self._task = stage, task
        self._workers = invitation.workers
        self._deadline = time.monotonic() + timeout
        where = "{}:{}".format(*invitation.address)
        context = credentials.speaker(invitation.identity, invitation.driver)
        try:
            sock = dial(invitation.address, context, Hello(invitation.run, generation, index, DRIVER), self._deadline)
        except AuthenticationError as error:
            raise AuthenticationError(f"{invitation.server} at {where}: {error}") from error
        except OSError as error:
            raise SparkError(
                f"worker {index} cannot reach {invitation.server} at {where}: {error}. Executors must be able to connect to "
                f"{_NEEDED[invitation.by_worker]}"
            ) from error
        self.host: str = sock.getsockname()[0]
        self._connection = _Connection(sock, f"{invitation.server} at {where}", invitation.patience, invitation.by_worker)

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def peers(self, address: Address) -> dict[int, Address]:
        """Join the generation with ``address``, where this worker listens; return the addresses of all its workers, by index.

        Raises :class:`~timely.errors.SparkError` where they do not all come in time, and what the others failed of where they
        did.
        """
        connection = self._connection
        place = f"{socket.gethostname()}, pid {os.getpid()}"
        connection.send(Join(self._stage, address, place, self._task))
        connection.await_(lambda: connection.peers is not None or connection.stop is not None, self._deadline)
        if connection.stop is not None:
            raise connection.stop
        if connection.peers is None:
            raise SparkError(
                f"worker {self._index} waited in vain for the other {self._workers - 1} workers of this stage to "
                "start. Spark runs them all at the same time or not at all, so the executors' logs "
                "must say what keeps the others"
            )
        return connection.peers

    def report(self, error: BaseException) -> None:
        """Send the error that this worker failed of to the driver, and through it to the other workers."""
        self._connection.send(Failed(self._stage, describe(error, self._index)))

    def done(self) -> None:
        """Report to the driver that this worker has finished, so that its disconnection is no failure."""
        self._connection.send(Done())

    def stopped(self, wait: float = 0.0) -> TimelyError | None:
        """Return what the run failed of, as far as it is known within ``wait`` seconds; else ``None``."""
        connection = self._connection
        if wait > 0.0:
            connection.await_(lambda: connection.stop is not None, time.monotonic() + wait)
        return connection.stop

    def ends(self, wait: float) -> bool:
        """Return whether this worker is to end, rather than fail, for what the run failed of; known within ``wait`` seconds."""
        self.stopped(wait)
        return self._connection.final

    def ask_to_return(self) -> None:
        """Wait until this worker may return rows. Raises what the run has failed of before."""
        connection = self._connection
        connection.send(Returning())
        connection.await_(lambda: connection.stop is not None or connection.has(Granted.kind), math.inf)
        if not connection.take(Granted.kind) and connection.stop is not None:
            raise connection.stop

    def send(self, message: Message) -> None:
        """Send a message to the driver, whose listeners (:meth:`RunEntry.listen`) receive it in order. Does not wait.

        :class:`~timely.errors.ConfigurationError` for content that is not JSON, or longer than ``LARGEST``.
        """
        self._connection.send(message)

    def receive(self, kind: type[M]) -> list[M]:
        """Return the messages of a kind that the driver has sent (:meth:`RunEntry.send`) since the last call, oldest first."""
        return [kind(**content) for content in self._connection.take(kind.kind)]

    def alert(self, callback: Callable[[], None]) -> None:
        """Call a function, on the connection's thread, whenever a message arrives."""
        self._connection.alert = callback


class _Connection:
    """The worker's end of the connection to the driver, and the daemon thread that alone uses it."""

    def __init__(self, sock: ssl.SSLSocket, server: str, patience: float, by_worker: bool) -> None:
        self.stop: TimelyError | None = None
        self.final = False
        self.peers: dict[int, Address] | None = None
        self.alert: Callable[[], None] | None = None
        self._frames = Frames(sock)
        self._server = server
        self._lost = PeerLostError if by_worker else SparkError
        self._patience = patience
        self._changed = threading.Condition()
        self._inbox: dict[str, list[dict[str, Any]]] = {}
        self._outbox: deque[bytes] = deque()
        self._waker = Waker()
        self._closing = 0.0
        self._thread = threading.Thread(target=self._serve, name="timely-registration", daemon=True)
        self._thread.start()

    # What the worker calls.

    def send(self, message: Message) -> None:
        self._outbox.append(framed(message))
        self._waker.wake()

    def take(self, kind: str) -> list[dict[str, Any]]:
        with self._changed:
            return self._inbox.pop(kind, [])

    def has(self, kind: str) -> bool:
        return kind in self._inbox

    def await_(self, condition: Callable[[], bool], deadline: float) -> None:
        with self._changed:
            self._changed.wait_for(condition, None if deadline == math.inf else max(deadline - time.monotonic(), 0.0))

    def close(self) -> None:
        """Send what is left, and close the connection."""
        self._closing = time.monotonic() + _FLUSH_WITHIN
        self._waker.wake()
        self._thread.join()
        self._waker.close()

    # What the thread does.

    def _serve(self) -> None:
        sock = self._frames.sock
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._waker, selectors.EVENT_READ)
                selector.register(sock, selectors.EVENT_READ)
                self._exchange(selector)
        except (EOFError, OSError) as error:
            silent = isinstance(error, TimeoutError)
            self._end(self._lost(str(error) if silent else f"the connection to {self._server} has ended"))
        except Exception as error:
            self._end(SparkError(f"{self._server} sent something that makes no sense: {error!r}"))
        finally:
            sock.close()

    def _exchange(self, selector: selectors.BaseSelector) -> None:
        """Read, write and give signs of life, until all is sent after the call of :meth:`close`."""
        pulse, frames = Pulse(self._patience), self._frames
        received = sent = pulse.beat()
        while True:
            self._waker.hush()
            closing = self._closing  # first: what was sent before the call of close() is in the outbox by then
            while self._outbox:
                frames.put(self._outbox.popleft())
            frames.flush()
            if closing and (not frames.backlog or time.monotonic() > closing):
                return
            selector.modify(frames.sock, selectors.EVENT_READ | (selectors.EVENT_WRITE if frames.backlog else 0))
            selector.select(pulse.interval)
            came = frames.read()
            now = pulse.beat()
            if came:
                received = now
                self._deliver([frame for frame in came if frame])
            elif now - received > self._patience:
                raise TimeoutError(f"{self._server} has been silent for {self._patience:g} s: it hangs, or its machine does")
            if now - sent >= pulse.interval and not frames.backlog:
                sent = now
                frames.put(HEARTBEAT)

    def _deliver(self, frames: list[dict[str, Any]]) -> None:
        if not frames:
            return
        with self._changed:
            for frame in frames:
                kind, content = str(frame["kind"]), dict(frame["content"])
                if kind == Stop.kind:
                    if self.stop is None:
                        stop = Stop(**content)
                        self.stop, self.final = revive(stop.error), stop.final
                elif kind == Peers.kind:
                    self.peers = {index: (host, port) for index, (host, port) in enumerate(Peers(**content).addresses)}
                else:
                    self._inbox.setdefault(kind, []).append(content)
            self._changed.notify_all()
        if self.alert is not None:
            self.alert()

    def _end(self, why: TimelyError) -> None:
        with self._changed:
            self.stop = self.stop or why
            self._changed.notify_all()
        if self.alert is not None:
            self.alert()
