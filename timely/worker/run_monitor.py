"""``Watch``: how a run is looked after while it runs: a line on the terminal that says how far it is, a word in the log when it
is stuck.

A thread of its own looks now and then, in one process of the run. It begins when the run has gone on for a moment, and only then
loads :mod:`timely.inspect`, so that a short run pays for no more than the start of a thread. The invariant: where no terminal is,
workers pay for nothing at all; where one is, for one addition for each batch that an input sends. The thread has ended when the
run has.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Final

import attrs

from timely.errors import ConfigurationError
from timely.worker.local_workers import LocalWorkers
from timely.worker.terminal import StatusLine, is_terminal

VARIABLE: Final = "TIMELY_WATCH"
"""The variable of the environment that turns it all off where it is 0."""

PATIENCE: Final = 60.0
"""Seconds without any movement after which a run is stuck, if nobody says otherwise."""

SHOWN_AFTER: Final = 2.0
"""Seconds after which a run is long enough for a line on the terminal."""

SHOWN_EVERY: Final = 0.5

LOOKS: Final = 4
"""How often to look within the seconds after which a run is stuck."""

_drawing = threading.Lock()


@attrs.frozen
class Watch:
    """What is wanted: to hear, by ``say`` or else in the log, when nothing has moved for ``patience`` seconds; and a ``line``.

    Without ``inputs`` it is all right that nothing moves where only inputs are waited for.
    """

    patience: float = PATIENCE
    line: bool = True
    say: Callable[[str], object] | None = None
    inputs: bool = True

    @classmethod
    def wanted(cls, watch: bool | float) -> Watch | None:
        """Return what an argument ``watch`` asks for, unless the environment says that nothing is wanted.

        ``ConfigurationError`` for a number that is not positive.

        >>> Watch.wanted(False), Watch.wanted(5.0).patience
        (None, 5.0)
        """
        if not isinstance(watch, int | float) or not (watch is False or watch > 0):
            raise ConfigurationError(
                f"watch={watch!r}: give the seconds without movement after which to say what is stuck, or False for no watch"
            )
        if watch is False or is_switched_off():
            return None
        return cls() if watch is True else cls(float(watch))


def is_switched_off() -> bool:
    """Return whether the environment says that nothing is to be watched unless it was asked for."""
    return os.environ.get(VARIABLE) == "0"


@contextlib.contextmanager
def watched(company: LocalWorkers, watch: Watch | None, processes: int = 1) -> Iterator[None]:
    """Look after a company's workers for the ``with`` block: what is said is said by the first of the ``processes``."""
    if watch is None:
        yield
        return
    with contextlib.ExitStack() as stack:
        line = stack.enter_context(_line(company, processes > 1)) if watch.line else None
        if company.place == 0:
            stack.enter_context(_attended(company, watch, line))
        yield


@contextlib.contextmanager
def _line(company: LocalWorkers, shared: bool) -> Iterator[StatusLine | None]:
    """Give the line of the terminal, where there is one and nobody in this process draws on it already."""
    if not is_terminal(sys.stderr) or not _drawing.acquire(blocking=False):
        yield None
        return
    company.counts_records = True
    line = StatusLine(sys.stderr, shared=shared)
    try:
        with line.beside(sys.stdout, sys.stderr):
            yield line
    finally:
        line.clear()
        _drawing.release()


@contextlib.contextmanager
def _attended(company: LocalWorkers, watch: Watch, line: StatusLine | None) -> Iterator[None]:
    over, begun = threading.Event(), monotonic()
    first = watch.patience / LOOKS if line is None else min(watch.patience / LOOKS, SHOWN_AFTER)

    def attend() -> None:
        if not over.wait(first):
            from timely.inspect import monitor_thread

            monitor_thread.monitor(company, watch, line, over, begun)

    thread = threading.Thread(target=attend, name="timely watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
