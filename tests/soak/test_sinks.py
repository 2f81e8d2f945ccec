"""Sinks have each epoch once, whatever is killed at random moments of writing them.

``pytest -m soak -o faulthandler_timeout=0 tests/soak/test_sinks.py``; how many moments stands at the end of the run.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyarrow import parquet

from tests.spark.sinks import Row, StandInForDelta
from tests.spark.streams import Folder, expected

pytestmark = [pytest.mark.soak, pytest.mark.spark]

ROOT = Path(__file__).resolve().parents[2]
KILLS = 16

DRIVER = """
import json, sys, time
from pathlib import Path
from tests.spark.sinks import Both, Derby, StandInForDelta
from tests.spark.streams import COUNTS, WORDS, count_words
from timely.spark import DeltaSink, JdbcSink, ParquetSink, local_session, stream

folder, last = Path(sys.argv[1]), sys.argv[2] == "last"
session = local_session(3)
session.dataSource.register(StandInForDelta)
derby = Derby(session, str(folder / "derby"))
if not (folder / "ready").exists():
    derby.run("create table counts (word varchar(20), total bigint)")
    derby.run("create table newest (word varchar(20), total bigint)")
    (folder / "ready").touch()

class Noting:
    # A sink that notes when it begins and ends, around the others.
    def open(self, context):
        take = Both((
            ParquetSink(folder / "files"),
            JdbcSink(derby.url, "counts"),
            DeltaSink(folder / "delta"),
            JdbcSink(derby.url, "newest", keys=["word"]),
        )).open(context)

        def noting(epoch, tables):
            for moment, act in (("begins", lambda: take(epoch, tables)), ("ends", lambda: None)):
                with open(folder / "calls", "a") as calls:
                    calls.write(f"{moment} {epoch} {time.time()}\\n")
                act()

        return noting

words = session.readStream.schema(WORDS).option("maxFilesPerTrigger", 1).json(str(folder / "words")).where("n is not null")
handle = stream(count_words, {"words": words}, {"counts": COUNTS}, workers=1, foreach_epoch=Noting(),
                checkpoint=folder / "stream", checkpoint_every=3, trigger={"availableNow": True} if last else None)
handle.await_termination()
(folder / "rows").write_text(json.dumps({table: derby.rows(table) for table in ("counts", "newest")}))
"""


def noted(folder: Path, moment: str) -> list[tuple[int, float]]:
    """The epochs at whose writing this moment was reached, in order, each as often as it was, and when."""
    calls = folder / "calls"
    lines = calls.read_text().splitlines(keepends=True) if calls.exists() else []
    collected = [line.split() for line in lines if line.endswith("\n")]
    return [(int(epoch), float(at)) for each, epoch, at in collected if each == moment]


def test_drivers_that_are_killed_while_sinks_write(tmp_path: Path, cover: Callable[[int, str], None]) -> None:
    """The driver's Java ends with it: Derby lets one process at a time use a database."""
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    dice = random.Random(seed)
    words = Folder(tmp_path / "words")
    files = [[(f"file {file}", 1), *((dice.choice("abcdef"), dice.randrange(9)) for _ in range(12))] for file in range(3 * KILLS)]
    words.put(*files)
    for life in range(KILLS + 1):
        last = life == KILLS
        command = [sys.executable, "-c", DRIVER, str(tmp_path), "last" if last else ""]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(command, env=environment, start_new_session=True) as driver:
            if last:
                assert driver.wait() == 0
                break
            goal = len(noted(tmp_path, "begins")) + 1 + dice.randrange(2)
            while len(noted(tmp_path, "begins")) < goal:
                assert driver.poll() is None
                time.sleep(0.005)
            begins = dict(noted(tmp_path, "begins"))
            lengths = [at - begins[epoch] for epoch, at in noted(tmp_path, "ends")[-3:] if at > begins[epoch]]
            time.sleep(dice.random() * max(lengths, default=8.0))
            os.killpg(driver.pid, signal.SIGKILL)
            print(f"kill {life + 1} in epoch {noted(tmp_path, 'begins')[-1][0]}")
    begun_by = Counter(epoch for epoch, _ in noted(tmp_path, "begins"))
    cover(KILLS, "drivers killed while sinks wrote")
    cover(begun_by.total() - len(begun_by), "epochs written again")
    check(tmp_path, files)
    assert begun_by.total() > len(begun_by)


def check(folder: Path, files: list[list[tuple[str, int]]]) -> None:
    """Compare all sinks with what the stream must give; which files an epoch has is Spark's to say."""
    view = folder / "files" / "counts"
    by_name = {int(path.name.partition("=")[2]): rows(path) for path in view.glob("epoch=*")}
    assert sorted(by_name) == list(range(len(by_name)))
    epochs = [
        [pair for word, _ in by_name[epoch] if word.startswith("file ") for pair in files[int(word.split()[1])]]
        for epoch in range(len(by_name))
    ]
    assert sum(map(len, epochs)) == sum(map(len, files))
    assert by_name == expected(epochs)
    everything = sorted(row for each in by_name.values() for row in each)
    newest = {word: total for epoch in range(len(by_name)) for word, total in by_name[epoch]}
    tables = {name: [tuple(row) for row in rows] for name, rows in json.loads((folder / "rows").read_text()).items()}
    assert tables == {"counts": everything, "newest": sorted(newest.items())}
    assert StandInForDelta.rows(folder / "delta" / "counts") == everything


def rows(folder: Path) -> list[Row]:
    return sorted(tuple(row.values()) for path in folder.glob("*.parquet") for row in parquet.read_table(path).to_pylist())
