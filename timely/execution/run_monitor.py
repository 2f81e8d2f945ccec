"""Watches a run while it goes on: a line on the terminal says how far it is, a word in the log that it is stuck.

A thread in one process of the run looks now and then. It loads :mod:`timely.inspect` only when the run has gone on for a
moment. It only reads, and whatever goes wrong in it is logged and does the run no harm. Without a terminal workers pay nothing.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Any, Final, TypeAlias

from timely.monitor.input_counts import records_sent
from timely.monitor.local_workers import LocalWorkers, Member
from timely.monitor.terminal import NotebookLine, RelayedLine, StatusLine, is_terminal, notebook_line
from timely.monitor.watch_settings import LOOKS, SHOWN_AFTER, SHOWN_EVERY, WatchSettings
from timely.worker.explanation_data import Explanation, Place
from timely.worker.internals import set_explainer
from timely.worker.worker import Worker

_SECONDS: Final = 0.2
"""How long to wait for answers of other processes."""

_drawing = threading.Lock()

Line: TypeAlias = StatusLine | NotebookLine


def _explain(worker: Worker, what: Place) -> Explanation:
    from timely.inspect import explain

    return explain(worker, what)


set_explainer(_explain)


def answer(members: Sequence[Member], query: Any) -> Any:
    """Answer what another process asks of the workers of this one."""
    from timely.inspect import capability_holders

    return capability_holders.answer(members, query)


@contextlib.contextmanager
def watched(
    workers: LocalWorkers, settings: WatchSettings | None, processes: int = 1, relayed: RelayedLine | None = None
) -> Iterator[None]:
    """Watch the workers for the ``with`` block; the first of the ``processes`` reports, in a notebook by a ``relayed`` line."""
    if settings is None:
        yield
        return
    with contextlib.ExitStack() as stack:
        line = stack.enter_context(_line(workers, processes > 1, relayed)) if settings.line else None
        if workers.place == 0:
            stack.enter_context(_thread(workers, settings, line))
        yield


@contextlib.contextmanager
def _line(workers: LocalWorkers, shared: bool, relayed: RelayedLine | None) -> Iterator[Line | None]:
    """Yield the line of the terminal or the notebook, if there is one and nothing in this process draws on it already."""
    cell = relayed or notebook_line()
    if (cell is None and not is_terminal(sys.stderr)) or not _drawing.acquire(blocking=False):
        yield None
        return
    workers.counts_records = True
    line = cell or StatusLine(sys.stderr, shared=shared)
    try:
        with line.beside(sys.stdout, sys.stderr):
            yield line
    finally:
        line.clear()
        _drawing.release()


@contextlib.contextmanager
def _thread(workers: LocalWorkers, settings: WatchSettings, line: Line | None) -> Iterator[None]:
    over, begun = threading.Event(), monotonic()
    first = settings.patience / LOOKS if line is None else min(settings.patience / LOOKS, SHOWN_AFTER)

    def watch() -> None:
        if over.wait(first):
            return
        import logging

        try:
            _watch(workers, settings, line, over, begun)
        except Exception:
            logging.getLogger(__name__).exception("the run is not watched any more; it goes on")

    thread = threading.Thread(target=watch, name="timely watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _watch(workers: LocalWorkers, settings: WatchSettings, line: Line | None, over: threading.Event, begun: float) -> None:
    from timely.inspect.capability_holders import MOVEMENT
    from timely.inspect.run_status import RunStatus
    from timely.inspect.watchdog import StuckDetector

    elsewhere = functools.partial(workers.ask, MOVEMENT, _SECONDS)
    detector = StuckDetector(workers.members, settings.patience, settings.say, inputs=settings.inputs, elsewhere=elsewhere)
    status = RunStatus(RecordCounts(workers))
    every = settings.patience / LOOKS
    due = 0.0
    while True:
        now = monotonic()
        if line is not None and now - begun >= SHOWN_AFTER:
            text = status.text([member.worker for member in tuple(workers.members)])
            if text is not None:
                line.write(f"{text} | {now - begun:.0f} s" if text else "")
        if now >= due:
            detector.look()
            due = now + every
        if over.wait(every if line is None else min(every, SHOWN_EVERY)):
            return


class RecordCounts:
    """Returns, when called, how many records the inputs of all processes have sent, as far as each has answered."""

    def __init__(self, workers: LocalWorkers) -> None:
        self._workers = workers
        self._others: dict[int, int] = {}

    def __call__(self) -> int:
        from timely.inspect.capability_holders import RECORDS

        answers = self._workers.ask(RECORDS, _SECONDS)
        self._others.update({place: number for place, number in answers.items() if isinstance(number, int)})
        return sum(records_sent(member.worker) for member in tuple(self._workers.members)) + sum(self._others.values())
