"""Workers in several processes: they are forked, connected by socket pairs, and send their outcomes to the parent."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import pickle
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing import current_process, get_all_start_methods, get_context
from multiprocessing.connection import Connection, wait
from typing import Any, Final

import attrs

from timely.dataflow.container import prepare_to_partition
from timely.dataflow.pickling import dumps
from timely.errors import ConfigurationError, PeerLostError, WorkerError
from timely.execution.allocator import keep_freed_memory, load_ctypes
from timely.execution.failure import Failure
from timely.execution.interruptions import DeferredSignals
from timely.execution.lifeline import GRACE, Lifeline
from timely.execution.run_monitor import answer, watched
from timely.execution.threads import Outcome, enough_files, run_threads
from timely.monitor.local_workers import ControlChannel, LocalWorkers, control_channels
from timely.monitor.terminal import erase
from timely.monitor.watch import WatchSettings
from timely.progress import ProgressGroups
from timely.worker.worker import Worker

_POLL: Final = 0.05
_TERMINATING: Final = 2.0
"""Seconds from SIGTERM to SIGKILL."""
_IN_FLIGHT: Final = 1 << 20
"""Bytes that a connection between two processes takes though nobody reads: a batch should fit in."""


@attrs.define(eq=False)
class _Run:
    """What all processes of a run share: they close what is not theirs after the fork."""

    program: Callable[[Worker], Any]
    workers: int
    processes: int
    routes: ProgressGroups
    watch: WatchSettings | None
    lifeline: Lifeline
    signals: DeferredSignals
    sockets: dict[int, dict[int, socket.socket]]
    """By worker and peer."""
    ends: list[tuple[Connection, Connection]]
    """By process: the pipe for its outcomes."""
    channels: list[ControlChannel]


def run_processes(
    program: Callable[[Worker], Any], workers: int, processes: int, routes: ProgressGroups, watch: WatchSettings | None
) -> list[Outcome]:
    """Fork the processes, and return the outcomes of all workers."""
    if "fork" not in get_all_start_methods():
        raise ConfigurationError(f"processes={processes}: this system cannot fork; use threads (workers={workers * processes})")
    if current_process().daemon:
        raise ConfigurationError(
            f"processes={processes}: this process is daemonic, as those of a multiprocessing.Pool are, and may start no others:"
            f" use threads (workers={workers * processes}), or a concurrent.futures.ProcessPoolExecutor, whose processes may"
        )
    load_ctypes()
    prepare_to_partition()
    kept = _connections_of_spark()  # noqa: F841  (the children have this frame, too)
    children: list[Any] = []
    with enough_files(workers, processes):
        lifeline = Lifeline()
    sockets: dict[int, dict[int, socket.socket]] = {index: {} for index in range(workers * processes)}
    run = _Run(program, workers, processes, routes, watch, lifeline, DeferredSignals(), sockets, [], [])
    try:
        _own.append(lifeline.writer)  # no forked process may hold it
        with _forking:
            _start(children, run)
        return _gather([receiver for receiver, _ in run.ends], children, workers, lifeline)
    finally:
        lifeline.end()
        _own.remove(lifeline.writer)
        for receiver, _ in run.ends:
            receiver.close()  # a child with a long result would wait for a reader
        for _, sender in run.channels:
            sender.close()
        _end(children, lifeline)
        if watch is not None and watch.line and children and (children[0].exitcode or 0) < 0:
            erase(sys.stderr)  # the line of a process that was killed


def _end(children: Sequence[Any], lifeline: Lifeline) -> None:
    """Wait for the end of the processes of a run that is over, and kill those that do not end in time."""
    for child in _remaining(children, lifeline.deadline):
        child.terminate()
    for child in _remaining(children, time.monotonic() + _TERMINATING):
        child.kill()
        child.join()


def _remaining(children: Sequence[Any], deadline: float | None) -> list[Any]:
    """Wait for the end of processes, and return those that go on.

    Polls: a sentinel stays open in a process that a child has started.
    """
    deadline = deadline or time.monotonic() + GRACE
    while (alive := [child for child in children if child.is_alive()]) and time.monotonic() < deadline:
        alive[0].join(_POLL)
    return alive


def _start(children: list[Any], run: _Run) -> None:
    """Start the ``children``, and keep what the parent needs.

    One run at a time: a process that another thread forks meanwhile would hold these connections open.
    """
    context = get_context("fork")
    try:
        with enough_files(run.workers, run.processes):
            _connect(run.sockets, run.workers)
            for _ in range(run.processes):
                run.ends.append(context.Pipe(duplex=False))
                run.channels += control_channels(1)
            for place in range(run.processes):
                children.append(context.Process(target=_process, args=(run, place), name=f"timely process {place}"))
            with run.signals:
                for child in children:
                    child.start()
    finally:  # those that were started find out if others were not
        for _, sender in run.ends:
            sender.close()
        run.lifeline.reader.close()
        for receiver, _ in run.channels:
            receiver.close()
        for mine in run.sockets.values():
            for sock in mine.values():
                sock.close()


_forking = threading.RLock()


_own: list[socket.socket | Connection] = []
"""What connects this process to the others of its run, and to its parent."""


def _after_fork() -> None:
    """Replace the lock, which a thread of the parent may hold, and close the connections: else their ends are not seen."""
    global _forking
    _forking = threading.RLock()
    while _own:
        _own.pop().close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _connections_of_spark() -> list[object]:
    """Return the connections of a Spark session to its Java, to be kept while a child lives.

    A child drops what belonged to the parent's other threads; a dropped connection shuts down the parent's socket, too.
    """
    try:
        client = sys.modules["pyspark"].SparkContext._active_spark_context._gateway._gateway_client
        return list(client.deque)
    except (AttributeError, KeyError):  # there is no session, or no Java
        return []


def _connect(sockets: dict[int, dict[int, socket.socket]], workers: int) -> None:
    """Add a connected socket for every two workers in different processes, by worker and peer."""
    for one in sockets:
        for other in range((one // workers + 1) * workers, len(sockets)):
            pair = sockets[one][other], sockets[other][one] = socket.socketpair()
            for sock in pair:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _IN_FLIGHT)  # or as much as the system allows


def _process(run: _Run, place: int) -> None:
    """Run one process's workers, and send the parent their outcomes."""
    indices = range(place * run.workers, (place + 1) * run.workers)
    for index, mine in run.sockets.items():
        if index not in indices:
            for sock in mine.values():
                sock.close()
    for other, (receiver, sender) in enumerate(run.ends):
        receiver.close()
        if other != place:
            sender.close()
    for index in indices:
        _own.extend(run.sockets[index].values())
    _own.extend((*itertools.chain(*run.channels), run.ends[place][1], run.lifeline.reader))
    keep_freed_memory()
    gc.freeze()  # a collection of what the parent had would copy its pages
    local = LocalWorkers(run.channels, place, run.workers, answer)
    run.lifeline.follow(local.stop)
    with local, watched(local, run.watch, len(run.channels)):
        try:
            run.signals.restore()
            outcomes = run_threads(run.program, indices, {index: run.sockets[index] for index in indices}, run.routes, local)
        except BaseException as error:  # an interruption or an exit is the parent's to raise
            outcomes = [(False, error)] * run.workers
    with contextlib.suppress(BrokenPipeError):  # the parent has gone
        run.ends[place][1].send_bytes(_pack(outcomes))
    run.ends[place][1].close()
    sys.stdout.flush()


