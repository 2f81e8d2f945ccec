"""``ProgressLine``: how far the workers of this process are, on one line of the terminal.

It appears when a run takes longer than a moment, and is gone when the run is over; without a terminal nothing is written.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final, Self, TextIO

from timely.monitor.dataflow_position import position_of
from timely.monitor.input_counts import InputCounts, records_sent
from timely.monitor.terminal import StatusLine, count, is_terminal
from timely.monitor.watch_settings import SHOWN_AFTER, SHOWN_EVERY
from timely.worker import Worker

_SAMPLES: Final = 5
"""Samples from which records per second are computed."""


class RunStatus:
    """The text of the line; ``records`` returns how many records the inputs have sent."""

    def __init__(self, records: Callable[[], int], clock: Callable[[], float] = monotonic) -> None:
        self._records = records
        self._clock = clock
        self._samples: deque[tuple[float, int]] = deque(maxlen=_SAMPLES)

    def text(self, workers: Sequence[Worker]) -> str | None:
        """Return the state of each dataflow on the worker that is furthest behind; empty when all are complete.

        ``None`` if it changed while it was read.
        """
        try:
            parts = _positions(workers)
        except RuntimeError:
            return None
        rate = self._rate()
        return " | ".join([*parts, f"{count(rate)} records/s"] if parts and rate else parts)

    def _rate(self) -> int:
        self._samples.append((self._clock(), self._records()))
        (begun, before), (now, by_now) = self._samples[0], self._samples[-1]
        return round((by_now - before) / (now - begun)) if now > begun else 0


def _positions(workers: Sequence[Worker]) -> list[str]:
    behind: dict[str, tuple[int, int | None, int]] = {}
    for worker in workers:
        for scope in worker.scopes:
            epoch, round = position_of(scope)
            if epoch is not None and (scope.name not in behind or epoch < behind[scope.name][0]):
                behind[scope.name] = epoch, round, sum(nested.under_way() for nested in scope.scopes)
    parts = []
    for name, (epoch, round, records) in behind.items():
        text = f"{name}: epoch {epoch}"
        text += "" if round is None else f", round {round}"
        text += f", {count(records)} records under way" if records else ""
        parts.append(text)
    return parts


class ProgressLine:
    """Shows in its ``with`` block how far the workers are that it is to ``watch``; ``timely.execute`` shows one by itself.

    For each dataflow, on the worker that is furthest behind: the epoch, the round of its loops, the records in flight. At the end
    the records that come in per second.

    >>> import timely
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
        self._line = StatusLine(chosen) if is_terminal(chosen) else None
        self._terminal = chosen
        self._workers: list[Worker] = []
        self._progress = RunStatus(lambda: sum(map(records_sent, self._workers)), clock)
        self._clock = clock
        self._begun = clock()
        self._over = threading.Event()
        self._open = contextlib.ExitStack()

    def watch(self, worker: Worker) -> None:
        """Show this worker, too."""
        self._workers.append(worker)
        if self._line is not None:
            InputCounts.of(worker)

    def text(self) -> str | None:
        """Return the text now: empty when all is complete, ``None`` if it changed while it was read."""
        return self._progress.text(self._workers)

    def show(self) -> None:
        """Write the line, if the run has lasted long enough; the thread calls this again and again."""
        seconds = self._clock() - self._begun
        if self._line is None or seconds < SHOWN_AFTER:
            return
        text = self.text()
        if text is not None:
            self._line.write(f"{text} | {seconds:.0f} s" if text else "")

    def _watch(self) -> None:
        while not self._over.wait(SHOWN_EVERY):
            self.show()

    def __enter__(self) -> Self:
        self._begun = self._clock()
        self._over.clear()
        if self._line is not None:
            self._open.enter_context(self._line.beside(self._terminal, sys.stdout, sys.stderr))
            thread = threading.Thread(target=self._watch, name="timely progress line", daemon=True)
            thread.start()
            self._open.callback(self._line.clear)
            self._open.callback(thread.join)
            self._open.callback(self._over.set)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
