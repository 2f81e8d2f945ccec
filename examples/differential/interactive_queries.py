"""Two hops from a node, asked interactively: the queries are a collection too, and are answered while the graph changes.

The edges are arranged once, and both joins read that arrangement. A query that has ended costs nothing any more.
"""

from __future__ import annotations

import timely
from timely import differential as dd

Edge = tuple[int, int]

# Changes of the edges and of the queries, by epoch.
EPOCHS: list[tuple[list[tuple[Edge, int]], list[tuple[int, int]]]] = [
    ([((1, 2), 1), ((2, 3), 1), ((2, 4), 1)], [(1, 1)]),
    ([((4, 5), 1)], [(2, 1)]),
    ([((1, 2), -1)], []),
    ([((1, 4), 1)], [(1, -1)]),
    ([], [(1, 1)]),
]
EXPECTED: list[list[tuple[tuple[int, int], int]]] = [
    [((1, 3), 1), ((1, 4), 1)],
    [((2, 5), 1)],
    [((1, 3), -1), ((1, 4), -1)],
    [],
    [((1, 5), 1)],
]


def build(edges: dd.Collection[int, Edge], queries: dd.Collection[int, int]) -> dd.Collection[int, tuple[int, int]]:
    """Return ``(query, node)``."""
    forward = edges.arrange_by_key()
    one = queries.map(lambda node: (node, node)).join_map(forward, lambda node, query, target: (target, query))
    return one.join_map(forward, lambda node, query, target: (query, target))


def main() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            links, edges = dd.new_collection(scope)
            asked, queries = dd.new_collection(scope)
            answers = build(edges, queries).output()
        for epoch, (edge_changes, query_changes) in enumerate(EPOCHS):
            for edge, diff in edge_changes:
                links.update(edge, diff)
            for query, diff in query_changes:
                asked.update(query, diff)
            links.advance_to(epoch + 1)
            asked.advance_to(epoch + 1)
            answers.wait(epoch)
            assert [(answer, diff) for answer, _, diff in answers.changes(since=epoch)] == EXPECTED[epoch]
            print(f"epoch {epoch}:", sorted(answers.at(epoch)))


if __name__ == "__main__":
    main()
