"""A worker's end of its connection to the driver: by it the worker finds its peers, is told to stop, and tells how it fares.

See :mod:`timely.spark.rendezvous` for the other end. The invariant: what a worker said before it closed the connection is sent,
unless the driver takes nothing for seconds. A caller may assume that every wait ends, in an answer or in a
:class:`~timely.errors.SparkError`, and that a driver that hangs is found out: a thread reads, writes and gives signs of life
whatever the worker is doing.
"""

from __future__ import annotations

import os
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from timely.errors import AuthenticationError, SparkError, TimelyError
from timely.spark.messages import DRIVER, Frames, Invitation, Pulse, describe, framed, revive
from timely.worker import credentials
from timely.worker.mesh import Address, Hello, dial
from timely.worker.transport import Waker

_LAST_WORDS = 5.0
"""Seconds that the driver has to take what a worker said last."""


class Registration:
    """A worker's connection to the driver, as a context manager: :meth:`peers` first; then :meth:`report`,
    :meth:`stopped`, :meth:`done`; and :meth:`tell` and :meth:`heard` for whatever else there is to say.

    A daemon thread does the talking, and says every second that this worker is alive. Raises
    :class:`~timely.errors.SparkError` where the driver cannot be reached within ``timeout`` seconds, and
    :class:`~timely.errors.AuthenticationError` where somebody else answers.
    """

    def __init__(
        self, invitation: Invitation, *, index: int, generation: int, stage: int, timeout: float = 120.0
    ) -> None:
        self._index = index
        self._stage = stage
        self._workers = invitation.workers
        self._deadline = time.monotonic() + timeout
        where = "{}:{}".format(*invitation.address)
        context = credentials.speaker(invitation.identity, invitation.driver)
        try:
            sock = dial(invitation.address, context, Hello(invitation.run, generation, index, DRIVER), self._deadline)
        except AuthenticationError as error:
            raise AuthenticationError(f"the driver at {where}: {error}") from error
        except OSError as error:
            raise SparkError(
                f"worker {index} cannot reach the driver at {where}: {error}. Executors must be able to connect to "
                "the driver's machine: see spark.driver.host and spark.driver.bindAddress"
            ) from error
        self.host: str = sock.getsockname()[0]
        self._line = _Line(sock, where, invitation.patience)

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()

    def peers(self, address: Address) -> dict[int, Address]:
        """Say that this worker listens at ``address``; return where every worker of the generation listens, by index.

        Raises :class:`~timely.errors.SparkError` where they do not all come in time, and what the others failed of
        where they did.
        """
        line = self._line
        place = f"{socket.gethostname()}, pid {os.getpid()}"
        line.send({"join": {"stage": self._stage, "address": list(address), "place": place}})
        line.await_(lambda: line.peers is not None or line.stop is not None, self._deadline)
        if line.stop is not None:
            raise line.stop
        if line.peers is None:
            raise SparkError(
                f"worker {self._index} waited in vain for the other {self._workers - 1} workers of this stage to "
                "start. Spark runs them all at the same time or not at all, so the executors' logs "
                "must say what keeps the others"
            )
        return line.peers

    def report(self, error: BaseException) -> None:
        """Tell the driver, and through it the other workers, what this worker failed of."""
        self._line.send({"error": describe(error, self._index)})

    def done(self) -> None:
        """Tell the driver that this worker has finished, so that its leaving is no loss."""
        self._line.send({"done": True})

    def stopped(self, wait: float = 0.0) -> TimelyError | None:
        """Return what the run failed of, as far as it has been told within ``wait`` seconds; ``None`` while nothing
        has.
        """
        line = self._line
        if wait > 0.0:
            line.await_(lambda: line.stop is not None, time.monotonic() + wait)
        return line.stop

    def tell(self, kind: str, content: dict[str, Any]) -> None:
        """Tell the driver something: whatever listens there for this kind (:meth:`Run.listen`) hears it, in order.

        Does not wait. :class:`~timely.errors.ConfigurationError` for content that is not JSON, or longer than
        ``LARGEST``.
        """
        self._line.send({"say": kind, "content": content})

    def heard(self, kind: str) -> list[dict[str, Any]]:
        """Return what the driver has sent of this kind (:meth:`Run.send`) since the last call, oldest first."""
        return self._line.take(kind)

    def wait(self, seconds: float) -> bool:
        """Wait until something has come since the last wait, a message or the end of the run, for at most so long;
        return whether something has.
        """
        return self._line.wait(seconds)

    def fileno(self) -> int:
        """The descriptor that is readable when something has come since the last :meth:`wait`, for use in a poll."""
        return self._line.news.fileno()

    def alert(self, callback: Callable[[], None]) -> None:
        """Have a function called, on the connection's thread, whenever something comes: to wake whoever waits
        elsewhere, as :meth:`timely.worker.transport.Transport.wake` does.
        """
        self._line.alert = callback


