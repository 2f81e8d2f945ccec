"""Several runs at one store for as long as one likes: in every order, in random ones, and as processes that are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from tests.recovery.races import Scene, trail
from tests.recovery.test_races import KINDS, WHOLE
from tests.support.store_races import Guarantees, explore_stores, sample_stores

pytestmark = pytest.mark.soak
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("plan", [(1, 0), (1, 1)], ids=str)
@pytest.mark.parametrize("kind", [WHOLE, *KINDS], ids=lambda kind: kind.name)
def test_two_runs_in_every_order(kind: Guarantees, plan: tuple[int, int], cover: Callable[[int, str], None]) -> None:
    scene = Scene(plan, kind, retries=0)
    states = explore_stores(scene.make, scene.check, most=2_000_000)
    cover(states, f"states of two runs on {kind.name}, in")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_many_runs_in_random_orders(kind: Guarantees, soak_seconds: float, cover: Callable[[int, str], None]) -> None:
    end, races, states = time.monotonic() + soak_seconds / 3, 0, 0
    while time.monotonic() < end or races < 200:
        plan = [random.randrange(3) for _ in range(random.randrange(2, 6))]
        seed = random.randrange(2**32)
        scene = Scene(
            plan, kind, before=seed % 3, keep=1 + seed % 2, faults=random.choice([0, 0, 1, 3]), retries=random.randrange(4)
        )
        states += sample_stores(scene.make, scene.check, seed=seed, races=20)
        races += 20
    cover(races, f"races of two to five runs on {kind.name}, with {states:,} states, in")


RUN = """
import sys
from hashlib import sha256

from tests.recovery.races import commit, trail
from timely.errors import CheckpointError
from timely.recovery import LocalStore

place, token = sys.argv[1:]
try:
    recovery, handle, seen = trail(LocalStore(place), keep=2)
    while True:
        commit(recovery, handle, f"{token}.{len(seen)}")
        print(len(seen), sha256(",".join(seen).encode()).hexdigest(), flush=True)
except CheckpointError as error:
    if "has taken over" not in str(error):
        raise
"""


def test_two_processes_race_at_one_place_and_are_killed(
    tmp_path: Path, soak_seconds: float, cover: Callable[[int, str], None]
) -> None:
    """Each says how long what was acknowledged is, with its digest; what the last run finds begins with all of it."""
    wanted = int(os.environ.get("TIMELY_SOAK_KILLS", "500"))
    log = tmp_path / "log"
    running: list[subprocess.Popen[bytes]] = []
    kills = 0
    with log.open("ab") as out:
        while kills < wanted:
            while len(running) < 2:
                command = [sys.executable, "-c", RUN, str(tmp_path / "place"), str(kills)]
                env = {**os.environ, "PYTHONPATH": str(ROOT)}
                running.append(subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.PIPE))
            time.sleep(random.uniform(0.0, 1.2))
            victim = running.pop(random.randrange(2))
            victim.send_signal(signal.SIGKILL)
            _, errors = victim.communicate()
            assert victim.returncode in (0, -signal.SIGKILL), errors.decode()
            kills += 1
    for process in running:
        process.kill()
        process.communicate()
    last = trail(tmp_path / "place")[2]
    digest, digests = sha256(), [""]
    for number, value in enumerate(last):
        digest.update(f",{value}".encode() if number else value.encode())
        digests.append(digest.hexdigest())
    acknowledged = [line.split() for line in log.read_text().splitlines()]
    assert acknowledged
    for size, result in acknowledged:
        assert int(size) <= len(last) and result == digests[int(size)]
    cover(kills, f"kills of two racing processes, {len(acknowledged):,} acknowledged checkpoints, in")
