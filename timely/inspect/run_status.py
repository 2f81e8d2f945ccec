"""``RunStatus``: how far the workers of this process are, as the text of one line of the terminal."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

from timely.inspect.capability_holders import operators_of
from timely.monitor.dataflow_position import position_of
from timely.monitor.terminal import count
from timely.worker import Worker

_SAMPLES: Final = 5
"""Samples from which records per second are computed."""


class RunStatus:
    """The text of the line; ``records`` returns how many records the inputs have sent.

    >>> import timely
    >>> worker = timely.Worker()
    >>> with worker.dataflow(name="df") as scope:
    ...     numbers, stream = scope.new_input()
    ...     with scope.iterative("loop") as loop:
    ...         back, again = loop.feedback()
    ...         stream.enter(loop).concat(again).connect_loop(back)
    >>> numbers.advance_to(3)
    >>> numbers.send_batch([1, 2])
    >>> for _ in range(10):
    ...     _ = worker.step()
    >>> RunStatus(lambda: 0).text([worker])
    'df: epoch 3, round 9, 2 records under way'
    """

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
    sources: list[str] = []
    for worker in workers:
        for scope in worker.scopes:
            epoch, round = position_of(scope)
            if epoch is not None and (scope.name not in behind or epoch < behind[scope.name][0]):
                behind[scope.name] = epoch, round, sum(nested.under_way() for nested in scope.scopes)
            for operator in operators_of(scope):
                if not operator.inputs:
                    sources += [f"{operator.name}: {text}" for text in operator.info.described(records=False)]
    parts = []
    for name, (epoch, round, records) in behind.items():
        text = f"{name}: epoch {epoch}"
        text += "" if round is None else f", round {round}"
        text += f", {count(records)} records under way" if records else ""
        parts.append(text)
    return [*parts, *sources]
