"""The ``timely`` command.

Reads the arguments and calls what does the work. The invariant: whatever the library refuses is told in one message on
the standard error, without a traceback, and with a status of 1; arguments that cannot be are a status of 2. What is printed has
gone out when the command ends, or that it could not is told in the same way; of a reader who has gone away nothing is said.
Nothing beyond the core is imported before a command needs it, so ``timely --version`` works wherever the package does.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, Final, TypeVar

import timely
from timely.cli.circles import KINDS
from timely.cli.demo import Demo, default_engine
from timely.dataflow.origin import is_ours
from timely.errors import ConfigurationError, OperatorError, TimelyError

if TYPE_CHECKING:
    from timely.cli.running import Job

__all__ = ["main"]

T = TypeVar("T")

COMPLETIONS = ("bash", "zsh", "fish")

_NOBODY_READS: Final = 141
"""The status of a command whose output nobody reads any more, as a shell has it for what the signal of that has ended."""

_say: Final = functools.partial(print, flush=True)
"""Prints at once, also where the output goes into a file or to another command."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with the arguments ``argv`` (those of the process by default); return its exit status.

    >>> main(["demo", "--workers", "2", "--engine", "local", "--output", "/dev/null"])
    1
    """
    try:
        status = _status(argv)
    except SystemExit:  # of the arguments, which may have printed help, or of a program
        lost = _flushed()
        if lost:
            return lost
        raise
    return _flushed() or status


def _status(argv: Sequence[str] | None) -> int:
    """Run the command; return its status, and tell what it refused."""
    arguments = parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int | None] = arguments.command
    if command is not _live and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # rather than fail for a name that cannot be shown
    try:
        return command(arguments) or 0
    except BrokenPipeError:
        return _NOBODY_READS
    except (TimelyError, OSError) as error:
        print(f"timely: {error}{_line(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("timely: interrupted", file=sys.stderr)
        return 130


def _flushed() -> int:
    """Have all that was printed go out, and return 0, or the status if it cannot: Python itself would say no more than that."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
        return 0
    except OSError as error:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is tried again at the end
        if isinstance(error, BrokenPipeError):
            return _NOBODY_READS
        print(f"timely: the output cannot be written: {error}", file=sys.stderr)
        return 1


def _line(error: BaseException) -> str:
    """Return, for what a program raised in an operator, the line of the program that it came from."""
    cause = error.__cause__
    if not isinstance(error, OperatorError) or cause is None or isinstance(cause, TimelyError):
        return ""
    frames = [frame for frame in extract_tb(cause.__traceback__) if not is_ours(frame.filename)]
    if not frames or Path(frames[0].filename).is_relative_to(Path(__file__).parent):  # the command's own operators
        return ""
    last = [frame for frame in frames if frame.filename == frames[0].filename][-1]  # and not what their line has called
    return f" (at {last.filename}:{last.lineno} in {last.name})"


# -- what the commands do ------------------------------------------------------------------------------------------------


def _demo(arguments: argparse.Namespace) -> None:
    from timely.cli import demo

    demo.run(Demo(arguments.engine, arguments.workers, arguments.kind, arguments.output, arguments.top))


def _job(arguments: argparse.Namespace, **more: Any) -> Job:
    from timely.cli.program import load
    from timely.cli.running import Job

    return Job(load(arguments.program), _once("--input", arguments.input), **more)


def _once(option: str, pairs: Sequence[tuple[str, T]]) -> dict[str, T]:
    """Return what an option gives by name, if it gives nothing twice."""
    given = dict(pairs)
    if len(given) < len(pairs):
        raise ConfigurationError(f"{option} gives {', '.join(name for name, _ in pairs)}: give each name once")
    return given


def _run(arguments: argparse.Namespace) -> None:
    from timely.cli import running

    job = _job(
        arguments,
        outputs=_once("--output", arguments.output),
        workers=arguments.workers,
        processes=arguments.processes,
        overwrite=arguments.overwrite,
        schemas=_once("--schema", arguments.schema),
        patience=arguments.patience,
        live=arguments.live,
    )
    running.run(job, arguments.engine, _say)


def _draw(arguments: argparse.Namespace) -> None:
    from timely.cli import looking

    drawn = looking.draw(_job(arguments, outputs={}))
    if arguments.output is None:
        print(drawn.mermaid())
    else:
        drawn.save(arguments.output)
        print(f"drew {arguments.program} into {arguments.output}")


def _live(arguments: argparse.Namespace) -> None:
    from timely.cli import looking

    looking.live(arguments.script, arguments.arguments, arguments.port, _say)


def _explain(arguments: argparse.Namespace) -> int:
    from timely.cli import looking

    job = _job(arguments, outputs={}, workers=arguments.workers, processes=arguments.processes)
    found = looking.explain(job, arguments.patience)
    print(found or f"{arguments.program} came to its end: nothing was stuck")
    return 1 if found else 0


