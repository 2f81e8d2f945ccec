"""The server of views, of ``timely serve``."""

from __future__ import annotations

import gc
import logging
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs

from timely.errors import ConfigurationError, file_error_text
from timely.server import InputWatcher, Limits, Views, ViewServer, WatchedInput
from timely.server.script import TableDefinition, parse_script
from timely.worker.gc_control import collector_paused


@attrs.frozen
class Settings:
    """The options of the command."""

    changes: Sequence[str]
    poll: float
    port: int
    host: str
    names: Sequence[str]
    writable: bool
    max_queries: int
    max_rows: int
    query_seconds: float


def serve(script: Path, inputs: Mapping[str, Path], settings: Settings, say: Callable[[str], object]) -> None:
    """Serve the views of a script over inputs until the process is interrupted or terminated."""
    try:
        text = script.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        reason = file_error_text(error) if isinstance(error, OSError) else str(error)
        raise ConfigurationError(f"the script {str(script)!r} cannot be read: {reason}") from None
    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns of statements that are refused here
    unknown = sorted(set(settings.changes) - inputs.keys())
    if unknown:
        raise ConfigurationError(f"--changes {unknown[0]}: there is no input of that name")
    declared = {each.name: each.schema for each in parse_script(text) if isinstance(each, TableDefinition)}
    watched = [
        WatchedInput(name, path, declared.get(name.lower()), changes=name in settings.changes) for name, path in inputs.items()
    ]
    views = Views(Limits(queries=settings.max_queries, rows=settings.max_rows, query_seconds=settings.query_seconds))
    with collector_paused():  # what is loaded stays: to look for garbage in it took a third of the time
        watcher = InputWatcher(views, watched, settings.poll)
        views.run_script(text)
        gc.freeze()
    over = threading.Event()
    before = {number: signal.signal(number, lambda *_: over.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with (
            ViewServer(
                views,
                settings.port,
                settings.host,
                names=settings.names,
                writable=settings.writable,
                problems=lambda: watcher.problems,
            ) as server,
            watcher,
        ):
            for problem in watcher.problems:
                say(f"timely: {problem}")
            say(f"serving {len(views.overview()[1])} tables and views at {server.url}")
            over.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
