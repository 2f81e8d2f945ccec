"""What the fault tests run: a dataflow with all kinds of state over the epochs of a graph, and saboteurs who spoil it.

The dataflow is Debian's graph of who requires whom, cut into epochs. Its outputs at each epoch are determined by its inputs up to
there, so that two runs can be compared row by row. A ``state_machine`` has how many packages require a package so far, and a
``join`` who requires what through one other. A loop has the names of connected components that are new, by an operator of our
own, which keeps labels for all epochs.
"""

from __future__ import annotations

import bisect
import os
import random
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

import timely
from timely.cli.debian import requirements as required
from timely.dataflow import route

Streams = dict[str, timely.Stream[int, Any]]
Row = tuple[Any, ...]
EPOCHS = 24
SCHEMA = "what string, epoch long, a string, b string"
COLUMNS = ["what", "epoch", "a", "b"]


def requirements(session: SparkSession, rows: int, epochs: int = EPOCHS) -> DataFrame:
    """Return ``rows`` of the rows ``(epoch, package, requires)`` of Debian's graph, always the same."""
    pairs = [(row["package"], row["requires"]) for row in required("depends").to_pylist()]
    held = random.Random(rows).sample(pairs, rows)
    rows_of = [(place % epochs, *pair) for place, pair in enumerate(held)]
    return session.createDataFrame(rows_of, "epoch int, package string, requires string")


# -- the dataflow ----------------------------------------------------------------------------------------------------------


class Labels:
    """The least label that reaches each node by each epoch, as far as is known: of each node a falling staircase of them."""

    def __init__(self) -> None:
        self.stairs: dict[str, list[tuple[int, str]]] = {}
        self.neighbours: dict[str, list[tuple[int, str]]] = {}

    def better(self, node: str, epoch: int, label: str) -> bool:
        """Take in that ``label`` reaches ``node`` by ``epoch``; return whether that is news."""
        steps = self.stairs.setdefault(node, [])
        at = bisect.bisect_right(steps, epoch, key=lambda step: step[0])
        if at and steps[at - 1][1] <= label:
            return False
        begin = at - 1 if at and steps[at - 1][0] == epoch else at
        end = begin
        while end < len(steps) and steps[end][1] >= label:
            end += 1
        steps[begin:end] = [(epoch, label)]
        return True

    def save(self) -> Iterator[tuple[int, Any]]:
        for node in {**self.stairs, **self.neighbours}:
            yield route(node), (node, self.stairs.get(node, []), self.neighbours.get(node, []))

    def load(self, items: Any) -> None:
        for node, steps, neighbours in items:
            self.stairs[node], self.neighbours[node] = list(steps), list(neighbours)


def spread(edges: Any, news: Any) -> Any:
    """Return ``(node, label)``, inside a loop, for what reaches a neighbour of the node that has a new label, or a new edge."""

    def constructor(capability: Any, info: timely.OperatorInfo) -> Callable[[Any, Any, Any], object]:
        labels = Labels()
        info.register_state(labels.save, labels.load)

        def give(output: Any, held: Any, collected: list[tuple[int, str, str]]) -> None:
            by_epoch: dict[int, list[tuple[str, str]]] = {}
            for epoch, node, label in collected:
                by_epoch.setdefault(epoch, []).append((node, label))
            for epoch, records in by_epoch.items():
                output.session(held.delayed(timely.Product(epoch, held.time.inner))).give_many(records)

        def logic(edges: Any, news: Any, output: Any) -> None:
            for held, batch in edges:
                collected = []
                for node, neighbour in batch:
                    epoch = held.time.outer
                    labels.neighbours.setdefault(node, []).append((epoch, neighbour))
                    if labels.better(node, epoch, node):
                        collected.append((epoch, node, node))
                    collected += [(max(epoch, since), neighbour, label) for since, label in labels.stairs[node]]
                give(output, held, collected)
            for held, batch in news:
                collected = []
                for node, label in batch:
                    epoch = held.time.outer
                    if labels.better(node, epoch, label):
                        for since, neighbour in labels.neighbours.get(node, ()):
                            collected.append((max(epoch, since), neighbour, label))
                give(output, held, collected)

        return logic

    return edges.binary(news, by_node(), by_node(), "spread", constructor)


def by_node() -> Any:
    return timely.Exchange(lambda pair: pair[0])


def components(edges: Any, every: Callable[[Any], Any]) -> Any:
    """Return ``(epoch, node, component)`` for each node that has another component than before, named by its least node."""
    both = edges.flat_map(lambda edge: [edge, edge[::-1]])
    with both.scope.iterative() as loop:
        handle, again = loop.feedback()
        result = spread(both.enter(loop), every(again))
        result.connect_loop(handle)
        labels = result.leave()
    least = labels.aggregate(lambda node, label, best: min(label, best or label), lambda node, best: (node, best))
    return stamped(least.state_machine(renamed))


def renamed(node: str, now: str, before: str | None) -> tuple[str, list[tuple[str, str]]]:
    return (now, [(node, now)]) if before is None or now < before else (before, [])


def stamped(pairs: Any) -> Any:
    """Return ``(epoch, *pair)``."""

    def constructor(capability: Any, info: timely.OperatorInfo) -> Callable[[Any, Any], object]:
        info.declare_stateless()

        def logic(input: Any, output: Any) -> None:
            for held, batch in input:
                output.session(held).give_many((held.time, *pair) for pair in batch)

        return logic

    return pairs.unary(timely.Pipeline, "stamped", constructor)


