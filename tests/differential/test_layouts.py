"""A trace adds up to what was appended, whatever its entries are stored as.

White box: no program chooses how a delta is stored, nor when a reader sees it.
"""

from __future__ import annotations

from contextlib import ExitStack
from decimal import Decimal
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pytest

import timely
from timely import Product
from timely import differential as dd
from timely.differential.trace import trace_state
from timely.differential.trace.cursors import Cursor
from timely.differential.trace.deltas import RowDelta
from timely.differential.trace.entries import accumulate
from timely.differential.trace.trace import Trace
from timely.differential.trace.trace_limits import ChunkSizes, TraceLimits
from timely.errors import ChangedDataflowError
from timely.operators.keyed.merge_policy import EVERYTHING, GEOMETRIC, MergePolicy
from timely.progress import lattice
from timely.recovery import Recovery
from timely.testing.differential import accumulated, small_columns, tiny_memory

PAIR: Any = Product[int, int]

VALUES: dict[str, list[Any]] = {
    "ints": [0, 1, -5, 1 << 40],
    "arrow": [
        ("a", 0.0, Decimal("1.25")),
        ("a", -0.0, Decimal("1.25")),
        (None, 2.5, None),
        ("b", float("inf"), Decimal("-7.00")),
    ],
    "objects": ["a", ("b", 1), None, frozenset([2])],
}


def arrow_rows(changes: list[Any]) -> Any:
    pa, np = pytest.importorskip("pyarrow"), pytest.importorskip("numpy")
    from timely.differential.updates.row_columns import Fixed, KeyedRows, LazyColumn, RowColumns

    texts, floats, decimals = ([value[place] for (_, value), _ in changes] for place in range(3))
    scaled = pa.array([None if each is None else int(each.scaleb(2)) for each in decimals], pa.int64())
    columns = (LazyColumn(pa.array(texts, pa.string())), LazyColumn(pa.array(floats, pa.float64())), LazyColumn(Fixed(scaled, 2)))
    return KeyedRows(np.array([key for (key, _), _ in changes]), RowColumns(columns, len(changes), changes[0][1]))


def append(trace: Trace[Any], layout: str, time: Any, changes: list[Any], columns: bool) -> list[Any]:
    """Append changes of one difference, as columns where the layout has such, and return their deltas."""
    if not columns:
        deltas: Any = [RowDelta(changes)]
    elif layout == "arrow":
        deltas = trace.row_deltas(time, [arrow_rows(changes)])
    else:
        deltas = trace.deltas(time, [changes])
    return [trace.append(time, delta) for delta in deltas]


def at_or_after(random: Random, time: Any) -> Any:
    """Return a random time that is not before ``time``."""
    if isinstance(time, int):
        return time + random.randrange(3)
    return PAIR(*(coordinate + random.randrange(3) for coordinate in time))


def sums(changes: list[Any], key: Any, time: Any) -> dict[Any, int]:
    """Return the counts of the values of ``key`` at ``time``."""
    return {value: count for (each, value), count in accumulated(changes, time).items() if each == key}


@pytest.mark.parametrize("time", [int, PAIR], ids=["epochs", "pairs"])
@pytest.mark.parametrize("disk", [False, True], ids=["memory", "disk"])
@pytest.mark.parametrize("layout", VALUES)
@pytest.mark.parametrize("policy", [GEOMETRIC, EVERYTHING], ids=["geometric", "one run"])
@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 12), marks=pytest.mark.soak)], ids=str)
def test_a_trace_adds_up_to_what_was_appended(seeds: range, layout: str, disk: bool, time: Any, policy: MergePolicy) -> None:
    times = lattice(time)
    for seed in seeds:
        random = Random(seed)
        keys = [*range(6), -1, -2] if layout != "objects" else [-1, -2, "k", 2.5, (-1, -1), (-1, -2)]
        since = [times.domain.minimum]
        changes: list[Any] = []
        with ExitStack() as stack:
            stack.enter_context(small_columns(1))
            stack.enter_context(attrs.evolve(TraceLimits.current(), policy=policy))
            if disk:
                stack.enter_context(tiny_memory())
            trace: Trace[Any] = Trace(times, True, lambda: since)  # noqa: B023  # asked while it has this value
            reader: Cursor[Any] = Cursor(trace, times, lambda: since)  # noqa: B023
            unseen: list[Any] = []
            for _ in range(60):
                if random.random() < 0.2:
                    since = [at_or_after(random, since[0])]
                when = times.lub(at_or_after(random, times.domain.minimum), since[0])
                diff = random.choice((1, 1, -1, 2))
                records = {(random.choice(keys), random.choice(VALUES[layout])) for _ in range(random.randrange(1, 5))}
                part = [(record, diff) for record in records]
                for delta in append(trace, layout, when, part, columns=random.random() < 0.8):
                    changes += [(delta.number, record, when, diff) for record, diff in delta]
                    unseen.append((delta, when))
                random.shuffle(unseen)  # a reader sees deltas in any order
                while len(unseen) > random.randrange(4):
                    reader.see(*unseen.pop())
                trace.maintain(len(part))
                key, later = random.choice(keys), times.lub(since[0], when)
                assert accumulate(trace.history(key), later) == sums([change for _, *change in changes], key, later)
                waiting = [delta.number for delta, _ in unseen]
                seen = [change for number, *change in changes if number not in waiting]
                assert accumulate(reader.history(key), later) == sums(seen, key, later)
            every = [change for _, *change in changes]
            assert set(trace.keys()) >= {key for key, _ in accumulated(every, later)}
            trace.compact()
            for key in keys:
                assert accumulate(trace.history(key), later) == sums(every, key, later)


