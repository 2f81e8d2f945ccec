"""Distances in a graph whose edges move, in pathway: a program of its own, run by ``benchmarks.differential``.

Arguments: a folder with ``src.npy`` and ``dst.npy``, the number of nodes, the number of moves. It prints one line of JSON: the
seconds from the first commit until the distances have come out (``load``), and the median for a move of one edge (``change``).
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pathway as pw

FAR = 1 << 40


class Edge(pw.Schema):  # type: ignore[misc]
    """An edge, by its number."""

    number: int = pw.column_definition(primary_key=True)
    src: int
    dst: int


class Moves(pw.io.python.ConnectorSubject):  # type: ignore[misc]
    """Sends the edges in one commit, and then moves one edge in each."""

    def __init__(self, folder: Path, nodes: int, moves: int) -> None:
        super().__init__()
        self._src, self._dst = np.load(folder / "src.npy").tolist(), np.load(folder / "dst.npy").tolist()
        self._nodes, self._moves = nodes, moves
        self.output = threading.Event()
        self.last = 0.0
        self.seconds: list[float] = []

    def run(self) -> None:
        """Send, and wait for each commit to come out."""
        for number, (src, dst) in enumerate(zip(self._src, self._dst, strict=True)):
            self.next(number=number, src=src, dst=dst)
        self._commit()
        rng = random.Random(3)
        for _ in range(self._moves):
            number = rng.randrange(len(self._src))
            self.delete(number=number, src=self._src[number], dst=self._dst[number])
            self._src[number], self._dst[number] = rng.randrange(self._nodes), rng.randrange(self._nodes)
            self.next(number=number, src=self._src[number], dst=self._dst[number])
            self._commit()

    def _commit(self) -> None:
        self.output.clear()
        begun = time.perf_counter()
        self.commit()
        if self.output.wait(timeout=600):
            self.seconds.append(time.perf_counter() - begun)


def main(folder: str, nodes: str, moves: str) -> None:
    """Run the program."""
    subject = Moves(Path(folder), int(nodes), int(moves))
    edges = pw.io.python.read(subject, schema=Edge, autocommit_duration_ms=None)
    ends = edges.select(node=pw.this.src).concat_reindex(edges.select(node=pw.this.dst))
    known = ends.groupby(pw.this.node).reduce(pw.this.node).with_id_from(pw.this.node)
    ways = edges.select(src=known.pointer_from(edges.src), dst=known.pointer_from(edges.dst))

    def step(found: Any, ways: Any) -> Any:
        offers = ways.select(node=ways.dst, hops=found.ix(ways.src).hops + 1).filter(pw.this.hops <= FAR)
        same = found.select(node=found.id, hops=found.hops)
        best = same.concat_reindex(offers).groupby(id=pw.this.node).reduce(hops=pw.reducers.min(pw.this.hops))
        return {"found": best.with_universe_of(found), "ways": ways}

    start = known.select(hops=pw.if_else(known.node == 0, 0, FAR))
    found = pw.iterate(step, found=start, ways=ways).found
    # What comes out for a commit has to come after its distances, and to change whether or not they do.
    moved = edges.reduce(total=pw.reducers.sum(1_000_003 * pw.this.src + pw.this.dst))
    reached = found.reduce(hops=pw.reducers.sum(pw.this.hops % FAR))
    both = moved.join(reached).select(moved.total, reached.hops)
    pw.io.subscribe(both, lambda key, row, time, is_addition: None, on_time_end=lambda time: subject.output.set())
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    print(json.dumps({"load": subject.seconds[0], "change": statistics.median(subject.seconds[1:])}))


if __name__ == "__main__":
    main(*sys.argv[1:])
