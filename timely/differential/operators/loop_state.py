"""``last_changes``: the updates that went round a loop last, so that ``worker.explain`` can say which records still change."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final, TypeAlias

from timely.dataflow import OperatorInfo
from timely.differential.updates.updates import Container, Update
from timely.errors import brief
from timely.order import Product

_RECORDS: Final = 3
_MESSAGES: Final = 4
_TIMES: Final = 2
_SMALL: Final = 64
"""Updates up to which a batch is kept as it is."""

Message: TypeAlias = tuple[object, Container, int]
"""A time, updates, and how many they are."""


def last_changes(info: OperatorInfo) -> Callable[[Iterable[Message]], None]:
    """Return what sees the messages of updates that go round a loop, and have the operator describe the last ones.

    It takes 0.2 µs a message, and keeps no large batch alive.
    """
    last: deque[Message] = deque(maxlen=_MESSAGES)
    append = last.append

    def see(messages: Iterable[Message]) -> None:
        for message in messages:
            append(message if message[2] <= _SMALL else (message[0], _first(message[1]), message[2]))

    info.describe(lambda: _in_words(tuple(last)), records=True)
    return see


def _first(batch: Container) -> list[Update]:
    """Return the first updates of a batch, without making rows of all of its columns."""
    if isinstance(batch, list):
        return batch[:_RECORDS]
    return list(islice(batch.chosen(slice(_RECORDS)) if hasattr(batch, "chosen") else batch, _RECORDS))


def _in_words(last: Sequence[Message]) -> str:
    """Return the last changes in words, the latest time first."""
    times: dict[object, tuple[list[Update], int]] = {}
    for time, batch, count in reversed(last):
        rows, before = times.get(time, ([], 0))
        times[time] = [*rows, *_first(batch)][:_RECORDS], before + count
    parts = [_changes(*times[time], time) for time in list(times)[:_TIMES]]
    return f"the last changes of the loop's variable: {'; '.join(parts)}" if parts else ""


def _changes(rows: list[Update], count: int, time: object) -> str:
    shown = ", ".join(f"({brief(record)}, {diff:+})" if type(diff) is int else brief((record, diff)) for record, diff in rows)
    return f"{shown}{' and more' if count > len(rows) else ''} at {in_words(time)}"


def in_words(time: object) -> str:
    """Return a time in words: a number is an epoch, and the inner number of a pair is the round of a loop.

    >>> in_words(Product(0, 1204)), in_words(Product(Product(2, 0), 7))
    ('round 1,204 of epoch 0', 'round 7 of round 0 of epoch 2')
    """
    if type(time) is Product and type(time.inner) is int:
        return f"round {time.inner:,} of {in_words(time.outer)}"
    return f"epoch {time:,}" if type(time) is int else f"time {brief(time)}"
