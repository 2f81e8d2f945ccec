"""Runs that go on from a checkpoint give what runs without one give, on any number of workers."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import timely
from tests.differential.test_inputs import CALLS, EXPECTED, call
from timely import differential as dd
from timely.recovery import Recovery
from timely.testing.differential import run as run_once
from timely.testing.differential import run_resumed, small_columns

EPOCHS = 5
PAIRS = timely.Product[int, int]

Changes = Counter[tuple[str, Any, int]]
Built = dict[str, dd.Collection[Any, Any]]

# -- programs: what they build of two collections of pairs -------------------------------------------------------------------


def join_and_count(left: Any, right: Any) -> Built:
    joined = left.join(right)
    return {"joined": joined, "count": joined.map(lambda pair: (pair[1][0], pair[0])).count_by_key()}


def breadth_first(left: Any, right: Any) -> Built:
    roots = right.map(lambda pair: (pair[0], 0)).distinct()
    with left.scope.iterative() as loop:
        edges, start = left.enter(loop), roots.enter(loop)
        nodes: dd.Variable[Any, Any] = dd.Variable(loop, start)
        reached = nodes.collection.join_map(edges, lambda _, distance, target: (target, distance + 1)).concat(start).min_by_key()
        nodes.set(reached)
        return {"distances": reached.leave(), "levels": reached.leave().map(lambda pair: pair[1]).count()}


def reachable(left: Any, right: Any) -> Built:
    """With a general reduction over a shared arrangement, in the loop."""
    with left.scope.iterative() as loop:
        edges = left.arrange_by_key().enter(loop)
        nodes: dd.Variable[Any, Any] = dd.Variable(loop, right.map(lambda pair: (pair[0], pair[0])).enter(loop))
        steps = edges.join_map(nodes.collection, lambda _, target, root: (target, root))
        everything = steps.concat(right.map(lambda pair: (pair[0], pair[0])).enter(loop))
        least = everything.arrange_by_key().reduce(lambda node, roots: [(min([r for r, c in roots if c > 0], default=-1), 1)])
        nodes.set(least)
        return {"least": least.leave()}


def distinct(left: Any, right: Any) -> Built:
    return {
        "distinct": left.distinct(),
        "threshold": left.concat(right).threshold(lambda record, count: count % 2),
        "distinct of shared": right.arrange_by_self().distinct(),
        "without": left.antijoin(right.map(lambda pair: pair[1])),
    }


def aggregates(left: Any, right: Any) -> Built:
    many = left.flat_map(lambda pair: [(pair[0] % 2, 10 * pair[1] + i) for i in range(12)])
    return {
        "sum": many.sum_by_key(),
        "least": many.min_by_key(),
        "most": many.max_by_key(),
        "count": many.count_by_key(),
        "top": many.top_k(3),
        "few": right.top_k(2),
        "consolidated": left.concat(right).consolidate(),
    }


def shared_reduce(left: Any, right: Any) -> Built:
    arranged = left.arrange_by_key()
    values = arranged.reduce(lambda key, values: [(tuple(values), 1)])
    return {"values": values, "joined": arranged.join(values), "again": values.join(right)}


PROGRAMS: list[Callable[..., Any]] = [join_and_count, breadth_first, reachable, distinct, aggregates, shared_reduce]


def changes(seed: int) -> list[list[tuple[int, tuple[int, int], int, int]]]:
    """For each epoch the changes: side, record, difference, and how much later it takes place."""
    chance = random.Random(seed)

    def change() -> tuple[int, tuple[int, int], int, int]:
        record = chance.randrange(4), chance.randrange(4)
        return chance.randrange(2), record, chance.choice([1, 1, 1, -1, 2]), max(0, chance.randrange(-2, 4))

    return [[change() for _ in range(chance.randrange(7))] for _ in range(EPOCHS)]


def positive(seed: int) -> list[list[tuple[int, tuple[int, int], int, int]]]:
    """Changes after which nothing is there less than zero times, for loops that multiply counts."""
    chance = random.Random(seed)
    live: Counter[Any] = Counter()
    by_epoch: list[list[Any]] = []
    for _ in range(EPOCHS):
        epoch: list[Any] = []
        gone = [record for record, count in live.items() if count]
        for side, record in chance.sample(gone, min(2, len(gone))):
            epoch.append((side, record, -1, 0))
            live[side, record] -= 1
        for _ in range(chance.randrange(5)):
            side, record, later = chance.randrange(2), (chance.randrange(6), chance.randrange(6)), max(0, chance.randrange(-2, 3))
            epoch.append((side, record, 1, later))
            if not later:
                live[side, record] += 1
        by_epoch.append(epoch)
    return by_epoch


def later_by(epoch: int, later: Any, time: Any) -> Any:
    return epoch + later if time is int else timely.Product(epoch + later[0], epoch + later[1])


def phase(
    worker: timely.Worker,
    where: Path | None,
    build: Callable[..., Any],
    sent: Sequence[Sequence[Any]],
    stop: int,
    often: bool = False,
    time: Any = int,
    full_every: int | None = None,
) -> tuple[list[Any], dict[Any, Any]]:
    """Go on from the last checkpoint up to ``stop``; return the changes, and what is held at times from the last epochs on.

    At times of pairs an epoch is a pair of itself, and changes are later in either coordinate. Lists come as columns.
    """
    nothing: Any = 0 if time is int else (0, 0)
    recovery = None if where is None else Recovery(worker, where, full_every=full_every)
    with worker.dataflow(time) as scope:
        made = [dd.new_collection(scope) for _ in range(2)]
        outputs = {name: collection.output() for name, collection in build(*(collection for _, collection in made)).items()}
    sessions = [session for session, _ in made]
    begun: Any = nothing if recovery is None or recovery.time is None else recovery.time
    start = begun if time is int else begun[0]
    for epoch in range(start, stop):
        for session in sessions:
            session.advance_to(later_by(epoch, nothing, time))
        for number, (side, record, diff, later) in enumerate(sent[epoch]):
            if isinstance(record, list):
                mine = record[worker.index :: worker.peers]
                sessions[side].insert_columns([key for key, _ in mine], [value for _, value in mine], diff=diff)
            elif number % worker.peers == worker.index:
                sessions[side].update_at(record, later_by(epoch, later, time), diff)
        for session in sessions:
            session.advance_to(later_by(epoch + 1, nothing, time))
        if epoch % 2:
            worker.step()
        if recovery is not None and (epoch + 1 == stop < EPOCHS or often):
            recovery.checkpoint(later_by(epoch + 1, nothing, time))
    if recovery is not None and start == stop == 0:
        recovery.checkpoint(0)
    held = {}
    if stop == EPOCHS:
        for session in sessions:
            session.close()
        worker.run()
        ends = range(EPOCHS - 2, EPOCHS + 4)
        times = range(start, EPOCHS + 4) if time is int else [timely.Product(one, two) for one in ends for two in ends]
        held = {(name, moment): output.at(moment) for name, output in outputs.items() for moment in times}
    named_changes = [(name, change) for name, output in outputs.items() for change in output.changes()]
    assert stop == EPOCHS or time is not int or all(when < stop for _, (_, when, _) in named_changes)
    if recovery is not None:
        recovery.close()
    for session in sessions:
        session.close()
    return named_changes, held


def together(results: list[tuple[list[Any], dict[Any, Any]]], into: Changes) -> dict[Any, Any]:
    held: dict[Any, Counter[Any]] = {}
    for changes, at in results:
        for name, (record, time, diff) in changes:
            into[name, repr(record), time] += diff
        for place, records in at.items():
            for record, count in records.items():
                held.setdefault(place, Counter())[repr(record)] += count
    return {place: left for place, records in held.items() if (left := {record: n for record, n in records.items() if n})}


def run(
    build: Callable[..., Any], sent: Any, stops: Sequence[int], workers: Sequence[int], where: Path | None, **how: Any
) -> Any:
    changes: Changes = Counter()
    held: dict[Any, Any] = {}
    for stop, peers in zip([*stops, EPOCHS], workers, strict=True):
        parts = timely.execute(lambda worker: phase(worker, where, build, sent, stop, **how), workers=peers)  # noqa: B023
        held = together(parts, changes)
    return {change: diff for change, diff in changes.items() if diff}, held


WORKERS = [(1, 1), (2, 2), (1, 3), (3, 2)]


@pytest.mark.parametrize(("seed", "workers"), [(seed, WORKERS[(seed + more) % 4]) for seed in range(6) for more in (0, 1)])
@pytest.mark.parametrize("build", PROGRAMS)
def test_resumed_after_any_epoch(tmp_path: Path, build: Callable[..., Any], workers: Sequence[int], seed: int) -> None:
    sent = positive(seed) if build in (breadth_first, reachable) else changes(seed)
    expected, whole = run(build, sent, [], [1], None)
    assert expected
    stop = seed % EPOCHS
    result, held = run(build, sent, [stop], workers, tmp_path)
    assert result == expected
    assert held == {(name, time): records for (name, time), records in whole.items() if time >= stop}


@pytest.mark.parametrize("many", [None, 1, 3])
@pytest.mark.parametrize("build", PROGRAMS)
def test_resumed_after_each_epoch(tmp_path: Path, build: Callable[..., Any], many: int | None) -> None:
    """Also where so many updates are columns."""
    sent = positive(8) if build in (breadth_first, reachable) else changes(8)
    expected, whole = run(build, sent, [], [1], None)
    with contextlib.nullcontext() if many is None else small_columns(many):
        result, held = run(build, sent, range(1, EPOCHS), [1, 2, 2, 3, 1], tmp_path)
    assert result == expected
    assert held == {(name, time): records for (name, time), records in whole.items() if time >= EPOCHS - 1}


@pytest.mark.parametrize("build", PROGRAMS)
def test_a_checkpoint_changes_nothing(tmp_path: Path, build: Callable[..., Any]) -> None:
    sent = positive(11) if build in (breadth_first, reachable) else changes(11)
    expected, whole = run(build, sent, [], [1], None)
    assert run(build, sent, [], [2], tmp_path, often=True) == (expected, whole)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("build", PROGRAMS)
def test_resumed_with_partially_ordered_times(tmp_path: Path, build: Callable[..., Any], seed: int) -> None:
    chance = random.Random(seed)
    loops = build in (breadth_first, reachable)  # in which counts below zero make a loop that does not settle
    sent = [
        [
            (side, record, abs(diff) if loops else diff, (chance.randrange(5), chance.randrange(5)))
            for side, record, diff, _ in epoch
        ]
        for epoch in changes(seed)
    ]
    _, whole = run(build, sent, [], [1], None, time=PAIRS)
    assert run(build, sent, [1, EPOCHS - 2], [1 + seed % 3, 2, 1 + seed % 2], tmp_path, time=PAIRS)[1] == whole


@pytest.mark.parametrize("workers", [(2, 1), (1, 2)])
@pytest.mark.parametrize("build", [dd.Collection.join, lambda left, right: left.semijoin(right.map(lambda pair: pair[0]))])
def test_columns_that_wait_in_a_checkpoint_are_joined_once(tmp_path: Path, build: Any, workers: tuple[int, int]) -> None:
    """What comes at earlier times after the checkpoint does not meet them before it is their turn."""
    left: list[Any] = [((key, when), when, 1) for key in range(8) for when in (5, 5, 7, 7, 7)]
    right: list[Any] = [((key, -key), when, 1) for key in range(8) for when in (3, 3, 6)]
    result = run_resumed(build, left, right, directory=tmp_path, at=3, workers=workers, containers="columns")
    assert result == run_once(build, left, right)


@pytest.mark.parametrize("workers", [(1, 1), (1, 2), (3, 1)])
def test_f8_a_time_without_an_update_of_its_own(tmp_path: Path, workers: tuple[int, int]) -> None:
    """Updates at (0, 5) and (5, 0) change the least value at (5, 5), which is after the checkpoint."""

    def program(worker: timely.Worker, resumed: bool) -> Any:
        with Recovery(worker, tmp_path) as recovery:
            with worker.dataflow(PAIRS) as scope:
                session, pairs = dd.new_collection(scope)
                least = pairs.min_by_key().output(worker=0)
                general = pairs.reduce(lambda key, values: [(min(value for value, _ in values), 1)]).output(worker=0)
            if not resumed and worker.index == 0:
                session.update_at(("k", 1), timely.Product(0, 5), 1)
                session.update_at(("k", 2), timely.Product(5, 0), 1)
            session.advance_to(timely.Product(2, 2))
            if not resumed:
                recovery.checkpoint(timely.Product(2, 2))
            session.close()
            worker.run()
        return [{time: output.at(timely.Product(*time)) for time in TIMES} for output in (least, general)]

    TIMES = [(2, 2), (2, 5), (5, 2), (4, 6), (5, 5), (6, 6)]
    expected: Any = [{}, {("k", 1): 1}, {("k", 2): 1}, {("k", 1): 1}, {("k", 1): 1}, {("k", 1): 1}]
    for resumed, peers in enumerate(workers):
        results = timely.execute(lambda worker: program(worker, bool(resumed)), workers=peers)[0]  # noqa: B023
        assert results == [dict(zip(TIMES, expected, strict=True))] * 2


def test_a_trace_comes_back_smaller(tmp_path: Path) -> None:
    """Also where a handle holds all of its history; a handle of the resumed run begins at the checkpoint."""

    def program(epochs: range) -> tuple[list[int], Any]:
        with timely.Worker() as worker, Recovery(worker, tmp_path) as recovery:
            with worker.dataflow(int) as scope:
                session, pairs = dd.new_collection(scope)
                arranged = pairs.arrange_by_key()
                counts = arranged.as_collection().count_by_key()
                trace, probe = arranged.trace, counts.probe()
                counted = counts.arrange_by_key().trace
            start = recovery.time or 0
            began = arranged.index.trace.entries()
            session.advance_to(start)
            for epoch in epochs:
                session.insert((epoch % 3, epoch % 2))
                session.advance_to(epoch + 1)
                worker.step_while(lambda: probe.less_than(epoch + 1))  # noqa: B023
            recovery.checkpoint(epochs.stop)
            assert trace.since == counted.since == [start]
            with pytest.raises(dd.CompactedError if start else dd.NotCompleteError):
                trace.get(0, at=start - 1 if start else epochs.stop)
            read = [dict(trace.items(at=time)) for time in range(start, epochs.stop)], dict(counted.items())
            sizes = [began, arranged.index.trace.entries()]
            session.close()
            worker.run()
        return sizes, read

    sizes, (held, counts) = program(range(60))
    assert sizes == [0, 60]
    assert held[59] == {key: {0: 10, 1: 10} for key in range(3)}
    sizes, (held, counts) = program(range(60, 66))
    assert sizes == [6, 12] and held[0][0] == {0: 11, 1: 10} and held[5] == {key: {0: 11, 1: 11} for key in range(3)}
    assert counts == {key: {22: 1} for key in range(3)}


def test_a_trace_keeps_the_times_that_its_own_input_has_not_passed(tmp_path: Path) -> None:
    """Its only reader, a join, waits for the other side alone, which is far ahead."""

    def program(resumed: bool) -> list[Any]:
        with timely.Worker() as worker, Recovery(worker, tmp_path) as recovery:
            with worker.dataflow(int) as scope:
                (left, one), (right, other) = dd.new_collection(scope), dd.new_collection(scope)
                arranged = one.arrange_by_key()
                arranged.join(other).probe()
                trace = arranged.trace
            right.advance_to(9)
            if resumed:
                left.advance_to(1)
            else:
                left.update_at(("key", 4), 4, 1)
                left.update_at(("key", 2), 2, 1)
                left.advance_to(1)
                recovery.checkpoint(1)
            since = list(trace.since)
            left.close()
            right.close()
            worker.run()
            return [since, *([trace.get("key", at=time) for time in range(1, 6)] if resumed else [])]

    assert program(False) == [[0]]
    assert program(True) == [[1], {}, {2: 1}, {2: 1}, {2: 1, 4: 1}, {2: 1, 4: 1}]


J6_EDGES: Any = [
    [((1, 2), 1), ((2, 3), 1), ((2, 4), 1)],
    [((4, 5), 1)],
    [((1, 2), -1)],
    [((1, 4), 1)],
    [],
]
J6_QUERIES = [[(1, 1)], [(2, 1)], [], [(1, -1)], [(1, 1)]]
J6_ANSWERS = [((1, 3), 0, 1), ((1, 4), 0, 1), ((2, 5), 1, 1), ((1, 3), 2, -1), ((1, 4), 2, -1), ((1, 5), 4, 1)]


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("stop", range(1, EPOCHS))
def test_an_import_that_is_opened_again(tmp_path: Path, workers: tuple[int, int], stop: int) -> None:
    """The queries of the run before are answered already, and what follows changes their answers."""

    def program(worker: timely.Worker, stop: int) -> Any:
        with Recovery(worker, tmp_path) as recovery:
            with worker.dataflow(int) as scope:
                session, pairs = dd.new_collection(scope)
                trace = pairs.arrange_by_key().trace
            with worker.dataflow(int) as scope:
                asked, starts = dd.new_collection(scope)
                graph = trace.import_into(scope)
                one = graph.join_map(starts.map(lambda node: (node, node)), lambda _, target, query: (target, query))
                two = graph.join_map(one, lambda _, target, query: (query, target)).output(worker=0)
                degrees = graph.reduce(lambda node, targets: [(sum(count for _, count in targets), 1)]).output(worker=0)
            start = recovery.time or 0
            session.advance_to(start)
            asked.advance_to(start)
            for epoch in range(start, stop):
                for number, (edge, diff) in enumerate(J6_EDGES[epoch]):
                    if number % worker.peers == worker.index:
                        session.update(edge, diff)
                for query, diff in J6_QUERIES[epoch]:
                    if worker.index == 0:
                        asked.update(query, diff)
                session.advance_to(epoch + 1)
                asked.advance_to(epoch + 1)
            if stop < EPOCHS:
                recovery.checkpoint(stop)
            before_close = two.changes()
            asked.close()
            session.close()
            worker.run()
            return (two.changes() if stop == EPOCHS else before_close), degrees.at(EPOCHS)

    changes: list[Any] = []
    for peers, end in zip(workers, (stop, EPOCHS), strict=True):
        results = timely.execute(lambda worker: program(worker, end), workers=peers)  # noqa: B023
        changes += results[0][0]
    assert changes == J6_ANSWERS
    assert results[0][1] == {(1, 1): 1, (2, 2): 1, (4, 1): 1}


@pytest.mark.parametrize("workers", [(1, 1), (1, 2), (2, 2)])
def test_an_import_of_a_dataflow_that_had_ended_before_the_checkpoint(tmp_path: Path, workers: tuple[int, int]) -> None:
    def program(worker: timely.Worker, stop: int) -> Any:
        with Recovery(worker, tmp_path) as recovery:
            with worker.dataflow(int) as scope:
                trace = dd.collection(scope, [(n, n + 1) for n in range(20)], on=0).arrange_by_key().trace
            with worker.dataflow(int) as scope:
                asked, starts = dd.new_collection(scope)
                graph = trace.import_into(scope)
                output = graph.semijoin(starts).output(worker=0)
            start = recovery.time or 0
            asked.advance_to(start)
            for epoch in range(start, stop):
                if worker.index == 0:
                    asked.insert(epoch)
                asked.advance_to(epoch + 1)
            if stop < 6:
                recovery.checkpoint(stop)
            asked.close()
            worker.run()
            return output.changes(), output.at(stop)

    changes: list[Any] = []
    for peers, end in zip(workers, (3, 6), strict=True):
        results = timely.execute(lambda worker: program(worker, end), workers=peers)  # noqa: B023
        changes += results[0][0]
    assert changes == [((epoch, epoch + 1), epoch, 1) for epoch in range(6)]
    assert results[0][1] == {(epoch, epoch + 1): 1 for epoch in range(6)}


@pytest.mark.parametrize("workers", [(1, 1), (1, 3), (2, 1)])
@pytest.mark.parametrize("stop", [3, 4, 5, 6, 9, 12, 15])
def test_DD_I1_upserts_go_on(tmp_path: Path, workers: tuple[int, int], stop: int) -> None:
    def program(worker: timely.Worker, stop: int) -> Any:
        with Recovery(worker, tmp_path) as recovery:
            with worker.dataflow(int) as scope:
                session, arranged = dd.from_upserts(scope)
                result = arranged.as_collection().output(worker=0)
            start = recovery.time or 0
            session.advance_to(start)
            for time in range(start, stop):
                for when, key, value in CALLS:
                    if worker.index == 0 and when == time:
                        call(session, key, value)
                session.advance_to(time + 1)
            if stop < 20:
                recovery.checkpoint(stop)
            session.close()
            worker.run()
            return result.changes()

    results = []
    for peers, end in zip(workers, (stop, 20), strict=True):
        results += timely.execute(lambda worker: program(worker, end), workers=peers)[0]  # noqa: B023
    assert results == EXPECTED
