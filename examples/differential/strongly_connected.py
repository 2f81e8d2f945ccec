"""Strongly connected edges of a graph that changes: three levels of loops, and each change costs what it moves.

The links of a small site come and go. An edge is inside a component if a path leads back from its end to its start.
"""

from __future__ import annotations

import timely
from timely import differential as dd

Edge = tuple[int, int]

# Changes by epoch: the edge, and +1 or -1.
EPOCHS: list[list[tuple[Edge, int]]] = [
    [((1, 2), 1), ((2, 3), 1), ((3, 1), 1), ((3, 4), 1), ((4, 5), 1), ((5, 4), 1)],
    [((5, 1), 1)],
    [((2, 3), -1)],
    [((2, 4), 1)],
]
EXPECTED: list[list[tuple[Edge, int]]] = [
    [((1, 2), 1), ((2, 3), 1), ((3, 1), 1), ((4, 5), 1), ((5, 4), 1)],
    [((3, 4), 1), ((5, 1), 1)],
    [((1, 2), -1), ((2, 3), -1), ((3, 1), -1), ((3, 4), -1), ((5, 1), -1)],
    [((1, 2), 1), ((2, 4), 1), ((5, 1), 1)],
]


def build(edges: dd.Collection[int, Edge]) -> dd.Collection[int, Edge]:
    return dd.graphs.strongly_connected_edges(edges)


def main() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            links, edges = dd.new_collection(scope)
            inside = build(edges).output()
        for epoch, changes in enumerate(EPOCHS):
            for edge, diff in changes:
                links.update(edge, diff)
            links.advance_to(epoch + 1)
            inside.wait(epoch)
            found = [(edge, diff) for edge, _, diff in inside.changes(since=epoch)]
            assert found == EXPECTED[epoch]
            print(f"epoch {epoch}:", *(f"{'+' if diff > 0 else '-'}{src}→{dst}" for (src, dst), diff in found))


if __name__ == "__main__":
    main()
