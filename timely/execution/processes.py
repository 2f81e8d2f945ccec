"""Workers in several processes: forked or spawned, connected by socket pairs; they send their outcomes to the parent."""

from __future__ import annotations

import atexit
import contextlib
import gc
import math
import os
import pickle
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from multiprocessing import current_process, get_all_start_methods, get_context
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any, Final, Literal, NamedTuple, Self

import attrs

from timely.dataflow.containers.container import prepare_to_partition
from timely.dataflow.containers.pickling import dumps
from timely.errors import ConfigurationError, PeerLostError, WorkerError, brief, error_text
from timely.execution.lifeline import GRACE, Lifeline, follow, interrupt_operators
from timely.execution.run_monitor import answer, watched
from timely.execution.threads import Outcome, enough_files, run_threads
from timely.memory import MemoryBudget
from timely.memory.limits import keep_freed_memory
from timely.monitor.local_workers import ENDED, PING, ControlChannel, LocalWorkers, ask, control_channels
from timely.monitor.terminal import RelayedLine, erase, relayed_line
from timely.monitor.watch_settings import WatchSettings
from timely.progress import ProgressGroups
from timely.worker.worker import Worker

_POLL: Final = 0.05
_TERMINATING: Final = 2.0
"""Seconds from SIGTERM to SIGKILL."""
_LOOKS: Final = 4
"""Times that a process is asked for a sign of life within the patience of the run."""
_IN_FLIGHT: Final = 1 << 20
"""Bytes that a connection between two processes buffers: a batch should fit in."""

_UNGUARDED: Final = (
    "start_method='spawn' imports the main script again in each process: let it be a file that calls execute under"
    " if __name__ == '__main__':"
)


class DeferredSignals:
    """Replaces the signal handlers while it is entered, or until ``restore`` in a fork; only in the main thread, where they run.

    Interruptions that come while a process forks are raised after it: Python swallows what a handler raises inside its fork
    hooks, and skips the rest of them, so that locks would be held forever.
    """

    __slots__ = ("_came", "_handlers")

    def __init__(self) -> None:
        self._handlers: dict[int, Any] = {}
        self._came: list[tuple[int, int]] = []

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in signal.valid_signals():
                if callable(handler := signal.getsignal(number)):
                    self._handlers[number] = handler
                    signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self.restore()

    def restore(self) -> None:
        """Restore the handlers, and raise each signal again that came to this process meanwhile."""
        with contextlib.ExitStack() as stack:  # all of them, even if one raises
            while self._handlers:
                number, handler = self._handlers.popitem()
                signal.signal(number, handler)
                if (os.getpid(), number) in self._came:
                    stack.callback(signal.raise_signal, number)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came.append((os.getpid(), number))


@attrs.define(eq=False)
class _Run:
    """What all processes of a run share. A forked one closes what is not its own; a spawned one gets only its ``part``."""

    program: Callable[[Worker], Any] | bytes
    """A pickle for spawned processes."""
    workers: int
    processes: int
    groups: ProgressGroups
    watch: WatchSettings | None
    lifeline: Connection
    signals: DeferredSignals
    sockets: dict[int, dict[int, socket.socket]]
    """By worker and peer."""
    memory: MemoryBudget | None
    """Of each process; None for its part of what the system allows."""
    receivers: list[Connection] = attrs.field(factory=list)
    senders: dict[int, Connection] = attrs.field(factory=dict)
    """By process, as ``receivers``: the pipe for its outcomes."""
    channels: list[ControlChannel] = attrs.field(factory=list)
    line: RelayedLine | None = None
    """Of the notebook that this process is the kernel of."""

    def indices(self, place: int) -> range:
        """Return the workers of the process at a place."""
        return range(place * self.workers, (place + 1) * self.workers)

    def part(self, place: int) -> _Run:
        """Return what the process at a place needs."""
        sockets = {index: self.sockets[index] for index in self.indices(place)}
        senders = {place: self.senders[place]}
        return attrs.evolve(self, signals=DeferredSignals(), sockets=sockets, receivers=[], senders=senders)


