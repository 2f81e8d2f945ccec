"""``ProgressLine``: how far the workers of this process are, on one line of the terminal that renews itself.

It appears when a run takes longer than a moment, is gone when the run is over, and is never written where no terminal is.
A daemon thread of its own looks now and then; workers pay for nothing. The invariant: what is written about an epoch was true a
moment ago: nothing before it is still under way on the worker that is the furthest behind.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import Final, Self, TextIO

from timely.worker import Worker
from timely.worker.standing import standing
from timely.worker.terminal import StatusLine, count

_AFTER: Final = 1.5
_EVERY: Final = 0.5


class ProgressLine:
    """Shows, while its ``with`` block lasts, how far the workers are that it is to ``watch``; nothing unless on a terminal.

    For each dataflow of the worker that is the furthest behind: the epoch, the round of its loops, and the records on their way.

    >>> import timely
    >>> from timely.inspect import ProgressLine
    >>> worker = timely.Worker()
    >>> with worker.dataflow(name="df") as scope:
    ...     numbers, stream = scope.new_input()
    ...     _ = stream.probe()
    >>> numbers.advance_to(7)
    >>> _ = worker.step()
    >>> line = ProgressLine()
    >>> line.watch(worker)
    >>> line.text()
    'df: epoch 7'
    """

    def __init__(self, terminal: TextIO | None = None, clock: Callable[[], float] = monotonic) -> None:
        chosen = sys.stderr if terminal is None else terminal
        self._line = StatusLine(chosen) if chosen.isatty() else None
        self._workers: list[Worker] = []
        self._clock = clock
        self._begun = clock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, worker: Worker) -> None:
        """Show this worker too."""
        self._workers.append(worker)

    def text(self) -> str:
        """Return what there is to be said now; nothing when all is complete."""
        found: dict[str, tuple[int, int | None, int]] = {}
        for worker in list(self._workers):
            for scope in worker.scopes:
                epoch, round = standing(scope)
                if epoch is not None and (scope.name not in found or epoch < found[scope.name][0]):
                    found[scope.name] = epoch, round, sum(nested.under_way() for nested in scope.scopes)
        parts = []
        for name, (epoch, round, records) in found.items():
            text = f"{name}: epoch {epoch}"
            text += "" if round is None else f", round {round}"
            text += f", {count(records)} records under way" if records else ""
            parts.append(text)
        return " | ".join(parts)

    def show(self) -> None:
        """Write it once, if the run has gone on for long enough; what the thread does, again and again."""
        seconds = self._clock() - self._begun
        if self._line is None or seconds < _AFTER:
            return
        try:
            text = self.text()
        except RuntimeError:  # something was changed while it was read
            return
        self._line.write(f"{text} | {seconds:.0f} s" if text else "")

    def _watch(self) -> None:
        while not self._over.wait(_EVERY):
            self.show()

    def __enter__(self) -> Self:
        self._begun = self._clock()
        self._over.clear()
        if self._line is not None:
            self._thread = threading.Thread(target=self._watch, name="timely progress line", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if self._line is not None:
            self._line.clear()
