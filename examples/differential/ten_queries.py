"""Ten queries on one arrangement: what is two hops from five nodes, ten times over, while edges move.

The edges are arranged once, whatever the number of queries. Each answer is compared with one from nothing.
"""

from __future__ import annotations

import random
from collections import Counter

import timely
from timely import differential as dd

Edge = tuple[int, int]
Answer = tuple[int, int, int]
"""The number of the query, one of its nodes, and a node two hops from that."""

NODES, EDGES, MOVES = 1000, 5000, 20
CHANCE = random.Random(9)
QUERIES = [CHANCE.sample(range(NODES), 5) for _ in range(10)]


def edge() -> Edge:
    return CHANCE.randrange(NODES), CHANCE.randrange(NODES)


def build(edges: dd.Collection[int, Edge]) -> dd.Collection[int, Answer]:
    forward = edges.arrange_by_key()

    def two_hops(number: int, nodes: list[int]) -> dd.Collection[int, Answer]:
        asked = dd.collection(edges.scope, [(node, node) for node in nodes], on=0)
        one = asked.join_map(forward, lambda node, query, target: (target, query))
        return one.join_map(forward, lambda node, query, target: (number, query, target))

    first, *others = (two_hops(number, nodes) for number, nodes in enumerate(QUERIES))
    return first.concat(*others)


def recomputed(edges: list[Edge]) -> dict[Answer, int]:
    targets: dict[int, list[int]] = {}
    for src, dst in edges:
        targets.setdefault(src, []).append(dst)
    return dict(
        Counter(
            (number, node, target)
            for number, nodes in enumerate(QUERIES)
            for node in nodes
            for middle in targets.get(node, ())
            for target in targets.get(middle, ())
        )
    )


def changes() -> tuple[list[list[tuple[Edge, int]]], list[dict[Answer, int]]]:
    """Return the changes by epoch, and what the answers are then."""
    edges = [edge() for _ in range(EDGES)]
    epochs = [[(one, 1) for one in edges]]
    answers = [recomputed(edges)]
    for _ in range(MOVES):
        at, new = CHANCE.randrange(EDGES), edge()
        epochs.append([(edges[at], -1), (new, 1)])
        edges[at] = new
        answers.append(recomputed(edges))
    return epochs, answers


def main() -> None:
    epochs, expected = changes()
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            session, edges = dd.new_collection(scope)
            answers = build(edges).output()
        for epoch, updates in enumerate(epochs):
            for moved, diff in updates:
                session.update(moved, diff)
            session.advance_to(epoch + 1)
            assert answers.at(epoch) == expected[epoch]
    print(f"{len(QUERIES)} queries, {len(epochs)} epochs, {sum(expected[-1].values())} answers in the last")


if __name__ == "__main__":
    main()
