"""Fewer messages where they have to wait: the progress of one dataflow becomes one batch.

What a worker did in each turn is a batch of progress to every peer. A peer that does not keep up, or a line that does not, gets
the sum of those that wait, so that what it has to catch up with is data, and never a pile of statements most of which cancel.
The invariant: batches are never split, and stay in order; one that waits longer goes with the last that it is merged with, behind
the data that they speak of. Nothing passes any other kind of message, since those may rely on what was sent before them.
"""

from __future__ import annotations

from typing import Any, Final

PROGRESS: Final = "progress"
DATA: Final = "data"


def coalesce(messages: list[Any]) -> list[Any]:
    """Return the messages of a worker, the progress batches of each dataflow merged into the last of them.

    >>> from timely.progress import ProgressBatch
    >>> batches = [ProgressBatch(0, 0, (("a", 1),)), ProgressBatch(0, 1, (("a", -1), ("b", 1)))]
    >>> merged = coalesce([("progress", 0, batches[0]), ("data", 0, 3, 0, ["x"]), ("progress", 0, batches[1])])
    >>> merged[0], merged[1][2].updates
    (('data', 0, 3, 0, ['x']), (('b', 1),))
    """
    kept: list[Any] = []
    waiting: dict[int, list[int]] = {}
    for message in messages:
        kind = None if message is None else message[0]
        if kind == PROGRESS:
            waiting.setdefault(message[1], []).append(len(kept))
        elif kind != DATA:
            _merge(kept, waiting)
            waiting.clear()
        kept.append(message)
    _merge(kept, waiting)
    return [message for message in kept if message is not _GONE]


_GONE: Final = ("gone",)


def _merge(messages: list[Any], places: dict[int, list[int]]) -> None:
    """Put the sum of the batches at these places, for each dataflow, at the last of its places."""
    for number, (first, *rest) in places.items():
        if rest:
            merged = messages[first][2].merged(messages[place][2] for place in rest)
            for place in (first, *rest):
                messages[place] = _GONE
            messages[rest[-1]] = (PROGRESS, number, merged)
