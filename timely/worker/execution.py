"""``execute``: run a program on several workers, as threads, as processes, or as threads in processes, on this machine.

Every worker runs the same program. The invariant: the call ends, with every worker's result or with one error. A worker that
raises tells the others, who stop; a process that dies without a word is noticed by its connections, and the others end with it,
as all do with the one that started them. Processes are forked, so that a program may be a closure or a lambda.
"""

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from timely.dataflow import ScopeBuilder, Stream, warn, why_not_run
from timely.dataflow.container import prepare_to_partition
from timely.dataflow.pickling import dumps
from timely.errors import (
    ConfigurationError,
    GraphError,
    PeerLostError,
    TimelyError,
    WorkerError,
    brief,
    file_error_text,
    out_of_files,
)
from timely.progress import ProgressGroups, ProgressMode
from timely.worker.allocator import keep_what_is_freed, prepare
from timely.worker.failure import Failure
from timely.worker.interruptions import SetAside
from timely.worker.lifeline import GRACE, Lifeline
from timely.worker.local_workers import Line, LocalWorkers, lines
from timely.worker.run_monitor import Watch, watched
from timely.worker.shared_memory import Shared, SharedMemoryBuffer, arenas
from timely.worker.terminal import erase
from timely.worker.transport import Inbox, PeerTransport
from timely.worker.worker import Worker

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

T = TypeVar("T")
D = TypeVar("D")
Outcome: TypeAlias = tuple[bool, Any]
"""``(True, result)`` or ``(False, error)`` of one worker."""

_ASK = 0.05
_TERMINATING = 2.0
"""Seconds from SIGTERM to SIGKILL."""
_ON_THE_WAY = 1 << 20
"""Bytes that a connection between two processes takes though nobody reads: a batch should fit in."""


def execute(
    program: Callable[[Worker], T],
    *,
    workers: int = 1,
    processes: int = 1,
    progress: ProgressMode = "direct",
    watch: bool | float = True,
) -> list[T]:
    """Run ``program(worker)`` on ``workers`` threads in each of ``processes`` processes; return the results in worker order.

    After the program has returned, its worker goes on until every dataflow is complete. If an operator raises, the whole run
    ends with its ``OperatorError``; what a program itself raises ends the run as it is, with a note that says which worker it
    was; a process that ends without a result is a ``WorkerError``. ``ConfigurationError`` for a count below one, a
    program that is no function, has a ``yield`` in it or is ``async``, where the system lets no more files be opened than so
    many workers take, or for several processes in one that is daemonic.

    The processes end with the one that called this, however that ends. After it was interrupted or one of them has died, the
    others stop, and are ended if they have not after ten seconds.

    ``progress`` says how workers hear of each other's progress, which changes no result: ``direct`` (everybody tells everybody),
    ``process`` (those of a process tell each other, and processes each other what theirs did), ``central`` (processes tell the
    first of them, which passes on the sum) or ``tree`` (groups of sixteen, of which the first are in groups again). Which suits
    how many workers: ``docs/sizing.md``. Source: Naiad section 3.3 and figure 6c.

    While it runs, a line on standard error says how far it is, if that is a terminal and it takes longer than two seconds; and if
    nothing moves for 60 seconds, or as many as ``watch`` says, the log ``timely.inspect.watchdog`` has a warning that says who
    holds what. Neither with ``watch=False``, or ``TIMELY_WATCH=0`` in the environment: ``docs/stuck.md``.

    >>> def program(worker):
    ...     with worker.dataflow() as scope:
    ...         seen = scope.to_stream([1, 2, 3]).exchange(lambda x: x).capture()
    ...     worker.run()
    ...     return seen.extract()
    >>> execute(program, workers=2)
    [[(0, [2, 2])], [(0, [1, 1, 3, 3])]]
    >>> execute(program, workers=2, progress="central")
    [[(0, [2, 2])], [(0, [1, 1, 3, 3])]]
    """
    if not callable(program):
        raise ConfigurationError(f"execute(program) takes a function, which it calls with each worker, not {brief(program)}")
    kind = why_not_run(program)
    if kind is not None:
        raise ConfigurationError(
            f"execute(program) takes a function that works when it is called, and {brief(program)} is {kind}: have it return its"
            " result, and await in map_async or from_async"
        )
    for name, count in (("workers", workers), ("processes", processes)):
        if not isinstance(count, int) or count < 1:
            raise ConfigurationError(f"{name}={count!r}: give a whole number of at least 1; use {name}=1 for a single one")
    return execute_watched(program, workers, processes, progress, Watch.wanted(watch))


