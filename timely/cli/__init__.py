"""The ``timely`` command.

An error of the library is one message on the standard error and status 1; bad arguments are status 2. Only the core is imported
before a command needs more.
"""

from __future__ import annotations

import argparse
import codecs
import contextlib
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import attrs

import timely
from timely.dataflow.origin import is_ours
from timely.errors import ConfigurationError, OperatorError, TimelyError, did_you_mean, printable

if TYPE_CHECKING:
    from timely.cli.run_command import Job

__all__ = ["main"]

T = TypeVar("T")

_READER_GONE: Final = 141
"""The status that a shell gives a command that SIGPIPE has ended."""


def _print(text: object) -> None:
    """Print at once, also into a file or a pipe, and without the control characters of data."""
    print(printable(str(text)), flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with the arguments ``argv`` (those of the process by default); return its exit status.

    >>> main(["demo", "--workers", "2", "--engine", "local", "--output", "/dev/null"])
    1
    """
    try:
        status = _status(argv)
    except SystemExit:  # of the arguments, which may have printed help, or of a program
        lost = _flush()
        if lost:
            return lost
        raise
    return _flush() or status


def _status(argv: Sequence[str] | None) -> int:
    arguments = parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int | None] = arguments.command
    if command is not _live and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show is no error
    try:
        return command(arguments) or 0
    except BrokenPipeError:
        return _READER_GONE
    except (TimelyError, OSError) as error:
        print(printable(f"timely: {error}{_line(error)}"), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("timely: interrupted", file=sys.stderr)
        return 130


def _flush() -> int:
    """Write out what was printed; return 0, or the status if it cannot be written."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
        return 0
    except OSError as error:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes again at exit
        if isinstance(error, BrokenPipeError):
            return _READER_GONE
        print(f"timely: the output cannot be written: {error}", file=sys.stderr)
        return 1


def _line(error: BaseException) -> str:
    """Return the line of the program that raised the cause of an ``OperatorError``."""
    cause = error.__cause__
    if not isinstance(error, OperatorError) or cause is None or isinstance(cause, TimelyError):
        return ""
    frames = [frame for frame in extract_tb(cause.__traceback__) if not is_ours(frame.filename)]
    if not frames or Path(frames[0].filename).is_relative_to(Path(__file__).parent):  # the command's own operators
        return ""
    last = [frame for frame in frames if frame.filename == frames[0].filename][-1]  # the program's line, not what it calls
    return f" (at {last.filename}:{last.lineno} in {last.name})"


# -- commands ------------------------------------------------------------------------------------------------------------


def _demo(arguments: argparse.Namespace) -> None:
    from timely.cli import demo

    demo.run(arguments.engine, arguments.workers, arguments.kind, arguments.output, arguments.top)


def _options(kind: type[Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments that are fields of an attrs class, by their names."""
    return {field.name: getattr(arguments, field.name) for field in attrs.fields(kind) if hasattr(arguments, field.name)}


def _job(arguments: argparse.Namespace, **more: Any) -> Job:
    from timely.cli.program import load
    from timely.cli.run_command import Job

    inputs = _once("--input", arguments.input)
    times = arguments.time
    if None in dict(times) and len(times) > 1:
        raise ConfigurationError("--time is one column of all inputs, or NAME=COLUMN for each")
    named = dict.fromkeys(inputs, times[0][1]) if None in dict(times) else _once("--time", times)
    return Job(**{**_options(Job, arguments), "program": load(arguments.program), "inputs": inputs, "times": named, **more})


def _once(option: str, pairs: Sequence[tuple[str, T]]) -> dict[str, T]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ConfigurationError(f"{option} gives {', '.join(name for name, _ in pairs)}: give each name once")
    return values


def _credentials(arguments: argparse.Namespace) -> None:
    from timely.worker.credentials import write_credentials

    write_credentials(arguments.file)
    print(f"wrote {arguments.file}: copy it to every host of a run, and keep it secret")


def _run(arguments: argparse.Namespace) -> None:
    from timely.cli import run_command

    outputs = _once("--output", arguments.output)
    job = _job(
        arguments,
        outputs={name: Path(text) for name, text in outputs.items()},
        folders=frozenset(name for name, text in outputs.items() if text.endswith(("/", os.sep))),
        schemas=_once("--schema", arguments.schema),
    )
    run_command.run(job, arguments.engine, _print)


def _draw(arguments: argparse.Namespace) -> None:
    from timely.cli import draw_and_live

    drawn = draw_and_live.draw(_job(arguments, outputs={}))
    if arguments.output is None:
        print(printable(drawn.mermaid()))
    else:
        drawn.save(arguments.output)
        print(f"drew {arguments.program} into {arguments.output}")


def _live(arguments: argparse.Namespace) -> None:
    from timely.cli import draw_and_live

    saved = draw_and_live.Saved(arguments.report, arguments.trace)
    draw_and_live.live(arguments.script, arguments.arguments, arguments.port, _print, saved)


def _explain(arguments: argparse.Namespace) -> int:
    from timely.cli import draw_and_live

    explanation = draw_and_live.explain(_job(arguments, outputs={}))
    _print(explanation or f"{arguments.program} came to its end: nothing was stuck")
    return 1 if explanation else 0


def _serve(arguments: argparse.Namespace) -> None:
    from timely.cli import serve_command

    settings = serve_command.Settings(**_options(serve_command.Settings, arguments))
    serve_command.serve(arguments.script, _once("--input", arguments.input), settings, _print)


def _checkpoint(arguments: argparse.Namespace) -> None:
    from timely.cli import checkpoint

    checkpoint.ACTIONS[arguments.action](arguments.place, arguments.name, _print)


# -- arguments -----------------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="timely", description="Timely dataflow for Python.")
    parser.add_argument("--version", action="version", version=f"timely {timely.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    demo = commands.add_parser(
        "demo",
        help="find the Debian packages that require each other in circles",
        description="Which Debian packages require each other in circles? Finds the strongly connected components of "
        "the graph of who requires whom in Debian 12, by loops inside a loop, on several workers; writes them as "
        "Parquet, and prints the largest.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    engine = "local" if find_spec("pyspark") is None else "spark"
    demo.add_argument("--engine", choices=("spark", "local"), default=engine, help="run in local Spark, or in threads")
    demo.add_argument("--workers", type=_positive, default=2, metavar="N", help="number of workers")
    kinds = ("depends", "recommends", "suggests", "all")
    demo.add_argument("--kind", choices=kinds, default="all", help="kind of requirement to look at")
    demo.add_argument("--output", type=Path, default=Path("timely-demo"), metavar="DIR", help="directory to write to")
    demo.add_argument("--top", type=_positive, default=10, metavar="N", help="number of circles to print")
    demo.set_defaults(command=_demo)

    run = _add_program(
        commands,
        "run",
        _run,
        "run a program from tables to tables",
        "Runs build(scope, **inputs) on the rows of files, and writes the outputs that it returns by name. Inputs and outputs are"
        " streams of Arrow record batches. Without an --output it shows the first rows of each.",
    )
    _add_pairs(
        run, "--output", _pair, "NAME=FILE", "file to write, FOLDER.csv/ for a part from each worker, - for the standard output"
    )
    _add_workers(run, None)
    run.add_argument("--hosts", metavar="FILE", help="a file with host:port of each machine on a line; each runs this command")
    run.add_argument("--index", type=int, metavar="I", help="which of the hosts this is, from 0")
    run.add_argument("--credentials", metavar="FILE", help="what timely credentials made: the same file on all hosts")
    run.add_argument("--engine", choices=("local", "spark"), default="local", help="where the workers run (default: local)")
    columns = "columns of an output, such as 'node long, degree long'; default: the program's OUTPUTS"
    _add_pairs(run, "--schema", _pair, "NAME=COLUMNS", columns)
    run.add_argument("--live", type=_port, nargs="?", const=0, metavar="PORT", help="serve the live page on this machine")
    run.add_argument("--overwrite", action="store_true", help="replace existing outputs")
    _add_patience(run, 30.0)

    draw = _add_program(commands, "draw", _draw, "draw the dataflow of a program", "Draws the dataflow that a program builds.")
    draw.add_argument("--output", type=Path, metavar="FILE", help="a .svg, .html or .mmd file (default: print Mermaid)")

    explain = _add_program(
        commands,
        "explain",
        _explain,
        "run a program, and explain what it is stuck at",
        "Runs a program. It may be unable to end, stand still for a while, or go round in a loop without an exit. Then this says"
        " which operator holds what, on which worker, and where it was built. It also says how that reaches the end. The status"
        " is then 1.",
    )
    _add_workers(explain, 1)
    _add_patience(explain, 5.0)

    live = commands.add_parser(
        "live",
        help="run a script with the live page",
        description="Runs a Python script unchanged, and serves a page on this machine that shows its dataflows.",
    )
    live.add_argument("--port", type=_port, default=0, help="port of the page (default: any free port)")
    live.add_argument("--report", type=Path, metavar="FILE", help="write the page to an HTML file when the script ends or fails")
    live.add_argument("--trace", type=Path, metavar="FILE", help="write a trace for ui.perfetto.dev (Chrome trace format)")
    live.add_argument("script", type=Path, metavar="SCRIPT", help="the script to run")
    live.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="its arguments")
    live.set_defaults(command=_live)

    serve = commands.add_parser(
        "serve",
        help="serve views of SQL over files that change",
        description="Keeps the views of a script up to date while files change, and serves them on this machine: a page, reads,"
        " changes as they happen, and queries.",
    )
    serve.add_argument("script", type=Path, nargs="?", metavar="VIEWS.SQL", help="create view name as select ...; and so on")
    _add_pairs(serve, "--input", _table, "NAME=PATH", "file or folder that a table follows")
    serve.add_argument(
        "--changes", action="append", default=[], metavar="NAME", help="the files of this input are changes of rows"
    )
    serve.add_argument(
        "--sep", type=_character, metavar="C", help="what separates values of CSV (default: as its first line has)"
    )
    serve.add_argument("--decimal", type=_character, default=".", metavar="C", help="the decimal point of CSV, as in --decimal ,")
    serve.add_argument(
        "--encoding", type=_encoding, metavar="NAME", help="encoding of CSV and JSON, such as latin-1 (default: UTF-8)"
    )
    serve.add_argument("--null", action="append", default=[], metavar="TEXT", help="what CSV has for a missing value, such as NA")
    serve.add_argument(
        "--poll", type=_seconds, default=0.5, metavar="S", help="seconds between looks at the files (default: 0.5)"
    )
    serve.add_argument("--port", type=_port, default=8000, help="port, or 0 for any free one (default: 8000)")
    serve.add_argument("--host", default="127.0.0.1", help="address to serve on (default: this machine alone)")
    text = "a name under which clients know this host; may be repeated"
    serve.add_argument("--name", dest="names", action="append", default=[], help=text)
    serve.add_argument("--writable", action="store_true", help="let clients change tables")
    serve.add_argument("--connectors", action="store_true", help="let them define sources and sinks too")
    text = "keep tables, views and what clients write in a directory (default: in memory)"
    serve.add_argument("--data", type=Path, metavar="DIR", help=text)
    serve.add_argument("--max-queries", type=_positive, default=16, metavar="N", help="queries at one time (default: 16)")
    serve.add_argument("--max-rows", type=_positive, default=100_000, metavar="N", help="rows of one answer (default: 100000)")
    text = "seconds that a query may take in one epoch (default: 30)"
    serve.add_argument("--query-seconds", type=_seconds, default=30.0, metavar="S", help=text)
    text = "memory that all queries may take (default: half of what there is)"
    serve.add_argument("--query-memory", metavar="SIZE", help=text)
    serve.add_argument("--functions", metavar="MODULE", help="have queries call each dd.function(...) of a module by its name")
    serve.set_defaults(command=_serve)

    checkpoint = commands.add_parser(
        "checkpoint",
        help="look at the checkpoints of a program or a server",
        description="Lists the checkpoints that a run could resume from, the newest first, or shows what one holds. Verifies all"
        " of them, and the log of a server behind them. The status is 1 where something is damaged. With diff a program is run up"
        " to its first step, on a copy, to say what it would do with the newest checkpoint.",
    )
    checkpoint.add_argument("action", choices=("list", "show", "verify", "diff"))
    checkpoint.add_argument("place", metavar="DIR", help="directory or URI of the checkpoints, or the data of a server")
    checkpoint.add_argument("name", nargs="?", help="checkpoint to show (default: the newest), or program for diff")
    checkpoint.set_defaults(command=_checkpoint)

    credentials = commands.add_parser(
        "credentials",
        help="make the credentials of a run on several machines",
        description="Makes a file with a key and its certificate. The hosts of a run, which all hold a copy, admit nobody else.",
    )
    credentials.add_argument("file", metavar="FILE", help="the file to write, which only you may read")
    credentials.set_defaults(command=_credentials)
    return parser


class _Parser(argparse.ArgumentParser):
    """Suggests the nearest option or command for a misspelt one."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        parsed, rest = super().parse_known_args(args, namespace)
        if rest:
            meant = [did_you_mean(word.partition("=")[0], self._option_string_actions) for word in rest if word.startswith("-")]
            self.error(f"unrecognized arguments: {' '.join(rest)}{''.join(meant)}")
        return parsed, rest

    def error(self, message: str) -> NoReturn:
        choice = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        meant = "" if choice is None else did_you_mean(choice[1], re.findall(r"[^' ,]+", choice[2]))
        super().error(message + meant)


def _add_program(
    commands: Any, name: str, command: Callable[[argparse.Namespace], int | None], help: str, description: str
) -> argparse.ArgumentParser:
    added: argparse.ArgumentParser = commands.add_parser(name, help=help, description=description)
    added.add_argument("program", metavar="MODULE:BUILD", help="a file or a module, and the function in it that builds")
    _add_pairs(added, "--input", _table, "NAME=FILE", "table to read; - is the standard input, as CSV, and -.json as JSON")
    _add_pairs(added, "--time", _time, "[NAME=]COLUMN", "column with the times of the rows, numbers or dates (default: all at 0)")
    added.set_defaults(command=command)
    return added


def _add_pairs(command: argparse.ArgumentParser, name: str, type: Callable[[str], object], metavar: str, help: str) -> None:
    command.add_argument(name, type=type, action="append", default=[], metavar=metavar, help=f"{help}; may be repeated")


def _add_workers(command: argparse.ArgumentParser, default: int | None) -> None:
    command.add_argument("--workers", type=_positive, default=default, metavar="N", help="workers in each process (default: 1)")
    command.add_argument("--processes", type=_positive, default=1, metavar="N", help="processes (default: 1)")


def _add_patience(command: argparse.ArgumentParser, seconds: float) -> None:
    text = f"seconds without movement before the run is explained (default: {seconds:g})"
    command.add_argument("--patience", type=_seconds, default=seconds, metavar="S", help=text)


def _checked(parse: Callable[[str], T], accepts: Callable[[T], bool], what: str) -> Callable[[str], T]:
    def checked(text: str) -> T:
        with contextlib.suppress(ValueError, LookupError):
            value = parse(text)
            if accepts(value):
                return value
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")

    return checked


_positive = _checked(int, lambda number: number >= 1, "a whole number of 1 or more")
_port = _checked(int, lambda port: 0 <= port < 1 << 16, "a port from 0 (any free port) to 65535")
_character = _checked(lambda text: text.replace("\\t", "\t"), lambda text: len(text) == 1, "one character, or \\t for a tab")
_encoding = _checked(lambda text: codecs.lookup(text).name, bool, "a name of an encoding, such as latin-1")
_seconds = _checked(float, lambda seconds: 0 < seconds < float("inf"), "a number of seconds greater than 0")


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name.isidentifier() or not value:
        raise argparse.ArgumentTypeError(f"{text!r} should look like name=something")
    return name, value


def _time(text: str) -> tuple[str | None, str]:
    return _pair(text) if "=" in text else (None, text)


def _table(text: str) -> tuple[str, Path]:
    if text and "=" not in text:
        name = re.sub(r"\W", "_", Path(text).name.partition(".")[0].lower())
        raise argparse.ArgumentTypeError(f"{text!r} has no name: write {name if name.isidentifier() else 'name'}={text}")
    name, value = _pair(text)
    return name, Path(value)
