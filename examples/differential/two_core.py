"""The 2-core of a network: who still has two neighbours once everybody with fewer has left, and their neighbours too."""

from __future__ import annotations

import timely
from timely import differential as dd

Edge = tuple[int, int]

EPOCHS: list[list[tuple[Edge, int]]] = [
    [((1, 2), 1), ((2, 3), 1), ((1, 3), 1), ((3, 4), 1), ((4, 5), 1)],
    [((3, 5), 1)],
    [((1, 2), -1)],
    [((4, 5), -1)],
]
EXPECTED: list[list[tuple[int, int]]] = [
    [(1, 1), (2, 1), (3, 1)],
    [(4, 1), (5, 1)],
    [(1, -1), (2, -1)],
    [(3, -1), (4, -1), (5, -1)],
]


def build(edges: dd.Collection[int, Edge]) -> dd.Collection[int, int]:
    return dd.graphs.k_core(edges, 2)


def main() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            session, edges = dd.new_collection(scope)
            core = build(edges).output()
        for epoch, changes in enumerate(EPOCHS):
            for edge, diff in changes:
                session.update(edge, diff)
            session.advance_to(epoch + 1)
            core.wait(epoch)
            assert [(node, diff) for node, _, diff in core.changes(since=epoch)] == EXPECTED[epoch]
            print(f"epoch {epoch}:", sorted(core.at(epoch)))


if __name__ == "__main__":
    main()