def execute_watched(
    program: Callable[[Worker], T], workers: int, processes: int, progress: ProgressMode, watch: Watch | None
) -> list[T]:
    """Do what ``execute`` does, for somebody who wants to be told in another way what it is stuck at."""
    routes = ProgressGroups.named(progress, workers * processes, workers)
    if processes > 1:
        outcomes = _run_processes(program, workers, processes, routes, watch)
    else:
        company = LocalWorkers(workers=workers)
        with company, watched(company, watch):
            if workers > 1:
                outcomes = run_threads(program, range(workers), {}, {}, routes, company)
            else:
                outcomes = [run_worker(program, Worker(), company)]
    failure = first_failure(outcomes)
    if failure is not None:
        raise failure
    return [result for _, result in outcomes]


def example(build: Callable[[ScopeBuilder[int]], Stream[int, D]]) -> list[tuple[int, list[D]]]:
    """Build one dataflow on one worker, run it to its end, and return ``capture().extract()`` of the stream it returns.

    ``GraphError`` if it returns anything else.

    >>> example(lambda scope: scope.to_stream([3, 1, 2]).map(lambda x: 10 * x))
    [(0, [10, 20, 30])]
    """
    with LocalWorkers() as company, watched(company, Watch.wanted(True)), Worker() as worker:
        company.admit(worker)
        with worker.dataflow(name="example") as scope:
            built = build(scope)
            if not isinstance(built, Stream):
                raise GraphError(f"example(build): build(scope) must return the stream that is to be shown, not {brief(built)}")
            if built.scope is not scope:
                warn(f"build(scope) returned a stream of the nested scope {built.scope.path}, as it is there: call leave() on it")
            captured = built.capture()
        worker.run()
        return captured.extract()


def run_worker(program: Callable[[Worker], Any], worker: Worker, company: LocalWorkers | None = None) -> Outcome:
    """Run a program on a worker to the end of its dataflows; return its outcome, and leave the worker closed.

    It is admitted to the company that its peers in this process are in, if there is one.
    """
    if company is not None:
        company.admit(worker)
    outcome: Outcome
    try:
        result = program(worker)
        worker.finish()
        outcome = True, result
    except Exception as error:
        if not isinstance(error, TimelyError):
            error.add_note(f"raised by the program of worker {worker.index}")
        worker.abort(error)
        outcome = False, error
    except BaseException as error:
        worker.abort(error)
        worker.close()
        raise
    try:
        worker.close()
    except Exception as error:  # what went wrong first is what counts
        return outcome if not outcome[0] else (False, error)
    return outcome


