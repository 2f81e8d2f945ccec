"""A text that several people edit at once, as a view of what they have inserted and removed: a CRDT in SQL.

Each character is inserted behind another one, by a number of its own. The text is the walk through this tree, of which the later
of two characters behind the same one comes first, without what was removed. This is the problem `crdt` of the
dynamic-datalog benchmark. An edit changes what it moves, and no more.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from itertools import pairwise
from typing import Any

import timely
from timely import differential as dd

TEXT = """
with recursive
siblings as (select id, parent, lag(id) over (partition by parent order by id) as next from inserted),
behind (id, next) as (
    select id, next from siblings where next is not null
    union all
    select siblings.id, behind.next from behind join siblings on siblings.parent = behind.id where siblings.next is null
),
elements as (
    select parent as prev, max(id) as next from inserted group by parent
    union all
    select id, next from behind where id not in (select parent from inserted)
),
shown as (select id from inserted except all select id from removed),
blank as (select prev, next from elements anti join shown on prev = id),
visible (prev, next) as (
    select prev, next from elements semi join shown on prev = id
    union all
    select visible.prev, blank.next from visible join blank on blank.prev = visible.next
)
select prev, next from visible semi join shown on next = id
"""
"""Each character of the text but the first, with the one before it."""


def walk(inserted: Iterable[tuple[int, int]], removed: Collection[int]) -> list[int]:
    """Return the characters of a text, by a walk through the tree."""
    children = defaultdict(list)
    for number, parent in inserted:
        children[parent].append(number)
    left, text = [0], []
    while left:
        number = left.pop()
        if number and number not in removed:
            text.append(number)
        left += sorted(children[number])
    return text


def edits(count: int = 40, seed: int = 1) -> tuple[list[Any], list[Any]]:
    """Return random edits: characters typed, removed and shown again; and by how much each changes the pairs of the text."""
    source, tree, removed, before = random.Random(seed), dict[int, int](), set[int](), Counter[Any]()
    epochs: list[Any] = []
    expected: list[Any] = []
    for number in range(1, count + 1):
        dice = source.random()
        if tree and dice < 0.4:
            character = source.choice([*tree])
            epochs.append(([], [((character,), -1 if character in removed else 1)]))
            removed ^= {character}
        else:
            tree[number] = max(tree, default=0) if dice < 0.9 else source.choice([0, *tree])
            epochs.append(([((number, tree[number]), 1)], []))
        after = Counter(pairwise(walk(tree.items(), removed)))
        expected.append(sorted([*(after - before).items(), *((pair, -1) for pair in before - after)]))
        before = after
    return epochs, expected


SCHEMAS = ["id bigint, parent bigint", "id bigint"]
EPOCHS, EXPECTED = edits()


def build(*rows: dd.Collection[int, Any]) -> dd.Collection[int, Any]:
    inserted, removed = map(dd.table, rows, SCHEMAS)
    return dd.sql(rows[0].scope, TEXT, inserted=inserted, removed=removed).collection


def main() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            sessions, rows = zip(*(dd.new_collection(scope) for _ in SCHEMAS))
            pairs = build(*rows).output()
        for epoch, changes in enumerate(EPOCHS):
            for session, updates in zip(sessions, changes):
                for row, diff in updates:
                    session.update(row, diff)
                session.advance_to(epoch + 1)
            pairs.wait(epoch)
            assert sorted((row, diff) for row, _, diff in pairs.changes(since=epoch)) == EXPECTED[epoch]
        for session in sessions:
            session.close()
        print(f"{len(pairs.at(epoch)) + 1} characters are shown after {len(EPOCHS)} edits")


if __name__ == "__main__":
    main()
