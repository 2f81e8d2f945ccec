"""G: loops, mutual recursion, loops in loops, and what stands still."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from tests.differential.test_graphs import hops as distances
from tests.differential.test_graphs import rows
from tests.differential.test_graphs import strong_edges as inside_components
from timely import Worker
from timely import differential as dd
from timely.testing.differential import accumulated
from timely.testing.differential import run as run_once

Run = Callable[..., Any]

RESUMED = True
"""Each is also run with a checkpoint in the middle."""


def at_zero(*records: Any) -> list[Any]:
    return [(record, 0, 1) for record in records]


def test_DD_G1_halve_if_even(run: Run) -> None:
    result = run(lambda c: c.iterate(lambda scope, x: x.map(lambda n: n if n % 2 else n // 2)), at_zero(*range(1, 10)))
    assert result == [(1, 0, 4), (3, 0, 2), (5, 0, 1), (7, 0, 1), (9, 0, 1)]


def parities(numbers: Any) -> Any:
    """Return ``(parity, number)``, where each variable gets the other's numbers less one."""
    with numbers.scope.iterative() as loop:
        inner = numbers.enter(loop)
        starts = [inner.filter(lambda n: n % 2 == 0), inner.filter(lambda n: n % 2)]
        variables = [dd.Variable(loop, start) for start in starts]
        for mine, other, start in zip(variables, reversed(variables), starts):
            mine.set(other.collection.filter(bool).map(lambda n: n - 1).concat(start).distinct())
        evens, odds = (variable.collection for variable in variables)
        return evens.map(lambda n: (0, n)).concat(odds.map(lambda n: (1, n))).leave()


def test_DD_G2_two_variables(run: Run) -> None:
    expected = at_zero(*((0, n) for n in range(0, 20, 2)), *((1, n) for n in range(1, 20, 2)))
    assert run(parities, at_zero(*range(10, 20))) == expected


def hops(edges: Any, roots: Any) -> Any:
    """Return ``(node, distance)``."""

    def step(scope: Any, distances: Any) -> Any:
        further = distances.join_map(edges.enter(scope), lambda node, distance, to: (to, distance + 1))
        return further.concat(roots.enter(scope).map(lambda root: (root, 0))).min_by_key()

    return dd.iterate(roots.scope, step)


def moving_edges(nodes: int, edges: int, epochs: int, seed: int) -> list[Any]:
    """Return random edges at time 0, of which one goes and another comes in each epoch."""
    random = Random(seed)
    held = [(random.randrange(nodes), random.randrange(nodes)) for _ in range(edges)]
    changes = at_zero(*held)
    for time in range(1, epochs):
        index = random.randrange(edges)
        changes.append((held[index], time, -1))
        held[index] = (random.randrange(nodes), random.randrange(nodes))
        changes.append((held[index], time, 1))
    return changes


def held_by_epoch(changes: list[Any], epochs: int) -> Iterator[dict[Any, int]]:
    """Yield what a collection holds in each epoch; the dict is changed later."""
    by_time: dict[int, list[Any]] = {}
    for record, time, diff in changes:
        by_time.setdefault(time, []).append((record, diff))
    held: dict[Any, int] = {}
    for time in range(epochs):
        for record, diff in by_time.get(time, ()):
            held[record] = held.get(record, 0) + diff
            if not held[record]:
                del held[record]
        yield held


def check_hops(result: list[Any], edges: list[Any], epochs: int) -> None:
    for held, expected in zip(held_by_epoch(result, epochs), held_by_epoch(edges, epochs)):
        assert held == rows(distances(expected, [1]))


def test_DD_G3_hops_while_edges_move(run: Run) -> None:
    edges = moving_edges(10, 20, 60, seed=1)
    check_hops(run(hops, edges, at_zero(1)), edges, 60)


@pytest.mark.parametrize(
    ("nodes", "number", "epochs", "workers", "one_by_one"),
    [(10, 20, 1_000, 1, True), (10, 20, 100, 1, False), (100, 200, 10, 3, True), (100, 2_000, 1, 3, False)],
)
def test_DD_G3_hops_of_larger_graphs(nodes: int, number: int, epochs: int, workers: int, one_by_one: bool) -> None:
    edges = moving_edges(nodes, number, epochs, seed=2)
    check_hops(run_once(hops, edges, at_zero(1), workers=workers, one_by_one=one_by_one), edges, epochs)


def trimmed(cycle: Any) -> Any:
    """Return the edges of ``cycle``, reversed, whose ends get the same label when least labels go along ``cycle``."""

    def spread(scope: Any, labels: Any) -> Any:
        nodes = cycle.map(lambda edge: (edge[1], edge[1])).distinct().enter(scope)
        return labels.join_map(cycle.enter(scope), lambda node, label, to: (to, label)).concat(nodes).min_by_key()

    labels = dd.iterate(cycle.scope, spread)
    at_source = cycle.join_map(labels, lambda source, target, label: (target, (source, label)))
    at_both = at_source.join_map(labels, lambda target, labelled, label: (target, labelled[0], labelled[1] == label))
    return at_both.filter(lambda edge: edge[2]).map(lambda edge: (edge[0], edge[1]))


