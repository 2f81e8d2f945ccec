"""``start``: a run on threads of its own, which a notebook's cell or a prompt can look at, and stop."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from html import escape
from time import monotonic
from typing import Final, Generic, TypeVar

from timely.dataflow import fold_tracebacks
from timely.errors import ConfigurationError, WorkerError, brief, error_text
from timely.execution.local_run import check_program, execute_here
from timely.execution.run_monitor import answer
from timely.monitor.input_counts import records_sent
from timely.monitor.local_workers import LocalWorkers
from timely.monitor.terminal import show_while
from timely.monitor.watch_settings import WatchSettings
from timely.worker.explanation_data import Explanation
from timely.worker.internals import sync_activator
from timely.worker.worker import Worker

T = TypeVar("T")

_TRIES: Final = 5
"""How often to look at a dataflow that changes while it is read."""


class _Explanations(list[Explanation]):
    """Explanations, which a notebook shows with the pictures of their dataflows."""

    pictures: list[str]

    def _repr_html_(self) -> str:
        return f"<pre>{escape(chr(10).join(map(str, self)) or 'every dataflow is complete')}</pre>{''.join(self.pictures)}"


class BackgroundRun(Generic[T]):
    """A run that ``timely.start`` has started. It ends with this process at the latest.

    Its ``repr`` says how far it is; a notebook shows the dataflows of worker 0 too.
    """

    def __init__(self, program: Callable[[Worker], T], workers: int, settings: WatchSettings | None) -> None:
        self._program = program
        self._settings = settings
        self._workers = workers
        self._local = LocalWorkers(workers=workers, answer=answer)
        self._local.counts_records = True
        self._status: Callable[[list[Worker]], str | None] | None = None
        self._stopping = False
        self._outcome: tuple[list[T], BaseException | None] = [], None
        self._begun = monotonic()
        self._ended: float | None = None
        self._thread = threading.Thread(target=self._run, name="timely run", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._outcome = execute_here(self._call, self._workers, "direct", self._settings, self._local), None
        except BaseException as error:
            if isinstance(error, Exception):
                fold_tracebacks(error)
            self._outcome = [], error
        self._ended = monotonic()

    def _call(self, worker: Worker) -> T:
        self._check_going_on()
        return self._program(worker)

    def _check_going_on(self) -> None:
        if self._stopping:
            raise WorkerError("the run was stopped: start it again for its results")

    @property
    def running(self) -> bool:
        """Whether it goes on."""
        return self._ended is None

    def result(self, timeout: float | None = None) -> list[T]:
        """Wait for the results of the workers, in order; raise what ends the run, or ``TimeoutError`` after so many seconds."""
        self._thread.join(timeout)
        if self.running:
            raise TimeoutError(f"the run is not over after {timeout} s: {self._text()}")
        results, error = self._outcome
        if error is not None:
            raise error
        return results

    def stop(self, timeout: float = 10.0) -> None:
        """Stop the workers at their next step, and wait for that. Stopping a run that is over is a no-op.

        ``WorkerError`` if a worker has not taken a step for ``timeout`` seconds: its operator or program is still running.
        """
        self._stopping = True
        for member in tuple(self._local.members):
            sync_activator(member.worker, self._check_going_on).activate()
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise WorkerError(f"the run goes on: a worker has not taken a step for {timeout:g} s. {self._text()}")

    def explain(self) -> list[Explanation]:
        """Return what keeps each dataflow of worker 0 from its end, as ``worker.explain`` does; empty where none is left.

        A notebook shows the dataflows too, with what each operator holds.
        """
        first = [member.worker for member in tuple(self._local.members)[:1]]
        explanations = _Explanations(worker.explain(scope) for worker in first for scope in worker.scopes)
        explanations.pictures = self._pictures()
        return explanations

    def _text(self) -> str:
        seconds = (self._ended or monotonic()) - self._begun
        if self.running:
            position = self._position([member.worker for member in tuple(self._local.members)])
            return f"running for {seconds:.1f} s" + (f": {position}" if position else "")
        _, error = self._outcome
        if error is None:
            return f"done after {seconds:.1f} s"
        return f"stopped after {seconds:.1f} s" if self._stopping else f"failed after {seconds:.1f} s: {error_text(error)}"

    def _position(self, workers: list[Worker]) -> str | None:
        if self._status is None:
            from timely.inspect.run_status import RunStatus

            self._status = RunStatus(lambda: sum(records_sent(member.worker) for member in tuple(self._local.members))).text
        return self._status(workers)

    def __repr__(self) -> str:
        return f"BackgroundRun({self._workers} worker{'' if self._workers == 1 else 's'}, {self._text()})"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>{''.join(self._pictures())}"

    def _ipython_display_(self) -> None:
        show_while(self, lambda: self.running)

    def _pictures(self) -> list[str]:
        from timely.inspect import picture

        for _ in range(_TRIES):
            with contextlib.suppress(RuntimeError):  # it changed meanwhile
                return [picture(scope).svg() for member in tuple(self._local.members)[:1] for scope in member.worker.scopes]
        return []


def start(program: Callable[[Worker], T], *, workers: int = 1, watch: bool | float = True) -> BackgroundRun[T]:
    """Start ``program(worker)`` on ``workers`` threads beside the caller, and return the run at once.

    ``watch`` is as for ``timely.execute``, without the line. ``ConfigurationError`` for a count below one, or a program that is
    no function. The program runs on other threads: read its data when it is over.

    >>> def program(worker):
    ...     with worker.dataflow() as scope:
    ...         seen = scope.to_stream([1, 2]).capture()
    ...     worker.run()
    ...     return seen.extract()
    >>> run = start(program)
    >>> run.result()
    [[(0, [1, 2])]]
    >>> run.running, repr(run).startswith("BackgroundRun(1 worker, done after ")
    (False, True)
    """
    check_program("start", program)
    if not isinstance(workers, int) or workers < 1:
        raise ConfigurationError(f"workers={brief(workers)}: give a whole number of at least 1")
    settings = WatchSettings.wanted(watch)
    return BackgroundRun(program, workers, None if settings is None else settings.without_line())
