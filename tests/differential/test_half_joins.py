"""Half joins: a join of several collections by one path for each, beside nested loops, at every time.

White box: programs have half joins inside of triangles and of SQL only, and those of one table.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from timely import Product, Worker
from timely import differential as dd
from timely.differential.operators.half_joins import Lookup, path
from timely.differential.operators.join_results import mapped
from timely.errors import GraphError
from timely.testing.differential import accumulated

Run = Callable[..., Any]

RESUMED = True
"""Each is also run with a checkpoint in the middle."""

TIMES = 6


def by_paths(a: Any, b: Any, c: Any) -> Any:
    """Return ``(x, y, z)`` for ``(x, y)`` of ``a``, ``(y, z)`` of ``b`` and ``(z, x)`` of ``c``."""
    turned = {name: each.map(lambda pair: (pair[1], pair[0])) for name, each in zip("abc", (a, b, c))}
    forward = [each.arrange_by_key() for each in (a, b, c)]
    backward = [turned[name].arrange_by_key() for name in "abc"]
    paths: list[Any] = []
    for first in range(3):
        second, third = (first + 1) % 3, (first + 2) % 3
        # (y, x) of the first finds (y, z) of the second, and (z, (x, y)) finds (z, x) of the third

        def ends(y: Any, x: Any, z: Any) -> Any:
            return z * 100 + x, y

        def corners(key: Any, y: Any, nothing: Any, place: int = first) -> Any:
            z, x = divmod(key, 100)
            corner = {place: x, (place + 1) % 3: y, (place + 2) % 3: z}
            return corner[0] * 100 + corner[1], corner[2]

        whole = (a, b, c)[third].map(lambda pair: pair[0] * 100 + pair[1], columns=lambda one, other: one * 100 + other)
        lookups = [
            Lookup(forward[second], mapped(ends, ends), strict=second > first),
            Lookup(whole.arrange_by_self(), mapped(corners), strict=third > first),
        ]
        changes = backward[first]
        paths += map(dd.from_updates, path(changes.stream, changes.placement, lookups, "triangles"))
    return paths[0].concat(*paths[1:])


def by_joins(a: Any, b: Any, c: Any) -> Any:
    """Return the same by two joins."""
    pairs = a.map(lambda pair: (pair[1], pair[0])).join_map(b, lambda y, x, z: ((z, x), y))
    return pairs.semijoin(c).map(lambda pair: (pair[0][1] * 100 + pair[1], pair[0][0]))


def changes_of(seed: int) -> list[list[Any]]:
    """Return changes of three collections, some of them of rows that come and go at one time."""
    source = Random(seed)
    changes: list[list[Any]] = []
    for _ in range(3):
        rows = [((source.randrange(5), source.randrange(5)), source.randrange(TIMES)) for _ in range(60)]
        changes.append([(row, time, source.choice([1, 1, 2, -1])) for row, time in rows])
    return changes


def triangles(inputs: list[list[Any]], time: int) -> dict[Any, int]:
    """Return what three collections hold together at a time, by nested loops."""
    a, b, c = (accumulated(changes, time) for changes in inputs)
    counts: dict[Any, int] = {}
    for (x, y), one in a.items():
        for (other, z), two in b.items():
            if other == y and (z, x) in c:
                record = (x * 100 + y, z)
                counts[record] = counts.get(record, 0) + one * two * c[z, x]
    return {record: count for record, count in counts.items() if count}


@pytest.mark.parametrize("seed", range(3))
def test_paths_find_each_combination_once(run: Run, seed: int) -> None:
    inputs = changes_of(seed)
    results = run(by_paths, *inputs)
    for time in range(TIMES):
        assert accumulated(results, time) == triangles(inputs, time)


def in_a_loop(join: Callable[..., Any]) -> Callable[..., Any]:
    """Return what is reached by edges of triangles that other edges are added to by going round."""

    def build(a: Any, b: Any, c: Any) -> Any:
        with a.scope.iterative("closing") as loop:
            edges = dd.Variable(loop)
            rest = b.distinct().enter(loop), c.distinct().enter(loop)  # else a loop might not settle
            closed = join(edges.collection, *rest).map(lambda row: ((row[0] // 100 + row[1]) % 5, row[0] % 100)).distinct()
            edges.set(a.enter(loop).concat(closed).distinct())
            return edges.collection.leave()

    return build


def test_loops_settle_at_the_same(run: Run) -> None:
    inputs = changes_of(7)
    assert run(in_a_loop(by_paths), *inputs) == run(in_a_loop(by_joins), *inputs) != []


def test_times_without_one_order_are_refused() -> None:
    with Worker() as worker, pytest.raises(GraphError, match="one order"), worker.dataflow(Product[int, int]) as scope:
        by_paths(*(dd.new_collection(scope)[1] for _ in range(3)))
