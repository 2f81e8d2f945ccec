"""Operators with state by key, beside the same work by hand: joins, windows and sessions, and words that are all exchanged.

Every figure is of the processor's time, and every result is looked at. ``join``: as many rows on either side, of whole numbers,
one side with each key once; by hand one dictionary of lists is built and looked up, and on columns Arrow joins the tables.
``windows``: one event a window, and sessions of one event, a thousand events before the frontier moves. On columns a million
events are counted and summed, one a window, or a thousand a window for a hundred keys. Windows that end in the same 2^20 event
times leave together. polars has the same columns, its windows by ``group_by_dynamic`` and its sessions by hand. ``words``: each
word goes to the process of its checksum and is counted there; the ratio is of words for each second of the processor, of both
processes together.
"""

from __future__ import annotations

import functools
import gc
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

import timely
from benchmarks.measure import in_turn
from benchmarks.report import Row
from timely.operators.keyed.windows import sessions, tumbling, windows

PAIRS, ROWS, EVENTS, LINES = 300_000, 1_000_000, 100_000, 40_000
BATCH, CHUNK, GAP = 10_000, 1_000, 3

Timed = Callable[[], float]


def _clean(work: Timed) -> Timed:
    """Return the work, begun without the garbage of the one before."""

    def timed() -> float:
        gc.collect()
        return work()

    return timed


@functools.cache
def _pairs() -> tuple[list[Any], list[Any]]:
    chance = random.Random(1)
    once = list(zip(chance.sample(range(PAIRS), PAIRS), range(PAIRS), strict=True))
    return once, [(chance.randrange(PAIRS), number) for number in range(PAIRS)]


def _join_by_hand() -> float:
    left, right = _pairs()
    start = time.process_time()
    table: dict[int, list[int]] = {}
    for key, value in left:
        table.setdefault(key, []).append(value)
    found = [(key, (one, value)) for key, value in right for one in table.get(key, ())]
    seconds = time.process_time() - start
    assert len(found) == PAIRS
    return seconds


def _join(lefts: list[Any], rights: list[Any], count: int, **options: Any) -> float:
    """Return the seconds of a join of batches, of both sides in turn, a step after each two."""
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        (left, one), (right, two) = scope.new_input(), scope.new_input()
        found = one.join(two, **options).capture()
    start = time.process_time()
    for pair in zip(lefts, rights, strict=True):
        for handle, batch in zip((left, right), pair, strict=True):
            handle.send_batch(batch)
        worker.step()
    left.close()
    right.close()
    worker.run()
    seconds = time.process_time() - start
    assert sum(len(batch) for _, batch in found.messages) == count
    return seconds


def _join_by_record() -> float:
    left, right = ([side[at : at + BATCH] for at in range(0, PAIRS, BATCH)] for side in _pairs())
    return _join(left, right, PAIRS)


@functools.cache
def _tables() -> tuple[pa.Table, pa.Table]:
    chance = np.random.default_rng(1)
    numbers = np.arange(ROWS)
    keys = chance.permutation(ROWS), chance.integers(0, ROWS, ROWS)
    return pa.table({"k": keys[0], "l": numbers}), pa.table({"k": keys[1], "r": numbers})


def _join_by_arrow() -> float:
    left, right = _tables()
    start = time.process_time()
    found = left.join(right, "k", join_type="inner", use_threads=False)
    seconds = time.process_time() - start
    assert len(found) == ROWS
    return seconds


def _join_on_columns() -> float:
    left, right = (table.to_batches(max_chunksize=1 << 16) for table in _tables())
    return _join(left, right, ROWS, on="k")


@functools.cache
def _events() -> list[list[int]]:
    chance = random.Random(1)
    events = [10 * number + chance.randrange(10 - GAP) for number in range(EVENTS)]
    return [events[at : at + CHUNK] for at in range(0, EVENTS, CHUNK)]


