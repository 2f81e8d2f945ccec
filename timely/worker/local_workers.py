"""``LocalWorkers``: the workers of a run that are in one process, for who looks in from outside, and a line to its other
processes.

It knows which workers there are and which threads step them. Where a run has several processes, each has a thread that listens
for questions of the others, on a socket of its own beside the mesh; so an answer comes also from a process whose workers are all
stuck in a program, and in every mode of progress. The invariant: workers pay nothing for it, neither in their turns nor in
what they send each other; the thread sleeps until somebody calls, and ends with the ``with`` block.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import attrs

from timely.worker.input_counts import InputCounts
from timely.worker.worker import Worker

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Line: TypeAlias = tuple[socket.socket, socket.socket]
"""Where a process hears that it is called, and where the others call it."""

_OPEN: Final[list[LocalWorkers]] = []


@attrs.frozen
class Member:
    """A worker, and the thread that steps it (as ``threading.get_ident`` has it); ``None`` where that is not known."""

    worker: Worker
    thread: int | None = None


class LocalWorkers:
    """The workers of a run that are in this process, which is at ``place`` among those that ``lines`` lead to.

    Each of these has so many ``workers``. Where ``counts_records`` is set, what the inputs of those that are admitted send is
    counted (:class:`timely.worker.input_counts.InputCounts`).

    >>> worker = Worker()
    >>> with LocalWorkers() as company:
    ...     company.admit(worker)
    ...     company_of(worker) is company, company_of(Worker())
    (True, None)
    """

    def __init__(self, lines: Sequence[Line] = (), place: int = 0, workers: int = 1) -> None:
        self.members: list[Member] = []
        self.place = place
        self.counts_records = False
        self._workers = workers
        self._lines = [called for _, called in lines]
        self._ear = lines[place][0] if lines else None
        self._listener: threading.Thread | None = None
        self._stop_workers: Callable[[], object] | None = None
        self._stopped = False
        for other, (ear, called) in enumerate(lines):
            called.setblocking(False)
            if other != place:
                ear.close()

    def admit(self, worker: Worker) -> None:
        """Take in a worker of this process, on the thread that steps it."""
        self.members.append(Member(worker, threading.get_ident()))
        if self.counts_records:
            InputCounts.of(worker)

    def when_stopped(self, stop_workers: Callable[[], object]) -> None:
        """Have ``stop_workers`` called when this process is to ``stop``, or now if it was to already."""
        self._stop_workers = stop_workers
        if self._stopped:
            stop_workers()

    def stop(self) -> None:
        """Stop the workers of this process; any thread may call it.

        >>> company = LocalWorkers()
        >>> company.stop()
        >>> company.when_stopped(lambda: print("stopped"))
        stopped
        """
        self._stopped = True
        if self._stop_workers is not None:
            self._stop_workers()

    def __enter__(self) -> Self:
        _OPEN.append(self)
        if self._ear is not None:
            self._listener = threading.Thread(target=self._listen, name="timely listener", daemon=True)
            self._listener.start()
        return self

    def __exit__(self, *_: object) -> None:
        _OPEN.remove(self)
        if self._ear is not None and self._listener is not None:
            self._ear.shutdown(socket.SHUT_RD)  # it stops listening
            self._listener.join()
            self._ear.close()
            for line in self._lines:
                line.close()

    def workers_at(self, place: int) -> range:
        """Return which workers the process at a place has."""
        return range(place * self._workers, (place + 1) * self._workers)

    @property
    def reaches(self) -> int:
        """How many workers there are in this process and in those that can be asked."""
        return max(1, len(self._lines)) * self._workers

    # -- questions -----------------------------------------------------------------------------------------------------

    def ask(self, question: Any, seconds: float) -> Mapping[int, Any]:
        """Return what the other processes answer within so many seconds, by place.

        What is there instead of an answer is a text that says why there is none.
        """
        if not self._lines:
            return {}
        from multiprocessing import Pipe
        from multiprocessing.connection import wait

        calls: dict[Connection, int] = {}
        said: dict[int, Any] = {}
        for place, line in enumerate(self._lines):
            if place == self.place:
                continue
            said[place] = f"does not answer within {seconds:g} s"
            mine, theirs = Pipe()
            try:
                mine.send(question)  # so that who is called need not wait for it
                socket.send_fds(line, [b"?"], [theirs.fileno()])
                calls[mine] = place
            except BlockingIOError:
                mine.close()  # many have called it, and it has not answered
            except OSError:
                mine.close()
                said[place] = "has ended"
            theirs.close()
        deadline = monotonic() + seconds
        with contextlib.ExitStack() as stack:
            for mine in calls:
                stack.enter_context(mine)
            while calls and (left := deadline - monotonic()) > 0:
                ready = wait(list(calls), left)
                for mine in [call for call in calls if call in ready]:
                    said[calls.pop(mine)] = _heard(mine)
        return said

    def _listen(self) -> None:
        assert self._ear is not None
        from multiprocessing.connection import Connection

        while True:
            _, handles, _, _ = socket.recv_fds(self._ear, 1, 1)
            if not handles:
                return
            with contextlib.suppress(OSError, EOFError), Connection(handles[0]) as caller:
                answer = self._answer(caller.recv())
                try:
                    caller.send(answer)
                except Exception as error:  # a time that cannot be pickled
                    caller.send(f"cannot say: {error}")

    def _answer(self, question: Any) -> Any:
        from timely.inspect import capability_holders

        try:
            return capability_holders.answer(self.members, question)
        except Exception as error:
            return f"cannot say: {error}"


def _heard(caller: Connection) -> Any:
    try:
        return caller.recv()
    except (EOFError, OSError):
        return "has ended"
    except Exception as error:  # what cannot be read here
        return f"answers what cannot be read here: {error}"


def company_of(worker: Worker) -> LocalWorkers | None:
    """Return the company that a worker is in; ``None`` of one that was made by hand."""
    return next((company for company in tuple(_OPEN) if any(member.worker is worker for member in company.members)), None)


def lines(processes: int) -> list[Line]:
    """Return a line for each process of a run, to be made before the processes are."""
    return [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(processes)]
