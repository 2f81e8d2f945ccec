"""F: reductions, counts and distinct records. F7 is in ``test_operators.py`` too, and F10 there, on random updates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.differential import oracles
from tests.differential.test_loops import at_zero
from timely import Product
from timely.testing.differential import accumulated, check_changes

Run = Callable[..., Any]

RESUMED = True
"""Each is also run with a checkpoint in the middle."""

PAIR: Any = Product[int, int]
THIRDS = [(n // 3, 0, 1) for n in range(1, 10)]


def test_DD_F1_values_come_in_order_and_counts_are_the_functions(run: Run) -> None:
    def first_as_often_as_there_are_values(key: Any, values: Any) -> Any:
        return [(values[0][0], len(values))]

    result = run(lambda c: c.reduce(first_as_often_as_there_are_values), at_zero((0, 0), (1, 2), (1, 1)))
    assert result == [((0, 0), 0, 1), ((1, 1), 0, 2)]


def test_DD_F2_count(run: Run) -> None:
    assert run(lambda c: c.count(), THIRDS) == at_zero((0, 2), (1, 3), (2, 3), (3, 1))


def test_DD_F3_threshold_and_distinct(run: Run) -> None:
    assert run(lambda c: c.threshold(lambda record, count: count % 2), THIRDS) == at_zero(1, 2, 3)
    assert run(lambda c: c.distinct(), THIRDS) == at_zero(0, 1, 2, 3)


def test_DD_F4_the_last_value_of_a_key_goes(run: Run) -> None:
    asked: list[Any] = []

    def number(key: Any, values: Any) -> Any:
        asked.append(values)
        return [(len(values), 1)]

    result = run(lambda c: c.reduce(number), [(("k", "v"), 0, 1), (("k", "v"), 2, -1)])
    assert result == [(("k", 1), 0, 1), (("k", 1), 2, -1)]
    assert all(values for values in asked)


def test_DD_F5_a_count_changes_by_two_updates_or_none(run: Run) -> None:
    changes = [("k", 0, 5), ("k", 1, 1), ("k", 2, 2), ("k", 2, -2)]
    assert run(lambda c: c.count(), changes) == [(("k", 5), 0, 1), (("k", 5), 1, -1), (("k", 6), 1, 1)]
    others = [(("k", value), 0, 1) for value in range(5)]
    others += [(("k", 0), 1, -1), (("k", 7), 1, 1), (("k", 8), 2, 1)]
    expected = [(("k", 5), 0, 1), (("k", 5), 2, -1), (("k", 6), 2, 1)]
    assert run(lambda c: c.count_by_key(), others) == expected


def test_DD_F6_how_many_nodes_have_each_degree(run: Run) -> None:
    edges = [((n, (7 * n + step) % 20), 0, 1) for n in range(20) for step in range(1 + n % 4)]
    moves = [change for time in range(1, 8) for change in ((edges[3 * time][0], time, -1), ((time, 19 - time), time, 1))]
    degrees = lambda c: c.map(lambda edge: edge[0]).count().map(lambda pair: pair[1]).count()  # noqa: E731
    result = run(degrees, edges + moves)
    for time in range(8):
        if time:
            assert len([change for change in result if change[1] == time]) <= 8
        held = accumulated(result, time)
        assert sum(degree * number * count for (degree, number), count in held.items()) == len(edges)


def test_DD_F8_the_minimum_at_a_time_without_input(run: Run) -> None:
    changes = [(("k", 3), Product(0, 1), 1), (("k", 5), Product(1, 0), 1)]
    for build in (lambda c: c.min_by_key(), lambda c: c.reduce(oracles.least)):
        result = run(build, changes, time=PAIR)
        assert accumulated(result, Product(0, 1)) == {("k", 3): 1}
        assert accumulated(result, Product(1, 0)) == {("k", 5): 1}
        assert accumulated(result, Product(1, 1)) == {("k", 3): 1}


def test_DD_F8_no_change_at_either_time_and_one_at_both(run: Run) -> None:
    for values in (3, 150):  # a small group, and one that is kept in another way
        changes = [(("k", value), Product(0, 0), 2) for value in range(values)]
        changes += [(("k", 0), Product(0, 1), -1), (("k", 0), Product(1, 0), -1)]
        for build, oracle in (
            (lambda c: c.min_by_key(), lambda counts: oracles.reduced(oracles.least, counts)),
            (lambda c: c.reduce(oracles.least), lambda counts: oracles.reduced(oracles.least, counts)),
            (lambda c: c.map(lambda pair: pair[1]).distinct(), lambda n: oracles.distinct(oracles.mapped(lambda p: p[1], n))),
        ):
            result = run(build, changes, time=PAIR)
            check_changes(result, [changes], oracle, PAIR)
        assert accumulated(run(lambda c: c.min_by_key(), changes, time=PAIR), Product(1, 1)) == {("k", 1): 1}


def test_DD_F9_distinct_of_a_negative_count(run: Run) -> None:
    assert run(lambda c: c.distinct(), [("a", 0, -1)]) == []
    assert run(lambda c: c.distinct(), [("a", 0, -1), ("a", 1, 2), ("a", 2, -2)]) == [("a", 1, 1), ("a", 2, -1)]
