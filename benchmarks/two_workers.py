"""Two workers against one, in two processes, and against what two processes reach that do the same by hand on shared memory.

Word count: Arrow columns of lines are split, and the words counted by ``group_by``. PageRank: 20 rounds on random graphs. Each
worker has its half of the input from the beginning, and waits until the other is ready too; the time is from the first one's
start to the last one's end. In each round the processes do it once, which does not count (``benchmarks.graphs``), and then a few
times, of which the median counts, since what else the machine has to do shows in what takes so short. By hand nothing is looked
up (nodes are numbers already), what goes to the other is written to memory that both see, and a process that waits for the other
does nothing but look: it is what the machine's two processors and the memory between them allow. All answers are checked.
"""

from __future__ import annotations

import mmap
import os
import statistics
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import timely
from benchmarks.graphs import ROUNDS, by_hand, by_workers, check, random_graph, ranks_by_hand
from benchmarks.measure import Measured, in_turn
from benchmarks.report import Row
from timely.graphs import pagerank

Numbers: TypeAlias = npt.NDArray[Any]
Half: TypeAlias = Callable[["Together"], object]

LINES, VOCABULARY, BATCH = 400_000, 10_000, 1 << 14
OFTEN = 7
"""How often to do in each round what takes a tenth of a second; what takes a second is done once."""


class Together:
    """Two processes that do halves of one thing: what both see, and where one waits for the other."""

    def __init__(self) -> None:
        self.index = 0
        self._turn = 0
        self._turns = self.shared(16, np.int64)

    def shared(self, length: int, kind: Any = np.float64) -> Numbers:
        """Return an array of zeros that both processes see; to be called before there are two."""
        return np.frombuffer(mmap.mmap(-1, max(length, 1) * np.dtype(kind).itemsize), kind, length)

    def meet(self) -> None:
        """Wait until the other one has come as far."""
        self._turn += 1
        self._turns[8 * self.index] = self._turn
        while self._turns[8 * (1 - self.index)] < self._turn:
            pass

    def run(self, half: Half, times: int = 1) -> float:
        """Return the seconds in which two processes do ``half``: the median of so many times, after a first one."""
        seconds = []
        child = os.fork()
        self.index = int(child == 0)
        try:
            for _ in range(1 + times):
                self.meet()
                start = time.perf_counter()
                half(self)
                self.meet()
                seconds.append(time.perf_counter() - start)
        finally:
            if child == 0:
                os._exit(0)
        os.waitpid(child, 0)
        return statistics.median(seconds[1:])


# -- word count --------------------------------------------------------------------------------------------------------


def lines() -> list[pa.RecordBatch]:
    """Return lines of ten words each, the same ones each time."""
    drawn = np.random.default_rng(1).zipf(1.2, 10 * LINES) % VOCABULARY
    words = pa.array([f"word{number}" for number in range(VOCABULARY)]).take(pa.array(drawn))
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(np.arange(0, 10 * LINES + 1, 10, dtype=np.int32)), words), " ")
    table = pa.Table.from_arrays([joined], ["line"])
    return list(table.to_batches(max_chunksize=BATCH))


def words_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the words of the lines."""
    return pa.record_batch({"word": pc.list_flatten(pc.split_pattern(batch.column("line"), " "))})


def count_by_workers(batches: list[pa.RecordBatch], processes: int, times: int = 1) -> tuple[float, dict[str, int]]:
    """Return the seconds, the median of so many times, and how often there is each word."""

    def once(worker: timely.Worker) -> tuple[float, float, list[pa.RecordBatch]]:
        worker.all_gather(None)
        start = time.perf_counter()
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            counts = stream.map_batch(words_of).group_by("word", number="count").capture()
        for batch in batches[worker.index :: worker.peers]:
            handle.send_batch(batch)
            worker.step()
        handle.close()
        worker.run()
        return start, time.perf_counter(), [batch for _, batch in counts.messages]

    def program(worker: timely.Worker) -> list[tuple[float, float, list[pa.RecordBatch]]]:
        once(worker)
        return [once(worker) for _ in range(times)]

    runs = list(zip(*timely.execute(program, processes=processes), strict=True))
    found = [row for *_, batches in runs[-1] for batch in batches for row in zip(*batch.to_pydict().values(), strict=True)]
    assert len(found) == len(dict(found)), "a word has two counts"
    return statistics.median(max(end for _, end, _ in run) - min(start for start, _, _ in run) for run in runs), dict(found)


def count_by_hand(batches: list[pa.RecordBatch]) -> dict[str, int]:
    """Count with Arrow's functions, batch by batch."""
    tables = [pc.value_counts(words_of(batch).column("word")).flatten() for batch in batches]
    table = pa.concat_tables([pa.table(columns, ["word", "number"]) for columns in tables])
    return dict(zip(*table.group_by("word").aggregate([("number", "sum")]).to_pydict().values(), strict=True))


# -- PageRank ----------------------------------------------------------------------------------------------------------


def ranks_alone(src: Numbers, dst: Numbers, nodes: int) -> Numbers:
    """PageRank by hand in one process, as the two do it."""
    degrees = np.bincount(src, minlength=nodes)
    loose, degrees = degrees == 0, np.maximum(degrees, 1)
    ranks, given = np.full(nodes, 1 / nodes), np.empty(len(src))
    for _ in range(ROUNDS):
        np.take(ranks / degrees, src, out=given, mode="clip")
        ranks = 0.15 / nodes + 0.85 * (np.bincount(dst, given, nodes) + ranks[loose].sum() / nodes)
    return ranks


