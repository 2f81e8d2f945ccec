"""A custom scope: an SQL database in a dataflow, with an additional input from another thread.

Orders arrive through the dataflow, in epochs. Prices arrive from a thread that knows nothing of dataflows; they have epochs
too. Each worker's scope stores both, and answers an epoch when both sides are complete. It keeps its own progress: it
holds a capability for the next epoch to answer.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

import timely
from timely import Antichain, ChangeBatch, Exchange, Inlet, MutableAntichain, Outlet, PathSummary, Step
from timely.scopes import Counts, Summaries

Price = tuple[int, str, int]
Order = tuple[str, int]

PRICES: list[Price] = [(0, "bolt", 3), (0, "nut", 2), (1, "nut", 5), (2, "bolt", 4)]
ORDERS: list[list[Order]] = [[("bolt", 10), ("nut", 10)], [("nut", 1), ("nut", 2)], [("bolt", 7), ("nut", 1)]]
WORKERS = 2

TOTALS = """
    SELECT item, sum(quantity * (SELECT price FROM prices WHERE prices.item = orders.item AND prices.epoch <= ?1
                                 ORDER BY prices.epoch DESC LIMIT 1))
    FROM orders WHERE epoch = ?1 GROUP BY item ORDER BY item
"""


class Database:
    """A ``timely.DataScope``: reads orders ``(item, quantity)``, and sends ``(item, total)`` for each epoch."""

    inputs, outputs = 1, 1
    patient = True  # it activates itself when a price arrives, so it is not polled

    def __init__(self, prices: Sequence[Price]) -> None:
        self.feed = prices
        self.came: SimpleQueue[Price | None] = SimpleQueue()
        self.orders = MutableAntichain[int]()
        self.epoch = 0  # the next epoch to answer; its capability is held
        self.priced: float = 0  # prices before this epoch are complete
        self.finished = False
        self.database = sqlite3.connect(":memory:", check_same_thread=False)  # closed by the program
        self.database.execute("CREATE TABLE orders (epoch INTEGER, item TEXT, quantity INTEGER)")
        self.database.execute("CREATE TABLE prices (epoch INTEGER, item TEXT, price INTEGER)")

    # -- data: from the dataflow, and from outside ----------------------------------------------------------------------

    def connect(self, inlets: Sequence[Inlet[int]], outlets: Sequence[Outlet[int]], activate: Callable[[], None]) -> None:
        """Receive the ends of the streams, and start the thread with the prices."""
        (self.inlet,), (self.outlet,) = inlets, outlets

        def supply() -> None:
            for price in (*self.feed, None):
                self.came.put(price)
                activate()

        threading.Thread(target=supply, daemon=True).start()

    def take_prices(self) -> None:
        """Store the prices that have arrived, in order of epochs."""
        while not self.came.empty():
            price = self.came.get()
            if price is None:
                self.priced = float("inf")
            else:
                self.priced = price[0]
                self.database.execute("INSERT INTO prices VALUES (?, ?, ?)", price)

    # -- progress: the protocol of scopes -------------------------------------------------------------------------------

    def get_internal_summary(self) -> tuple[Summaries[int], Counts[int]]:
        """An order causes an answer in its own epoch. The initial capability is for epoch 0."""
        stay: Antichain[PathSummary[int]] = Antichain([Step(0)])
        return [[stay]], [[(0, 1)]]

    def set_external_summary(self, summaries: Summaries[int], external: Counts[int]) -> None:
        """Store the initial frontier of the orders."""
        self.orders.update_iter(external[0])

    def push_external_progress(self, external: Sequence[ChangeBatch[int]]) -> None:
        """Update the frontier of the orders."""
        self.orders.update_iter(external[0].drain())

    def pull_internal_progress(
        self,
        internal: Sequence[ChangeBatch[int]],
        consumed: Sequence[ChangeBatch[int]],
        produced: Sequence[ChangeBatch[int]],
    ) -> bool:
        """Store input, answer complete epochs, report progress. True while prices may arrive."""
        self.take_prices()
        for epoch, batch in self.inlet:
            self.database.executemany("INSERT INTO orders VALUES (?, ?, ?)", [(epoch, *order) for order in batch])
            consumed[0].update(epoch, len(batch))
        while not self.finished and self.priced > self.epoch and not self.orders.less_equal(self.epoch):
            totals = self.database.execute(TOTALS, (self.epoch,)).fetchall()
            self.outlet.send(self.epoch, totals)
            produced[0].update(self.epoch, len(totals))
            internal[0].update(self.epoch, -1)
            (latest,) = self.database.execute("SELECT max(epoch) FROM orders").fetchone()
            self.finished = self.orders.is_empty() and (latest is None or latest <= self.epoch)
            if not self.finished:
                self.epoch += 1
                internal[0].update(self.epoch, 1)
        return not self.finished


def program(worker: timely.Worker) -> list[tuple[int, list[tuple[str, int]]]]:
    database = Database(PRICES)
    with worker.dataflow(int) as scope:
        orders, stream = scope.new_input()
        with scope.region("shop") as shop:
            by_item = Exchange(lambda order: order[0])
            (totals,) = shop.add_scope(database, [(stream.enter(shop), by_item)])
            seen = totals.leave().capture()
    for epoch, batch in enumerate(ORDERS):
        orders.advance_to(epoch)
        orders.send_batch(batch[worker.index :: worker.peers])
    orders.close()
    worker.run()
    database.database.close()
    return seen.extract()


def main() -> None:
    answers = timely.execute(program, workers=WORKERS)
    totals = sorted((epoch, *total) for answer in answers for epoch, batch in answer for total in batch)
    for epoch, item, total in totals:
        print(f"epoch {epoch}: {item} for {total}")
    assert totals == [(0, "bolt", 30), (0, "nut", 20), (1, "nut", 15), (2, "bolt", 28), (2, "nut", 5)]


if __name__ == "__main__":
    main()
