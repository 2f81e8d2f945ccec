"""``python -m benchmarks control graphs``: run a group of benchmarks, print it as Markdown, and write it as JSON where asked."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import control, graphs
from benchmarks.report import as_json, markdown

GROUPS = {"control": control.run, "graphs": graphs.run}


def main() -> int:
    """Return 0 if every floor is met, and 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Run benchmarks and print their ratios.")
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, []], help="which to run (default: all)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, of which the median counts (default: 5)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    chosen = parser.parse_args()
    rows = [row for name in chosen.groups or GROUPS for row in GROUPS[name](chosen.rounds)]
    print(markdown(rows))
    if chosen.json is not None:
        chosen.json.write_text(as_json(rows) + "\n")
    return 0 if all(row.met is not False for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