def building(saboteur: Saboteur | None = None) -> Callable[..., Streams]:
    """Return the build function of the dataflow, with somebody in it who may spoil the run."""

    def build(scope: timely.ScopeBuilder[int], requirements: timely.Stream[int, Any]) -> Streams:
        spoil = saboteur.plant if saboteur is not None else lambda stream, where: stream
        edges = spoil(requirements.map_batch(pairs_of), "input")
        counts = edges.map(lambda edge: (edge[1], 1)).state_machine(count_up)
        through = edges.map(lambda edge: (edge[1], edge[0])).join(edges)
        tables = {
            "required": stamped(counts),
            "through": stamped(through.map(lambda pair: pair[1])),
            "component": components(edges, lambda stream: spoil(stream, "loop")),
        }
        parts = [table.map_batch(lambda rows, what=what: as_batch(what, rows)) for what, table in tables.items()]
        return {"all": parts[0].concat(parts[1]).concat(parts[2])}

    return build


def pairs_of(batch: pa.RecordBatch) -> list[tuple[str, str]]:
    return list(zip(batch["package"].to_pylist(), batch["requires"].to_pylist(), strict=True))


def count_up(name: str, one: int, count: int | None) -> tuple[int, list[tuple[str, str]]]:
    total = (count or 0) + one
    return total, [(name, str(total))]


def as_batch(what: str, rows: list[tuple[int, str, str]]) -> pa.RecordBatch:
    columns = [[what] * len(rows), *([row[place] for row in rows] for place in range(3))]
    return pa.RecordBatch.from_pydict(dict(zip(COLUMNS, columns, strict=True)))


def outcome(frame: DataFrame) -> Counter[Row]:
    """Return the rows of an output, with how often each came."""
    return Counter(tuple(row) for row in frame.collect())


# -- who spoils it ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class Saboteur:
    """Does ``deed`` when so many containers have come by a ``place`` of the dataflow on worker ``victim``: once, or every time.

    Places are ``"input"``, ``"loop"``, and ``"save"``, where checkpoints are counted that are being written. ``notes`` is a
    directory where it notes what it did, which process was which worker, and how many rows each took in. Deeds are ``"raise"``;
    ``"full"``, after which the process can write no large file; ``"wait"``, for something that never comes; ``"count"``, which
    counts; ``"daemon"``, which kills the parent of the process, ``"executor"`` the parent of that; and the names of signals.
    """

    notes: Path
    deed: str
    place: str = "loop"
    after: int = 1
    victim: int = 0
    again: bool = False

    def plant(self, stream: Any, place: str) -> Any:
        """Return ``stream`` as it is, with the saboteur looking at it, if this is the place."""

        def constructor(capability: Any, info: timely.OperatorInfo) -> Callable[[Any, Any], object]:
            mine = self.place == place and self.victim == info.worker
            seen = 0
            name = f"{info.worker}-{os.getpid()}"
            if TaskContext.get() is not None:  # else the driver looks at what build returns
                (self.notes / f"worker-{name}").touch()
                limit_files(resource.RLIM_INFINITY)  # the process may have been a worker before

            def come() -> None:
                nonlocal seen
                seen += 1
                if self.deed == "count":
                    note(self.notes / f"count-{place}", ".")
                elif mine and seen == self.after:
                    self.act()

            def save() -> list[Any]:
                if self.place == "save":
                    come()
                return []

            mine = mine or (place == "loop" and self.place == "save" and self.victim == info.worker)
            info.register_state(save, list)

            def logic(input: Any, output: Any) -> None:
                for held, batch in input:
                    if place == "input":
                        note(self.notes / f"rows-{name}", f"{len(batch)}\n")
                    if self.place != "save":
                        come()
                    output.session(held).give_batch(batch)

            return logic

        return stream.unary(timely.Pipeline, f"look at {place}", constructor)

    def act(self) -> None:
        """Do it, unless it was done."""
        if not self.again:
            try:
                with self._note.open("x") as note:
                    note.write(str(os.getpid()))
            except FileExistsError:
                return
        if self.deed == "raise":
            raise RuntimeError("sabotage")
        if self.deed == "full":
            limit_files(1000)
        elif self.deed == "daemon":
            os.kill(os.getppid(), signal.SIGKILL)
        elif self.deed == "executor":
            os.kill(parent_of(os.getppid()), signal.SIGKILL)
        elif self.deed == "wait":
            while True:
                time.sleep(1)
        else:
            os.kill(os.getpid(), signal.Signals[self.deed])

    @property
    def _note(self) -> Path:
        return self.notes / f"done-{self.deed}-{self.place}-{self.after}-{self.victim}"

    @property
    def acted(self) -> bool:
        """Whether it was done."""
        return self._note.exists()

    @property
    def acted_by(self) -> int:
        """The process that did it."""
        return int(self._note.read_text())

    def count(self, place: str) -> int:
        """Return how many containers have come by a place on all workers, where the deed is to count them."""
        file = self.notes / f"count-{place}"
        return file.stat().st_size if file.exists() else 0

    def rows(self) -> int:
        """Return how many rows all attempts have taken in."""
        return sum(int(line) for file in self.notes.glob("rows-*") for line in file.read_text().split())

    def pids(self) -> set[int]:
        """Return the processes that have been workers."""
        return {int(note.name.rpartition("-")[2]) for note in self.notes.glob("worker-*")}


def limit_files(size: int) -> None:
    """Have this process write no file that is larger."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def note(file: Path, text: str) -> None:
    """Add something to a file that several processes may write to."""
    with file.open("a") as opened:
        opened.write(text)


def parent_of(pid: int) -> int:
    """Return the parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def alive(pid: int) -> bool:
    """Return whether a process is there and is not just waiting to be forgotten."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
