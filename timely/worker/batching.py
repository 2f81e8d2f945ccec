"""``MessageBatcher``: small lists for the same channel, time and peer become one, before they leave.

A message costs what it costs, however few records are in it: to pickle, to carry, to queue and to read. So what a dataflow sends
in one pass is put together before it goes, and nothing waits for a later pass. The invariant: on each channel the records arrive
in the order in which they were sent, at their times. Only lists grow, up to about as many records as a session gathers; progress
counts records and not lists, so that nobody can tell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from timely.dataflow.ports import FLUSH_AT
from timely.worker.progress_batching import DATA

_TIME: Final = 0
_RECORDS: Final = 1
_OURS: Final = 2


class MessageBatcher:
    """What the dataflow ``number`` sends with ``tell(peer, message)``.

    >>> mailbag = MessageBatcher(7, lambda peer, message: print(peer, message))
    >>> for time, records in (0, ["a"]), (0, ["b", "c"]), (1, ["d"]), (0, ["e"]):
    ...     mailbag.put(1, 3, time, records)
    1 ('data', 7, 3, 0, ['a', 'b', 'c'])
    1 ('data', 7, 3, 1, ['d'])
    >>> mailbag.empty()
    1 ('data', 7, 3, 0, ['e'])
    """

    __slots__ = ("_held", "_number", "_tell")

    def __init__(self, number: int, tell: Callable[[int, Any], None]) -> None:
        self._number = number
        self._tell = tell
        self._held: dict[tuple[int, int], list[Any]] = {}
        """By peer and channel: a time, records at it, and whether the list of them is ours to change."""

    def put(self, peer: int, channel: int, time: Any, batch: Any) -> None:
        """Send a container on a channel to a peer: at once, or where more may be added, with ``empty`` at the latest."""
        key = peer, channel
        held = self._held.get(key)
        small = type(batch) is list and len(batch) < FLUSH_AT
        if held is not None and small and held[_TIME] == time and len(held[_RECORDS]) < FLUSH_AT:
            if held[_OURS]:
                held[_RECORDS] += batch
            else:  # others may have that list too
                held[_RECORDS], held[_OURS] = held[_RECORDS] + batch, True
            return
        if held is not None:
            self._send(key, self._held.pop(key))
        if small:
            self._held[key] = [time, batch, False]
        else:
            self._tell(peer, (DATA, self._number, channel, time, batch))

    def empty(self) -> None:
        """Send what is held."""
        if self._held:
            for key, held in self._held.items():
                self._send(key, held)
            self._held.clear()

    def _send(self, key: tuple[int, int], held: list[Any]) -> None:
        peer, channel = key
        self._tell(peer, (DATA, self._number, channel, held[_TIME], held[_RECORDS]))