def run_processes(
    program: Callable[[Worker], Any],
    workers: int,
    processes: int,
    groups: ProgressGroups,
    watch: WatchSettings | None,
    method: Literal["fork", "spawn"] = "fork",
    memory: MemoryBudget | None = None,
    patience: float = 60.0,
) -> list[Outcome]:
    """Start the processes, and return the outcomes of all workers. One that is silent for ``patience`` seconds has failed."""
    if method not in get_all_start_methods():
        raise ConfigurationError(
            f"processes={processes}: this system cannot {method}; use threads (workers={workers * processes}), or another"
            " start_method"
        )
    if current_process().daemon:
        raise ConfigurationError(
            f"processes={processes}: this process is daemonic, as those of a multiprocessing.Pool are, and may start no others:"
            f" use threads (workers={workers * processes}), or a concurrent.futures.ProcessPoolExecutor, whose processes may"
        )
    carried = program if method == "fork" else _pickled(program)
    with contextlib.suppress(ImportError):
        import ctypes  # noqa: F401  takes milliseconds, and every child needs it
    prepare_to_partition()
    connections = _connections_of_spark()  # noqa: F841  (the children have this frame, too)
    children: list[Any] = []
    with enough_files(workers, processes):
        lifeline = Lifeline()
    sockets: dict[int, dict[int, socket.socket]] = {index: {} for index in range(workers * processes)}
    run = _Run(carried, workers, processes, groups, watch, lifeline.reader, DeferredSignals(), sockets, memory)
    shown = contextlib.ExitStack()
    try:
        _own.append(lifeline.writer)  # no forked process may hold it
        atexit.register(lifeline.end)  # before multiprocessing waits for the processes of a daemon thread
        if watch is not None and watch.line:
            run.line = shown.enter_context(relayed_line())
        with _forking:
            _start(children, run, method)
        return _gather(run, children, lifeline, FailureDetector([sender for _, sender in run.channels], patience))
    finally:
        lifeline.end()
        atexit.unregister(lifeline.end)
        _own.remove(lifeline.writer)
        for receiver in run.receivers:
            receiver.close()  # a child with a long result would wait for a reader
        for _, sender in run.channels:
            sender.close()
        _end(children, lifeline)
        shown.close()
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


def _start(children: list[Any], run: _Run, method: Literal["fork", "spawn"]) -> None:
    """Start the ``children``, and keep what the parent needs.

    One run at a time: a process that another thread forks meanwhile would hold these connections open.
    """
    context = get_context("fork") if method == "fork" else get_context("spawn")
    try:
        with enough_files(run.workers, run.processes):
            _connect(run.sockets, run.workers)
            for _ in range(run.processes):
                receiver, run.senders[len(run.receivers)] = context.Pipe(duplex=False)
                run.receivers.append(receiver)
                run.channels += control_channels(1)
            for place in range(run.processes):
                part = run if method == "fork" else run.part(place)
                children.append(context.Process(target=_process, args=(part, place), name=f"timely process {place}"))
            with run.signals:
                for child in children:
                    try:
                        child.start()
                    except RuntimeError as error:  # of a spawned process that is still importing the main script
                        if method == "fork":
                            raise
                        raise ConfigurationError(_UNGUARDED) from error
    finally:  # those that were started find out if others were not
        for sender in run.senders.values():
            sender.close()
        run.lifeline.close()
        for control, _ in run.channels:
            control.close()
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
    part = run.part(place)
    for index in run.sockets.keys() - part.sockets.keys():
        for sock in run.sockets[index].values():
            sock.close()
    for other in (*run.receivers, *(sender for at, sender in run.senders.items() if at != place)):
        other.close()
    for mine in part.sockets.values():
        _own.extend(mine.values())
    for channel in run.channels:
        _own.extend(channel)
    _own.extend((run.senders[place], run.lifeline))
    budget = MemoryBudget.given(run.memory, run.processes)
    if budget.limit is None:
        keep_freed_memory()
    gc.freeze()  # a collection of what the parent had would copy its pages
    local = LocalWorkers(run.channels, place, run.workers, answer)
    follow(run.lifeline, local.stop, lambda: interrupt_operators(local))
    with local, watched(local, run.watch, len(run.channels), run.line):
        try:
            run.signals.restore()
            program = _unpickled(run.program) if isinstance(run.program, bytes) else run.program
            with budget:
                outcomes = run_threads(program, run.indices(place), part.sockets, run.groups, local)
        except BaseException as error:  # an interruption or an exit is the parent's to raise
            outcomes = [(False, error)] * run.workers
    with contextlib.suppress(BrokenPipeError):  # the parent has gone
        run.senders[place].send_bytes(_pack(outcomes))
    run.senders[place].close()
    sys.stdout.flush()


def _pickled(program: Callable[[Worker], Any]) -> bytes:
    try:
        return dumps(program)
    except Exception as error:
        raise ConfigurationError(
            f"start_method='spawn' pickles the program, and {brief(program)} cannot be, {error_text(error)}: give a function"
            " that a module defines, no lambda and no closure, or let processes fork"
        ) from error


def _unpickled(program: bytes) -> Callable[[Worker], Any]:
    try:
        unpickled: Callable[[Worker], Any] = pickle.loads(program)
        return unpickled
    except Exception as error:
        raise ConfigurationError(
            f"the program cannot be read in a spawned process, {error_text(error)}: define it in a module or script that the"
            " process can import"
        ) from error


# -- outcomes on their way to the parent ----------------------------------------------------------------------------------


class ErrorLink(NamedTuple):
    """One error of a chain: its pickle, if it has one, its text and notes, and the places of the errors that belong to it."""

    body: bytes
    text: str
    notes: list[str]
    cause: int | None
    context: int | None
    suppressed: bool
    members: list[int]


