"""The control plane of the compiled package beside that of the pure one: what :mod:`benchmarks.control` runs, in both in turn.

The compiled package is built from this checkout by ``TIMELY_COMPILE=1 pip wheel``, in a copy that is kept for as long as the
source stays the same (:mod:`tests.compiled`). Every round runs each workload in a process of its own for either, the one first
in one round and the other in the next; a ratio is that of two figures of one round. Between two processes the clock tells mostly
on which processors the system has put them, and how soon it wakes who sleeps, so that their processor time is given as well.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import timely
from benchmarks.control import barrier, event_driven, nested, pingpong
from benchmarks.measure import REFERENCE_LOOP, YARDSTICK, Measured, empty_loop
from benchmarks.report import Row
from tests.compiled import ROOT, NotCompiled, compiled_copy, environment
from timely import Worker

CHAIN = 1000
TURNS = 10_000

_Program = Callable[[Worker], float]


def _best(program: _Program) -> float:
    """Return the seconds per unit of the quickest of three runs."""
    return min(timely.execute(program)[0] for _ in range(3))


def _between_two(program: _Program, units: int) -> tuple[float, float]:
    """Return the seconds per unit on two processes, by the clock and of both processors together: each the best of three runs."""

    def timed(worker: Worker) -> tuple[float, float]:
        begun = time.process_time()
        return program(worker), time.process_time() - begun

    runs = [timely.execute(timed, processes=2) for _ in range(3)]
    return min(max(clock for clock, _ in run) for run in runs), min(sum(used for _, used in run) for run in runs) / units


def measure() -> dict[str, float]:
    """Return the seconds per unit of each workload, in the package that this process has imported."""
    clock, used = _between_two(barrier(TURNS), TURNS)
    return {
        YARDSTICK: empty_loop(),
        "barrier": _best(barrier(20_000)),
        "nested": _best(nested(20_000)),
        "pingpong": _best(pingpong(5_000)),
        "event_driven 1x10, no record": _best(event_driven(10, 3_000, record=False)),
        f"event_driven 1x{CHAIN}, one record": _best(event_driven(CHAIN, 30, record=True)),
        "barrier, two processes": clock,
        "barrier, two processes, processor time": used,
    }


def _measured_in(folder: Path, *, compiled: bool) -> dict[str, float]:
    """Return what ``measure`` finds in the package that lies in ``folder``."""
    command = [sys.executable, "-m", "benchmarks.compiled"]
    done = subprocess.run(command, cwd=folder, env=environment(folder), stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    if found.pop("compiled") != compiled:
        raise NotCompiled(f"the package in {folder} is {'pure' if compiled else 'compiled'}, and should not be")
    return found


def run(rounds: int = 5) -> list[Row]:
    """Return figures of the compiled package, and ratios to those of the pure one; or a row that says why there are none."""
    try:
        folder = compiled_copy()
    except NotCompiled as reason:
        return [Row("compiled", None, note=str(reason).splitlines()[0])]
    found: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for turn in range(rounds):
        for compiled in (False, True) if turn % 2 else (True, False):
            found[compiled].append(_measured_in(folder if compiled else ROOT, compiled=compiled))
    pure, ours = ({name: Measured(one[name] for one in found[kind]) for name in found[kind][0]} for kind in (False, True))
    scale = REFERENCE_LOOP / ours[YARDSTICK]
    operator = ours[f"event_driven 1x{CHAIN}, one record"] * (1e6 / CHAIN)
    turns = ours["nested"] / ours["barrier"]
    rows = [
        Row("barrier, iterations/s", 1 / ours["barrier"], aim=800_000 * scale, note="compiled; the aim scaled by the yardstick"),
        Row("barrier, compiled over pure", pure["barrier"] / ours["barrier"], floor=2),
        Row(f"event_driven 1x{CHAIN}, one record, us per operator", operator, floor=1, aim=0.4, less=True, note="compiled"),
        Row("nested against barrier, per iteration", turns, floor=4, aim=2, less=True, note="compiled"),
    ]
    rows += [
        Row(f"{name}, compiled over pure", pure[name] / ours[name], 1, 2) for name in ours if name not in (YARDSTICK, "barrier")
    ]
    return rows


if __name__ == "__main__":
    print(json.dumps({"compiled": timely.compiled, **measure()}))