class _Line:
    """The worker's end of the connection to the driver, and the daemon thread that alone uses it."""

    def __init__(self, sock: ssl.SSLSocket, where: str, patience: float) -> None:
        self.stop: TimelyError | None = None
        self.peers: dict[int, Address] | None = None
        self.news = Waker()
        self.alert: Callable[[], None] | None = None
        self._frames = Frames(sock)
        self._where = where
        self._patience = patience
        self._came = threading.Condition()
        self._unseen = False
        self._inbox: dict[str, list[dict[str, Any]]] = {}
        self._outbox: deque[bytes] = deque()
        self._bell = Waker()
        self._closing = 0.0
        self._thread = threading.Thread(target=self._talk, name="timely-registration", daemon=True)
        self._thread.start()

    # What the worker calls.

    def send(self, value: dict[str, Any]) -> None:
        self._outbox.append(framed(value))
        self._bell.wake()

    def take(self, kind: str) -> list[dict[str, Any]]:
        with self._came:
            return self._inbox.pop(kind, [])

    def await_(self, condition: Callable[[], bool], deadline: float) -> None:
        """Wait for a condition to hold, or for the deadline."""
        with self._came:
            self._came.wait_for(condition, max(deadline - time.monotonic(), 0.0))

    def wait(self, seconds: float) -> bool:
        with self._came:
            came = self._came.wait_for(lambda: self._unseen, seconds)
            self._unseen = False
            self.news.hush()
            return came

    def close(self) -> None:
        """Send what is left to be said, and hang up."""
        self._closing = time.monotonic() + _LAST_WORDS
        self._bell.wake()
        self._thread.join()
        self._bell.close()
        self.news.close()

    # What the thread does.

    def _talk(self) -> None:
        sock = self._frames.sock
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._bell, selectors.EVENT_READ)
                selector.register(sock, selectors.EVENT_READ)
                self._converse(selector)
        except (EOFError, OSError) as error:
            silent = isinstance(error, TimeoutError)
            self._end(SparkError(str(error) if silent else "the connection to the driver has ended"))
        except Exception as error:
            self._end(SparkError(f"the driver said something that makes no sense: {error!r}"))
        finally:
            sock.close()

    def _converse(self, selector: selectors.BaseSelector) -> None:
        """Read, write and give signs of life, until what was to be said is said after the call of :meth:`close`."""
        pulse, frames = Pulse(self._patience), self._frames
        heard = said = pulse.beat()
        while True:
            self._bell.hush()
            closing = self._closing  # first: what is said before the call of close() is in the outbox by then
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
                heard = now
                self._take_in([frame for frame in came if frame])
            elif now - heard > self._patience:
                raise TimeoutError(
                    f"the driver at {self._where} has been silent for {self._patience:g} s: it hangs, or its machine does"
                )
            if now - said >= pulse.interval and not frames.backlog:
                said = now
                frames.put(framed({}))

    def _take_in(self, frames: list[dict[str, Any]]) -> None:
        if not frames:
            return
        with self._came:
            for frame in frames:
                if "stop" in frame:
                    self.stop = self.stop or revive(frame["stop"])
                elif "peers" in frame:
                    self.peers = {index: (host, port) for index, (host, port) in enumerate(frame["peers"])}
                elif "say" in frame:
                    self._inbox.setdefault(str(frame["say"]), []).append(dict(frame["content"]))
            self._announce()
        if self.alert is not None:
            self.alert()

    def _end(self, why: TimelyError) -> None:
        with self._came:
            self.stop = self.stop or why
            self._announce()
        if self.alert is not None:
            self.alert()

    def _announce(self) -> None:
        self._unseen = True
        self.news.wake()
        self._came.notify_all()
