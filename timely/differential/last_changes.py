"""``LastChanges``: the updates that went round a loop last, so that ``worker.explain`` can say which records still change."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Any, Final

from timely.dataflow import OperatorInfo
from timely.errors import brief
from timely.order import Product

_RECORDS: Final = 3
_MESSAGES: Final = 4
_TIMES: Final = 2


class LastChanges:
    """Sees each message of updates that goes round a loop; remembers three updates of each of the last four."""

    __slots__ = ("_last",)

    def __init__(self, info: OperatorInfo) -> None:
        self._last: deque[tuple[Any, list[Any], bool]] = deque(maxlen=_MESSAGES)
        info.describe(self.text, records=True)

    def __call__(self, time: Any, batch: Any) -> None:
        if isinstance(batch, list):
            rows = batch[:_RECORDS]
        else:  # to iterate over columns would make rows of them all
            rows = list(islice(batch.chosen(slice(_RECORDS)) if hasattr(batch, "chosen") else batch, _RECORDS))
        self._last.append((time, rows, len(batch) > len(rows)))

    def text(self) -> str:
        """Return the last changes in words, the latest time first."""
        times: dict[Any, tuple[list[Any], bool]] = {}
        for time, rows, more in reversed(tuple(self._last)):
            shown, cut = times.get(time, ([], False))
            found = [*shown, *rows]
            times[time] = found[:_RECORDS], cut or more or len(found) > _RECORDS
        parts = [_changes(*times[time], time) for time in list(times)[:_TIMES]]
        return f"the last changes of the loop's variable: {'; '.join(parts)}" if parts else ""


def _changes(rows: list[Any], more: bool, time: Any) -> str:
    found = ", ".join(f"({brief(record)}, {diff:+})" if type(diff) is int else brief((record, diff)) for record, diff in rows)
    return f"{found}{' and more' if more else ''} at {in_words(time)}"


def in_words(time: Any) -> str:
    """Return a time in words: a number is an epoch, and the inner number of a pair is the round of a loop.

    >>> in_words(Product(0, 1204)), in_words(Product(Product(2, 0), 7))
    ('round 1,204 of epoch 0', 'round 7 of round 0 of epoch 2')
    """
    if type(time) is Product and type(time.inner) is int:
        return f"round {time.inner:,} of {in_words(time.outer)}"
    return f"epoch {time:,}" if type(time) is int else f"time {brief(time)}"
