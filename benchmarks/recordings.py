"""Recordings and checkpoints beside what ``pickle`` takes for the same data: processor time, without waiting for the disk.

A recording has 10,000 batches of 100 numbers, or of 100 pairs of a text and a number, each at a time of its own, or a hundred at
each. By hand, a loop pickles each time with its batch into a file. Ours also feeds a dataflow and steps it for each time. It
frames, checks and replays what it recorded. A source of the same batches, and an input that nobody records, show what of that is
not the file. A checkpoint has a dictionary of values of 10 kB, of 300 bytes, and the same

again after one value has changed.
"""

from __future__ import annotations

import itertools
import pickle
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import timely
from benchmarks.measure import Measured
from benchmarks.report import Row
from timely import Capability, InputPort, OperatorInfo, OutputPort, Pipeline, ScopeBuilder, Stream
from timely.dataflow import route

BATCH = 100
ACTIVATION = 8
"""Batches that a plain source sends in an activation, as a replay does."""
WHAT = "record", "replay", "without a file: feed", "without a file: send"
Batches = list[list[Any]]


def by_hand(batches: Batches, each: int, path: Path) -> tuple[float, float]:
    """Return the seconds of writing and of reading a file of pickles."""
    start = time.process_time()
    with path.open("wb") as file:
        for number, batch in enumerate(batches):
            pickle.dump((number // each, batch), file, 5)
    written = time.process_time()
    count = 0
    with path.open("rb") as file:
        for _ in batches:
            _, batch = pickle.load(file)
            count += len(batch)
    assert count == BATCH * len(batches)
    return written - start, time.process_time() - written


def ours(batches: Batches, each: int, path: Path) -> tuple[float, float]:
    """Return the seconds of a run that records, and of one that replays."""
    return fed(batches, each, lambda stream: stream.capture_into(path)), counted(batches, lambda scope: scope.replay(path))


def without_a_file(batches: Batches, each: int) -> tuple[float, float]:
    """Return the seconds of the same runs without a recording: of one that counts its input, and of one with a plain source."""

    def constructor(capability: Capability[int], info: OperatorInfo) -> Callable[[OutputPort[int]], None]:
        numbered = iter(enumerate(batches))

        def logic(output: OutputPort[int]) -> None:
            for number, batch in itertools.islice(numbered, ACTIVATION):
                capability.downgrade(number // each)
                output.session(capability).give_batch(batch)
                if number == len(batches) - 1:
                    capability.drop()
                    return
            info.activator.activate()

        return logic

    fed_in = fed(batches, each, lambda stream: stream.sink(Pipeline, "count", Counting().constructor))
    return fed_in, counted(batches, lambda scope: scope.source("batches", constructor))


class Counting:
    """A sink that counts records."""

    def __init__(self) -> None:
        self.count = 0

    def constructor(self, info: OperatorInfo) -> Callable[[InputPort[int, Any]], None]:
        def logic(input: InputPort[int, Any]) -> None:
            for _, batch in input:
                self.count += len(batch)

        return logic


def fed(batches: Batches, each: int, end: Callable[[Stream[int, Any]], None]) -> float:
    """Return the seconds of a run that feeds the batches into a dataflow, and steps it for each time."""
    start = time.process_time()
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        end(stream)
    for number, batch in enumerate(batches):
        handle.send_batch(batch)
        if number % each == each - 1:
            handle.advance_to(number // each + 1)
            worker.step()
    handle.close()
    worker.run()
    return time.process_time() - start


def counted(batches: Batches, begin: Callable[[ScopeBuilder[int]], Stream[int, Any]]) -> float:
    """Return the seconds of a run that counts what a source sends."""
    start = time.process_time()
    worker, counting = timely.Worker(), Counting()
    with worker.dataflow(int) as scope:
        begin(scope).sink(Pipeline, "count", counting.constructor)
    worker.run()
    assert counting.count == BATCH * len(batches)
    return time.process_time() - start


def over_pickle(batches: Batches, each: int) -> tuple[float, float, float, float]:
    """Return how many times as long recording takes, and replaying; and how many times as long both take without a file."""
    with tempfile.TemporaryDirectory() as directory:
        theirs, mine = by_hand(batches, each, Path(directory, "hand")), ours(batches, each, Path(directory, "ours"))
    fed_in, sourced = without_a_file(batches, each)
    return mine[0] / theirs[0], mine[1] / theirs[1], fed_in / theirs[0], sourced / theirs[1]


def checkpoint(values: int, size: int) -> tuple[float, float, float]:
    """Return the seconds of a full checkpoint and of a later one over those of a pickle, and the part of bytes that wrote."""
    state = {number: b"%0*d" % (size, number) for number in range(values)}

    def register(info: OperatorInfo) -> None:
        info.register_state(lambda: ((route(key), (key, value)) for key, value in state.items()), state.update)

    with tempfile.TemporaryDirectory() as directory:
        start = time.process_time()
        with Path(directory, "hand").open("wb") as file:
            pickle.dump(state, file, 5)
        by_hand = time.process_time() - start
        worker = timely.Worker()
        with timely.Recovery(worker, Path(directory, "ours")) as recovery:
            with worker.dataflow(int) as scope:
                handle, stream = scope.new_input()
                stream.unary_notify(Pipeline, "state", [], lambda input, output, notificator: None, state=register)
            seconds, written = [], []
            for epoch in range(1, 5):
                state[epoch] = b"changed"
                handle.advance_to(epoch)
                start = time.process_time()
                written.append(recovery.checkpoint(epoch).bytes)
                seconds.append(time.process_time() - start)
    return seconds[0] / by_hand, seconds[3] / by_hand, written[3] / written[0]


def run(rounds: int = 5, quick: bool = False) -> list[Row]:
    """Return the rows of the report."""
    count = 500 if quick else 10_000
    kinds: dict[str, Batches] = {
        "numbers": [list(range(start, start + BATCH)) for start in range(0, BATCH * count, BATCH)],
        "pairs": [[(str(n % 50), n) for n in range(start, start + BATCH)] for start in range(0, BATCH * count, BATCH)],
    }
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for kind, batches in kinds.items():
            for each in (1, 100):
                for what, ratio in zip(WHAT, over_pickle(batches, each), strict=True):
                    name = f"{what} {count:,} batches of {BATCH} {kind}, {each} at a time, over pickle"
                    found.setdefault(name, []).append(ratio)
    rows = [Row(name, Measured(ratios), 4, 2, True) for name, ratios in found.items()]
    for values, size in ((50_000, 10_000), (1_000_000, 300)):
        values //= 100 if quick else 1
        full, later, part = checkpoint(values, size)
        name = f"checkpoint of {values:,} values of {size:,} bytes"
        rows += [
            Row(f"{name}: over pickle", full, 1.5, 1.1, True),
            Row(f"{name}: after one has changed, over pickle", later),
            Row(f"{name}: after one has changed, written of all", part, 0.05, 0.01, True),
        ]
    return rows
