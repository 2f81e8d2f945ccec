"""Points-to analysis while a program is edited: what each variable may point to, and each object's contents.

Two collections are defined in terms of each other: variables point to objects, and objects store pointers to objects.
"""

from __future__ import annotations

import timely
from timely import differential as dd

Statement = tuple[str, str, str]
"""``new x o``, ``assign x y`` (x = y), ``load x y`` (x = *y), ``store x y`` (*x = y)."""

EPOCHS: list[list[tuple[Statement, int]]] = [
    [
        *[(("new", "p", "o1"), 1), (("new", "q", "o2"), 1), (("assign", "r", "p"), 1)],
        *[(("store", "r", "q"), 1), (("load", "s", "p"), 1)],
    ],
    [(("assign", "p", "q"), 1)],
    [(("new", "q", "o2"), -1)],
    [(("store", "r", "q"), -1)],
]
EXPECTED: list[list[tuple[tuple[str, str], int]]] = [
    [(("p", "o1"), 1), (("q", "o2"), 1), (("r", "o1"), 1), (("s", "o2"), 1)],
    [(("p", "o2"), 1), (("r", "o2"), 1)],
    [(("p", "o2"), -1), (("q", "o2"), -1), (("r", "o2"), -1), (("s", "o2"), -1)],
    [],
]


def build(program: dd.Collection[int, Statement]) -> dd.Collection[int, tuple[str, str]]:
    """Return ``(variable, object)``."""

    def statements(kind: str) -> dd.Collection[int, tuple[str, str]]:
        return program.filter(lambda statement: statement[0] == kind).map(lambda statement: statement[1:])

    with program.scope.iterative("points-to") as loop:
        new = statements("new").enter(loop)
        assigned = statements("assign").map(lambda pair: (pair[1], pair[0])).enter(loop)
        loaded = statements("load").map(lambda pair: (pair[1], pair[0])).enter(loop)
        stored = statements("store").enter(loop)
        points = dd.Variable(loop)  # (variable, object)
        contents = dd.Variable(loop)  # (object, object)
        by_variable = points.collection.arrange_by_key().as_collection()

        copied = by_variable.join_map(assigned, lambda source, thing, target: (target, thing))
        places = by_variable.join_map(loaded, lambda source, thing, target: (thing, target))
        fetched = places.join_map(contents.collection, lambda place, target, thing: (target, thing))
        into = by_variable.join_map(stored, lambda target, place, source: (source, place))
        put = into.join_map(by_variable, lambda source, place, thing: (place, thing))

        contents.set(put.distinct())
        return points.set(new.concat(copied, fetched).distinct()).leave()


def main() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            session, program = dd.new_collection(scope)
            points = build(program).output()
        for epoch, changes in enumerate(EPOCHS):
            for statement, diff in changes:
                session.update(statement, diff)
            session.advance_to(epoch + 1)
            points.wait(epoch)
            found = [(pair, diff) for pair, _, diff in points.changes(since=epoch)]
            assert found == EXPECTED[epoch]
            print(f"epoch {epoch}:", *(f"{'+' if diff > 0 else '-'}{name}→{thing}" for (name, thing), diff in found))


if __name__ == "__main__":
    main()
