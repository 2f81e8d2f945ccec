"""``timely draw``, ``timely explain`` and ``timely live``."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import runpy
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import timely
from timely.cli.run_command import Job, build, check, named
from timely.errors import ConfigurationError, StalledError
from timely.execution.local_run import execute_watched
from timely.inspect import ChromeTrace, LivePage, Picture, everywhere, picture
from timely.monitor.watch_settings import WatchSettings

_PATIENCE: Final = 1.0
"""Seconds that a worker parks. It never gives up, so that it can be asked what it waits for."""


def draw(job: Job) -> Picture:
    """Return a picture of what a program builds; no input is read."""
    inputs = dict.fromkeys([*job.program.needed, *job.inputs])
    job.program.check_inputs(inputs)
    with timely.Worker().dataflow(int, name=job.program.title) as scope:
        named(job, job.program.build(scope, **{name: scope.new_input()[1] for name in inputs}))
        return picture(scope)


class Saved(NamedTuple):
    """The files that ``timely live`` leaves behind: the page as a report, and a trace."""

    report: Path | None = None
    trace: Path | None = None


def live(script: Path, arguments: Sequence[str], port: int, say: Callable[[str], object], saved: Saved) -> None:
    """Run a script as if called with ``arguments``, with a page that shows the workers of this process."""
    if not script.is_file():
        raise ConfigurationError(f"there is no script {str(script)!r}")
    if saved.report is not None and not saved.report.parent.is_dir():
        raise ConfigurationError(
            f"the report {str(saved.report)!r} cannot be written: there is no folder {str(saved.report.parent)!r}"
        )
    with contextlib.ExitStack() as stack:
        page = stack.enter_context(LivePage(port))
        if saved.report is not None:
            stack.callback(page.save, saved.report)
        stack.enter_context(everywhere(page.watch))
        if saved.trace is not None:
            stack.enter_context(everywhere(stack.enter_context(ChromeTrace(saved.trace)).watch))
        say(f"to be seen at {page.url}")
        sys.argv = [str(script), *arguments]
        sys.path.insert(0, str(script.resolve().parent))
        try:
            runpy.run_path(str(script), run_name="__main__")
        except Exception as error:  # the script's own: shown as Python would show it
            traceback.print_exception(error)
            sys.exit(1)


def explain(job: Job) -> str | None:
    """Run a program; return why it is stuck once nothing has moved for its ``patience``, ``None`` if it ends.

    Stuck threads end with this process; stuck processes are killed.
    """
    check(job)
    receiver, sender = multiprocessing.Pipe(duplex=False)
    failed: list[BaseException] = []

    def send(what: str | None) -> None:
        with contextlib.suppress(OSError):  # only the first message is received
            sender.send(what)

    def work() -> None:
        try:
            settings = WatchSettings(job.patience, say=send)
            execute_watched(functools.partial(_run, job, send), job.workers or 1, job.processes, "direct", settings)
        except BaseException as error:
            failed.append(error)
        send(None)

    thread = threading.Thread(target=work, name="timely explain", daemon=True)
    thread.start()
    explanation: str | None = receiver.recv()
    if explanation is None and failed:
        raise failed[0]
    if job.processes > 1:
        for process in multiprocessing.active_children():
            process.kill()
        thread.join()
    return explanation


def _run(job: Job, say: Callable[[str], object], worker: timely.Worker) -> None:
    """Run a program on one of its workers; a lone worker that stalls says why at once."""
    scope, _ = build(job, worker, {})
    try:
        while worker.step_or_park(None if worker.peers == 1 else _PATIENCE):
            pass
    except StalledError:
        say(str(worker.explain(scope)))
        raise