def run_threads(
    program: Callable[[Worker], Any],
    indices: Sequence[int],
    sockets: Mapping[int, Mapping[int, socket.socket]],
    shared: Mapping[int, Mapping[int, Shared]],
    routes: ProgressGroups,
    company: LocalWorkers,
) -> list[Outcome]:
    """Run the workers ``indices`` as threads of this process.

    They are connected to others by ``sockets[worker][peer]``, and by memory where that is in ``shared``.
    """
    inboxes: dict[int, Inbox] = {}
    try:
        with _enough_files(len(indices)):
            for index in indices:
                inboxes[index] = Inbox()
    except ConfigurationError:
        for inbox in inboxes.values():
            inbox.close()
        raise
    company.when_stopped(lambda: _stop(inboxes, "the run was interrupted, or has failed in another process"))
    transports = [PeerTransport(index, inboxes, sockets.get(index, {}), shared=shared.get(index)) for index in indices]
    if len(transports) == 1:
        return [_run_connected(transports[0], program, routes, company)]
    outcomes: list[Outcome] = [(False, WorkerError(f"worker {index} ended without a result")) for index in indices]
    ended = [threading.Event() for _ in indices]

    def run(place: int) -> None:
        try:
            outcomes[place] = _run_connected(transports[place], program, routes, company)
        except BaseException as error:  # an interruption ends the run as it would without threads
            outcomes[place] = (False, error)
        finally:
            ended[place].set()

    threads = [
        threading.Thread(target=run, args=(place,), name=f"timely worker {index}") for place, index in enumerate(indices)
    ]
    try:
        for thread in threads:
            thread.start()
        for end in ended:
            end.wait()  # a thread whose ``join`` is interrupted is taken for ended, by Python before 3.13
        for thread in threads:
            thread.join()
    except BaseException as interruption:
        _stop(inboxes, f"the run was interrupted by {type(interruption).__name__}")
        for thread, transport, end in zip(threads, transports, ended, strict=True):
            if thread.ident is None:
                transport.close()  # it was never started, so nobody else does
            elif end.wait(GRACE):
                thread.join()
        raise
    return outcomes


def _stop(inboxes: Mapping[int, Inbox], why: str) -> None:
    """Have the workers stop that these inboxes belong to; those that have ended need not hear it."""
    for inbox in inboxes.values():
        inbox.put(-1, ("abort", why))


def _run_connected(
    transport: PeerTransport, program: Callable[[Worker], Any], routes: ProgressGroups, company: LocalWorkers
) -> Outcome:
    """Run a program on a new worker that is connected by ``transport``; who looks on may refuse to have it made."""
    try:
        worker = Worker(transport, routes=routes)
    except Exception as error:
        return False, error
    return run_worker(program, worker, company)


def first_failure(outcomes: Sequence[Outcome]) -> BaseException | None:
    """Return the error that explains the others: an operator's or a program's, rather than that somebody else was lost."""
    failures = [error for succeeded, error in outcomes if not succeeded]
    for kind in (PeerLostError, WorkerError):
        others = [error for error in failures if not isinstance(error, kind)]
        failures = others or failures
    return failures[0] if failures else None


# -- processes ---------------------------------------------------------------------------------------------------------


def _run_processes(
    program: Callable[[Worker], Any], workers: int, processes: int, routes: ProgressGroups, watch: Watch | None
) -> list[Outcome]:
    """Fork the processes, and wait for what each has to say."""
    import multiprocessing

    if "fork" not in multiprocessing.get_all_start_methods():
        raise ConfigurationError(f"processes={processes}: this system cannot fork; use threads (workers={workers * processes})")
    if multiprocessing.current_process().daemon:
        raise ConfigurationError(
            f"processes={processes}: this process is daemonic, as those of a multiprocessing.Pool are, and may start no others:"
            f" use threads (workers={workers * processes}), or a concurrent.futures.ProcessPoolExecutor, whose processes may"
        )
    prepare()
    prepare_to_partition()
    kept = _connections_of_spark()  # noqa: F841  (the children have this frame, too)
    children: list[Any] = []
    ends: list[tuple[Connection, Connection]] = []
    called: list[Line] = []
    with _enough_files(workers, processes):
        lifeline = Lifeline()
    try:
        _own.append(lifeline.writer)  # which nothing that is forked may hold
        with _forking:
            _start(children, ends, called, lifeline, program, workers, processes, routes, watch)
        return _gather([receiver for receiver, _ in ends], children, workers, lifeline)
    finally:
        lifeline.end()
        _own.remove(lifeline.writer)
        for receiver, _ in ends:
            receiver.close()  # who has a long result to tell would wait for somebody to read it
        for _, line in called:
            line.close()
        _end(children, lifeline)
        if watch is not None and watch.line and children and (children[0].exitcode or 0) < 0:
            erase(sys.stderr)  # the line of one that was killed


