"""The thread that monitors a run (:mod:`timely.worker.run_monitor`): the line on the terminal, and the watchdog. It only
reads."""

from __future__ import annotations

import functools
import logging
import threading
from time import monotonic

from timely.inspect.capability_holders import MOVEMENT, RECORDS
from timely.inspect.progress_line import ProgressText
from timely.inspect.watchdog import Lookout
from timely.worker.input_counts import records_taken
from timely.worker.local_workers import LocalWorkers
from timely.worker.run_monitor import LOOKS, SHOWN_AFTER, SHOWN_EVERY, Watch
from timely.worker.terminal import StatusLine

_LOG = logging.getLogger(__name__)

_SECONDS = 0.2
"""How long to wait for answers of other processes."""


def monitor(company: LocalWorkers, watch: Watch, line: StatusLine | None, over: threading.Event, begun: float) -> None:
    """Monitor a run that began at ``begun`` until ``over`` is set; a failure is logged, and leaves the run alone."""
    try:
        _monitor(company, watch, line, over, begun)
    except Exception:
        _LOG.exception("the run is not watched any more; it goes on")


def _monitor(company: LocalWorkers, watch: Watch, line: StatusLine | None, over: threading.Event, begun: float) -> None:
    elsewhere = functools.partial(company.ask, MOVEMENT, _SECONDS)
    lookout = Lookout(company.members, watch.patience, watch.say, inputs=watch.inputs, elsewhere=elsewhere)
    progress = ProgressText(InputRecords(company))
    every = watch.patience / LOOKS
    due = 0.0
    while True:
        now = monotonic()
        if line is not None and now - begun >= SHOWN_AFTER:
            text = progress.text([member.worker for member in tuple(company.members)])
            if text is not None:
                line.write(f"{text} | {now - begun:.0f} s" if text else "")
        if now >= due:
            lookout.look()
            due = now + every
        if over.wait(every if line is None else min(every, SHOWN_EVERY)):
            return


class InputRecords:
    """Called, returns how many records the inputs of all processes have sent, by their last answers."""

    def __init__(self, company: LocalWorkers) -> None:
        self._company = company
        self._others: dict[int, int] = {}

    def __call__(self) -> int:
        answers = self._company.ask(RECORDS, _SECONDS)
        self._others.update({place: number for place, number in answers.items() if isinstance(number, int)})
        return sum(records_taken(member.worker) for member in tuple(self._company.members)) + sum(self._others.values())
