"""``python -m benchmarks control graphs``: run groups of benchmarks, print them as Markdown, and as JSON where asked."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from benchmarks.report import Row, as_json, markdown

GROUPS = ("control", "graphs", "spark", "streaming", "sizing")
"""The modules here that have ``run(rounds)``; ``spark`` starts a session, and has a quick mode."""


def _run(name: str, rounds: int, quick: bool) -> list[Row]:
    run = importlib.import_module(f"benchmarks.{name}").run
    rows: list[Row] = run(rounds, quick=True) if quick and name == "spark" else run(rounds)
    return rows


def main() -> int:
    """Return 0 if every floor is met, and 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Run benchmarks and print their ratios.")
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, []], help="which to run (default: all)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, of which the median counts (default: 5)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--quick", action="store_true", help="of spark, smaller graphs, to try it out: no bar is meant for them")
    chosen = parser.parse_args()
    rows = [row for name in chosen.groups or GROUPS for row in _run(name, chosen.rounds, chosen.quick)]
    print(markdown(rows))
    if chosen.json is not None:
        chosen.json.write_text(as_json(rows) + "\n")
    return 0 if all(row.met is not False for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
