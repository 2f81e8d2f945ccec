"""State larger than memory: a join and a maintained count, with all of its state in memory and with a budget for it.

Two collections of pairs come in epochs. They are joined, and the pairs are counted by group.
Each run has a process of its own; a peak is what it held at most beyond what it held before the first record. Both runs must have
the same result. ``python -m benchmarks.state_on_disk 4000000 40MB`` measures so many records with such a budget.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import attrs
import numpy as np

import timely
from benchmarks.report import Row, table
from benchmarks.sizing_memory import held
from timely import differential as dd
from timely.memory import MemoryBudget
from timely.monitor.memory import record_memory

EPOCHS = {"columns": 50_000, "rows": 10_000}
"""Records of an epoch on each side."""

GROUPS = 1_000

_CHILD = "from benchmarks.state_on_disk import child; child({kind!r}, {records}, {limit!r})"


@attrs.frozen
class Found:
    """What one run took, and found."""

    mib: float
    seconds: float
    disk_mib: float
    result: int


def _view(kind: str, left: Any, right: Any) -> Any:
    if kind == "columns":
        pairs = left.join_map(right, lambda key, a, b: (a % GROUPS, b), columns=lambda key, a, b: (a % GROUPS, b))
    else:
        pairs = left.join_map(right, lambda key, a, b: (a[-3:], b))
    return pairs.count_by_key()


def child(kind: str, records: int, limit: str | None) -> None:
    """Print what a run with so many records on each side takes, as JSON: the whole of a fresh process's work."""
    source = np.random.default_rng(1)
    with MemoryBudget(limit) as budget, timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            opened = [dd.new_collection(scope) for _ in range(2)]
            result = _view(kind, *(collection for _, collection in opened))
            output, probe = result.output(), result.probe()
        before, begun, disk = held(), time.perf_counter(), 0
        size = EPOCHS[kind]
        epochs = -(-records // size)
        for epoch in range(epochs):
            for session, _ in opened:
                keys, values = source.integers(0, records, size), source.integers(0, records, size)
                if kind == "columns":
                    session.insert_columns(keys, values)
                else:
                    for key, value in zip(keys.tolist(), values.tolist(), strict=True):
                        session.insert((f"key {key}", f"value {value}"))
                session.advance_to(epoch + 1)
            worker.step_while(lambda: probe.less_than(epoch + 1))  # noqa: B023  # called at once
            output.forget(epoch)
            disk = max(disk, budget.on_disk)
        counts = output.at(epochs - 1)
        found = Found(
            (record_memory() // 1024 - before) / 1024,
            time.perf_counter() - begun,
            disk / (1 << 20),
            sum(count * (1 + number) for number, (_, count) in enumerate(sorted(counts))),
        )
        print(json.dumps(attrs.asdict(found)))


def measured(kind: str, records: int, limit: str | None) -> Found:
    """Return what a run takes, in a process of its own."""
    program = _CHILD.format(kind=kind, records=records, limit=limit)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return Found(**json.loads(done.stdout.splitlines()[-1]))


def compared(kind: str, records: int, limit: str) -> list[Row]:
    """Measure a run with all memory and one with a budget."""
    free, limited = measured(kind, records, None), measured(kind, records, limit)
    assert free.result == limited.result
    name = f"{kind}, 2 x {records:,} records"
    note = (
        f"{free.mib:.0f} MiB and {free.seconds:.0f} s with all memory; {limited.mib:.0f} MiB and {limited.seconds:.0f} s with a"
    )
    note += f" budget of {limit}, {limited.disk_mib:.0f} MiB on disk"
    return [
        Row(f"{name}: memory with a budget over that without", limited.mib / free.mib, 0.5, 0.25, True, note),
        Row(f"{name}: time with a budget over that without", limited.seconds / free.seconds, 4, 2, True),
    ]


def run(rounds: int = 1, quick: bool = False) -> list[Row]:
    """Return the rows of the report."""
    scale = 20 if quick else 1
    return [
        *compared("columns", 2_000_000 // scale, "16MB" if not quick else "1MB"),
        *compared("rows", 300_000 // scale, "6MB" if not quick else "1MB"),
    ]


if __name__ == "__main__":
    chosen = sys.argv[1:]
    print(table([*compared("columns", int(chosen[0]), chosen[1]), *compared("rows", int(chosen[0]) // 4, chosen[1])]))
