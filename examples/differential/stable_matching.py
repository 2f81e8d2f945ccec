"""Stable matching that follows its preferences: proposals and engagements in a loop.

Each proposer asks the best of those who have not refused it. Each chooser is engaged to the best of those who ask, and refuses
the others. When nobody is refused any more, the engagements are stable. A change of one preference moves few of them.
"""

from __future__ import annotations

import timely
from timely import differential as dd

Wish = tuple[str, tuple[int, str]]
"""A proposer, and the rank that it gives to a chooser."""

Pair = tuple[str, str]

CHOICES = {"x": ["b", "a"], "y": ["a", "b", "c"], "z": ["d", "c"]}  # whom each chooser likes best

EPOCHS: list[list[tuple[Wish, int]]] = [
    [
        *[(("a", (1, "x")), 1), (("a", (2, "y")), 1)],
        *[(("b", (1, "x")), 1), (("b", (2, "y")), 1)],
        *[(("c", (1, "y")), 1), (("c", (2, "z")), 1)],
    ],
    [(("a", (1, "x")), -1)],
    [(("d", (1, "z")), 1)],
]
EXPECTED: list[list[tuple[Pair, int]]] = [
    [(("a", "y"), 1), (("b", "x"), 1), (("c", "z"), 1)],
    [],
    [(("c", "z"), -1), (("d", "z"), 1)],
]


def build(wishes: dd.Collection[int, Wish]) -> dd.Collection[int, Pair]:
    listed = [((chooser, proposer), rank) for chooser, names in CHOICES.items() for rank, proposer in enumerate(names)]
    ranks = dd.collection(wishes.scope, listed, on=0)
    asked = wishes.map(lambda wish: ((wish[1][1], wish[0]), wish[1][0]))
    # A proposal is (proposer, (its rank of the chooser, chooser, the chooser's rank of it)).
    mutual = asked.join_map(ranks, lambda pair, rank, choice: (pair[1], (rank, pair[0], choice)))
    with wishes.scope.iterative("stable matching") as loop:
        unrefused = dd.Variable(loop, mutual.enter(loop))
        asking = unrefused.collection.min_by_key()
        engaged = asking.map(_by_chooser).min_by_key().map(_by_proposer)
        unrefused.set(unrefused.collection.minus(asking).concat(engaged).consolidate())
        return engaged.map(lambda found: (found[0], found[1][1])).leave()


def _by_chooser(proposal: tuple[str, tuple[int, str, int]]) -> tuple[str, tuple[int, str, int]]:
    proposer, (rank, chooser, choice) = proposal
    return chooser, (choice, proposer, rank)


_by_proposer = _by_chooser  # the same places, the other way round


def main() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            session, wishes = dd.new_collection(scope)
            matched = build(wishes).output()
        for epoch, changes in enumerate(EPOCHS):
            for wish, diff in changes:
                session.update(wish, diff)
            session.advance_to(epoch + 1)
            matched.wait(epoch)
            found = [(pair, diff) for pair, _, diff in matched.changes(since=epoch)]
            assert found == EXPECTED[epoch]
            print(f"epoch {epoch}:", *(f"{'+' if diff > 0 else '-'}{one}–{other}" for (one, other), diff in found))


if __name__ == "__main__":
    main()
