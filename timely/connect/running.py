"""``run``: steps a worker whose dataflows have sources and sinks, with a checkpoint now and then."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from timely.errors import ConfigurationError
from timely.recovery import Recovery


def run(recovery: Recovery, *, seconds: float = 1.0, until: Callable[[], bool] | None = None) -> None:
    """Step until all dataflows are complete, with a checkpoint every ``seconds`` and at the end; sinks get their changes then.

    It ends earlier where ``until()`` is true on any worker. Collective. ``ConfigurationError`` for other than 0 to 30 seconds.
    """
    if not isinstance(seconds, int | float) or not 0 <= seconds <= 30:
        raise ConfigurationError(f"connect.run: seconds={seconds!r} is the time between two checkpoints, from 0 to 30")
    worker, over = recovery.worker, False
    while not over:
        due = monotonic() + seconds

        def waits(due: float = due) -> bool:
            return bool(worker.scopes) and monotonic() < due and not (until is not None and until())

        worker.step()
        worker.step_while(waits)
        complete, ended = not worker.scopes, until is not None and until()
        recovery.checkpoint()
        stops = recovery.agree((complete, ended))
        over = all(complete for complete, _ in stops) or any(ended for _, ended in stops)
