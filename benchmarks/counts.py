"""How much the control plane does for one unit of work, counted: the same on a busy machine as on a quiet one.

There are two kinds. ``instructions`` are those of the processor, which valgrind counts; they see everything, and depend on how
Python was built. ``bytecodes`` are those of Python, which Python counts itself wherever it runs; what C does inside of one they
do not see. Both come out the same, or nearly, in every run on one machine (half a percent at most), which no time does. The
baseline beside this file holds what was found last for each kind and version of Python: ``python -m benchmarks counts --compare``
says what has grown since, and ``--write`` renews it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import attrs

from benchmarks.counts_programs import PROGRAMS, Program
from benchmarks.report import Row

ROOT = Path(__file__).resolve().parents[1]
BASELINE = Path(__file__).with_name("counts.json")

KINDS = ("instructions", "bytecodes")

TOLERANCE = 0.03
"""What is taken for the same, as a part of the baseline."""

MORE = 10
"""How many times more units are run where instructions are counted: those of the start are not quite the same in two runs."""

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"

Counts = Mapping[str, float]


@attrs.frozen
class Change:
    """What a program took per unit, and what it takes now; ``None`` where it was not counted."""

    name: str
    before: float | None
    now: float | None

    @property
    def growth(self) -> float:
        """By what part of what it was it has grown; below zero if it fell."""
        return self.now / self.before - 1 if self.before and self.now else 0.0

    def __str__(self) -> str:
        before, now = ("not counted" if count is None else f"{count:,.0f}" for count in (self.before, self.now))
        return f"{self.name}: {before} -> {now}" + (f" ({self.growth:+.1%})" if self.before and self.now else "")


def default_kind() -> str:
    """Return the kind of count that sees more, of those that can be had on this machine."""
    return "instructions" if shutil.which("valgrind") else "bytecodes"


def count(kind: str) -> dict[str, float]:
    """Return the count per unit of each program, in processes of their own, where strings hash to the same each time."""
    if kind == "bytecodes":
        found: dict[str, float] = json.loads(_output([sys.executable, "-m", "benchmarks.counts_programs"]).stdout)
        return found
    _output([sys.executable, "-c", "import benchmarks.counts_programs"])  # else it would be the first one that compiles modules
    return {name: _instructions_per_unit(name, program) for name, program in PROGRAMS.items()}


def _instructions_per_unit(name: str, program: Program) -> float:
    units = MORE * program.units
    return (_instructions(name, 2 * units) - _instructions(name, units)) / units


def _instructions(name: str, units: int) -> int:
    """Return how many instructions a whole process takes that runs a program."""
    valgrind = ["valgrind", "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={os.devnull}"]
    said = _output([*valgrind, sys.executable, "-m", "benchmarks.counts_programs", name, str(units)]).stderr
    found = re.search(r"I +refs: +([\d,]+)", said)
    assert found is not None, f"valgrind did not say how many instructions there were:\n{said}"
    return int(found[1].replace(",", ""))


def _output(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stderr}"
    return done


def baseline(kind: str) -> Counts:
    """Return what was found last with this version of Python; nothing if nobody has counted with it."""
    found: Counts = _baselines().get(kind, {}).get(VERSION, {})
    return found


def write(kind: str, found: Counts) -> None:
    """Make what was found the baseline of this kind and this version of Python."""
    baselines = _baselines()
    baselines.setdefault(kind, {})[VERSION] = {name: round(number, 1) for name, number in found.items()}
    BASELINE.write_text(json.dumps(baselines, indent=2, sort_keys=True) + "\n")


def _baselines() -> dict[str, dict[str, Counts]]:
    found: dict[str, dict[str, Counts]] = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    return found


def compare(before: Counts, now: Counts) -> list[Change]:
    """Return what has become of each count, in the order of those of now.

    >>> [str(change) for change in compare({"barrier": 200, "nested": 600}, {"barrier": 240, "nested": 590})]
    ['barrier: 200 -> 240 (+20.0%)', 'nested: 600 -> 590 (-1.7%)']
    """
    return [Change(name, before.get(name), now.get(name)) for name in dict.fromkeys([*now, *before])]


def grown(changes: list[Change]) -> list[Change]:
    """Return those that are larger than they were by more than what is taken for the same."""
    return [change for change in changes if change.growth > TOLERANCE]


def verdict(kind: str, changes: list[Change]) -> str:
    """Say what has grown and what has fallen, in lines that begin with ``counts``."""
    title = f"counts ({kind} per unit, Python {VERSION})"
    if not any(change.before for change in changes):
        return f"{title}: there is no baseline for this version; python -m benchmarks counts --kind {kind} --write makes one"
    more = grown(changes)
    less = [change for change in changes if change.growth < -TOLERANCE]
    lines = [f"{title}: {word}: {change}" for word, some in (("GREW", more), ("fell", less)) for change in some]
    same = len(changes) - len(more) - len(less)
    return "\n".join([*lines, f"{title}: {len(more)} grew by more than {TOLERANCE:.0%}, {len(less)} fell, {same} as before"])


def run(kind: str | None = None) -> list[Row]:
    """Return a row for each program, with what it was in the baseline."""
    kind = kind or default_kind()
    changes = compare(baseline(kind), count(kind))
    rows = []
    for change in changes:
        program = PROGRAMS.get(change.name)
        unit = "unit" if program is None else program.unit
        rows.append(Row(f"{change.name}, {kind} per {unit}", change.now, note=f"{change.growth:+.1%} since the baseline"))
    return rows


def main(kind: str | None, *, renew: bool) -> int:
    """Count, say what has changed since the baseline, and renew it if asked to; return 1 if something has grown, else 0."""
    kind = kind or default_kind()
    found = count(kind)
    changes = compare(baseline(kind), found)
    print("\n".join(f"  {change}" for change in changes))
    print(verdict(kind, changes))
    if renew:
        write(kind, found)
        return 0
    return 1 if grown(changes) else 0
