"""``execute`` and the workers of one process.

Every worker runs the same program. Invariant: the call ends, with every worker's result or with one error. A worker that raises
makes the others stop; a process that dies is noticed by its connections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from timely.dataflow import ScopeBuilder, Stream, warn, why_not_run
from timely.errors import ConfigurationError, GraphError, brief
from timely.execution.run_monitor import answer, watched
from timely.execution.threads import first_failure, run_threads, run_worker
from timely.monitor.local_workers import LocalWorkers
from timely.monitor.watch import WatchSettings
from timely.progress import ProgressGroups, ProgressMode
from timely.worker.worker import Worker

T = TypeVar("T")
D = TypeVar("D")


def execute(
    program: Callable[[Worker], T],
    *,
    workers: int = 1,
    processes: int = 1,
    progress: ProgressMode = "direct",
    watch: bool | float = True,
) -> list[T]:
    """Run ``program(worker)`` on ``workers`` threads in each of ``processes`` processes; return the results in worker order.

    After the program has returned, its worker goes on until every dataflow is complete. ``OperatorError`` if an operator
    raises; what a program itself raises ends the run as it is, with a note that names the worker; ``WorkerError`` for a process
    that ends without a result. ``ConfigurationError`` for a count below one, a program that is no function, is ``async`` or has
    a ``yield``, too few open files, or several processes in a daemonic one.

    Processes are forked, so that a program may be a closure, and end with the one that called this. After an interruption or the
    death of one, the others stop, and are killed after ten seconds.

    ``progress`` selects how workers exchange progress, which changes no result: ``direct`` (every worker with every other),
    ``process`` (aggregated in each process), ``central`` (by way of the first process) or ``tree`` (groups of sixteen,
    recursively). ``docs/sizing.md`` says which suits how many workers. Source: Naiad section 3.3 and figure 6c.

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
    return execute_watched(program, workers, processes, progress, WatchSettings.wanted(watch))


def execute_watched(
    program: Callable[[Worker], T], workers: int, processes: int, progress: ProgressMode, watch: WatchSettings | None
) -> list[T]:
    """As ``execute``, with settings for the watch."""
    routes = ProgressGroups.named(progress, workers * processes, workers)
    if processes > 1:
        from timely.execution.processes import run_processes

        outcomes = run_processes(program, workers, processes, routes, watch)
    else:
        local = LocalWorkers(workers=workers, answer=answer)
        with local, watched(local, watch):
            if workers > 1:
                outcomes = run_threads(program, range(workers), {}, routes, local)
            else:
                outcomes = [run_worker(program, Worker(), local)]
    failure = first_failure(outcomes)
    if failure is not None:
        raise failure
    return [result for _, result in outcomes]


def example(build: Callable[[ScopeBuilder[int]], Stream[int, D]]) -> list[tuple[int, list[D]]]:
    """Return ``capture().extract()`` of the stream that ``build(scope)`` returns, from one dataflow on one worker.

    ``GraphError`` if it returns anything else.

    >>> example(lambda scope: scope.to_stream([3, 1, 2]).map(lambda x: 10 * x))
    [(0, [10, 20, 30])]
    """
    with LocalWorkers(answer=answer) as local, watched(local, WatchSettings.wanted(True)), Worker() as worker:
        local.add(worker)
        with worker.dataflow(name="example") as scope:
            built = build(scope)
            if not isinstance(built, Stream):
                raise GraphError(f"example(build): build(scope) must return the stream that is to be shown, not {brief(built)}")
            if built.scope is not scope:
                warn(f"build(scope) returned a stream of the nested scope {built.scope.path}, as it is there: call leave() on it")
            captured = built.capture()
        worker.run()
        return captured.extract()