class Ranks:
    """PageRank by two processes, each of which has half of the edges, and then those that start at its half of the nodes."""

    def __init__(self, together: Together, src: Numbers, dst: Numbers, nodes: int) -> None:
        self._ends = np.vstack((src, dst))
        self._nodes, self._half = nodes, nodes // 2
        self._sent = [together.shared(2 * len(src), np.int64) for _ in range(2)]
        self._counts = together.shared(2, np.int64)
        self._sums = [together.shared(self._half) for _ in range(2)]
        self._loose = together.shared(2)
        self.ranks = together.shared(nodes)

    def __call__(self, together: Together) -> None:
        """Do this process's half."""
        me, other, half = together.index, 1 - together.index, self._half
        mine, its = (slice(index * half, (index + 1) * half) for index in (me, other))
        sources, targets = self._deal(together)
        sources -= mine.start
        degrees = np.bincount(sources, minlength=half)
        loose, degrees = degrees == 0, np.maximum(degrees, 1)
        ranks, given = np.full(half, 1 / self._nodes), np.empty(len(sources))
        for _ in range(ROUNDS):
            np.take(ranks / degrees, sources, out=given, mode="clip")
            sums = np.bincount(targets, given, self._nodes)
            self._sums[me][:] = sums[its]
            self._loose[me] = ranks[loose].sum()
            together.meet()
            ranks = 0.15 / self._nodes + 0.85 * (sums[mine] + self._sums[other] + self._loose.sum() / self._nodes)
            together.meet()
        self.ranks[mine] = ranks

    def _deal(self, together: Together) -> Numbers:
        """Return the edges that start at this process's nodes, after having given the other those of its nodes."""
        me, other = together.index, 1 - together.index
        ends = self._ends[:, me::2]
        goes = (ends[0] >= self._half) != bool(me)
        leaving, staying = ends.compress(goes, axis=1), ends.compress(~goes, axis=1)
        self._sent[me][: leaving.size] = leaving.ravel()
        self._counts[me] = leaving.shape[1]
        together.meet()
        came = int(self._counts[other])
        return np.hstack((staying, self._sent[other][: 2 * came].reshape(2, came)))


def ranks_of(edges: pa.RecordBatch) -> tuple[Together, Ranks]:
    """Return what runs PageRank by hand in two processes, after a look at whether it is right."""
    nodes = len(edges) // 10
    src, dst = (edges.column(name).to_numpy() for name in ("src", "dst"))
    together = Together()
    ranks = Ranks(together, src, dst, nodes)
    together.run(ranks)
    assert np.allclose(ranks.ranks, ranks_alone(src, dst, nodes), rtol=1e-9, atol=0)
    return together, ranks


# -- what is measured --------------------------------------------------------------------------------------------------


def run(rounds: int = 5, quick: bool = False) -> list[Row]:
    """Return the speed-ups. What is large comes after all the rest, whose processes would be forked from a large one."""
    found: dict[str, Measured] = {}
    for edges in [100_000] if quick else [1_000_000, 10_000_000]:
        works: dict[str, Callable[[], float]] = {}
        times = OFTEN if not found else 1
        _add_ranks(works, f"PageRank, {ROUNDS} rounds, {edges / 1e6:g} M edges", random_graph(edges // 10, edges), times)
        if not found:
            _add_words(works, "columnar word count", times)
        found |= in_turn(works, rounds)
    rows = []
    for name in dict.fromkeys(name.rpartition(": ")[0] for name in found if ": " in name):
        one, two, alone, together = (found[f"{name}: {kind}"] for kind in ("one", "two", "one by hand", "two by hand"))
        floor, aim = (None, None) if quick else (1.6, 1.9)
        rows.append(Row(f"{name}: two workers against one", one / two, floor, aim, note=f"one: {one:.3f} s"))
        rows.append(Row(f"{name}: the same by hand, on shared memory", alone / together, note=f"one: {alone:.3f} s"))
    return rows


def _add_ranks(works: dict[str, Callable[[], float]], name: str, edges: pa.RecordBatch, times: int) -> None:
    nodes = len(edges) // 10
    expected = by_hand(ranks_by_hand, edges, nodes)
    src, dst = (edges.column(name).to_numpy() for name in ("src", "dst"))
    together, ranks = ranks_of(edges)

    def build(stream: timely.Stream[int, Any]) -> timely.Stream[int, Any]:
        return pagerank(stream, rounds=ROUNDS)

    for kind, processes in (("one", 1), ("two", 2)):
        check(by_workers(build, edges, processes)[1], expected)
        works[f"{name}: {kind}"] = lambda processes=processes: by_workers(build, edges, processes, times)[0]  # type: ignore[misc]
    works[f"{name}: one by hand"] = _timed(lambda: ranks_alone(src, dst, nodes), times)
    works[f"{name}: two by hand"] = lambda: together.run(ranks, times)


def _add_words(works: dict[str, Callable[[], float]], name: str, times: int) -> None:
    batches = lines()
    expected = count_by_hand(batches)
    together = Together()
    for kind, processes in (("one", 1), ("two", 2)):
        assert count_by_workers(batches, processes)[1] == expected
        works[f"{name}: {kind}"] = lambda processes=processes: count_by_workers(batches, processes, times)[0]  # type: ignore[misc]
    works[f"{name}: one by hand"] = _timed(lambda: count_by_hand(batches), times)
    works[f"{name}: two by hand"] = lambda: together.run(lambda both: count_by_hand(batches[both.index :: 2]), times)


def _timed(work: Callable[[], object], times: int) -> Callable[[], float]:
    def once() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    def seconds() -> float:
        once()
        return statistics.median(once() for _ in range(times))

    return seconds
