"""``execute`` and the workers of one process.

Every worker runs the same program. Invariant: the call ends, with every worker's result or with one error. A worker that raises
makes the others stop; a process that dies is noticed by its connections.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from timely.dataflow import ScopeBuilder, Stream, fold_tracebacks, warn, why_not_run
from timely.errors import ConfigurationError, GraphError, brief
from timely.execution.run_monitor import answer, watched
from timely.execution.threads import Outcome, first_failure, run_threads, run_worker
from timely.memory import MemoryBudget
from timely.monitor.local_workers import LocalWorkers
from timely.monitor.watch_settings import WatchSettings
from timely.progress import ProgressGroups, ProgressMode
from timely.worker.worker import Worker

if TYPE_CHECKING:
    from timely.execution.hosts import Hosts

T = TypeVar("T")
D = TypeVar("D")


class _FromEnvironment(int):
    """The default of an argument that a variable of the environment replaces."""


_ONE: Final = _FromEnvironment(1)


def execute(
    program: Callable[[Worker], T],
    *,
    workers: int | None = _ONE,
    processes: int = 1,
    progress: ProgressMode = "direct",
    watch: bool | float = True,
    start_method: Literal["fork", "spawn"] | None = None,
    hosts: Sequence[str] | str | os.PathLike[str] | None = None,
    index: int | None = None,
    credentials: str | os.PathLike[str] | None = None,
    patience: float = 60.0,
    memory: int | str | MemoryBudget | None = None,
) -> list[T]:
    """Run ``program(worker)`` on ``workers`` threads in each of ``processes`` processes; return the results in worker order.

    After the program has returned, its worker goes on until every dataflow is complete. ``OperatorError`` if an operator
    raises; what a program itself raises ends the run as it is, with a note that names the worker; ``WorkerError`` for a process
    that ends without a result. ``ConfigurationError`` for a count below one, a program that is no function, is ``async`` or has
    a ``yield``, too few open files, or several processes in a daemonic one.

    Processes are forked, so that a program may be a closure, and end with the one that called this. After an interruption or the
    death of one, the others stop, and are killed after ten seconds. With ``start_method="spawn"`` they begin afresh, and the
    program must be a function that they can import.

    With ``hosts`` (``["a:7000", "b:7000"]``, or a file with one on each line) the run is on several machines. Each host runs this
    call in one process, with its own ``index`` in the list, and gets the results of its own workers. All hold a copy of the file
    ``credentials``, which ``timely credentials FILE`` makes. ``PeerLostError`` if hosts do not answer within ``patience``
    seconds, ``AuthenticationError`` for other credentials. See ``docs/hosts.md``.

    A process of this machine that gives no sign of life for ``patience`` seconds, since it is stopped or its interpreter hangs,
    is killed, and the run ends with a ``WorkerError`` that names its workers. ``math.inf`` waits without end.

    ``memory`` is what each process may take (``"2GB"``), or a :class:`timely.memory.MemoryBudget`; the default is what the system
    allows. Graph algorithms and arrangements go to disk beyond it: ``docs/memory.md``.

    The environment variables ``TIMELY_WORKERS``, ``TIMELY_HOSTS``, ``TIMELY_INDEX``, ``TIMELY_CREDENTIALS`` and ``TIMELY_MEMORY``
    are the defaults of these arguments.

    ``progress`` selects how workers exchange progress, which changes no result: ``direct`` (every worker with every other),
    ``process`` (aggregated in each process), ``central`` (by way of the first process) or ``tree`` (groups of sixteen,
    recursively). ``docs/memory.md`` says which suits how many workers. Source: Naiad section 3.3 and figure 6c.

    A line on standard error shows how far a run is, if that is a terminal and the run takes longer than two seconds. If nothing
    moves for 60 seconds, or as many as ``watch`` says, the log ``timely.inspect.watchdog`` has a warning that says who holds
    what. Neither with ``watch=False``, or ``TIMELY_WATCH=0`` in the environment: ``docs/stuck.md``.

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
    check_program("execute", program)
    if workers is _ONE or workers is None:
        workers = _number("TIMELY_WORKERS", 1)
    for name, count in (("workers", workers), ("processes", processes)):
        if not isinstance(count, int) or count < 1:
            raise ConfigurationError(f"{name}={count!r}: give a whole number of at least 1; use {name}=1 for a single one")
    if start_method not in (None, "fork", "spawn"):
        raise ConfigurationError(f"start_method={start_method!r}: give 'fork' or 'spawn', or leave it out to fork")
    cluster = _cluster(hosts, index, credentials, patience)
    if cluster is not None and processes > 1:
        raise ConfigurationError(
            f"processes={processes} with hosts={list(cluster.names)}: each host runs one process. Give more workers, or list a"
            " machine once for each process, with a port for each"
        )
    if not isinstance(patience, int | float) or not patience > 0:
        raise ConfigurationError(f"patience={patience!r}: give a number of seconds above 0, or math.inf to wait without end")
    settings, method = WatchSettings.wanted(watch), start_method or "fork"
    try:
        budget = None if memory is None else MemoryBudget.given(memory)
        with budget or contextlib.nullcontext():
            return execute_watched(program, workers, processes, progress, settings, method, cluster, budget, patience)
    except Exception as error:
        fold_tracebacks(error)
        raise


