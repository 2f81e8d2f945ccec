"""The server of views, of ``timely serve``."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from timely.cli.program import module_at
from timely.differential.tables.names.statements import TableDefinition, parse_script
from timely.differential.tables.names.user_functions import functions_in
from timely.errors import ConfigurationError, TimelyWarning, did_you_mean, file_error_text
from timely.files.formats import FORMATS, extension_of
from timely.memory import bytes_of, return_freed_memory
from timely.server import Connectors, InputWatcher, Limits, Views, ViewServer, WatchedInput
from timely.worker.gc_control import collector_paused

_END: Final = 4.0
"""Seconds after a signal to end in which what runs may end by itself."""


@attrs.frozen
class Settings:
    """The options of the command."""

    changes: Sequence[str]
    poll: float
    port: int
    host: str
    names: Sequence[str]
    writable: bool
    connectors: bool
    data: Path | None
    max_queries: int
    max_rows: int
    query_seconds: float
    query_memory: str | None
    functions: str | None
    sep: str | None
    decimal: str
    encoding: str | None
    null: Sequence[str]


class ProblemLog:
    """Says what goes wrong with inputs and views, once, and when it is over.

    >>> said = []
    >>> log = ProblemLog(said.append)
    >>> for problems in ([], ["input a: no"], ["input a: no"], ["view v: no"], []):
    ...     log.report(problems)
    >>> said
    ['timely: input a: no', 'timely: view v: no', 'timely: input a: read again', 'timely: view v: has a result again']
    """

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._known: list[str] = []

    def report(self, problems: Sequence[str]) -> None:
        """Say what is new in ``problems``, each ``kind name: text``, and which kinds and names are in it no more."""
        for problem in problems:
            if problem not in self._known:
                self._say(f"timely: {problem}")
        left = {problem.partition(":")[0] for problem in problems}
        for source in dict.fromkeys(problem.partition(":")[0] for problem in self._known):
            if source not in left:
                self._say(f"timely: {source}: {'has a result' if source.startswith('view ') else 'read'} again")
        self._known = list(problems)


def serve(script: Path | None, inputs: Mapping[str, Path], settings: Settings, say: Callable[[str], object]) -> None:
    """Serve inputs, and the views of a script over them, until the process is interrupted or terminated."""
    data = {extension for each in FORMATS.values() for extension in each.extensions} - {".txt"}
    if script is not None and extension_of(script) in data:
        raise ConfigurationError(f"{str(script)!r} is no script: write --input NAME={script}")
    try:
        text = None if script is None else script.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        reason = file_error_text(error) if isinstance(error, OSError) else str(error)
        raise ConfigurationError(f"the script {str(script)!r} cannot be read: {reason}") from None
    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns of statements that are refused here
    unknown = sorted(set(settings.changes) - inputs.keys())
    if unknown:
        raise ConfigurationError(f"--changes {unknown[0]}: there is no input of that name{did_you_mean(unknown[0], inputs)}")
    declared = {each.name: each.schema for each in parse_script(text or "") if isinstance(each, TableDefinition)}
    watched = [
        WatchedInput(
            name,
            path,
            declared.get(name.lower()),
            changes=name in settings.changes,
            delimiter=settings.sep,
            decimal=settings.decimal,
            encoding=settings.encoding,
            null_values=("", *settings.null),
        )
        for name, path in inputs.items()
    ]
    limits = Limits(
        queries=settings.max_queries,
        rows=settings.max_rows,
        query_seconds=settings.query_seconds,
        query_memory=None if settings.query_memory is None else bytes_of(settings.query_memory, "--query-memory"),
    )
    functions = {} if settings.functions is None else functions_in(module_at(settings.functions))
    if not functions and settings.functions is not None:
        raise ConfigurationError(f"--functions {settings.functions}: there is no dd.function(...) in this module")
    with Views(limits, settings.data, functions) as views:
        _serve(views, text, watched, settings, say)


def _serve(views: Views, text: str | None, watched: list[WatchedInput], settings: Settings, say: Callable[[str], object]) -> None:
    with collector_paused():  # what is loaded stays: to look for garbage in it took a third of the time
        watcher = InputWatcher(views, watched, settings.poll)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", TimelyWarning)
            if text is not None:
                views.apply_script(text)
        gc.freeze()
    return_freed_memory()  # which else each query might take beside its own
    over = threading.Event()

    def end(*_: object) -> None:
        over.set()
        _end_in_time()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with (
            Connectors(views) as connectors,
            ViewServer(
                views,
                settings.port,
                settings.host,
                names=settings.names,
                writable=settings.writable,
                connectors=settings.connectors,
                problems=lambda: [*watcher.problems, *connectors.problems],
            ) as server,
            watcher,
        ):
            for note in (note for each in watched for note in each.notes):
                say(f"timely: {note}")
            for warning in warned:
                say(f"timely: {warning.message}")
            if views.restored is not None:
                say(f"timely: {settings.data}: {views.restored}")
            log = ProblemLog(say)
            log.report(_problems(watcher, connectors, views))
            relations = len(views.overview()[1])
            say(f"serving {relations} {'table' if relations == 1 else 'tables and views'} at {server.url}")
            while not over.wait(settings.poll):
                log.report(_problems(watcher, connectors, views))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_in_time() -> None:
    """End the process within 5 s, whatever its threads do."""
    stop = threading.Timer(_END, os._exit, (0,))
    stop.daemon = True
    stop.start()
    if hasattr(signal, "setitimer"):  # the kernel, where one call of C has kept the thread from running
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, _END + 0.5)


def _problems(watcher: InputWatcher, connectors: Connectors, views: Views) -> list[str]:
    failed = [f"{each.kind} {each.name}: {each.error}" for each in views.overview()[1] if each.error]
    return [*watcher.problems, *connectors.problems, *failed, *([f"the server: {views.broken}"] if views.broken else [])]
