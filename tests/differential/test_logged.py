"""Checkpoints of traces: their deltas since the last one, columns as columns, on any number of workers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from time import process_time
from typing import Any

import pytest

import timely
from tests.differential.test_recovery import EPOCHS, run
from timely import differential as dd
from timely.recovery import Recovery

np = pytest.importorskip("numpy")


def size(where: Path) -> int:
    return sum(file.stat().st_size for file in where.rglob("*") if file.is_file())


def built(left: Any, right: Any) -> dict[str, dd.Collection[Any, Any]]:
    """Every kind of trace: of pairs and of records, shared or not, results, large groups, with a key of its own, and words."""
    arranged = left.arrange_by_key()
    by_last = left.arrange_by_key(key=lambda key: key // 10)
    hot = left.map(lambda pair: (pair[0] % 2, 1000 * pair[1] + pair[0]))
    words = left.map(lambda pair: (f"word {pair[0]}", pair[1]))
    return {
        "join": arranged.as_collection().join_map(
            right, lambda key, one, two: (key, one + two), columns=lambda key, one, two: (key, one + two)
        ),
        "reduce": arranged.reduce(lambda key, values: [(tuple(values), 1)]),
        "count": left.count_by_key(),
        "distinct": left.map_columns(lambda keys, values: keys).distinct(),
        "of another key": by_last.semijoin(right.map(lambda pair: pair[0])),
        "sum": hot.sum_by_key(),
        "least": hot.min_by_key(),
        "top": hot.top_k(5),
        "words": words.count_by_key().map(lambda pair: pair[1]).count(),
        "both": left.map(lambda pair: pair if pair[0] % 7 else (str(pair[0]), pair[1])).count_by_key(),
    }


def changes(seed: int) -> list[list[tuple[int, list[tuple[int, int]], int, int]]]:
    """For each epoch the batches: side, records, difference, and that they are not later."""
    chance = random.Random(seed)
    held: list[tuple[int, tuple[int, int]]] = []
    by_epoch = []
    for _ in range(EPOCHS):
        batches = []
        for side in (0, 1):
            more = [(chance.randrange(400), chance.randrange(20)) for _ in range(chance.choice([1, 5, 200, 500]))]
            batches.append((side, more, 1, 0))
            gone = chance.sample(held, len(held) // chance.choice([3, 50]))
            gone = [record for record in gone if record[0] == side]
            if gone:
                batches.append((side, [record for _, record in gone], -1, 0))
            held = list((Counter(held) - Counter(gone)).elements()) + [(side, record) for record in more]
        by_epoch.append(batches)
    return by_epoch


@pytest.mark.parametrize(
    ("stops", "workers", "seed", "full_every"),
    [
        ((2,), (1, 1), 0, None),
        ((1, 2, 3, 4), (2, 1, 3, 4, 1), 0, None),
        ((3, 4), (7, 2, 5), 1, None),
        ((2, 4), (2, 1, 3), 2, 1),
    ],
)
def test_columns_go_on(tmp_path: Path, stops: Sequence[int], workers: Sequence[int], seed: int, full_every: int | None) -> None:
    sent = changes(seed)
    expected, _ = run(built, sent, [], [1], None)
    assert len(expected) > 100
    assert run(built, sent, stops, workers, tmp_path, often=True, full_every=full_every)[0] == expected


def source(worker: timely.Worker, where: Path) -> tuple[Recovery, Any, Any]:
    recovery = Recovery(worker, where)
    with worker.dataflow(int) as scope:
        session, pairs = dd.new_collection(scope)
        arranged = pairs.arrange_by_key()
        arranged.as_collection().count_by_key().probe()
    session.advance_to(recovery.time or 0)
    return recovery, session, arranged


def test_a_million_whole_numbers(tmp_path: Path) -> None:
    """They are saved, and loaded again, in about a second; and a change is saved without them."""
    edges = np.random.default_rng(1).integers(0, 100_000, (2, 1_000_000))
    with timely.Worker() as worker:
        recovery, session, arranged = source(worker, tmp_path)
        session.insert_columns(*edges)
        session.advance_to(1)
        worker.step_while(lambda: not worker.idle)
        for epoch in (1, 2):  # first the log, then all of it
            session.advance_to(epoch)
            begin = process_time()
            recovery.checkpoint(epoch)
            assert process_time() - begin < 4
        whole = size(tmp_path)
        session.insert((1, 1))
        session.advance_to(3)
        begin = process_time()
        recovery.checkpoint(3)
        assert process_time() - begin < 0.5
        assert size(tmp_path) - whole < whole / 100
        entries = arranged.index.trace.entries()
        recovery.close()
        session.close()
    with timely.Worker() as worker:
        begin = process_time()
        recovery, session, arranged = source(worker, tmp_path)
        assert process_time() - begin < 4
        assert recovery.time == 3 and arranged.index.trace.entries() in (entries, entries - 1)
        recovery.close()
        session.close()
        worker.run()


@pytest.mark.parametrize("columns", [False, True])
def test_a_log_without_checkpoints_stays_small(tmp_path: Path, columns: bool) -> None:
    """What comes and goes between two checkpoints is not in the second."""
    sizes = []
    with timely.Worker() as worker:
        recovery, session, arranged = source(worker, tmp_path)
        for epochs in (2, 300):
            start = session.time
            for epoch in range(start, start + epochs):
                if columns:
                    session.insert_columns(range(200), range(200), diff=-1 if epoch % 2 else 1)
                else:
                    for key in range(40):
                        session.update((key, key), -1 if epoch % 2 else 1)
                session.advance_to(epoch + 1)
                worker.step_while(lambda: not worker.idle)
            before = size(tmp_path)
            recovery.checkpoint(session.time)
            sizes.append(size(tmp_path) - before)
        assert arranged.index.trace.entries() < 10_000
        recovery.close()
        session.close()
    assert sizes[1] < sizes[0] + 500_000


def test_a_log_of_a_hot_key(tmp_path: Path) -> None:
    """A key of many values, of which each checkpoint has some changes, is loaded once."""

    def program(epochs: int) -> tuple[float, Any]:
        begin = process_time()
        with timely.Worker() as worker, Recovery(worker, tmp_path) as recovery:
            with worker.dataflow(int) as scope:
                session, pairs = dd.new_collection(scope)
                least = pairs.min_by_key().output()
                total = pairs.sum_by_key().output()
            start = recovery.time or 0
            spent = process_time() - begin
            session.advance_to(start)
            if not start:
                session.insert_batch([("k", value) for value in range(20_000)])
            for epoch in range(start, start + epochs):
                for value in range(100):
                    session.remove(("k", 100 * epoch + value))
                session.advance_to(epoch + 1)
                recovery.checkpoint(epoch + 1)
            results = least.at(start + epochs - 1), total.at(start + epochs - 1)
            session.close()
            worker.run()
        return spent, results

    program(10)
    spent, results = program(1)
    assert spent < 2
    left = range(1100, 20_000)
    assert results == ({("k", 1100): 1}, {("k", sum(left)): 1})
