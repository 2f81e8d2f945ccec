"""Other dataflow systems for Python side by side with this one: the same input, the same answer, in one run.

Every contestant is a program of its own (``benchmarks.words`` and its neighbours, ``benchmarks.contestants``), in a
process of its own, with the system that it is about in an environment that is made for it. It gets the input that all get, and
its answer is compared with that of a few lines by hand in every run, so nobody does less work. What can be batched is tried with
several sizes of batches first, ours and theirs, and runs with the one that it was quickest with. The ratios are of the seconds
from when everything is imported to when the answer is there, reading the input included; and of the seconds of the whole process
from its start to its end. Memory is the most that the process and its children hold, seen in a run that is not timed.
"""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from benchmarks import graphs
from benchmarks.contestants import by_hand
from benchmarks.contestants.told import ROUNDS, Task
from benchmarks.environments import CACHE, Unavailable, python_with
from benchmarks.measure import Measured
from benchmarks.report import Row
from benchmarks.watch import Watch

ROOT = Path(__file__).resolve().parents[1]

REQUIREMENTS = {"contestants.by_bytewax": "bytewax==0.21.1", "contestants.by_pathway": "pathway==0.33.0"}
"""What has to be installed for a contestant, where this project does not bring it along."""

BATCHES = (1_000, 10_000, 100_000)
"""Sizes of batches that are tried."""

TRIES = 3
"""How often each of several sizes is tried: the quickest run counts, as one by itself says little on a machine that is shared."""

FLOOR = 5.0
"""How many times longer bytewax must take for a word count, at least, in the same number of processes."""


@attrs.frozen
class Contestant:
    """A program that answers a question, in a module of ``benchmarks``."""

    name: str
    module: str
    program: str
    batches: Sequence[int] = (1_000,)
    input: str | None = None
    turns: int | None = None
    """In how many rounds it takes part, if not in all."""


@attrs.frozen
class Pair:
    """A comparison: how many times longer one contestant takes than another one, and what it should be."""

    ours: str
    theirs: str
    floor: float | None = None


@attrs.frozen
class Contest:
    """A question to some contestants: on which input, of how many units, and what the answer is."""

    name: str
    input: str
    units: int
    unit: str
    expected: Mapping[Any, float]
    contestants: Sequence[Contestant]
    pairs: Sequence[Pair]
    processes: int = 1


@attrs.frozen
class Outcome:
    """What a run took: seconds for the answer, for all of the process, and of processors; bytes, where they were looked at."""

    seconds: float
    whole: float
    processor: float
    peak: int = 0


def run(rounds: int = 5, *, quick: bool = False, long: bool = False) -> list[Row]:
    """Return the rows of all contests; with ``long`` also the graphs of a million edges, which take pathway minutes."""
    CACHE.mkdir(parents=True, exist_ok=True)
    rows = []
    for contest in contests(100 if quick else 1, long):
        rows += hold(_small(contest) if quick else contest, 1 if quick else rounds)
    return rows


def _small(contest: Contest) -> Contest:
    """Return a contest without what takes long whatever its input is, several sizes of batches and Spark, and without bars."""
    own = [attrs.evolve(c, batches=c.batches[:1]) for c in contest.contestants if c.module != "contestants.by_spark"]
    return attrs.evolve(contest, contestants=own, pairs=[attrs.evolve(pair, floor=None) for pair in contest.pairs])


def hold(contest: Contest, rounds: int) -> list[Row]:
    """Let all contestants answer in turn, in so many rounds, after trying out sizes of batches; return the rows."""
    ready: dict[Contestant, tuple[int, int]] = {}
    missing: dict[str, str] = {}
    for contestant in contest.contestants:
        try:
            ready[contestant] = _quickest_batch(contest, contestant)
        except Unavailable as error:
            missing[contestant.name] = str(error)
    outcomes: dict[str, list[Outcome]] = {contestant.name: [] for contestant in ready}
    for turn in range(rounds):
        for contestant in list(ready)[:: -1 if turn % 2 else 1]:
            if contestant.turns is None or turn < contestant.turns:
                outcomes[contestant.name].append(answer(contest, contestant, ready[contestant][0]))
    notes = {contestant.name: _note(contestant, *ready[contestant]) for contestant in ready}
    return list(_rows(contest, outcomes, notes, missing))


