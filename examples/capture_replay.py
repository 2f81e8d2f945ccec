"""Capture a stream to files, follow it in another process, and replay it on more workers.

Three workers receive orders and capture their parts of the stream. A second process follows the first part while it is
written. Afterwards four workers replay all parts for a new analysis.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from pathlib import Path
from typing import Any

import timely
from timely import FileSource

DAYS = 5
ORDERS = [(day, f"customer {(7 * day + n) % 6}", 10 * n + day) for day in range(DAYS) for n in range(8)]


def record(worker: timely.Worker, folder: Path) -> None:
    """Receive the orders day by day, route each to the worker of its customer, and capture them."""
    with worker.dataflow(int) as scope:
        orders, stream = scope.new_input()
        at_home = stream.exchange(lambda order: order[0])
        at_home.capture_into(folder / f"part{worker.index}")
        probe = at_home.probe()
    for day in range(DAYS):
        orders.send_batch([(customer, amount) for when, customer, amount in ORDERS[worker.index :: worker.peers] if when == day])
        orders.advance_to(day + 1)
        worker.step_while(lambda: probe.less_than(orders.time))
    orders.close()


def follow(path: Path, answers: Any) -> None:
    """Sum the amounts of each day from the first worker's capture, while it is written."""
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        amounts = scope.replay(FileSource(path, follow=True)).map(lambda order: order[1])
        totals = amounts.accumulate(0, lambda total, amount: total + amount).capture()
    worker.run()
    answers.send(totals.extract())


def best(worker: timely.Worker, folder: Path) -> list[tuple[int, str]]:
    """Replay the parts on all workers, and find the largest customer of each day."""
    parts = sorted(folder.iterdir())[worker.index :: worker.peers]
    with worker.dataflow(int) as scope:
        orders = scope.replay(*parts)
        sums = orders.aggregate(lambda customer, amount, total: (total or 0) + amount, lambda customer, total: (total, customer))
        largest = sums.exchange(lambda pair: 0).accumulate((0, ""), max).capture()
    worker.run()
    return [(day, customer) for day, [(_, customer)] in largest.extract()]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        here, there = multiprocessing.Pipe(duplex=False)
        follower = multiprocessing.Process(target=follow, args=(folder / "part0", there))
        follower.start()
        timely.execute(lambda worker: record(worker, folder), workers=3)
        followed = here.recv()
        follower.join()
        found, *others = timely.execute(lambda worker: best(worker, folder), workers=4)

    mine = [order for order in ORDERS if timely.dataflow.route(order[1]) % 3 == 0]
    assert followed == [(day, [sum(amount for when, _, amount in mine if when == day)]) for day in range(DAYS)]
    assert others == [[], [], []]
    for day, customer in found:
        totals = {c: sum(a for d, who, a in ORDERS if (d, who) == (day, c)) for _, c, _ in ORDERS}
        assert customer == max(totals, key=lambda c: (totals[c], c))
        print(f"day {day}: {customer} ordered most")


if __name__ == "__main__":
    main()
