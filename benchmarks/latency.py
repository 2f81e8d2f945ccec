"""Open loop: how long a request takes that comes when it comes, whether or not those before it have been answered.

So many requests a second are due at even distances. Each worker has its share of them. It sends what is due as one batch at a
time of its own, moves its input on, and takes a step; a request is answered when a probe behind an exchange has passed its time,
on all workers. Its latency is counted from the moment at which it was due: what waits because the worker is busy counts too, and
a worker that is slower than the requests come falls behind, further and further. The median and the 99th percentile of a run are
given, in microseconds; there is no bar for them. No worker sleeps meanwhile, so that more workers than processors say nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

import timely
from benchmarks.exchange import measured
from benchmarks.report import Row
from timely import Worker

SECONDS = 1.0
RATES = (1_000, 10_000, 100_000)
PERCENTILES = {"median": 0.5, "99th percentile": 0.99}


def open_loop(rate: int, seconds: float) -> Callable[[Worker], list[float]]:
    """Return the program: the seconds that each of this worker's requests took, in ascending order."""

    def program(worker: Worker) -> list[float]:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            probe = stream.exchange(lambda number: number).probe()
        mine, pause = int(rate * seconds / worker.peers), worker.peers / rate
        waiting: deque[tuple[int, int]] = deque()  # a time, and the number of the request behind the last one at it
        taken: list[float] = []
        sent = 0
        begin = max(worker.all_gather(time.perf_counter())) + 0.01  # of all workers: a time is the same moment everywhere
        first = worker.index / rate
        while len(taken) < mine:
            now = time.perf_counter() - begin
            due = min(mine, int((now - first) // pause) + 1)
            later = handle.time
            if due > sent:
                handle.send_batch(list(range(sent, due)))
                waiting.append((handle.time, due))
                sent, later = due, later + 1
            handle.advance_to(max(later, int(1e6 * now)))
            worker.step()
            while waiting and not probe.less_equal(waiting[0][0]):
                _, end = waiting.popleft()
                now = time.perf_counter() - begin
                taken += [now - first - number * pause for number in range(len(taken), end)]
        handle.close()
        return sorted(taken)

    return program


def _percentiles(program: Callable[[Worker], list[float]], processes: int) -> Sequence[float]:
    """Return the percentiles over the requests of all workers."""
    taken = sorted(latency for latencies in timely.execute(program, processes=processes) for latency in latencies)
    return [taken[int(len(taken) * share)] for share in PERCENTILES.values()]


def run(rounds: int = 5, quick: bool = False) -> list[Row]:
    """Measure all rates on one worker, and on two processes; return the rows of the report."""
    works: dict[str, Callable[[], Sequence[float]]] = {}
    for processes, where in ((1, "one worker"), (2, "two processes")):
        for rate in RATES:
            program = open_loop(rate, 0.1 if quick else SECONDS)
            works[f"{rate:,} requests/s, {where}"] = lambda p=program, n=processes: _percentiles(p, n)  # type: ignore[misc]
    rows = []
    for name, found in measured(works, rounds).items():
        rows += [Row(f"open loop, {name}: {which}, us", 1e6 * value) for which, value in zip(PERCENTILES, found, strict=True)]
    return rows