def test_arrow_rows_of_one_difference_and_type_are_one_delta() -> None:
    pytest.importorskip("pyarrow")
    changes = [((key, ("a", 0.5, Decimal(key))), diff) for diff in (1, -1) for key in (3, 1, 2)]
    batches = [arrow_rows(changes[:3]), arrow_rows(changes[3:]), arrow_rows(changes[:2])]
    few: Trace[Any] = Trace(lattice(int), True, lambda: [0])
    assert [sorted(delta) for delta in few.row_deltas(0, batches)] == [[changes[1], changes[0]]]  # as rows they cancel
    with TraceLimits(columns=8):
        trace: Trace[Any] = Trace(lattice(int), True, lambda: [0])
    deltas = list(trace.row_deltas(0, batches))
    assert [len(delta) for delta in deltas] == [5, 3]
    for delta in deltas:
        trace.append(0, delta)
    trace.compact()
    assert [sum(diff for _, _, diff in trace.history(key)) for key in (1, 2, 3)] == [1, 0, 1]


def test_large_differences_of_arrow_rows_add_up_exactly() -> None:
    pytest.importorskip("pyarrow")
    with attrs.evolve(TraceLimits.current(), patience=0, policy=EVERYTHING):
        trace: Trace[Any] = Trace(lattice(int), True, lambda: [0])
        for diff in (1 << 62, 1 << 62, 1 << 62, -1):
            for delta in trace.row_deltas(0, [arrow_rows([((1, ("a", 0.5, Decimal(1))), diff)])]):
                trace.append(0, delta)
            trace.settle()
    assert sum(diff for _, _, diff in trace.history(1)) == 3 * (1 << 62) - 1


def test_no_step_of_a_merge_copies_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pa, np = pytest.importorskip("pyarrow"), pytest.importorskip("numpy")
    from timely.differential.updates.row_columns import KeyedRows, LazyColumn, RowColumns

    rows, block = 5_000, 1_000
    copied = [0]
    concatenate = pa.concat_arrays

    def counting(arrays: Any) -> Any:
        copied[-1] += sum(map(len, arrays))
        return concatenate(arrays)

    with TraceLimits(row_chunks=ChunkSizes(portion=100, block=50, resident=block)):
        trace: Trace[Any] = Trace(lattice(int), True, lambda: [0])
    for start in (0, 1):
        numbers = np.arange(start, 2 * rows, 2)
        for delta in trace.row_deltas(0, [KeyedRows(numbers, RowColumns((LazyColumn(pa.array(numbers)),), rows))]):
            trace.append(0, delta)
    monkeypatch.setattr(pa, "concat_arrays", counting)
    while trace.maintain(0):
        copied.append(0)
    assert len(copied) > rows / 100
    assert rows < sum(copied) < 6 * rows
    assert max(copied) <= 2 * block
    assert [trace.history(key) for key in (0, 1, 999, 1_000, 2 * rows - 1)] == [
        [((key,), 0, 1)] for key in (0, 1, 999, 1_000, 2 * rows - 1)
    ]
    keys = np.array([5, 998, 1_003, 9_999, 20_000])
    matches = trace.matches(keys, trace.number, set())
    chosen = [chunk.keys[np.isin(chunk.keys, keys[some])].tolist() for some, chunk in matches.chunks]
    assert sorted(chain.from_iterable(chosen)) == [5, 998, 1_003, 9_999]


def test_a_trace_of_another_format_is_refused_by_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def counted(epoch: int) -> Any:
        """Insert a word at an epoch, and return the counts then."""
        worker = timely.Worker()
        with Recovery(worker, tmp_path) as recovery:
            with worker.dataflow(int) as scope:
                session, words = dd.new_collection(scope)
                output = words.count().output()
            session.advance_to(epoch)
            session.insert("word")
            session.advance_to(epoch + 1)
            recovery.checkpoint(epoch + 1)
            return output.at(epoch)

    assert counted(0) == {("word", 1): 1}
    number = trace_state.FORMAT
    monkeypatch.setattr(trace_state, "FORMAT", number + 1)
    with pytest.raises(ChangedDataflowError, match=rf"count#\d+: .* format {number}, and this .* format {number + 1}: use"):
        counted(1)
    monkeypatch.undo()
    assert counted(1) == {("word", 2): 1}
