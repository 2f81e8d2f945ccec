"""What the thread does that looks after a run (:mod:`timely.worker.run_monitor`): the line on the terminal, and the watchdog.

It only ever reads. The invariant: whatever goes wrong in it is logged, and does the run no harm.
"""

from __future__ import annotations

import functools
import logging
import threading
from time import monotonic

from timely.inspect.census import MOVEMENT, RECORDS
from timely.inspect.progress_line import Progress
from timely.inspect.watchdog import Lookout
from timely.worker.input_counts import records_taken
from timely.worker.local_workers import LocalWorkers
from timely.worker.run_monitor import LOOKS, SHOWN_AFTER, SHOWN_EVERY, Watch
from timely.worker.terminal import StatusLine

_LOG = logging.getLogger(__name__)

_SECONDS = 0.2
"""How long to wait for what other processes have to say of what they do."""


def attend(company: LocalWorkers, watch: Watch, line: StatusLine | None, over: threading.Event, begun: float) -> None:
    """Look after a run that has begun at ``begun`` until it is over; ``line`` is where to say how far it is."""
    try:
        _attend(company, watch, line, over, begun)
    except Exception:
        _LOG.exception("the run is not watched any more; it goes on")


def _attend(company: LocalWorkers, watch: Watch, line: StatusLine | None, over: threading.Event, begun: float) -> None:
    elsewhere = functools.partial(company.ask, MOVEMENT, _SECONDS)
    lookout = Lookout(company.members, watch.patience, watch.say, inputs=watch.inputs, elsewhere=elsewhere)
    progress = Progress(Intake(company))
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


class Intake:
    """How many records the inputs of all processes have sent, as far as each has said; it is called for the number."""

    def __init__(self, company: LocalWorkers) -> None:
        self._company = company
        self._others: dict[int, int] = {}

    def __call__(self) -> int:
        said = self._company.ask(RECORDS, _SECONDS)
        self._others.update({place: number for place, number in said.items() if isinstance(number, int)})
        return sum(records_taken(member.worker) for member in tuple(self._company.members)) + sum(self._others.values())