def _windows(assign: Callable[[Any], Any]) -> float:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        complete, _ = assign(stream)
        found = complete.capture()
    start = time.process_time()
    for events in _events():
        handle.send_batch(events)
        handle.advance_to(events[-1] // 10 * 10)
        worker.step()
    handle.close()
    worker.run()
    seconds = time.process_time() - start
    assert sum(len(batch) for _, batch in found.messages) == EVENTS
    return seconds


def _windows_by_hand() -> float:
    start = time.process_time()
    found = []
    held: dict[tuple[None, int], list[int]] = {}
    for events in _events():
        for event in events:
            held.setdefault((None, event // 10), []).append(event)
        frontier = events[-1] // 10
        for key, number in [place for place in held if place[1] < frontier]:
            found.append((10 * number + 10, (key, (10 * number, 10 * number + 10), held.pop((key, number)))))
    found += [(10 * n + 10, (key, (10 * n, 10 * n + 10), records)) for (key, n), records in held.items()]
    seconds = time.process_time() - start
    assert len(found) == EVENTS
    return seconds


def _sessions_by_hand() -> float:
    start = time.process_time()
    found = []
    held: dict[None, list[Any]] = {}
    for events in _events():
        for event in events:
            session = held.get(None)
            if session is not None and event < session[1]:
                session[1] = event + GAP
                session[2].append(event)
                continue
            if session is not None:
                found.append((session[1], (None, (session[0], session[1]), session[2])))
            held[None] = [event, event + GAP, [event]]
    found += [(session[1], (None, (session[0], session[1]), session[2])) for session in held.values()]
    seconds = time.process_time() - start
    assert len(found) == EVENTS
    return seconds


@functools.cache
def _measured(per_window: int) -> pa.Table:
    """Return a million events in order, for windows of ten."""
    chance = np.random.default_rng(1)
    at = 10 * (np.arange(ROWS) // per_window) + (chance.integers(0, 10 - GAP, ROWS) if per_window == 1 else 0)
    return pa.table({"at": at, "value": chance.integers(0, 100, ROWS), "key": chance.integers(0, 100, ROWS)})


def _on_columns(table: pa.Table, build: Callable[..., Any]) -> tuple[float, int]:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        found = build(stream, at="at", rows="count", total=("value", "sum"))[0].capture()
    batches = table.to_batches(max_chunksize=1 << 16)
    start = time.process_time()
    for batch in batches:
        handle.send_batch(batch)
        handle.advance_to(batch["at"][-1].as_py() >> 20)
        worker.step()
    handle.close()
    worker.run()
    return time.process_time() - start, sum(len(batch) for _, batch in found.messages)


def _windows_on_columns(per_window: int, key: str | None) -> float:
    def build(stream: Any, **columns: Any) -> Any:
        return windows(stream, tumbling(10), key=key, due=lambda ends, time: (ends >> 20) + 1, **columns)

    seconds, count = _on_columns(_measured(per_window), build)
    assert count == len(_by_polars(per_window, key))
    return seconds


def _sessions_on_columns() -> float:
    seconds, count = _on_columns(
        _measured(1), lambda s, **columns: sessions(s, GAP, due=lambda ends: (ends >> 20) + 1, **columns)
    )
    assert count == ROWS
    return seconds


def _frame(per_window: int) -> pl.DataFrame:
    frame = pl.from_arrow(_measured(per_window))
    assert isinstance(frame, pl.DataFrame)
    return frame.set_sorted("at")


def _by_polars(per_window: int, key: str | None) -> pl.DataFrame:
    windows = _frame(per_window).group_by_dynamic("at", every="10i", group_by=key)
    return windows.agg(pl.len().alias("rows"), pl.col("value").sum().alias("total"))


def _windows_by_polars(per_window: int, key: str | None) -> float:
    start = time.process_time()
    _by_polars(per_window, key)
    return time.process_time() - start


def _sessions_by_polars() -> float:
    frame = _frame(1)
    start = time.process_time()
    number = (pl.col("at").diff() >= GAP).fill_null(value=True).cum_sum()
    ends = (pl.col("at").max() + GAP).alias("end")
    columns = pl.col("at").min(), ends, pl.len().alias("rows"), pl.col("value").sum().alias("total")
    found = frame.group_by(number.alias("session")).agg(*columns)
    seconds = time.process_time() - start
    assert len(found) == ROWS
    return seconds


@functools.cache
def _lines() -> list[list[str]]:
    chance = random.Random(1)
    drawn = iter(chance.choices([f"word{n}" for n in range(10_000)], [1 / (n + 1) for n in range(10_000)], k=10 * LINES))
    lines = [" ".join(ten) for ten in zip(*[drawn] * 10, strict=True)]
    return [lines[at : at + BATCH // 10] for at in range(0, LINES, BATCH // 10)]


def _words(worker: timely.Worker) -> tuple[float, Counter[str]]:
    """Count words, each where its checksum says; return the seconds and this worker's counts."""
    counts: Counter[str] = Counter()
    batches = _lines()[worker.index :: worker.peers]
    start = time.process_time()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        words = stream.flat_map(str.split).exchange(lambda word: word)
        words.inspect_batch(lambda _, batch: counts.update(batch))
    for batch in batches:
        handle.send_batch(batch)
        worker.step()
    handle.close()
    worker.run()
    return time.process_time() - start, counts


def _exchanged_words(processes: int) -> float:
    found = timely.execute(_words, processes=processes)
    words = Counter(word for lines in _lines() for line in lines for word in line.split())
    assert sum((counts for _, counts in found), Counter()) == words
    return sum(seconds for seconds, _ in found)


def rows(rounds: int) -> list[Row]:
    """Run everything in turn, and return the rows."""
    _lines()  # made now, they need not be in each of the processes
    works = {
        "dict": _join_by_hand,
        "join": _join_by_record,
        "Arrow": _join_by_arrow,
        "columns": _join_on_columns,
        "windows by hand": _windows_by_hand,
        "windows": lambda: _windows(lambda events: windows(events, tumbling(10), at=lambda event: event)),
        "sessions by hand": _sessions_by_hand,
        "sessions": lambda: _windows(lambda events: sessions(events, GAP, at=lambda event: event)),
        "windows on columns": lambda: _windows_on_columns(1, None),
        "windows by polars": lambda: _windows_by_polars(1, None),
        "keyed windows on columns": lambda: _windows_on_columns(1000, "key"),
        "keyed windows by polars": lambda: _windows_by_polars(1000, "key"),
        "sessions on columns": _sessions_on_columns,
        "sessions by polars": _sessions_by_polars,
        "words, 1": lambda: _exchanged_words(1),
        "words, 2": lambda: _exchanged_words(2),
    }
    took = in_turn({name: _clean(work) for name, work in works.items()}, rounds)
    return [
        Row("join by record, against a dict by hand", took["join"] / took["dict"], 1.5, 1.1, less=True),
        Row("join by columns, against Arrow's", took["columns"] / took["Arrow"], 2, 1.2, less=True),
        Row("tumbling windows of one event, against a dict by hand", took["windows"] / took["windows by hand"], 3, less=True),
        Row("sessions of one event, against a dict by hand", took["sessions"] / took["sessions by hand"], 3, less=True),
        *(
            Row(f"{name} on columns, against polars", took[f"{work} on columns"] / took[f"{work} by polars"], 1, 0.7, less=True)
            for name, work in [
                ("tumbling windows of one event", "windows"),
                ("tumbling windows by key", "keyed windows"),
                ("sessions of one event", "sessions"),
            ]
        ),
        Row("every word exchanged, two processes over one, per processor second", took["words, 1"] / took["words, 2"], 0.7, 0.9),
    ]