def check_program(call: str, program: object) -> None:
    """Raise ``ConfigurationError`` for what is no function, or does nothing when it is called."""
    if not callable(program):
        raise ConfigurationError(f"{call}(program) takes a function, which it calls with each worker, not {brief(program)}")
    kind = why_not_run(program)
    if kind is not None:
        raise ConfigurationError(
            f"{call}(program) takes a function that works when it is called, and {brief(program)} is {kind}: have it return its"
            " result, and await in map_async or from_async"
        )


def _number(variable: str, default: int | None) -> Any:
    text = os.environ.get(variable)
    try:
        return int(text) if text else default
    except ValueError:
        raise ConfigurationError(f"the environment has {variable}={text!r}: give a whole number") from None


def _cluster(
    hosts: Sequence[str] | str | os.PathLike[str] | None,
    index: int | None,
    credentials: str | os.PathLike[str] | None,
    patience: float,
) -> Hosts | None:
    """Return the hosts that the arguments or the environment name, if any."""
    if hosts is None:
        hosts = os.environ.get("TIMELY_HOSTS") or None
    if hosts is None:
        if index is not None:
            raise ConfigurationError(f"index={index} without hosts: give hosts=, or TIMELY_HOSTS in the environment")
        return None
    from timely.execution.hosts import Hosts

    index = _number("TIMELY_INDEX", None) if index is None else index
    return Hosts.given(hosts, index, credentials or os.environ.get("TIMELY_CREDENTIALS"), patience)


def execute_watched(
    program: Callable[[Worker], T],
    workers: int,
    processes: int,
    progress: ProgressMode,
    watch: WatchSettings | None,
    start_method: Literal["fork", "spawn"] = "fork",
    cluster: Hosts | None = None,
    memory: MemoryBudget | None = None,
    patience: float = 60.0,
) -> list[T]:
    """As ``execute``, with settings for the watch; other processes get the budget ``memory``, this one has it."""
    if cluster is not None:
        outcomes = _run_on_host(program, workers, progress, watch, cluster)
    elif processes > 1:
        from timely.execution.processes import run_processes

        groups = ProgressGroups.named(progress, workers * processes, workers)
        outcomes = run_processes(program, workers, processes, groups, watch, start_method, memory, patience)
    else:
        return execute_here(program, workers, progress, watch, LocalWorkers(workers=workers, answer=answer))
    return _results(outcomes)


def execute_here(
    program: Callable[[Worker], T], workers: int, progress: ProgressMode, watch: WatchSettings | None, local: LocalWorkers
) -> list[T]:
    """Return the results of workers of this process alone, one on this thread or several on their own."""
    groups = ProgressGroups.named(progress, workers, workers)
    with local, watched(local, watch):
        if workers > 1:
            return _results(run_threads(program, range(workers), {}, groups, local))
        return _results([run_worker(program, Worker(), local)])


def _results(outcomes: Sequence[Outcome]) -> list[Any]:
    failure = first_failure(outcomes)
    if failure is not None:
        raise failure
    return [result for _, result in outcomes]


def _run_on_host(
    program: Callable[[Worker], Any], workers: int, progress: ProgressMode, watch: WatchSettings | None, cluster: Hosts
) -> list[Outcome]:
    """Run the workers of this host, connected to those of the others."""
    groups = ProgressGroups.named(progress, workers * len(cluster.names), workers)
    sockets = cluster.connect(workers, progress)
    local = LocalWorkers(workers=workers, answer=answer)
    try:
        with local, watched(local, watch):
            return run_threads(program, list(sockets), sockets, groups, local)
    finally:
        for mine in sockets.values():
            for sock in mine.values():
                sock.close()  # nothing more to do where a transport has closed it


def example(build: Callable[[ScopeBuilder[int]], Stream[int, D]]) -> list[tuple[int, list[D]]]:
    """Return ``capture().extract()`` of the stream that ``build(scope)`` returns, from one dataflow on one worker.

    ``GraphError`` if it returns anything else.

    >>> example(lambda scope: scope.to_stream([3, 1, 2]).map(lambda x: 10 * x))
    [(0, [10, 20, 30])]
    """
    try:
        return _example(build)
    except Exception as error:
        fold_tracebacks(error)
        raise


def _example(build: Callable[[ScopeBuilder[int]], Stream[int, D]]) -> list[tuple[int, list[D]]]:
    with LocalWorkers(answer=answer) as local, watched(local, WatchSettings.wanted(True)), Worker() as worker:
        local.add(worker)
        with worker.dataflow(name="example") as scope:
            built: object = build(scope)
            if not isinstance(built, Stream):
                advice = ": return its .stream" if isinstance(getattr(built, "stream", None), Stream) else ""
                raise GraphError(
                    f"example(build): build(scope) must return the stream that is to be shown, not {brief(built)}{advice}"
                )
            if built.scope is not scope:
                warn(f"build(scope) returned a stream of the nested scope {built.scope.path}, as it is there: call leave() on it")
            captured = built.capture()
        worker.run()
        return captured.extract()
