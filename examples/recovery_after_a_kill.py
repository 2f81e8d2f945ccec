"""Recovery: a process is killed during a run, and the next run resumes from the last checkpoint.

Orders arrive day by day. Two processes sum the orders of each item, with a checkpoint after every third day. On day 8 one
process kills itself. The checkpoint of day 6 has the state and the results so far, so the second run repeats days 6 and 7
only.
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
    """The orders of a day."""
    return [(ITEMS[(day * 7 + n * n) % 5], day + n) for n in range(20)]


def add(item: str, amount: int, total: int | None) -> tuple[int, list[Order]]:
    """Add an order to the total of its item, and send the new total."""
    new = (total or 0) + amount
    return new, [(item, new)]


def program(worker: timely.Worker, directory: str, kill_on: int | None = None) -> tuple[int, Counter[str]]:
    """Return the first day of this run, and the final totals of this worker's items."""
    with Recovery(worker, directory) as recovery:
        with worker.dataflow(int, name="totals") as scope:
            incoming, stream = scope.new_input()
            sold = stream.state_machine(add).capture()
        totals = [Counter(note) for note in recovery.notes]  # results of the previous run's workers at the checkpoint
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
    """Run a program in two processes; return their totals, and print the first day."""
    results = timely.execute(one, processes=2)
    print(f"began on day {results[0][0]}, and came to the end")
    return results[0][1] + results[1][1]


def main() -> None:
    """Compare a killed run and its successor with an undisturbed run."""
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
