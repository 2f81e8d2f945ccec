"""The ``timely`` command.

Reads the arguments and calls what does the work. The invariant: whatever the library refuses is told in one message on
the standard error, without a traceback, and with a status of 1; arguments that cannot be are a status of 2. Nothing
beyond the core is imported before a command needs it, so ``timely --version`` works wherever the package does.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import timely
from timely.cli.circles import KINDS
from timely.cli.demo import Demo, default_engine, run
from timely.errors import TimelyError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with the arguments ``argv`` (those of the process by default); return its exit status.

    >>> main(["demo", "--workers", "2", "--engine", "local", "--output", "/dev/null"])
    1
    """
    arguments = _parser().parse_args(argv)
    demo = Demo(arguments.engine, arguments.workers, arguments.kind, arguments.output, arguments.top)
    try:
        run(demo)
    except (TimelyError, OSError) as error:
        print(f"timely: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="timely", description="Timely dataflow for Python.")
    parser.add_argument("--version", action="version", version=f"timely {timely.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    demo = commands.add_parser(
        "demo",
        help="find the Debian packages that require each other in circles",
        description="Which Debian packages require each other in circles? Finds the strongly connected components of "
        "the graph of who requires whom in Debian 12, by loops inside a loop, on several workers; writes them as "
        "Parquet, prints the largest, and draws them (SVG).",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    demo.add_argument(
        "--engine",
        choices=("spark", "local"),
        default=default_engine(),
        help="where the workers run: in Spark in local mode, or in threads of this process",
    )
    demo.add_argument("--workers", type=_positive, default=2, metavar="N", help="number of workers")
    demo.add_argument("--kind", choices=(*KINDS, "all"), default="all", help="kind of requirement to look at")
    demo.add_argument("--output", type=Path, default=Path("timely-demo"), metavar="DIR", help="directory to write to")
    demo.add_argument("--top", type=_positive, default=10, metavar="N", help="number of circles to print")
    return parser


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return number
