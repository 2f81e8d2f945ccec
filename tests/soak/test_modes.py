"""Runs in every progress mode, of which one worker is killed, fails, leaves early or falls asleep: all end, and none is wrong.

What a case does is drawn from its number, which is printed before it is run. Where a run is when the clock strikes is chance all
the same.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable

import attrs
import pytest

import timely
from timely import OperatorError, Step, WorkerError
from timely.progress import PROGRESS_MODES, ProgressMode

pytestmark = pytest.mark.soak

SIZES = [(4, 1), (1, 4), (2, 2), (3, 2)]
EPOCHS, ROUNDS = 30, 3


@attrs.frozen
class Case:
    """What is to happen in one run, to the worker ``victim``, at an epoch and so many seconds after it has begun."""

    mode: ProgressMode
    workers: int
    processes: int
    deed: str
    victim: int
    epoch: int
    seconds: float

    @classmethod
    def draw(cls, number: int) -> Case:
        choose = random.Random(number)
        workers, processes = choose.choice(SIZES)
        deeds = ["raise", "leave", "sleep"] + ["kill"] * 3 * (processes > 1)
        victim = choose.randrange(workers * processes)
        if processes > 1 and victim < workers:
            victim += workers  # process 0 is the one that looks on
        mode, deed, epoch = choose.choice(PROGRESS_MODES), choose.choice(deeds), choose.randrange(EPOCHS)
        return cls(mode, workers, processes, deed, victim, epoch, choose.uniform(0, 0.01))

    def strike(self) -> None:
        """Do to this process, or thread, what is to be done."""
        if self.deed == "kill":
            threading.Timer(self.seconds, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
        elif self.deed == "sleep":
            time.sleep(10 * self.seconds)

    def program(self, worker: timely.Worker) -> list[tuple[int, int]]:
        """Send in each epoch what goes some rounds through a loop; return how many have left it on this worker, by epoch."""
        left: Counter[int] = Counter()

        def through(record: int) -> int:
            if self.deed == "raise" and worker.index == self.victim and record >= self.epoch:
                raise ValueError(record)
            return record

        with worker.dataflow(int) as scope:
            numbers, stream = scope.new_input()
            with scope.iterative() as loop:
                handle, again = loop.feedback(timely.ProductSummary(Step(0), Step(1, limit=ROUNDS)))
                looped = stream.enter(loop).concat(again).exchange(lambda x: x + worker.peers).map(through)
                looped.connect_loop(handle)
                out = looped.leave()
            probe = out.inspect_time(lambda time, record: left.update([time])).probe()
        for epoch in range(EPOCHS):
            numbers.send_batch(list(range(epoch, epoch + worker.peers)))
            numbers.advance_to(epoch + 1)
            if worker.index == self.victim and epoch == self.epoch:
                self.strike()
                if self.deed == "leave":
                    return []  # the rest of its epochs never comes, and its dataflow is run to the end
            worker.step_while(lambda: probe.less_than(numbers.time))
        numbers.close()
        worker.run()
        return sorted(left.items())


def expected(case: Case) -> Counter[int]:
    peers = case.workers * case.processes
    return Counter(dict.fromkeys(range(EPOCHS), peers * peers * (ROUNDS + 1)))


def outcome(case: Case) -> str:
    """Run a case; return how it ended."""
    try:
        results = timely.execute(case.program, workers=case.workers, processes=case.processes, progress=case.mode)
    except OperatorError:
        assert case.deed == "raise"
        return "raised"
    except WorkerError as error:
        assert case.deed == "kill", error
        return "killed"
    assert case.deed != "raise"
    actual: Counter[int] = Counter()
    for result in results:
        actual.update(dict(result))
    if case.deed == "leave":
        assert all(count <= expected(case)[epoch] for epoch, count in actual.items())
        return "left"
    assert actual == expected(case)
    return "came through"


def test_workers_that_fail_in_every_mode(soak_seconds: float, cover: Callable[[int, str], None]) -> None:
    end, first = time.monotonic() + soak_seconds, random.randrange(10**9)
    ends: Counter[str] = Counter()
    while time.monotonic() < end or ends.total() < 20:
        number = first + ends.total()
        case = Case.draw(number)
        print(number, case, flush=True)
        ends[f"{case.deed}: {outcome(case)}"] += 1
    cover(ends.total(), f"runs ({', '.join(f'{count} {how}' for how, count in ends.most_common())}) in")