def _end(children: Sequence[Any], lifeline: Lifeline) -> None:
    """Wait for the end of the processes of a run that is over, and end those that do not in time."""
    for child in _remaining(children, lifeline.deadline):
        child.terminate()
    for child in _remaining(children, time.monotonic() + _TERMINATING):
        child.kill()
        child.join()


def _remaining(children: Sequence[Any], deadline: float | None) -> list[Any]:
    """Wait for the end of processes for a while, and return those that go on. They are asked for, since a process that one has
    started itself may hide it.
    """
    deadline = deadline or time.monotonic() + GRACE
    while (alive := [child for child in children if child.is_alive()]) and time.monotonic() < deadline:
        alive[0].join(_ASK)
    return alive


def _start(
    children: list[Any],
    ends: list[tuple[Connection, Connection]],
    called: list[Line],
    lifeline: Lifeline,
    program: Callable[[Worker], Any],
    workers: int,
    processes: int,
    routes: ProgressGroups,
    watch: Watch | None,
) -> None:
    """Start the ``children``, each with all ``ends`` of the pipes for what they have to say, all the lines by which they are
    ``called``, and the ``lifeline``, and keep what the parent needs.

    One run at a time: what another thread forks meanwhile would have these connections too, so that nobody could see them end.
    """
    import multiprocessing

    context = multiprocessing.get_context("fork")
    sockets: dict[int, dict[int, socket.socket]] = {index: {} for index in range(workers * processes)}
    shared: dict[int, dict[int, Shared]] = {}
    aside = SetAside()
    try:
        with _enough_files(workers, processes):
            _connect(sockets, workers)
            shared |= _share(sockets)
            for _ in range(processes):
                ends.append(context.Pipe(duplex=False))
                called += lines(1)
            for place in range(processes):
                arguments = program, place, workers, sockets, shared, ends, routes, called, lifeline, watch, aside
                children.append(context.Process(target=_process, args=arguments, name=f"timely process {place}"))
            with aside:
                for child in children:
                    child.start()
    finally:  # those that were started find out if others were not
        for _, sender in ends:
            sender.close()
        lifeline.reader.close()
        for sock in (*(ear for ear, _ in called), *(sock for mine in sockets.values() for sock in mine.values())):
            sock.close()
        _let_go(shared, ())


@contextlib.contextmanager
def _enough_files(workers: int, processes: int = 1) -> Iterator[None]:
    """Raise ``ConfigurationError`` where so many files cannot be opened as these take: the inboxes of threads; connections, what
    each process is told and says, and pipes while processes are started.
    """
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


_forking = threading.RLock()


_own: list[SharedMemoryBuffer | socket.socket | Connection] = []
"""What this process is connected to the others of its run by, and to whoever started it. Memory is first, and let go of last."""


