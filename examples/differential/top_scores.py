"""The two best scores of each group, ties by name: a change reads no more of a group than its top."""

from __future__ import annotations

import timely
from timely import differential as dd

Score = tuple[str, tuple[str, int]]
"""A group, a name and its points."""

EPOCHS: list[list[tuple[Score, int]]] = [
    [(("g", ("a", 5)), 1), (("g", ("b", 7)), 1), (("g", ("c", 6)), 1), (("h", ("a", 1)), 1)],
    [(("g", ("b", 7)), -1)],
    [(("g", ("d", 6)), 1)],
    [(("h", ("a", 1)), -1)],
    [(("g", ("c", 6)), -1), (("g", ("a", 5)), -1)],
]
EXPECTED: list[list[tuple[Score, int]]] = [
    [(("g", ("b", 7)), 1), (("g", ("c", 6)), 1), (("h", ("a", 1)), 1)],
    [(("g", ("a", 5)), 1), (("g", ("b", 7)), -1)],
    [(("g", ("a", 5)), -1), (("g", ("d", 6)), 1)],
    [(("h", ("a", 1)), -1)],
    [(("g", ("c", 6)), -1)],
]


def build(scores: dd.Collection[int, Score]) -> dd.Collection[int, Score]:
    return scores.top_k(2, by=lambda score: score[1])


def main() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            session, scores = dd.new_collection(scope)
            best = build(scores).output()
        for epoch, changes in enumerate(EPOCHS):
            for score, diff in changes:
                session.update(score, diff)
            session.advance_to(epoch + 1)
            best.wait(epoch)
            assert [(score, diff) for score, _, diff in best.changes(since=epoch)] == EXPECTED[epoch]
            print(f"epoch {epoch}:", *(f"{group}: {name} {points}" for group, (name, points) in sorted(best.at(epoch))))


if __name__ == "__main__":
    main()
