"""Timely dataflow in Rust side by side: the barrier of :mod:`benchmarks.control` between two threads, and between two processes.

One unit is an iteration. Figures are processor time of all threads and processes together, since the clock tells mostly how soon
the system wakes who sleeps. Rust's is the example ``barrier`` of its repository, which a contributor builds
(``benchmarks/README.md``); ``TIMELY_RUST_BARRIER`` is its path. The rows say whether this library is compiled; the bars are for
the compiled one.
"""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import timely
from benchmarks.control import barrier
from benchmarks.measure import in_turn
from benchmarks.report import Row
from timely.worker.mesh import open_listener

OURS, THEIRS = 20_000, 100_000
"""Iterations."""

BARS = {"threads": (2.0, 1.0), "processes": (1.5, 1.0)}


def _used() -> float:
    """Return the seconds of processor time of this process, and of those that it has started, as far as they have ended."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in both)


def _per_iteration(run: Callable[[], object], iterations: int) -> float:
    before = _used()
    run()
    return (_used() - before) / iterations


def _ours(kind: str) -> float:
    workers, processes = (2, 1) if kind == "threads" else (1, 2)
    return _per_iteration(lambda: timely.execute(barrier(OURS), workers=workers, processes=processes), OURS)


def _theirs(program: str, kind: str, hosts: Path) -> float:
    command = [program, str(THEIRS)]
    if kind == "threads":
        return _per_iteration(lambda: subprocess.run([*command, "-w2"], check=True), THEIRS)
    ports = []
    for _ in range(2):
        with closing(open_listener("127.0.0.1")) as listener:
            ports.append(listener.getsockname()[1])
    hosts.write_text("".join(f"127.0.0.1:{port}\n" for port in ports))

    def both() -> None:
        ends = ["-n2", "-h", str(hosts)]
        processes = [subprocess.Popen([*command, *ends, f"-p{place}"], stderr=subprocess.DEVNULL) for place in range(2)]
        assert [process.wait() for process in processes] == [0, 0], "the barrier in Rust has failed"

    return _per_iteration(both, THEIRS)


def run(rounds: int) -> list[Row]:
    """Return how many times the processor time of Rust's an iteration takes; or rows that say why there are none."""
    program = os.environ.get("TIMELY_RUST_BARRIER")
    how = "compiled" if timely.compiled else "pure"
    names = {kind: f"barrier between two {kind}, processor time over Rust's ({how})" for kind in BARS}
    if program is None:
        return [Row(name, None, *BARS[kind], less=True, note="TIMELY_RUST_BARRIER is not set") for kind, name in names.items()]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, name in names.items():
            hosts = Path(folder) / "hosts"
            times = in_turn({"ours": partial(_ours, kind), "Rust": partial(_theirs, program, kind, hosts)}, rounds)
            note = f"{1e6 * times['ours']:.1f} µs over {1e6 * times['Rust']:.1f}"
            rows.append(Row(name, times["ours"] / times["Rust"], *BARS[kind], less=True, note=note))
    return rows