def _quickest_batch(contest: Contest, contestant: Contestant) -> tuple[int, int]:
    """Return the size of batches that a contestant is quickest with, and the bytes that it holds at most with it."""
    tries = 1 if len(contestant.batches) == 1 else TRIES
    tried = {batch: [answer(contest, contestant, batch, watch=True) for _ in range(tries)] for batch in contestant.batches}
    best = min(tried, key=lambda batch: min(outcome.seconds for outcome in tried[batch]))
    return best, max(outcome.peak for outcome in tried[best])


def answer(contest: Contest, contestant: Contestant, batch: int, *, watch: bool = False) -> Outcome:
    """Run a contestant once. ``AssertionError`` if the answer is another one than expected, or there is none."""
    python = python_with(REQUIREMENTS[contestant.module]) if contestant.module in REQUIREMENTS else sys.executable
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "answer.json"
        command = [python, "-m", f"benchmarks.{contestant.module}", contestant.program, contestant.input or contest.input]
        command += [str(path), "--processes", str(contest.processes), "--batch", str(batch)]
        environment = {**os.environ, "PATHWAY_THREADS": str(contest.processes)}
        start, before = time.perf_counter(), _processor_time()
        process = subprocess.Popen(command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if watch:
            with Watch(process.pid) as watched:
                out, err = process.communicate()
        else:
            out, err = process.communicate()
        whole = time.perf_counter() - start
        who = f"{contest.name}: {contestant.name}, batches of {batch}"
        assert process.returncode == 0, f"{who} failed:\n{err[-2000:]}"
        check(json.loads(path.read_text()), contest.expected, who)
    told = json.loads(out.splitlines()[-1])
    outcome = Outcome(told["seconds"], whole - told["warm_up"], _processor_time() - before, watched.peak if watch else 0)
    print(f"{who}: {outcome.seconds:.2f} s, whole process {whole:.2f} s", file=sys.stderr, flush=True)
    return outcome


def _processor_time() -> float:
    """Return the seconds that processors have spent on processes that this one has started, as far as they have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def check(found: Iterable[tuple[Any, float]], expected: Mapping[Any, float], who: str) -> None:
    """Raise ``AssertionError`` unless the rows have what is expected for each key; several rows of one key are added up."""
    sums: dict[Any, float] = {}
    for key, value in found:
        sums[key] = sums.get(key, 0) + value
    assert sums.keys() == expected.keys(), f"{who}: {len(sums)} keys, and not the {len(expected)} that were expected"
    wrong = [key for key, value in sums.items() if not math.isclose(value, expected[key], rel_tol=1e-9)]
    assert not wrong, f"{who}: {len(wrong)} keys have another value, among them {wrong[0]!r}: {sums[wrong[0]]!r}"


def _note(contestant: Contestant, batch: int, peak: int) -> str:
    parts = [f"batches of {batch:,}"] if len(contestant.batches) > 1 else []
    return ", ".join([*parts, f"{peak / 1e6:,.0f} MB"])


def _rows(
    contest: Contest, outcomes: Mapping[str, Sequence[Outcome]], notes: Mapping[str, str], missing: Mapping[str, str]
) -> Iterable[Row]:
    seconds, whole, processor = (
        {name: Measured(getattr(outcome, what) for outcome in found) for name, found in outcomes.items()}
        for what in ("seconds", "whole", "processor")
    )
    for contestant in contest.contestants:
        name = contestant.name
        title = f"{contest.name}: {name}, {contest.unit}/s"
        if name in missing:
            yield Row(title, None, note=missing[name])
        else:
            yield Row(title, contest.units / seconds[name], note=f"{notes[name]}; whole process {whole[name]:.2f} s")
    for pair in contest.pairs:
        if {pair.ours, pair.theirs} <= seconds.keys():
            title = f"{contest.name}: {pair.theirs} over {pair.ours}"
            yield Row(title, seconds[pair.theirs] / seconds[pair.ours], pair.floor)
            in_processor_time = processor[pair.theirs] / processor[pair.ours]
            note = f"in processor time {in_processor_time:.2g}"
            yield Row(f"{title}, whole process", whole[pair.theirs] / whole[pair.ours], 1, note=note)


# The contests.


def contests(fewer: int, long: bool) -> Iterable[Contest]:
    """Return all contests, on inputs that are so many times smaller than those that the bars are for."""
    for processes in (1, 2):
        yield _word_count(200_000 // fewer, processes)
    yield _map_filter_map(1_000_000 // fewer)
    for batch in (1, 10, 100, 1_000):
        yield _small_batches(100_000 // fewer, batch)
    for processes in (1, 2):
        yield _sum_by_key(1_000_000 // fewer, processes)
        yield _exchange(1_000_000 // fewer, processes)
    yield from _graphs(1_000_000 if long else 100_000 // fewer, long)


def _in_processes(name: str, processes: int) -> str:
    return f"{name}, {processes} process{'es' if processes > 1 else ''}"


def _word_count(lines: int, processes: int) -> Contest:
    file = _words(lines)
    contestants = [
        Contestant("ours on records", "words", "word_count", BATCHES),
        Contestant("ours with all words exchanged", "words", "word_count_exchanged", BATCHES),
        Contestant("ours with batches counted by hand", "words", "word_count_by_batch", BATCHES),
        Contestant("ours on columns", "words_columns", "word_count", BATCHES),
        Contestant("ours on columns with all words exchanged", "words_columns", "word_count_exchanged", BATCHES),
        Contestant("bytewax", "contestants.by_bytewax", "word_count", BATCHES),
        Contestant("bytewax as documented, by 1,000", "contestants.by_bytewax", "word_count_as_documented", (1_000,)),
        Contestant("bytewax with batches counted by hand", "contestants.by_bytewax", "word_count_by_batch", BATCHES),
        Contestant("pathway", "contestants.by_pathway", "word_count", turns=3),
        Contestant("Spark", "contestants.by_spark", "word_count", turns=3),
    ]
    if processes == 1:
        contestants.append(Contestant("one Counter", "contestants.by_hand", "word_count"))
    pairs = [
        Pair("ours on records", "bytewax", FLOOR),
        Pair("ours on columns", "bytewax", FLOOR),
        Pair("ours on records", "bytewax as documented, by 1,000"),
        Pair("ours with batches counted by hand", "bytewax with batches counted by hand"),
        Pair("ours on columns", "bytewax with batches counted by hand"),
        Pair("ours with all words exchanged", "bytewax"),
        Pair("ours on records", "pathway"),
        Pair("ours on columns", "Spark"),
        Pair("ours on records", "one Counter"),
    ]
    expected = dict(by_hand.word_count(Task(file)))
    name = _in_processes(f"word count, {lines:,} lines", processes)
    return Contest(name, file, 10 * lines, "words", expected, contestants, pairs, processes)


def _map_filter_map(numbers: int) -> Contest:
    contestants = [
        Contestant("ours on records", "words", "map_filter_map", BATCHES),
        Contestant("ours with map_batch", "words", "map_filter_map_by_batch", BATCHES),
        Contestant("ours on arrays", "words_columns", "map_filter_map", BATCHES),
        Contestant("bytewax", "contestants.by_bytewax", "map_filter_map", BATCHES),
        Contestant("bytewax with flat_map_batch", "contestants.by_bytewax", "map_filter_map_by_batch", BATCHES),
        Contestant("pathway", "contestants.by_pathway", "map_filter_map", input=_numbers(numbers), turns=3),
        Contestant("Spark", "contestants.by_spark", "map_filter_map", turns=3),
        Contestant("comprehensions", "contestants.by_hand", "map_filter_map"),
    ]
    pairs = [
        Pair("ours on records", "bytewax"),
        Pair("ours with map_batch", "bytewax with flat_map_batch"),
        Pair("ours on records", "pathway"),
        Pair("ours on arrays", "Spark"),
        Pair("ours on records", "comprehensions"),
    ]
    expected = dict(by_hand.map_filter_map(Task(str(numbers))))
    return Contest(f"map, filter, map, {numbers:,} numbers", str(numbers), numbers, "numbers", expected, contestants, pairs)


def _small_batches(numbers: int, batch: int) -> Contest:
    contestants = [
        Contestant("ours on records", "words", "map_filter_map", (batch,)),
        Contestant("ours with a step for 100 batches", "words", "map_filter_map_seldom", (batch,)),
        Contestant("bytewax", "contestants.by_bytewax", "map_filter_map", (batch,)),
    ]
    expected = dict(by_hand.map_filter_map(Task(str(numbers))))
    name = f"map, filter, map, batches of {batch:,}, {numbers:,} numbers"
    pairs = [Pair("ours on records", "bytewax"), Pair("ours with a step for 100 batches", "bytewax")]
    return Contest(name, str(numbers), numbers, "numbers", expected, contestants, pairs)


def _sum_by_key(numbers: int, processes: int) -> Contest:
    contestants = [
        Contestant("ours with reduce_by_key", "words", "sum_by_key", BATCHES),
        Contestant("ours with aggregate", "words", "sum_by_key_exchanged", BATCHES),
        Contestant("ours on columns", "words_columns", "sum_by_key", BATCHES),
        Contestant("bytewax", "contestants.by_bytewax", "sum_by_key", BATCHES),
        Contestant("pathway", "contestants.by_pathway", "sum_by_key", input=_numbers(numbers), turns=3),
        Contestant("Spark", "contestants.by_spark", "sum_by_key", turns=3),
    ]
    pairs = [
        Pair("ours with reduce_by_key", "bytewax"),
        Pair("ours with aggregate", "bytewax"),
        Pair("ours with reduce_by_key", "pathway"),
        Pair("ours on columns", "Spark"),
    ]
    expected = dict(by_hand.sum_by_key(Task(str(numbers))))
    name = _in_processes(f"sums by key, {numbers:,} numbers", processes)
    return Contest(name, str(numbers), numbers, "numbers", expected, contestants, pairs, processes)


def _exchange(numbers: int, processes: int) -> Contest:
    contestants = [
        Contestant("ours on records", "words", "exchange", BATCHES),
        Contestant("ours on arrays", "words_columns", "exchange", BATCHES),
        Contestant("bytewax by no key", "contestants.by_bytewax", "exchange", BATCHES),
    ]
    expected = dict(by_hand.exchange(Task(str(numbers))))
    name = _in_processes(f"exchange, {numbers:,} numbers", processes)
    pairs = [Pair("ours on records", "bytewax by no key"), Pair("ours on arrays", "bytewax by no key")]
    return Contest(name, str(numbers), numbers, "numbers", expected, contestants, pairs, processes)


def _graphs(edges: int, long: bool) -> Iterable[Contest]:
    nodes = edges // 10
    graph = graphs.random_graph(nodes, edges)
    file = _cached(f"edges-{edges}.csv", lambda: _csv("src,dst", zip(*(graph[name].to_pylist() for name in ("src", "dst")))))
    asked: list[tuple[str, str, Any]] = [
        ("breadth-first search", "breadth_first_search", graphs.distances_by_hand),
        ("components", "components", graphs.components_by_hand),
    ]
    if long:
        asked.append((f"PageRank, {ROUNDS} rounds", "ranks", partial(graphs.ranks_by_hand, rounds=ROUNDS)))
    for title, program, algorithm in asked:
        found = graphs.by_hand(algorithm, graph, nodes)
        expected = dict(zip(*(column.to_pylist() for column in found.columns)))
        contestants = [
            Contestant("ours", "words_graphs", program),
            Contestant("pathway", "contestants.by_pathway", program, turns=1 if long else 3),
        ]
        name = f"{title}, {edges:,} edges"
        yield Contest(name, file, edges, "edges", expected, contestants, [Pair("ours", "pathway")])


# The inputs.


def _cached(name: str, make: Callable[[], str]) -> str:
    """Return the path of a file in the cache, which is made if it is not there."""
    path = CACHE / name
    if not path.exists():
        new = path.with_suffix(".new")
        new.write_text(make())
        new.replace(path)
    return str(path)


def _words(lines: int) -> str:
    """Return a file of lines of ten words each; of ten thousand words, the n-th comes 1/n times as often as the first."""

    def make() -> str:
        weights = 1 / np.arange(1, 10_001)
        drawn = np.random.default_rng(1).choice(10_000, (lines, 10), p=weights / weights.sum())
        words = np.array([f"word{number}" for number in range(10_000)])
        return "".join(" ".join(line) + "\n" for line in words[drawn].tolist())

    return _cached(f"words-{lines}.txt", make)


def _numbers(numbers: int) -> str:
    """Return a file of the numbers from 0 up, for those who read them from one."""
    return _cached(f"numbers-{numbers}.csv", lambda: _csv("x", ((x,) for x in range(numbers))))


def _csv(header: str, rows: Iterable[tuple[Any, ...]]) -> str:
    return "".join([f"{header}\n", *(",".join(map(str, row)) + "\n" for row in rows)])
