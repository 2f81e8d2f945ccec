"""``timely draw``, ``timely explain`` and ``timely live``: what a program builds, what it is stuck at, and what it does."""

from __future__ import annotations

import runpy
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import timely
from timely.cli.running import Job, assemble, build
from timely.errors import ConfigurationError, StalledError
from timely.inspect import LivePage, Picture, Watchdog, everywhere, picture


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

    The worker's thread is left to itself where it does not return, and ends with the process.
    """
    job.program.check_inputs(job.inputs)
    found: list[str | BaseException | None] = []
    said = threading.Event()

    def conclude(what: str | BaseException | None) -> None:
        found.append(what)
        said.set()

    def work() -> None:
        try:
            conclude(_run(job, patience, conclude))
        except BaseException as error:
            conclude(error)

    threading.Thread(target=work, name="timely explain", daemon=True).start()
    said.wait()
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def _run(job: Job, patience: float, conclude: Any) -> str | None:
    from timely.cli.tables import read

    with timely.Worker() as worker:
        handles, scope = build(job, worker, {})
        with Watchdog(worker, after=patience, say=conclude):
            for name, handle in handles.items():
                for batch in read(name, job.inputs[name]):
                    handle.send_batch(batch)
                    worker.step()
                handle.close()
            try:
                worker.run()
            except StalledError:
                return str(worker.explain(scope))
    return None
