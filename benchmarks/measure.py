"""How things are timed here: in rounds, all of them in turn, so that a machine that slows down slows all of them down.

What is compared is the median over the rounds. The yardstick for pure Python is an empty ``for`` loop, timed in every round
beside the work: bars that are given for a machine on which 10 million passes take 0.35 s are scaled by it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

REFERENCE_LOOP = 0.35
"""Seconds for ten million passes of an empty loop on the machine that the bars are given for."""

YARDSTICK = "empty loop"


def empty_loop() -> float:
    """Return the seconds that ten million passes of an empty loop at module level take, from a tenth as many."""
    source = compile("for _ in range(1_000_000): pass", "<empty loop>", "exec")
    start = time.process_time()
    exec(source, {})
    return 10 * (time.process_time() - start)


def in_turn(works: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Run every work once in each round, the yardstick among them, and return the median of what each returned."""
    found: dict[str, list[float]] = {name: [] for name in (YARDSTICK, *works)}
    for _ in range(rounds):
        found[YARDSTICK].append(empty_loop())
        for name, work in works.items():
            found[name].append(work())
    return {name: statistics.median(values) for name, values in found.items()}
