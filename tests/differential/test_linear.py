"""B and D: updates of equal records and times add up, and operators that work record by record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.differential.test_loops import MANAGES
from timely.differential import from_updates
from timely.errors import CollectionMismatch, OperatorError
from timely.testing.differential import Cluster

Run = Callable[..., Any]

DIGITS = [(n, 0, 1) for n in range(1, 10)]
MOVING = [*DIGITS, (3, 1, -1), (12, 1, 2), (12, 3, -1), (3, 4, 5)]


def odd(n: int) -> bool:
    return n % 2 == 1


def even(n: int) -> bool:
    return n % 2 == 0


def same(c: Any) -> Any:
    return c


def test_DD_D1_odd_and_even_make_the_whole(run: Run) -> None:
    for changes in (DIGITS, MOVING):
        assert run(lambda c: c.filter(odd).concat(c.filter(even)), changes) == run(same, changes)


def test_DD_D2_the_whole_without_the_odd(run: Run) -> None:
    for changes in (DIGITS, MOVING):
        assert run(lambda c: c.filter(odd).negate().concat(c), changes) == run(lambda c: c.filter(even), changes)


def test_DD_D2_columns_of_what_came_as_rows(run: Run) -> None:
    for changes in (DIGITS, MOVING):
        assert run(lambda c: c.filter_columns(lambda keys: keys % 2 == 1), changes) == run(lambda c: c.filter(odd), changes)
        pairs = run(lambda c: c.map(lambda n: (n % 3, n)), changes)
        assert run(lambda c: c.map_columns(lambda keys: (keys % 3, keys)), changes) == pairs
    for name, build in (
        ("filter_columns", lambda c: c.filter_columns(lambda keys: keys > 0)),
        ("map_columns", lambda c: c.map_columns(lambda keys: keys)),
    ):
        with pytest.raises(OperatorError, match=f"{name} needs whole numbers, or pairs of them, and 'three' came"):
            run(build, [("three", 0, 1)])


def test_DD_D3_no_double_is_odd(run: Run) -> None:
    def doubled(c: Any) -> Any:
        c.map(lambda n: 2 * n).filter(odd).assert_empty()
        return c

    assert run(doubled, MOVING) == run(same, MOVING)


def test_DD_D4_a_difference_is_named(run: Run) -> None:
    def equal(one: Any, other: Any) -> Any:
        one.assert_equal(other)
        return one

    lacking = [change for change in MOVING if change[:2] != (12, 1)]
    with pytest.raises(OperatorError, match="changes by 2 of 12 at 1") as caught:
        run(equal, MOVING, lacking)
    mismatch = caught.value.__cause__
    assert isinstance(mismatch, CollectionMismatch)
    assert (mismatch.record, mismatch.time, mismatch.diff) == (12, 1, 2)
    assert run(equal, MOVING, MOVING) == run(same, MOVING)


def test_DD_D5_explode_equals_flat_map(run: Run) -> None:
    numbers = [(n, 0, 1) for n in range(10)]
    flat = run(lambda c: c.flat_map(range), numbers)
    factors = run(lambda c: c.map(lambda x: (x, 9 - x)).explode(lambda pair: pair), numbers)
    assert flat == factors == [(n, 0, 9 - n) for n in range(9)]


def test_DD_D6_into_a_scope_and_out_again(run: Run) -> None:
    def through_region(c: Any) -> Any:
        with c.scope.region("region") as region:
            return c.enter(region).leave()

    def through_loop(c: Any) -> Any:
        with c.scope.iterative("loop") as loop:
            return c.enter(loop).leave()

    def through_both(c: Any) -> Any:
        with c.scope.iterative("loop") as loop:
            inner = c.enter(loop)
            with loop.iterative("inner") as deeper:
                return inner.enter(deeper).leave().leave()

    for build in (through_region, through_loop, through_both):
        assert run(build, MOVING) == run(same, MOVING)


def test_DD_D7_leaving_adds_up_the_rounds(run: Run) -> None:
    def spread(c: Any) -> Any:
        with c.scope.iterative("loop") as loop:
            return c.enter_at(loop, lambda x: x).leave()

    assert run(spread, DIGITS) == run(same, DIGITS)
    assert run(spread, MOVING) == run(same, MOVING)


def test_DD_D8_concat_of_nothing_and_of_itself(run: Run) -> None:
    assert run(lambda c: c.concat(), MOVING) == run(same, MOVING)
    assert run(lambda c: c.concat(c, c), MOVING) == [(n, time, 3 * diff) for n, time, diff in run(same, MOVING)]


def consolidated(run: Run, changes: list[Any]) -> list[Any]:
    """Return every single update that comes after ``consolidate``."""
    seen: list[Any] = []
    run(lambda c: c.consolidate().inspect(lambda *update: seen.append(update)), changes)
    return sorted(seen, key=lambda update: (update[1], update[0]))


def test_DD_B1_equal_records_add_up(run: Run) -> None:
    assert consolidated(run, [("a", 0, -1), ("b", 0, -2), ("a", 0, 1)]) == [("b", 0, -2)]


@pytest.mark.parametrize(
    "changes",
    [[("a", 0, -1), ("b", 0, 0), ("a", 0, 1)], [("a", 0, 0)], [("a", 0, 0), ("b", 0, 0)]],
    ids=["pair", "zero", "zeros"],
)
def test_DD_B2_what_adds_up_to_nothing_is_gone(run: Run, changes: list[Any]) -> None:
    assert consolidated(run, changes) == []


def test_DD_B3_different_records_stay(run: Run) -> None:
    assert consolidated(run, [("a", 0, 1), ("b", 0, 1)]) == [("a", 0, 1), ("b", 0, 1)]


def test_DD_B4_equal_records_at_different_times_stay_apart(run: Run) -> None:
    assert consolidated(run, [("a", 1, -1), ("b", 1, -2), ("a", 1, 1)]) == [("b", 1, -2)]
    assert consolidated(run, [("a", 1, 1), ("b", 2, 1)]) == [("a", 1, 1), ("b", 2, 1)]
    assert consolidated(run, [("a", 1, 1), ("a", 2, -1)]) == [("a", 1, 1), ("a", 2, -1)]


def test_DD_B5_before_and_after_consolidate(run: Run) -> None:
    before: list[Any] = []
    after: list[Any] = []

    def both(pairs: Any) -> Any:
        twice = pairs.concat(pairs.map(lambda pair: pair[::-1])).inspect(lambda *update: before.append(update))
        return twice.consolidate().inspect(lambda *update: after.append(update))

    run(both, MANAGES)
    assert sum(diff for record, _, diff in before if record == (0, 0)) == 2
    assert [update for update in after if update[0] == (0, 0)] == [((0, 0), 0, 2)]
    assert len(after) == 19


def test_DD_B6_a_time_passes_though_nothing_is_left_of_it() -> None:
    cluster = Cluster()
    (worker,) = cluster.workers
    seen: list[Any] = []
    with worker.dataflow(int) as scope:
        (handle, capability), stream = scope.new_unordered_input()
        probe = from_updates(stream).consolidate().inspect(lambda *update: seen.append(update)).probe()
    handle.session(capability).give_batch([("a", 1), ("a", -1)])
    capability.downgrade(1)
    cluster.settle()
    assert seen == [] and not probe.less_than(1)
    capability.drop()
    cluster.settle()
    assert probe.done()
