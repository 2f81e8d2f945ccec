"""The workers of one process: one on this thread, or several on threads of their own."""

from __future__ import annotations

import contextlib
import contextvars
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Any, TypeAlias

from timely.dataflow import fold_tracebacks
from timely.errors import ConfigurationError, PeerLostError, TimelyError, WorkerError, file_error_text, out_of_files
from timely.execution.lifeline import GRACE, PAUSE, interrupt_operators
from timely.monitor.local_workers import LocalWorkers
from timely.progress import ProgressGroups
from timely.worker.internals import abort, finish
from timely.worker.transports import Inbox, PeerTransport
from timely.worker.worker import Worker
from timely.worker.worker_messages import AbortMessage

Outcome: TypeAlias = tuple[bool, Any]
"""``(True, result)`` or ``(False, error)`` of one worker."""


def run_worker(program: Callable[[Worker], Any], worker: Worker, local: LocalWorkers | None = None) -> Outcome:
    """Run a program on a worker to the end of its dataflows; return its outcome, and leave the worker closed."""
    if local is not None:
        local.add(worker)
    outcome: Outcome
    try:
        result = program(worker)
        finish(worker)
        outcome = True, result
    except Exception as error:
        if not isinstance(error, TimelyError):
            error.add_note(f"raised by the program of worker {worker.index}")
        fold_tracebacks(error)
        abort(worker, error)
        outcome = False, error
    except BaseException as error:
        abort(worker, error)
        worker.close()
        raise
    try:
        worker.close()
    except Exception as error:  # the first error counts
        return outcome if not outcome[0] else (False, error)
    return outcome


def run_threads(
    program: Callable[[Worker], Any],
    indices: Sequence[int],
    sockets: Mapping[int, Mapping[int, socket.socket]],
    groups: ProgressGroups,
    local: LocalWorkers,
) -> list[Outcome]:
    """Run the workers ``indices`` as threads of this process, connected to others by ``sockets[worker][peer]``."""
    inboxes = {index: Inbox() for index in indices}
    try:
        with enough_files(len(indices)):
            transports = [PeerTransport(index, inboxes, sockets.get(index, {})) for index in indices]
    except ConfigurationError:
        for inbox in inboxes.values():
            inbox.close()
        raise
    local.when_stopped(lambda: _stop(inboxes, "the run was interrupted, or has failed in another process"))
    if len(transports) == 1:
        return [_run_connected(transports[0], program, groups, local)]
    outcomes: list[Outcome] = [(False, WorkerError(f"worker {index} ended without a result")) for index in indices]
    ended = [threading.Event() for _ in indices]

    def run(place: int) -> None:
        try:
            outcomes[place] = _run_connected(transports[place], program, groups, local)
        except BaseException as error:  # an interruption ends the run as it would without threads
            outcomes[place] = (False, error)
        finally:
            ended[place].set()

    threads = [
        threading.Thread(target=contextvars.copy_context().run, args=(run, place), name=f"timely worker {index}", daemon=True)
        for place, index in enumerate(indices)
    ]
    try:
        for thread in threads:
            thread.start()
        for end in ended:
            end.wait()  # before Python 3.13 a thread whose ``join`` is interrupted counts as ended
        for thread in threads:
            thread.join()
    except BaseException as interruption:
        _stop(inboxes, f"the run was interrupted by {type(interruption).__name__}")
        begun = [end for thread, end in zip(threads, ended, strict=True) if thread.ident is not None]
        for transport in transports[len(begun) :]:
            transport.close()  # its thread was never started
        if not _wait(begun, PAUSE):
            interrupt_operators(local)
            _wait(begun, GRACE)
        for thread, end in zip(threads, begun, strict=False):
            if end.is_set():
                thread.join()
        raise
    return outcomes


def _wait(ended: Sequence[threading.Event], seconds: float) -> bool:
    """Return whether all have ended within so many seconds."""
    deadline = monotonic() + seconds
    return all(end.wait(max(0.0, deadline - monotonic())) for end in ended)


def _stop(inboxes: Mapping[int, Inbox], why: str) -> None:
    """Stop the workers that these inboxes belong to."""
    for inbox in inboxes.values():
        inbox.put(-1, AbortMessage(why))


def _run_connected(
    transport: PeerTransport, program: Callable[[Worker], Any], groups: ProgressGroups, local: LocalWorkers
) -> Outcome:
    """Run a program on a new worker with this transport; what ``everywhere`` calls may refuse the worker."""
    try:
        worker = Worker(transport, groups=groups)
    except Exception as error:
        return False, error
    return run_worker(program, worker, local)


def first_failure(outcomes: Sequence[Outcome]) -> BaseException | None:
    """Return the error that explains the others: an operator's or a program's, rather than a lost peer."""
    failures = [error for succeeded, error in outcomes if not succeeded]
    for kind in (PeerLostError, WorkerError):
        others = [error for error in failures if not isinstance(error, kind)]
        failures = others or failures
    return failures[0] if failures else None


@contextlib.contextmanager
def enough_files(workers: int, processes: int = 1) -> Iterator[None]:
    """Raise ``ConfigurationError`` where the workers' inboxes, connections and pipes exceed the limit of open files."""
    try:
        yield
    except OSError as error:
        if not out_of_files(error):
            raise
        asked, needed = f"workers={workers}", 2 * workers
        if processes > 1:
            asked += f", processes={processes}"
            needed = workers * workers * processes * (processes - 1) + 6 * processes + 4
        raise ConfigurationError(f"{asked} takes {needed} open files beside those that are: {file_error_text(error)}") from error