def _after_fork() -> None:
    """Have a lock of one's own in a process that was forked, which has none of the threads that may have held the other one.

    And none of the connections: as long as it had them, too, nobody could see them end. A worker may start a run of its own. Nor
    the memory: a copy that goes on as if it were the worker would write over what that one has sent.
    """
    global _forking
    _forking = threading.RLock()
    while _own:
        with contextlib.suppress(BufferError):  # another thread was reading what lay in this memory; nothing is written to it
            _own.pop().close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _connections_of_spark() -> list[object]:
    """Return what this process, if it has a Spark session, is connected to its Java by, to be kept for as long as a child lives.

    A child has none of the other threads, and lets go of what was theirs; a connection that is let go of shuts the socket down,
    which is the parent's, too, and what Java knew of that thread is lost: which session is the active one, for example.
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
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ON_THE_WAY)  # or as much as the system allows


def _share(sockets: Mapping[int, Mapping[int, socket.socket]]) -> dict[int, dict[int, Shared]]:
    """Return the memory that goes with these sockets, by worker and peer; none where there is none to be had."""
    ways = [(one, other) for one, mine in sockets.items() for other in mine]
    made = dict(zip(ways, arenas(len(ways)), strict=False))
    return {one: {other: (made[one, other], made[other, one]) for other in mine if made} for one, mine in sockets.items()}


def _let_go(shared: Mapping[int, Mapping[int, Shared]], kept: Sequence[int]) -> None:
    """Let go of the memory of all workers but these."""
    for index, mine in shared.items():
        for peer, (there, _) in mine.items():
            if index not in kept and peer not in kept:
                there.close()


def _process(
    program: Callable[[Worker], Any],
    place: int,
    workers: int,
    sockets: Mapping[int, Mapping[int, socket.socket]],
    shared: Mapping[int, Mapping[int, Shared]],
    ends: Sequence[tuple[Connection, Connection]],
    routes: ProgressGroups,
    called: Sequence[Line],
    lifeline: Lifeline,
    watch: Watch | None,
    aside: SetAside,
) -> None:
    """Run one process's workers, and send the parent their outcomes."""
    indices = range(place * workers, (place + 1) * workers)
    for index, mine in sockets.items():
        if index not in indices:
            for sock in mine.values():
                sock.close()
    for other, (receiver, sender) in enumerate(ends):
        receiver.close()
        if other != place:
            sender.close()
    _let_go(shared, indices)
    for index in indices:
        _own[:0] = itertools.chain(*shared.get(index, {}).values())
        _own.extend(sockets[index].values())
    _own.extend((*itertools.chain(*called), ends[place][1], lifeline.reader))
    keep_what_is_freed()
    gc.freeze()  # to look through all that the parent had would copy every page of it that an object lies on
    company = LocalWorkers(called, place, workers)
    lifeline.follow(company.stop)
    with company, watched(company, watch, len(called)):
        try:
            aside.over()
            outcomes = run_threads(program, indices, {index: sockets[index] for index in indices}, shared, routes, company)
        except BaseException as error:  # an interruption, an exit, or what else is no Exception, is the parent's to raise
            outcomes = [(False, error)] * workers
    with contextlib.suppress(BrokenPipeError):  # who started it is gone
        ends[place][1].send_bytes(_pack(outcomes))
    ends[place][1].close()
    sys.stdout.flush()


def _pack(outcomes: Sequence[Outcome]) -> bytes:
    """Pickle outcomes; a result that cannot be pickled becomes an error that says so.

    Whether a result can be read again is for its reader to find out, since there may be much of it.
    """
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
    """Return the result in a pickle; an error that says ``otherwise``, and what is in the way, if it cannot be read."""
    try:
        return True, pickle.loads(body)
    except Exception as trouble:
        error = WorkerError(f"{otherwise}: {trouble}")
        error.add_note(f"when it was read:\n{traceback.format_exc()}")
        return False, error


def _gather(receivers: Sequence[Connection], children: Sequence[Any], workers: int, lifeline: Lifeline) -> list[Outcome]:
    """Wait for every process's outcomes. One that ends without any counts as failed, and so do those that have not ended
    some time after that.
    """
    from multiprocessing.connection import wait

    said: dict[int, list[Outcome]] = {}
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
                    said[place] = _unpack(receivers[place].recv_bytes())
                    continue
            _remaining([children[place]], None)
            first, last = place * workers, (place + 1) * workers - 1
            kind = WorkerError if deadline is None else PeerLostError  # who went first explains the others
            code = children[place].exitcode
            error = kind(f"process {place} (workers {first} to {last}) ended with exit code {code} and no result")
            said[place] = [(False, error)] * workers
            lifeline.end()
    return [outcome for place in range(len(receivers)) for outcome in said[place]]
