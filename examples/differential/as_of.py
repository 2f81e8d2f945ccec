"""As of: what a table held at each epoch, read in any order, until its history is forgotten."""

from __future__ import annotations

import timely
from timely import differential as dd

Row = tuple[str, int]

EPOCHS: list[list[tuple[Row, int]]] = [
    [(("k", 1), 1)],
    [(("k", 1), -1), (("k", 2), 1)],
    [(("j", 9), 1)],
    [(("k", 2), -1)],
]
EXPECTED: list[list[tuple[Row, int]]] = [
    [(("k", 1), 1)],
    [(("k", 1), -1), (("k", 2), 1)],
    [(("j", 9), 1)],
    [(("k", 2), -1)],
]


def build(rows: dd.Collection[int, Row]) -> dd.Collection[int, Row]:
    return rows.consolidate()


def main() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            session, rows = dd.new_collection(scope)
            table = build(rows).output()
        for epoch, changes in enumerate(EPOCHS):
            for row, diff in changes:
                session.update(row, diff)
            session.advance_to(epoch + 1)

        assert dict(table.at(3)) == {("j", 9): 1}
        assert dict(table.at(0)) == {("k", 1): 1}
        assert dict(table.at(2)) == {("k", 2): 1, ("j", 9): 1}
        assert dict(table.at(1)) == {("k", 2): 1}
        table.forget(before=2)
        assert table.at(2) == {("k", 2): 1, ("j", 9): 1}
        try:
            table.at(1)
        except dd.CompactedError as error:
            print(f"epoch 1 is gone: {error}")
        else:
            raise AssertionError("epoch 1 can still be read")


if __name__ == "__main__":
    main()
