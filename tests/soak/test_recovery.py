"""Recovery for as long as one likes: processes killed at fresh random moments, and a state of several hundred megabytes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.recovery.test_races import check_kills

pytestmark = pytest.mark.soak
ROOT = Path(__file__).resolve().parents[2]


def test_nothing_is_lost_and_nothing_comes_twice(tmp_path: Path, soak_seconds: float, cover: Callable[[int, str], None]) -> None:
    end = time.monotonic() + soak_seconds
    kills = resumed = 0
    while time.monotonic() < end or kills < 50:
        seed = random.randrange(2**32)
        died, begun = check_kills(tmp_path / str(seed), seed, kills=10)
        kills += died
        resumed += begun
    cover(kills, f"kills, before {resumed} of which there was a new checkpoint to go on from, in")


LARGE = """
import sys

import timely
from timely.recovery import Recovery
from timely.monitor.memory import record_memory as peak

directory, millions = sys.argv[1], int(sys.argv[2])


def table(capability, info):
    state = {}
    info.register_state(lambda: ((key, (key, value)) for key, value in state.items()), state.update)
    capability.drop()

    def logic(input, output):
        for cap, batch in input:
            state.update((key, b"%0300d" % key) for key in range(sum(batch)))

    found.append(state)
    return logic


found = []
worker = timely.Worker()
bare = peak()
with Recovery(worker, directory) as recovery:
    with worker.dataflow() as scope:
        handle, stream = scope.new_input()
        stream.unary(timely.Pipeline, "table", table)
    if recovery.time is None:
        handle.send(1_000_000 * millions)
    handle.advance_to(1)
    while worker.step() and not worker.idle:
        pass
    state = peak() - bare
    taken = recovery.checkpoint(1)
    (table,) = found
    assert len(table) == 1_000_000 * millions
    assert all(table[key] == b"%0300d" % key for key in range(0, len(table), 997))
    print(taken.bytes, state, peak() - bare)
"""


def test_a_large_state_is_never_doubled_in_memory(tmp_path: Path, cover: Callable[[int, str], None]) -> None:
    """Neither when it is written nor when it is taken back: memory grows by little more than the state needs by itself."""
    sizes = []
    for _ in range(2):
        command = [sys.executable, "-c", LARGE, str(tmp_path), "1"]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        sizes.append([int(word) for word in done.stdout.split()])
    (written, state, with_writing), (_, restored, again) = sizes
    assert written > 300_000_000
    assert with_writing < 1.3 * state
    assert restored < 1.3 * state
    assert again < 1.3 * state
    cover(max(with_writing, again), f"bytes at the peak, for a state of {state:,} bytes, {written:,} in files, in")
