"""E: joins, their counts and their times; and half joins, by one path for each collection, beside nested loops.

White box: programs have half joins inside of triangles and of SQL only, and those of one table.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.differential.test_loops import MANAGES, MOVES, at_zero
from timely import Product, Step, Worker
from timely import differential as dd
from timely.differential.operators.half_joins import Lookup, path
from timely.differential.operators.join_results import mapped
from timely.errors import GraphError
from timely.testing.differential import accumulated, updates_in_traces
from timely.testing.differential import run as run_once

Run = Callable[..., Any]

RESUMED = True
"""Each is also run with a checkpoint in the middle."""

PAIR: Any = Product[int, int]


def test_DD_E1_pairs_of_equal_keys(run: Run) -> None:
    left, right = at_zero((0, 0), (1, 2)), at_zero((0, "a"), (1, "B"))
    assert run(lambda a, b: a.join(b), left, right) == at_zero((0, (0, "a")), (1, (2, "B")))


def test_DD_E1_counts_beyond_64_bits_beside_columns() -> None:
    left: list[Any] = [((key, key + 1), time, 1) for key in range(30) for time in range(3)]
    right: list[Any] = [((key, 5), time, diff) for key in range(0, 30, 3) for time, diff in ((0, 1), (1, 2**70), (2, -(2**70)))]
    held = {(key, (key + 1, 5)): 3 for key in range(0, 30, 3)}
    for containers in ("rows", "columns", "mixed"):
        joined = run_once(lambda a, b: a.join(b), left, right, containers=containers, one_by_one=True)
        assert accumulated(joined, 2) == held
        assert accumulated(joined, 1) == dict.fromkeys(held, 2 + 2 * 2**70)


def test_pieces_of_one_time_are_arranged_and_joined_as_one() -> None:
    np = pytest.importorskip("numpy")
    pieces: dict[str, list[int]] = {"arranged": [], "joined": []}

    def counted(collection: Any, name: str) -> Any:
        def count(batch: Any) -> Any:
            pieces[name].append(len(batch))
            return batch

        return dd.from_updates(collection.to_stream().map_batch(count))

    with Worker() as worker:
        with worker.dataflow(int) as scope:
            sessions, parts = zip(*(dd.new_collection(scope) for _ in range(3)), strict=True)
            arranged = parts[0].concat(*parts[1:]).arrange_by_key()
            pairs = arranged.as_collection()
            joined = pairs.join_map(arranged, lambda key, *values: values, columns=lambda key, *values: values)
            outputs = [counted(pairs, "arranged").output(), counted(joined, "joined").output()]
        sizes = (200, 150, 1)  # several runs, and rows beside them
        for epoch, size in enumerate(sizes):
            for part, session in enumerate(sessions):
                session.insert_columns(np.arange(size), np.full(size, 10 * epoch + part))
                session.advance_to(epoch + 1)
            values = [10 * before + part for before in range(epoch + 1) for part in range(3)]
            assert len(outputs[0].at(epoch)) == sum(3 * sizes[before] for before in range(epoch + 1))
            assert set(outputs[1].at(epoch)) == {(one, other) for one in values for other in values}
    assert pieces["arranged"] == [3 * size for size in sizes]
    assert len(pieces["joined"]) == len(sizes)


def test_DD_E2_a_function_of_the_pair(run: Run) -> None:
    left, right = at_zero((0, 0), (1, 2)), at_zero((0, "a"), (1, "B"))
    assert run(lambda a, b: a.join_map(b, lambda k, v, w: (k + v, w)), left, right) == at_zero((0, "a"), (3, "B"))


def test_DD_E3_semijoin_and_antijoin(run: Run) -> None:
    left, keys = at_zero((0, 0), (1, 2)), at_zero(0)
    assert run(lambda a, b: a.semijoin(b), left, keys) == at_zero((0, 0))
    assert run(lambda a, b: a.antijoin(b), left, keys) == at_zero((1, 2))


def test_DD_E4_keys_that_the_left_side_lacks(run: Run) -> None:
    left, keys = at_zero((0, 1), (1, 3)), at_zero(0, 2)
    assert run(lambda a, b: a.semijoin(b), left, keys) == at_zero((0, 1))
    assert run(lambda a, b: a.antijoin(b), left, keys) == at_zero((1, 3))


def test_DD_E5_counts_are_multiplied(run: Run) -> None:
    for one, other in ((2, 3), (2, -1)):
        result = run(lambda a, b: a.join(b), [(("k", 1), 0, one)], [(("k", 2), 0, other)])
        assert result == [(("k", (1, 2)), 0, one * other)]


def above(manages: Any) -> Any:
    """Return ``(m1, (m0, m2))`` where ``m0`` manages ``m1``, who manages ``m2``."""
    return manages.map(lambda pair: pair[::-1]).join(manages)


def test_DD_E6_who_manages_a_manager(run: Run) -> None:
    pairs = [(0, (0, 0)), (0, (0, 1)), (1, (0, 2)), (1, (0, 3)), (2, (1, 4)), (2, (1, 5)), (3, (1, 6)), (3, (1, 7))]
    expected = at_zero(*pairs, (4, (2, 8)), (4, (2, 9)))
    assert run(above, MANAGES) == expected


def test_DD_E7_managers_change(run: Run) -> None:
    changes = run(above, MANAGES + MOVES)
    expected = {(1, (0, 4)): 1, (2, (0, 4)): -1, (4, (1, 8)): 1, (4, (1, 9)): 1, (4, (2, 8)): -1, (4, (2, 9)): -1}
    assert {record: diff for record, time, diff in changes if time == 4} == expected
    assert not [change for change in changes if change[1] in (1, 3)]


def test_DD_E8_results_come_at_least_upper_bounds(run: Run) -> None:
    left, right = [(("k", 1), Product(0, 5), 1)], [(("k", 2), Product(3, 0), 1)]
    assert run(lambda a, b: a.join(b), left, right, time=PAIR) == [(("k", (1, 2)), Product(3, 5), 1)]


class Tick(int):
    """A number that counts how often it is compared."""

    compared = 0

    __eq__ = int.__eq__
    __hash__ = int.__hash__

    @classmethod
    def minimum(cls) -> Tick:
        return cls(0)

    @classmethod
    def identity(cls) -> TickStep:
        return TickStep(0)

    @classmethod
    def is_total(cls) -> bool:
        return True


def counted(compare: Callable[[int, Any], bool]) -> Callable[[Tick, Any], bool]:
    def count(tick: Tick, other: Any) -> bool:
        Tick.compared += 1
        return compare(tick, other)

    return count


for name in ("__le__", "__lt__", "__ge__", "__gt__"):
    setattr(Tick, name, counted(getattr(int, name)))


class TickStep(Step):
    """Its path summary, which keeps the type."""

    def results_in(self, time: Any, /) -> Any:
        return time


def odd_with_even(calls: list[Any]) -> Callable[[Any], Any]:
    def build(records: Any) -> Any:
        counts = records.count()
        odd, even = counts.filter(lambda pair: pair[1] % 2), counts.filter(lambda pair: pair[1] % 2 == 0)

        def meet(key: Any, left: Any, right: Any) -> Any:
            calls.append(None)
            return left, right

        return odd.join_map(even, meet)

    return build


@pytest.mark.parametrize("one_by_one", [False, True], ids=["at once", "one by one"])
def test_DD_E9_work_is_linear_in_the_epochs(one_by_one: bool) -> None:
    def work(n: int) -> tuple[int, int]:
        calls: list[Any] = []
        Tick.compared = 0
        run_sessions(odd_with_even(calls), n, one_by_one)
        return len(calls), Tick.compared

    (few_calls, few), (many_calls, many) = work(500), work(2_000)
    assert many_calls <= 5 * few_calls + 100 and many_calls <= 20 * 2_000
    assert many <= 6 * few


def run_sessions(build: Callable[[Any], Any], n: int, one_by_one: bool) -> None:
    """Insert one record in each of ``n`` epochs, and see that the result is empty."""
    with Worker() as worker:
        with worker.dataflow(Tick) as scope:
            session, records = dd.new_collection(scope)
            output = build(records).output()
        for time in range(n):
            session.insert("k")
            session.advance_to(Tick(time + 1))
            if one_by_one:
                while not worker.idle:
                    worker.step()
                if time == n - 1:
                    assert max(updates_in_traces()) < 400
        session.close()
        assert output.changes() == []


@pytest.mark.parametrize("one_by_one", [False, True], ids=["at once", "one by one"])
def test_DD_E9_10_000_epochs_in_bounded_memory(one_by_one: bool) -> None:
    check_many_epochs(10_000, one_by_one)


def check_many_epochs(n: int, one_by_one: bool) -> None:
    """Count one key in each of ``n`` epochs, and join odd with even counts: traces stay short, and nothing comes out."""
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            session, records = dd.new_collection(scope)
            seen: list[Any] = []
            joined = odd_with_even([])(records).inspect(lambda *update: seen.append(update)).consolidate()
            probe = joined.inspect(lambda *update: seen.append(update)).probe()
        largest = 0
        for time in range(n):
            session.insert(7)
            session.advance_to(time + 1)
            if one_by_one:
                while not worker.idle:
                    worker.step()
                if time % (n // 5) == n // 10:
                    largest = max(largest, *updates_in_traces())
        session.close()
        while not worker.idle:
            worker.step()
        largest = max(largest, *updates_in_traces())
        assert probe.done() and largest < 400
        sums: dict[Any, int] = {}
        for record, when, diff in seen:
            sums[record, when] = sums.get((record, when), 0) + diff
        assert not any(sums.values())


def test_DD_E9_under_all_conditions(run: Run) -> None:
    assert run(odd_with_even([]), [("k", time, 1) for time in range(60)]) == []


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("workers", [1, 3])
def test_DD_E10_both_sides_at_once_in_any_interleaving(workers: int, seed: int) -> None:
    left = [((key, "left"), 0, 1) for key in range(1_000)]
    right = [((key, "right"), 0, 1) for key in range(1_000)]
    expected = at_zero(*((key, ("left", "right")) for key in range(1_000)))
    if seed == 0:
        assert run_once(lambda a, b: a.join(b), left, right, workers=workers) == expected
    else:
        few = slice(100)
        result = run_once(lambda a, b: a.join(b), left[few], right[few], workers=workers, seed=seed)
        assert result == expected[few]


def test_DD_E10_an_arrangement_joined_with_itself(run: Run) -> None:
    changes = [((key % 3, key), time, 1) for key in range(12) for time in (0, 1)]

    def itself(pairs: Any) -> Any:
        arranged = pairs.arrange_by_key().as_collection()
        return arranged.join(arranged)

    result = run(itself, changes)
    for time, count in ((0, 1), (1, 4)):
        expected = {(k % 3, (k, w)): count for k in range(12) for w in range(12) if k % 3 == w % 3}
        assert accumulated(result, time) == expected


def test_DD_E10_a_join_of_many_results_goes_on_while_more_arrives() -> None:
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            left, ones = dd.new_collection(scope)
            right, others = dd.new_collection(scope)
            number = ones.join_map(others, lambda key, one, other: (one + other) % 2).count().output()
        for value in range(400):
            left.insert(("k", value))
            right.insert(("k", value))
        worker.step()  # 160,000 results: more than a join makes in one step
        for time in (1, 2):
            left.advance_to(time)
            right.advance_to(time)
            left.remove(("k", time))
            right.insert(("k", 400 + time))
            worker.step()
        left.close()
        right.close()
        assert number.at(0) == {(0, 80_000): 1, (1, 80_000): 1}
        pairs = product([0, *range(3, 400)], [*range(400), 401, 402])
        odd = sum((one + other) % 2 for one, other in pairs)
        assert number.at(2) == {(1, odd): 1, (0, 398 * 402 - odd): 1}


@pytest.mark.parametrize("side", [0, 1])
def test_a_filtered_trace_that_changes_by_columns(side: int) -> None:
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            (first, left), (second, right) = dd.new_collection(scope), dd.new_collection(scope)
            even = left.arrange_by_key().filter_trace(lambda key, value: value % 2 == 0)
            joined = (right.join(even) if side else even.join(right)).output()
        second.insert_columns(range(300), range(300))
        second.advance_to(1)
        worker.step()
        first.insert_columns(range(300), range(300))
        first.close()
        second.close()
        assert joined.at(1) == {(key, (key, key)): 1 for key in range(0, 300, 2)}


def test_a_joined_row_takes_at_most_18_calls_of_the_trace() -> None:
    """White box: each call costs a joined row some 50 ns, which no result shows."""
    pytest.importorskip("numpy")
    folder = str(Path(dd.__file__).parent / "trace")
    calls: Counter[str] = Counter()

    def count(frame: Any, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(folder) and not code.co_name.startswith("<"):
            calls[f"{Path(code.co_filename).stem}.{code.co_name}"] += 1

    epochs = 200
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            (left, lefts), (right, rights) = dd.new_collection(scope), dd.new_collection(scope)
            joined = lefts.join(rights).output()
        right.insert_columns(list(range(1000)), list(range(1000)))  # in a run, and the left side as rows
        right.close()
        left.insert((-1, "a"))
        left.advance_to(1)
        joined.wait(0)
        sys.setprofile(count)
        for key in range(epochs):
            left.insert((key, "a"))
            left.advance_to(key + 2)
            joined.wait(key + 1)
        sys.setprofile(None)
        left.close()
    assert len(joined.changes()) == epochs
    operator = {"state_memory.run"}  # not of the trace
    assert sum(count for name, count in calls.items() if name not in operator) <= 18 * epochs, calls.most_common()


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
