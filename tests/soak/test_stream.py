"""Streams whose workers and drivers are killed at random moments give what a stream gives that nobody touches.

``pytest -m soak tests/soak/test_stream.py``; how many moments stands at the end of the run.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.streams import COUNTS, Folder, Row, Taker, count_words, expected
from timely.spark import StreamHandle, local_session, stream

pytestmark = [pytest.mark.soak, pytest.mark.spark]

ROOT = Path(__file__).resolve().parents[2]
KILLS = 20
DRIVERS = 6
Words = list[tuple[str, int]]


@pytest.fixture
def session() -> Iterator[SparkSession]:
    session = local_session(3)
    yield session
    session.stop()


def some_words(dice: random.Random) -> Words:
    return [(dice.choice("abcdefgh"), dice.randrange(100)) for _ in range(dice.randrange(0, 40))]


def test_workers_that_are_killed_at_random_moments(
    session: SparkSession, tmp_path: Path, soak_seconds: float, cover: Callable[[int, str], None]
) -> None:
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    dice = random.Random(seed)
    words, epochs = Folder(tmp_path / "words"), [some_words(dice)]
    words.put(*epochs)

    def arrive(epoch: int) -> None:
        if not enough.is_set():
            epochs.append(some_words(dice))
            words.put(epochs[-1])

    enough = threading.Event()
    take = Taker(on_epoch=arrive)
    handle = stream(
        count_words,
        inputs={"words": words.read(session)},
        outputs={"counts": COUNTS},
        workers=2,
        foreach_epoch=take,
        checkpoint=tmp_path / "stream",
        checkpoint_every=3,
        patience=3.0,
    )
    kills = kill_workers(handle, random.Random(seed + 1), time.monotonic() + soak_seconds)
    enough.set()
    while handle.is_active and handle.epoch + 1 < len(epochs):
        time.sleep(0.05)
    handle.stop()
    handle.await_termination()
    cover(kills, "workers killed")
    assert take.epochs == list(range(len(epochs)))
    assert take.of("counts") == expected(epochs)
    assert kills >= KILLS


def kill_workers(handle: StreamHandle, dice: random.Random, end: float) -> int:
    """Kill a worker, or stop it for good, now and then: at any moment, but with an epoch in between. Return how many."""
    kills = 0
    while handle.is_active and (kills < KILLS or time.monotonic() < end):
        before = handle.epoch
        while handle.is_active and handle.epoch == before:
            time.sleep(0.01)
        time.sleep(dice.random() * 1.5)
        pids = list(handle.pids.values())
        if pids:
            victim = dice.choice(pids)
            os.kill(victim, signal.SIGSTOP if dice.random() < 0.2 else signal.SIGKILL)
            kills += 1
    return kills


DRIVER = """
import json, os, sys
from pathlib import Path
from tests.spark.streams import COUNTS, count_words, WORDS
from timely.spark import local_session, stream

folder = Path(sys.argv[1])

def take(epoch, tables):
    rows = sorted(tuple(row) for row in tables["counts"].collect())
    with open(folder / "calls", "a") as calls:
        calls.write(json.dumps([epoch, rows]) + "\\n")

session = local_session(3)
words = session.readStream.schema(WORDS).option("maxFilesPerTrigger", 1).json(str(folder / "words")).where("n is not null")
handle = stream(count_words, {"words": words}, {"counts": COUNTS}, workers=2, foreach_epoch=take,
                checkpoint=folder / "stream", checkpoint_every=3)
handle.await_termination()
"""


def test_drivers_that_are_killed_at_random_moments(tmp_path: Path, cover: Callable[[int, str], None]) -> None:
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    dice = random.Random(seed)
    words, files = Folder(tmp_path / "words"), [[*some_words(dice), (f"file {file}", 1)] for file in range(6 * DRIVERS)]
    words.put(*files)
    calls = tmp_path / "calls"
    for life in range(DRIVERS + 1):
        goal = len(files) if life == DRIVERS else min(len(files) - 1, len(contents(calls)) + 1 + dice.randrange(6))
        command = [sys.executable, "-c", DRIVER, str(tmp_path)]
        with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}) as driver:
            while driver.poll() is None and len(contents(calls)) < goal:
                time.sleep(0.01)
            assert driver.returncode is None
            time.sleep(dice.random() * 0.5)
            driver.kill()
    # A micro-batch may have two files, where Spark was killed between noting a file and noting its micro-batch.
    result = contents(calls)
    assert sorted(result) == list(range(len(files)))
    epochs: list[Words] = [[] for _ in range(max(result.values()) + 1)]
    for file, epoch in result.items():
        epochs[epoch] += files[file]
    seen = handed(calls)
    assert [epoch for epoch, _ in seen] == sorted(epoch for epoch, _ in seen)
    assert all(rows == expected(epochs)[epoch] for epoch, rows in seen)
    again = Counter(epoch for epoch, _ in seen)
    assert sorted(again) == list(range(len(epochs)))
    assert max(again.values()) <= 2
    cover(DRIVERS, "drivers killed")
    cover(len(seen) - len(again), "epochs handed over again")


def handed(calls: Path) -> list[tuple[int, list[Row]]]:
    """Each epoch that was handed over, with its rows."""
    lines = calls.read_text().splitlines(keepends=True) if calls.exists() else []
    whole = [json.loads(line) for line in lines if line.endswith("\n")]
    return [(epoch, [tuple(row) for row in rows]) for epoch, rows in whole]


def contents(calls: Path) -> dict[int, int]:
    """The epoch of each file that has been handed over."""
    return {int(row[0].split()[1]): epoch for epoch, rows in handed(calls) for row in rows if row[0].startswith("file ")}
