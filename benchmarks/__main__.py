"""``python -m benchmarks control graphs``: run groups of benchmarks, print them as Markdown, and write them as JSON where asked.

Each group has a process of its own, so that its figures do not depend on which came before. One that fails is said at the end,
and takes nothing from what the others have found: both files are written anew after each.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from pathlib import Path

from benchmarks import counts
from benchmarks.groups import GROUPS, run_group
from benchmarks.measure import apart
from benchmarks.report import Row, as_json, header, markdown


def _arguments() -> argparse.ArgumentParser:
    states = "\n".join(f"  {name:15}{state}" for name, state in GROUPS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Run benchmarks and print their ratios.",
        epilog=f"the groups, and the state in which they measure (collector: Python's garbage collector):\n{states}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, []], metavar="GROUP", help="which to run (default: all)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, of which the median counts (default: 5)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--markdown", type=Path, help="also write the tables to this file")
    parser.add_argument("--quick", action="store_true", help="less of what takes long, to try it out: no bar is meant for it")
    parser.add_argument("--long", action="store_true", help="of peers, also what takes them minutes")
    parser.add_argument("--kind", choices=["instructions", "bytecodes"], help="of counts, what to count (default: what there is)")
    parser.add_argument("--compare", action="store_true", help="of counts, only say what has changed since the baseline")
    parser.add_argument("--write", action="store_true", help="the same, and make what was found the new baseline")
    return parser


def main() -> int:
    """Return 0 if every group ran and every floor is met (or no count has grown, if only these are compared), and 1 otherwise."""
    chosen = _arguments().parse_args()
    if chosen.compare or chosen.write:
        return counts.main(chosen.kind, renew=chosen.write)
    options = {"rounds": chosen.rounds, "quick": chosen.quick, "long": chosen.long, "kind": chosen.kind}
    head, found, failed = header(), dict[str, list[Row]](), list[str]()
    loads = []
    for name in chosen.groups or GROUPS:
        loads.append(f"{name} {os.getloadavg()[0]:.1f}")
        head[f"state of {name}"] = GROUPS[name]
        head["load when each group began"] = ", ".join(loads)
        try:
            found[name] = apart(run_group, name, options)
        except Exception:
            traceback.print_exc()
            failed.append(name)
        if chosen.json is not None:
            chosen.json.write_text(as_json(found, head) + "\n")
        if chosen.markdown is not None:
            chosen.markdown.write_text(markdown(found, head) + "\n")
    print(markdown(found, head))
    if failed:
        print(f"failed, see above: {', '.join(failed)}", file=sys.stderr)
    return 0 if not failed and all(row.met is not False for rows in found.values() for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
