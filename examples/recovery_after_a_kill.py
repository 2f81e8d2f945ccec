"""Recovery: a process is killed in the middle of a run, without a word; the next run goes on from the last checkpoint.

Orders come in day by day, two processes add up how much of each item was ever ordered, and after every third day there is a
checkpoint. On day 8 one of the two processes kills itself, as a machine that fails would. What the state machine knew by day 6 is
on disk, with what had been sold until then, so that the second run has to do days 6 and 7 over again, and nothing before them.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable

import timely
from timely.recovery import Recovery

DAYS = 12
ITEMS = ("bolt", "nut", "screw", "washer", "rivet")
Order = tuple[str, int]


def orders(day: int) -> list[Order]:
    """What comes in on a day."""
    return [(ITEMS[(day * 7 + n * n) % 5], day + n) for n in range(20)]


def add(item: str, amount: int, total: int | None) -> tuple[int, list[Order]]:
    """One more order for an item: the new total, also as what goes out."""
    new = (total or 0) + amount
    return new, [(item, new)]


def program(worker: timely.Worker, directory: str, kill_on: int | None = None) -> tuple[int, Counter[str]]:
    """Return on which day this run began, and the totals at the end, of the items that this worker has."""
    with Recovery(worker, directory) as recovery:
        with worker.dataflow(int, name="totals") as scope:
            incoming, stream = scope.new_input()
            sold = stream.state_machine(add).capture()
        totals = [Counter(note) for note in recovery.notes]  # what the workers of the run before had by the checkpoint
        mine = totals[worker.index] if totals else Counter[str]()

        def so_far() -> Counter[str]:
            for _, batch in sold.drain():
                for item, total in batch:
                    mine[item] = max(mine[item], total)
            return mine

        first = recovery.time or 0
        incoming.advance_to(first)
        for day in range(first, DAYS):
            incoming.send_batch(orders(day)[worker.index :: worker.peers])
            incoming.advance_to(day + 1)
            if day == kill_on and worker.index == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            if (day + 1) % 3 == 0:
                recovery.checkpoint(day + 1, notes=so_far)
        incoming.close()
        worker.run()
        return first, so_far()


def run(one: Callable[[timely.Worker], tuple[int, Counter[str]]]) -> Counter[str]:
    """Run a program in two processes; return the totals of both, and say where the run began."""
    results = timely.execute(one, processes=2)
    print(f"began on day {results[0][0]}, and came to the end")
    return results[0][1] + results[1][1]


def main() -> None:
    """Print what becomes of a run that is killed, of the one after it, and of one that nothing happens to."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            run(lambda worker: program(worker, directory, kill_on=8))
        except timely.TimelyError as error:
            print(f"{type(error).__name__}: {str(error).partition(' and no result')[0]}")
        sys.stdout.flush()
        after_a_kill = run(lambda worker: program(worker, directory))
    with tempfile.TemporaryDirectory() as directory:
        undisturbed = run(lambda worker: program(worker, directory))
    print("the totals are the same" if after_a_kill == undisturbed else f"{after_a_kill} is not {undisturbed}")
    for item, total in sorted(undisturbed.items()):
        print(f"{item:8}{total:5}")


if __name__ == "__main__":
    main()