def _bench(arguments: argparse.Namespace) -> None:
    from timely.cli import bench

    bench.run(arguments.seconds, _say)


def _completion(arguments: argparse.Namespace) -> None:
    from timely.cli.completion import script

    print(script(parser(), arguments.shell))


# -- what they take ------------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    """Return what reads the arguments."""
    parser = argparse.ArgumentParser(prog="timely", description="Timely dataflow for Python.")
    parser.add_argument("--version", action="version", version=f"timely {timely.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_demo(commands)
    _add_run(commands)
    draw = _add_program(commands, "draw", _draw, "draw the dataflow of a program", "Draws the dataflow that a program builds.")
    draw.add_argument("--output", type=Path, metavar="FILE", help="a .svg, .html or .mmd to write (default: print Mermaid)")
    explain = _add_program(
        commands,
        "explain",
        _explain,
        "run a program, and say what it is stuck at",
        "Runs a program. If it cannot end, or nothing moves for a while, says which operator holds what, on which worker, where"
        " it was built, and how that reaches the end, and ends with a status of 1.",
    )
    _add_workers(explain)
    _add_patience(explain, 5.0)
    live = commands.add_parser(
        "live",
        help="run a script, and serve a page that shows its dataflows",
        description="Runs a Python script as it is, and serves a page, for this machine, that shows its dataflows.",
    )
    live.add_argument("--port", type=_port, default=0, help="port of the page (default: any that is free)")
    live.add_argument("script", type=Path, metavar="SCRIPT", help="the script to run")
    live.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="its arguments")
    live.set_defaults(command=_live)
    bench = commands.add_parser(
        "bench", help="measure this installation", description="Measures the control plane and the data plane for a few seconds."
    )
    bench.add_argument("--seconds", type=_seconds, default=1.0, metavar="S", help="how long each of them runs (default: 1)")
    bench.set_defaults(command=_bench)
    completion = commands.add_parser(
        "completion",
        help="print a script that completes this command in a shell",
        description="Prints a script for a shell: put its output where the shell looks, such as ~/.bashrc.",
    )
    completion.add_argument("shell", choices=COMPLETIONS)
    completion.set_defaults(command=_completion)
    return parser


def _add_demo(commands: Any) -> None:
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
    demo.set_defaults(command=_demo)


def _add_run(commands: Any) -> None:
    run = _add_program(
        commands,
        "run",
        _run,
        "run a program from tables to tables",
        "Runs build(scope, **inputs), which returns its outputs by name, on the rows of files; inputs and outputs are streams of"
        " Arrow record batches.",
    )
    run.add_argument(
        "--output", type=_table, action="append", default=[], metavar="NAME=FOLDER", help="what to write; may be repeated"
    )
    _add_workers(run)
    run.add_argument("--engine", choices=("local", "spark"), default="local", help="where the workers run (default: local)")
    run.add_argument(
        "--schema",
        type=_pair,
        action="append",
        default=[],
        metavar="NAME=COLUMNS",
        help="columns of an output on Spark, such as 'node long, degree long', unless the program's OUTPUTS has them",
    )
    run.add_argument(
        "--live", type=_port, nargs="?", const=0, metavar="PORT", help="serve a page, for this machine, that shows the run"
    )
    run.add_argument("--overwrite", action="store_true", help="replace outputs that are there already")
    _add_patience(run, 30.0)


def _add_program(
    commands: Any, name: str, command: Callable[[argparse.Namespace], int | None], help: str, description: str
) -> argparse.ArgumentParser:
    added: argparse.ArgumentParser = commands.add_parser(name, help=help, description=description)
    added.add_argument("program", metavar="MODULE:BUILD", help="a file or a module, and the function in it that builds")
    added.add_argument(
        "--input", type=_table, action="append", default=[], metavar="NAME=FILE", help="what to read; may be repeated"
    )
    added.set_defaults(command=command)
    return added


def _add_workers(command: argparse.ArgumentParser) -> None:
    command.add_argument("--workers", type=_positive, default=1, metavar="N", help="workers in each process (default: 1)")
    command.add_argument("--processes", type=_positive, default=1, metavar="N", help="processes (default: 1)")


def _add_patience(command: argparse.ArgumentParser, seconds: float) -> None:
    command.add_argument(
        "--patience",
        type=_seconds,
        default=seconds,
        metavar="S",
        help=f"seconds without any movement after which to say what is stuck (default: {seconds:g})",
    )


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return number


def _port(text: str) -> int:
    try:
        port = int(text)
    except ValueError:
        port = -1
    if not 0 <= port < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 (any that is free) to 65535")
    return port


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds greater than 0")
    return seconds


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name.isidentifier() or not value:
        raise argparse.ArgumentTypeError(f"{text!r} should look like name=something")
    return name, value


def _table(text: str) -> tuple[str, Path]:
    name, value = _pair(text)
    return name, Path(value)
