"""What progress costs in time in each mode: real workers and real sockets, stepped in turn by one thread, on any machine.

All workers are in one process, so that what is measured is processor time of work that is really done, however many cores there
are and whatever else they do. Workers step together: all that was sent in one turn arrives in the next. *All* is the processor
time of all workers for an iteration of the barrier. *Longest* is what the iteration would take if every process had a core of its
own and messages took no time: of each turn of an iteration, the mean time of the process that takes longest. What it leaves out
is what a message takes on its way, as many times in a row as there are hops; so a row for each mode gives the time between real
processes, as far as this machine has cores for them.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import attrs

import timely
from benchmarks.measure import Measured, in_turn
from benchmarks.progress_traffic import hops
from benchmarks.report import Row
from benchmarks.sizing_traffic import SHAPES, Shape, barrier
from timely import InputPort, Notificator, OutputPort, Pipeline, Step, Worker
from timely.progress import PROGRESS_MODES, ProgressGroups, ProgressMode
from timely.worker.transports import Inbox, PeerTransport


class Staged(PeerTransport):
    """A transport that hands out, when it is asked, what there was when ``collect`` was called."""

    _arrived: Sequence[tuple[int, Any]] = ()

    def collect(self) -> None:
        """Take in what has arrived."""
        self._arrived = super().receive()

    def receive(self) -> Sequence[tuple[int, Any]]:
        """Return what was taken in."""
        arrived, self._arrived = self._arrived, ()
        return arrived


@attrs.frozen
class Spent:
    """Seconds of processor time for an iteration: of all workers, and of the process that takes longest in each turn."""

    all: float
    longest: float


@contextlib.contextmanager
def workers_of(routes: ProgressGroups, each: int) -> Iterator[list[tuple[Worker, Staged]]]:
    """Yield workers that are connected as ``each`` in a process would be, by memory and by sockets."""
    count = routes.workers
    inboxes = [Inbox() for _ in range(count)]
    sockets: list[dict[int, socket.socket]] = [{} for _ in range(count)]
    for one in range(count):
        for other in range((one // each + 1) * each, count):
            sockets[one][other], sockets[other][one] = socket.socketpair()
    transports = []
    for index, mine in enumerate(sockets):
        first = index // each * each
        transports.append(Staged(index, {peer: inboxes[peer] for peer in range(first, first + each)}, mine))
    try:
        yield [(Worker(transport, groups=routes), transport) for transport in transports]
    finally:
        for transport in transports:
            for end in transport.connections:
                end.close()
        for inbox in inboxes:
            inbox.close()


def spent(routes: ProgressGroups, each: int, iterations: int = 20) -> Spent:
    """Return what an iteration of the barrier takes."""
    with workers_of(routes, each) as members:
        drives = [barrier(worker) for worker, _ in members]
        _turns(members, drives, 3, each)
        gc.collect()
        gc.disable()  # in one process the collector would look at all workers in the turn of one
        try:
            return _turns(members, drives, iterations, each)
        finally:
            gc.enable()


def _turns(members: list[tuple[Worker, Staged]], drives: list[Callable[[], int]], iterations: int, each: int) -> Spent:
    """Step all workers together until so many more iterations are done; each takes as many turns as the others."""
    first = min(drive() for drive in drives)
    took: list[list[float]] = []
    while (done := min(drive() for drive in drives) - first) < iterations:
        took.append([0.0] * (len(members) // each))
        for index, (_, transport) in enumerate(members):
            start = time.process_time()
            transport.collect()
            took[-1][index // each] += time.process_time() - start
        for index, (worker, _) in enumerate(members):
            start = time.process_time()
            worker.step()
            took[-1][index // each] += time.process_time() - start
    turns = len(took) // done
    alike = [map(sum, zip(*took[turn::turns], strict=True)) for turn in range(turns)]
    return Spent(sum(map(sum, took)) / done, sum(map(max, alike)) / done)


def staged_rows(sizes: Sequence[int], rounds: int) -> list[Row]:
    """Return what an iteration takes in each mode, against the direct one with as many workers in a process."""
    rows = []
    for workers in sizes:
        rows += _staged([shape for shape in SHAPES if shape.routes(workers) != ProgressGroups.direct(workers)], workers, rounds)
    for each, processes in itertools.product((2, 4), (2, 4, 8)):
        groups = partial(ProgressGroups.process, each=each)
        shape = Shape(f"process, {each} in each", groups, {each * processes: each}.__getitem__)
        rows += _staged([shape], each * processes, rounds)
    return rows


def _staged(shapes: Sequence[Shape], workers: int, rounds: int) -> list[Row]:
    works = {shape.name: (shape.routes(workers), shape.each(workers)) for shape in shapes}
    each_of = sorted({shape.each(workers) for shape in shapes})
    works |= {f"direct {each}": (ProgressGroups.direct(workers), each) for each in each_of}
    found: dict[str, list[Spent]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, (routes, each) in works.items():
            found[name].append(spent(routes, each))
    rows = []
    for shape in shapes:
        rows += _against(shape, workers, found[shape.name], found[f"direct {shape.each(workers)}"])
    return rows


def _against(shape: Shape, workers: int, found: list[Spent], direct: list[Spent]) -> list[Row]:
    rows = []
    for what in ("all", "longest"):
        mine, others = (Measured(getattr(each, what) for each in rounds) for rounds in (found, direct))
        note = f"{1e6 * mine:,.0f} µs, direct {1e6 * others:,.0f} µs; hops {hops(shape.routes(workers))}"
        rows.append(Row(f"barrier, {shape.name}, {workers} workers: {what}, over direct", mine / others, note=note))
    return rows


# -- between processes -------------------------------------------------------------------------------------------------


def latency(workers: int, processes: int, mode: ProgressMode, iterations: int) -> float:
    """Return the seconds that an iteration of the barrier takes where there really are so many threads in so many processes."""

    def program(worker: Worker) -> float:
        with worker.dataflow() as scope:
            handle, again = scope.feedback(Step(1, limit=iterations))

            def logic(input: InputPort[int, None], output: OutputPort[int], notificator: Notificator[int]) -> None:
                for capability, _ in notificator:
                    if capability.time < iterations:
                        capability.downgrade(capability.time + 1)
                        notificator.notify_at(capability)

            again.unary_notify(Pipeline, "barrier", [0], logic).connect_loop(handle)
        worker.all_gather(None)
        start = time.perf_counter()
        worker.run()
        return time.perf_counter() - start

    return max(timely.execute(program, workers=workers, processes=processes, progress=mode)) / iterations


def latency_rows(rounds: int, iterations: int = 300) -> list[Row]:
    """Return how long an iteration takes in each mode between real processes, against the direct one."""
    rows = []
    for processes, workers in ((2, 1), (4, 1), (8, 1), (2, 2), (2, 4)):
        works: dict[str, Callable[[], float]] = {
            mode: partial(latency, workers, processes, mode, iterations)
            for mode in PROGRESS_MODES
            if mode == "direct" or not ProgressGroups.named(mode, workers * processes, workers).direct_only
        }
        found = in_turn(works, rounds)
        for mode in works:
            name = f"barrier, {processes} processes of {workers}, {mode}: time of an iteration, over direct"
            rows.append(Row(name, found[mode] / found["direct"], note=f"{1e6 * found[mode]:,.0f} µs"))
    return rows


def time_rows(rounds: int = 5) -> list[Row]:
    """Return all rows: they are ratios, of what was done in turn."""
    return [*staged_rows((8, 16, 32, 64), min(rounds, 3)), *latency_rows(rounds)]
