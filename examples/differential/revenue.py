"""Revenue and number of lines by segment, while lines of orders come and go.

A join finds the segment of each line, and two aggregates follow it. A change costs the same, however many lines there are.
"""

from __future__ import annotations

import timely
from timely import differential as dd

Line = tuple[int, int]
"""An order and a price."""

Row = tuple[str, int, int]
"""A segment, its revenue, and its number of lines."""

ORDERS = [(1, "A"), (2, "A"), (3, "B")]
EPOCHS: list[list[tuple[Line, int]]] = [
    [((1, 10), 1), ((1, 20), 1), ((2, 5), 1), ((3, 7), 1)],
    [((1, 10), -1)],
    [((3, 7), -1)],
    [((3, 8), 2)],
]
EXPECTED: list[list[tuple[Row, int]]] = [
    [(("A", 35, 3), 1), (("B", 7, 1), 1)],
    [(("A", 25, 2), 1), (("A", 35, 3), -1)],
    [(("B", 7, 1), -1)],
    [(("B", 16, 2), 1)],
]


def build(lines: dd.Collection[int, Line]) -> dd.Collection[int, Row]:
    orders = dd.collection(lines.scope, ORDERS, on=0)
    prices = orders.join_map(lines, lambda order, segment, price: (segment, price))
    revenue, number = prices.sum_by_key(), prices.count_by_key()
    return revenue.join_map(number, lambda segment, total, count: (segment, total, count))


def main() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            session, lines = dd.new_collection(scope)
            totals = build(lines).output()
        for epoch, changes in enumerate(EPOCHS):
            for line, diff in changes:
                session.update(line, diff)
            session.advance_to(epoch + 1)
            totals.wait(epoch)
            found = [(row, diff) for row, _, diff in totals.changes(since=epoch)]
            assert found == EXPECTED[epoch]
            print(f"epoch {epoch}:", sorted(totals.at(epoch)))


if __name__ == "__main__":
    main()
