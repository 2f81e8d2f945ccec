"""``timely draw``, ``timely explain`` and ``timely live``: what a program builds, what it is stuck at, and what it does."""

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
from typing import Final

import timely
from timely.cli.running import Job, assemble, build
from timely.errors import ConfigurationError, StalledError
from timely.execution.running import execute_watched
from timely.inspect import LivePage, Picture, everywhere, picture
from timely.monitor.watch import WatchSettings

_PATIENCE: Final = 1.0
"""Seconds after which a worker that waits looks again; it does not give up, so that it can be asked what it waits for."""


def draw(job: Job) -> Picture:
    """Return a picture of what a program builds; no input is read, and those that it needs and are not given are made up."""
    inputs = dict.fromkeys([*job.program.needed, *job.inputs])
    job.program.check_inputs(inputs)
    with timely.Worker().dataflow(int, name=job.program.title) as scope:
        assemble(job, scope, inputs)
        return picture(scope)


def live(script: Path, arguments: Sequence[str], port: int, say: Callable[[str], object]) -> None:
    """Run a script as if it were called with ``arguments``, with a page that shows the workers of this process."""
    if not script.is_file():
        raise ConfigurationError(f"there is no script {str(script)!r}")
    with LivePage(port) as page, everywhere(page.watch):
        say(f"to be seen at {page.url}")
        sys.argv = [str(script), *arguments]
        sys.path.insert(0, str(script.resolve().parent))
        try:
            runpy.run_path(str(script), run_name="__main__")
        except Exception as error:  # the script's own: told as it would be without this command
            traceback.print_exception(error)
            sys.exit(1)


def explain(job: Job, patience: float) -> str | None:
    """Run a program; return what it is stuck at as soon as nothing has moved for ``patience`` seconds, ``None`` if it ends.

    The workers are left to themselves where they do not return: threads end with this process, and processes are ended.
    """
    job.program.check_inputs(job.inputs)
    heard, told = multiprocessing.Pipe(duplex=False)
    failed: list[BaseException] = []

    def tell(what: str | None) -> None:
        with contextlib.suppress(OSError):  # what is said first is what counts, and nobody listens after that
            told.send(what)

    def work() -> None:
        try:
            settings = WatchSettings(patience, say=tell)
            execute_watched(functools.partial(_run, job, tell), job.workers, job.processes, "direct", settings)
        except BaseException as error:
            failed.append(error)
        tell(None)

    thread = threading.Thread(target=work, name="timely explain", daemon=True)
    thread.start()
    found: str | None = heard.recv()
    if found is None and failed:
        raise failed[0]
    if job.processes > 1:
        for process in multiprocessing.active_children():
            process.kill()
        thread.join()
    return found


def _run(job: Job, say: Callable[[str], object], worker: timely.Worker) -> None:
    """Run a program on one of its workers; where it is alone, and cannot get to its end, say why at once."""
    from timely.cli.tables import read

    handles, scope, _ = build(job, worker, {})
    for name, handle in handles.items():
        for number, batch in enumerate(read(name, job.inputs[name])):
            if number % worker.peers == worker.index:
                handle.send_batch(batch)
                worker.step()
        handle.close()
    try:
        while worker.step_or_park(None if worker.peers == 1 else _PATIENCE):
            pass
    except StalledError:
        say(str(worker.explain(scope)))
        raise
