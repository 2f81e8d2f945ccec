"""A view on Spark whose workers and drivers are killed at random moments has each change in its folder once.

``pytest -m soak tests/soak/test_maintain.py``; how many moments stands at the end of the run.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from tests.spark.feeds import FeedFolder, Row, Shop, apply

pytestmark = [pytest.mark.soak, pytest.mark.spark]

ROOT = Path(__file__).resolve().parents[2]
DRIVERS = 4
PER_LIFE = 4

DRIVER = """
import sys, threading, time
from pathlib import Path
from tests.spark.feeds import CHANGES, CUSTOMERS, QUERY, FeedFolder
from timely.differential.spark import changes, maintain, upserts
from timely.spark import local_session

folder = Path(sys.argv[1])
session = local_session(3)
customers = FeedFolder(folder / "customers").read(session, CUSTOMERS + ", call long")
inputs = {
    "orders": changes(FeedFolder(folder / "orders").read(session, CHANGES), keys=["id"]),
    # Two of its files may come in one micro-batch, after a kill.
    "customers": upserts(customers, keys=["id"], deleted="gone", order_by="call"),
}
handle = maintain(
    QUERY,
    inputs,
    folder / "view",
    checkpoint=folder / "checkpoint",
    workers=2,
    checkpoint_every=2,
    patience=5.0,
    trigger={"availableNow": True} if sys.argv[2] == "last" else None,
)

def note():
    while True:
        aside = folder / ".pids"
        aside.write_text(" ".join(map(str, handle.pids.values())))
        aside.rename(folder / "pids")
        time.sleep(0.05)

threading.Thread(target=note, daemon=True).start()
handle.await_termination()
"""


def epochs_of(view: Path) -> int:
    return len(list(view.glob("epoch=*")))


def test_workers_and_drivers_that_are_killed_at_random_moments(tmp_path: Path, cover: Callable[[int, str], None]) -> None:
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    dice, shop = random.Random(seed), Shop(seed)
    orders, customers, view = FeedFolder(tmp_path / "orders"), FeedFolder(tmp_path / "customers"), tmp_path / "view"
    results: list[Counter[Row]] = []
    for _ in range(PER_LIFE * (DRIVERS + 1)):
        orders.put(shop.order_changes(6))
        customers.put(shop.customer_calls(2))
        results.append(shop.result())
    kills = 0
    for life in range(DRIVERS + 1):
        last = life == DRIVERS
        (tmp_path / "pids").unlink(missing_ok=True)
        command = [sys.executable, "-c", DRIVER, str(tmp_path), "last" if last else ""]
        with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}) as driver:
            goal, killed_at = epochs_of(view) + 1 + dice.randrange(PER_LIFE), -1
            while driver.poll() is None and (last or epochs_of(view) < goal):
                time.sleep(0.05)
                # With an epoch in between, since four losses in a row end the stream.
                if dice.random() < 0.05 and epochs_of(view) > killed_at and kill_one(tmp_path / "pids", dice):
                    kills, killed_at = kills + 1, epochs_of(view)
            if last:
                assert driver.returncode == 0
            else:
                assert driver.returncode is None
                time.sleep(dice.random() * 0.7)
                driver.kill()
    cover(kills, "workers killed")
    cover(DRIVERS, "drivers killed")
    # Which files make a micro-batch is Spark's to say: after a kill it may have two files of one feed and one of the other.
    result = Counter[Row]()
    for epoch in range(epochs_of(view)):
        apply(result, epoch, rows(view, epoch))
    assert result == results[-1]


def rows(view: Path, epoch: int) -> list[Row]:
    table = parquet.ParquetDataset(sorted(map(str, (view / f"epoch={epoch}").glob("*.parquet")))).read()
    collected = [tuple(row.values()) for row in table.to_pylist()]
    return sorted((row[:5] for row in collected), key=lambda row: str(row[3]))


def kill_one(pids: Path, dice: random.Random) -> bool:
    """Kill one of the workers that a driver has noted; return whether there was one."""
    noted = pids.read_text().split() if pids.exists() else []
    if noted:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(dice.choice(noted)), signal.SIGKILL)
            return True
    return False