class Failure(NamedTuple):
    """An error on its way to another process: the links of its chain, its own the first, and its traceback.

    One that cannot be pickled, or not be read there, arrives as a ``WorkerError`` with the same causes.
    """

    links: list[ErrorLink]
    trace: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Return the failure of an error."""
        chain, places = [error], {id(error): 0}

        def place(other: BaseException) -> int:
            if id(other) not in places:
                places[id(other)] = len(chain)
                chain.append(other)
            return places[id(other)]

        links = []
        for one in chain:  # grows meanwhile
            hidden = one.__suppress_context__
            cause = None if one.__cause__ is None else place(one.__cause__)
            context = None if hidden or one.__context__ is None else place(one.__context__)
            members = [place(member) for member in one.exceptions] if isinstance(one, BaseExceptionGroup) else []
            notes = [str(note) for note in getattr(one, "__notes__", ())]
            links.append(ErrorLink(_pickled_error(one), error_text(one), notes, cause, context, hidden, members))
        return cls(links, "".join(traceback.format_exception(error)))

    def error(self) -> BaseException:
        """Return the error with its causes and notes; its traceback is one more note."""
        errors = [_read(link) for link in self.links]
        for link, group in zip(self.links, errors, strict=True):
            if isinstance(group, BaseExceptionGroup):  # its pickle has its members without their causes
                for place, member in zip(link.members, group.exceptions, strict=True):
                    errors[place] = member
        for link, error in zip(self.links, errors, strict=True):
            with contextlib.suppress(Exception):  # one that cannot be changed arrives alone
                if link.notes:
                    error.__notes__ = link.notes
                error.__cause__ = None if link.cause is None else errors[link.cause]
                error.__context__ = None if link.context is None else errors[link.context]
                error.__suppress_context__ = link.suppressed
        errors[0].add_note(f"in another process:\n{self.trace}")
        return errors[0]


def _pickled_error(error: BaseException) -> bytes:
    """Return an error as a pickle that can be read again, else ``b""``."""
    try:
        body = dumps(error)
        return body if isinstance(pickle.loads(body), BaseException) else b""
    except Exception:
        return b""


def _read(link: ErrorLink) -> BaseException:
    if not link.body:
        return WorkerError(link.text)
    try:
        error: BaseException = pickle.loads(link.body)
    except Exception as trouble:
        return WorkerError(f"a worker in another process raised what cannot be read here ({error_text(trouble)}): {link.text}")
    return error


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


class FailureDetector:
    """Asks the processes of a run for a sign of life: a process that is stopped gives none, nor does one whose interpreter hangs.

    It counts silence by its own looks, since the process that looks may have been stopped, too.
    """

    def __init__(self, senders: Sequence[socket.socket], patience: float) -> None:
        self._senders = senders
        self._missed = [0] * len(senders)
        self._pause = patience / _LOOKS
        self.patience = patience
        for sender in senders:
            sender.setblocking(False)

    @property
    def pause(self) -> float | None:
        """Seconds between two looks; ``None`` if there are none."""
        return None if math.isinf(self._pause) else self._pause

    def silent(self, places: Iterable[int]) -> list[int]:
        """Ask the processes at these places, and return those that have been silent for as long as the patience."""
        answers = ask({place: self._senders[place] for place in places}, PING, self._pause)
        for place, reply in answers.items():
            self._missed[place] = 0 if reply in (PING, ENDED) else self._missed[place] + 1
        return [place for place in answers if self._missed[place] >= _LOOKS]


def _gather(run: _Run, children: Sequence[Any], lifeline: Lifeline, detector: FailureDetector) -> list[Outcome]:
    """Return the outcomes of all processes. One that ends without any has failed, and so have those that go on long after it."""
    outcomes: dict[int, list[Outcome]] = {}
    receivers, workers = run.receivers, run.workers
    waiting: dict[Any, int] = {receiver: place for place, receiver in enumerate(receivers)}
    killed: set[int] = set()
    while waiting:
        deadline = lifeline.deadline
        ready = wait(list(waiting), detector.pause if deadline is None else max(0.0, deadline - time.monotonic()))
        if not ready and deadline is None:
            for place in detector.silent(place for place in waiting.values() if place not in killed):
                children[place].kill()  # a process that is stopped takes no other signal
                killed.add(place)
            continue
        if not ready:
            _end(children, lifeline)
        for receiver in ready or list(waiting):
            place = waiting.pop(receiver)
            if ready:
                with contextlib.suppress(EOFError, OSError):
                    outcomes[place] = _unpack(receivers[place].recv_bytes())
                    continue
            _remaining([children[place]], None)
            first, last = place * workers, (place + 1) * workers - 1
            kind = WorkerError if deadline is None else PeerLostError  # the first to go explains the others
            code = children[place].exitcode
            advice = f": {_UNGUARDED}" if code == 1 and isinstance(children[place], get_context("spawn").Process) else ""
            text = f"ended with exit code {code} and no result{advice}"
            if place in killed:
                text = (
                    f"gave no sign of life for {detector.patience:g} s, and was killed: it was stopped by a signal, or a call in"
                    " it kept Python's other threads from running. If it may take so long, give a larger patience="
                )
            error = kind(f"process {place} (workers {first} to {last}) {text}")
            outcomes[place] = [(False, error)] * workers
            lifeline.end()
    return [outcome for place in range(len(receivers)) for outcome in outcomes[place]]
