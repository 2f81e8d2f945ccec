"""``LocalWorkers``: the workers of a run that are in one process, and a control channel to its other processes.

Each process of a run has a thread that answers queries of the others on a socket of its own, so an answer comes even if all its
workers are stuck in a program. Workers pay nothing for it. The thread ends with the ``with`` block.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import attrs

from timely.monitor.input_counts import InputCounts
from timely.worker.worker import Worker

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

ControlChannel: TypeAlias = tuple[socket.socket, socket.socket]
"""Where a process receives queries, and where the others send them."""

PING: Final = "ping"
"""A query that a process answers without looking at its workers."""

ENDED: Final = "has ended"
"""The answer for a process that takes no queries any more."""

_OPEN: Final[list[LocalWorkers]] = []


@attrs.frozen
class Member:
    """A worker, and the thread that steps it (as ``threading.get_ident`` has it); ``None`` where that is not known."""

    worker: Worker
    thread: int | None = None


def _cannot_answer(members: Sequence[Member], query: Any) -> Any:
    return "cannot be asked"


class LocalWorkers:
    """The workers of a run in this process, which is at ``place`` among those with ``channels``; each has so many ``workers``.

    ``answer(members, query)`` answers queries of other processes. Where ``counts_records`` is set, the records that inputs send
    are counted.
    """

    def __init__(
        self,
        channels: Sequence[ControlChannel] = (),
        place: int = 0,
        workers: int = 1,
        answer: Callable[[Sequence[Member], Any], Any] = _cannot_answer,
    ) -> None:
        self.members: list[Member] = []
        self.place = place
        self.counts_records = False
        self._answer = answer
        self._workers = workers
        self._senders = [sender for _, sender in channels]
        self._receiver = channels[place][0] if channels else None
        self._listener: threading.Thread | None = None
        self._stop_workers: Callable[[], object] | None = None
        self._stopped = False
        self._lock = threading.RLock()  # reentrant: a signal may call stop() in the middle of when_stopped()
        for other, (receiver, sender) in enumerate(channels):
            sender.setblocking(False)
            if other != place:
                receiver.close()

    def add(self, worker: Worker) -> None:
        """Add a worker of this process, on the thread that steps it."""
        self.members.append(Member(worker, threading.get_ident()))
        if self.counts_records:
            InputCounts.of(worker)

    def when_stopped(self, stop_workers: Callable[[], object]) -> None:
        """Call ``stop_workers`` on ``stop``, or now if that was called already."""
        with self._lock:
            self._stop_workers = stop_workers
            stopped = self._stopped
        if stopped:
            stop_workers()

    def stop(self) -> None:
        """Stop the workers of this process; any thread may call it."""
        with self._lock:
            self._stopped = True
            stop_workers = self._stop_workers
        if stop_workers is not None:
            stop_workers()

    def __enter__(self) -> Self:
        _OPEN.append(self)
        if self._receiver is not None:
            self._listener = threading.Thread(target=self._listen, name="timely listener", daemon=True)
            self._listener.start()
        return self

    def __exit__(self, *_: object) -> None:
        _OPEN.remove(self)
        if self._receiver is not None and self._listener is not None:
            self._receiver.shutdown(socket.SHUT_RD)
            self._listener.join()
            self._receiver.close()
            for sender in self._senders:
                sender.close()

    def workers_at(self, place: int) -> range:
        return range(place * self._workers, (place + 1) * self._workers)

    @property
    def reaches(self) -> int:
        """How many workers can be asked, here and in other processes."""
        return max(1, len(self._senders)) * self._workers

    def ask(self, query: Any, seconds: float) -> Mapping[int, Any]:
        """Return the answers of the other processes within so many seconds, by place; a text says why there is none."""
        return ask({place: sender for place, sender in enumerate(self._senders) if place != self.place}, query, seconds)

    def _listen(self) -> None:
        assert self._receiver is not None
        from multiprocessing.connection import Connection

        while True:
            _, handles, _, _ = socket.recv_fds(self._receiver, 1, 1)
            if not handles:
                return
            with contextlib.suppress(OSError, EOFError), Connection(handles[0]) as caller:
                query = caller.recv()
                try:
                    caller.send(PING if query == PING else self._answer(self.members, query))
                except Exception as error:  # of the answer, or a time in it that cannot be pickled
                    caller.send(f"cannot say: {error}")


def ask(senders: Mapping[int, socket.socket], query: Any, seconds: float) -> dict[int, Any]:
    """Return the answers of processes within so many seconds, by place; a text says why there is none."""
    if not senders:
        return {}
    from multiprocessing import Pipe
    from multiprocessing.connection import wait

    calls: dict[Connection, int] = {}
    answers: dict[int, Any] = {}
    for place, sender in senders.items():
        answers[place] = f"does not answer within {seconds:g} s"
        mine, theirs = Pipe()
        try:
            mine.send(query)  # before the other process looks for it
            socket.send_fds(sender, [b"?"], [theirs.fileno()])
            calls[mine] = place
        except BlockingIOError:
            mine.close()  # it has not read earlier queries
        except OSError:
            mine.close()
            answers[place] = ENDED
        theirs.close()
    deadline = monotonic() + seconds
    with contextlib.ExitStack() as stack:
        for mine in calls:
            stack.enter_context(mine)
        while calls and (left := deadline - monotonic()) > 0:
            ready = wait(list(calls), left)
            for mine in [call for call in calls if call in ready]:
                answers[calls.pop(mine)] = _received(mine)
    return answers


def _received(caller: Connection) -> Any:
    try:
        return caller.recv()
    except (EOFError, OSError):
        return ENDED
    except Exception as error:  # what cannot be read here
        return f"answers what cannot be read here: {error}"


def local_workers_of(worker: Worker) -> LocalWorkers | None:
    """Return the local workers that a worker is one of; ``None`` for one that was made by hand."""
    return next((run for run in tuple(_OPEN) if any(member.worker is worker for member in run.members)), None)


def control_channels(processes: int) -> list[ControlChannel]:
    """Return a control channel for each process of a run, made before the processes are."""
    return [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(processes)]