def strong_edges(edges: Any) -> Any:
    """Return the edges inside strongly connected components: trimming around propagation, at times of three coordinates."""
    return edges.distinct().iterate(lambda scope, inner: trimmed(trimmed(inner)))


def check_strong(result: list[Any], edges: list[Any], epochs: int) -> None:
    for held, expected in zip(held_by_epoch(result, epochs), held_by_epoch(edges, epochs)):
        assert held == rows(inside_components(expected))


def test_DD_G4_strongly_connected_edges(run: Run) -> None:
    edges = moving_edges(6, 10, 5, seed=3)
    check_strong(run(strong_edges, edges), edges, 5)


@pytest.mark.parametrize(
    ("nodes", "number", "epochs", "workers", "one_by_one"),
    [(10, 20, 50, 1, True), (10, 20, 12, 1, False), (100, 200, 5, 1, True), (10, 20, 8, 3, False)],
)
def test_DD_G4_strongly_connected_edges_of_larger_graphs(
    nodes: int, number: int, epochs: int, workers: int, one_by_one: bool
) -> None:
    edges = moving_edges(nodes, number, epochs, seed=4)
    check_strong(run_once(strong_edges, edges, workers=workers, one_by_one=one_by_one), edges, epochs)


MANAGES = at_zero(*((n // 2, n) for n in range(10)))
MOVES = [change for p in range(1, 10) for change in (((p // 2, p), p, -1), ((p // 3, p), p, 1))]


def above(manages: Any) -> Any:
    def further(scope: Any, pairs: Any) -> Any:
        longer = pairs.map(lambda pair: (pair[1], pair[0])).join_map(manages.enter(scope), lambda _, top, low: (top, low))
        return longer.concat(pairs).distinct()

    return manages.iterate(further)


def closure(manages: Any) -> dict[Any, int]:
    pairs = set(manages)
    while True:
        more = {(top, low) for top, one in pairs for other, low in manages if one == other} - pairs
        if not more:
            return dict.fromkeys(pairs, 1)
        pairs |= more


def test_DD_G5_who_is_above_whom(run: Run) -> None:
    result = run(above, MANAGES + MOVES)
    assert len(accumulated(result, 0)) == 26
    assert [change for change in result if change[1] == 2] == [((1, low), 2, -1) for low in (2, 4, 5, 8, 9)]
    for time in range(10):
        assert accumulated(result, time) == closure(accumulated(MANAGES + MOVES, time))


def test_DD_G6_at_once_and_one_by_one() -> None:
    edges = moving_edges(8, 14, 10, seed=5)
    for build in (hops, lambda edges, roots: strong_edges(edges)):
        at_once = run_once(build, edges, at_zero(1))
        assert at_once == run_once(build, edges, at_zero(1), one_by_one=True)
        assert at_once == run_once(build, edges, at_zero(1), workers=3, seed=6)


def test_DD_G7_what_stands_still_does_no_work() -> None:
    seen: list[Any] = []
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            session, roots = dd.new_collection(scope)
            edges = dd.collection(scope, [(n, n + 1) for n in range(20)]).inspect(lambda *update: seen.append(update))

            def step(loop: Any, reached: Any) -> Any:
                steps = reached.map(lambda n: (n, None)).join_map(edges.enter(loop), lambda n, _, to: to)
                return steps.concat(roots.enter(loop)).distinct().inspect(lambda *update: seen.append(update))

            output = dd.iterate(scope, step).output()
        session.insert(0)
        session.advance_to(1)
        assert len(output.at(0)) == 21
        seen.clear()
        for time in range(2, 10):
            session.advance_to(time)
            output.wait(time - 1)
        assert seen == [] and output.changes(since=1) == []
        session.insert(0)
        session.advance_to(11)
        assert output.at(10) == output.at(0) and seen == []
        session.insert(15)
        session.advance_to(12)
        assert output.at(11) == output.at(0)
        assert len(seen) == 12  # six nodes are reached in an earlier round than before
        session.close()


def test_DD_G8_a_root_is_removed(run: Run) -> None:
    edges = at_zero((1, 2), (2, 3), (3, 1), (3, 4), (7, 4), (4, 5))
    result = run(hops, edges, [(1, 0, 1), (7, 0, 1), (1, 1, -1)])
    assert accumulated(result, 0) == {(1, 0): 1, (2, 1): 1, (3, 2): 1, (7, 0): 1, (4, 1): 1, (5, 2): 1}
    assert accumulated(result, 1) == {(7, 0): 1, (4, 1): 1, (5, 2): 1}