def _pack(outcomes: Sequence[Outcome]) -> bytes:
    """Pickle outcomes; a result that cannot be pickled becomes an error."""
    packed: list[tuple[bytes, str] | Failure] = []
    for index, (succeeded, value) in enumerate(outcomes):
        if succeeded:
            text = f"the result of worker {index} of its process, of type {type(value).__name__}, cannot be sent back"
            try:
                packed.append((dumps(value), text))
                continue
            except Exception as trouble:
                value = WorkerError(f"{text}: {trouble}")
        packed.append(Failure.of(value))
    return pickle.dumps(packed)


def _unpack(data: bytes) -> list[Outcome]:
    return [(False, one.error()) if isinstance(one, Failure) else _result(*one) for one in pickle.loads(data)]


def _result(body: bytes, otherwise: str) -> Outcome:
    try:
        return True, pickle.loads(body)
    except Exception as trouble:
        error = WorkerError(f"{otherwise}: {trouble}")
        error.add_note(f"when it was read:\n{traceback.format_exc()}")
        return False, error


def _gather(receivers: Sequence[Connection], children: Sequence[Any], workers: int, lifeline: Lifeline) -> list[Outcome]:
    """Return the outcomes of all processes. One that ends without any has failed, and so have those that go on long after it."""
    found: dict[int, list[Outcome]] = {}
    waiting: dict[Any, int] = {receiver: place for place, receiver in enumerate(receivers)}
    while waiting:
        deadline = lifeline.deadline
        ready = wait(list(waiting), None if deadline is None else max(0.0, deadline - time.monotonic()))
        if not ready:
            _end(children, lifeline)
        for receiver in ready or list(waiting):
            place = waiting.pop(receiver)
            if ready:
                with contextlib.suppress(EOFError, OSError):
                    found[place] = _unpack(receivers[place].recv_bytes())
                    continue
            _remaining([children[place]], None)
            first, last = place * workers, (place + 1) * workers - 1
            kind = WorkerError if deadline is None else PeerLostError  # the first to go explains the others
            code = children[place].exitcode
            error = kind(f"process {place} (workers {first} to {last}) ended with exit code {code} and no result")
            found[place] = [(False, error)] * workers
            lifeline.end()
    return [outcome for place in range(len(receivers)) for outcome in found[place]]
