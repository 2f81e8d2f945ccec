"""Fewer messages: small lists for one channel become one, and so do batches of progress that have to wait.

Invariant: on each channel records arrive in the order in which they were sent, at their times. Progress counts records and not
lists, and moves only behind the data that it speaks of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from timely.dataflow.ports import FLUSH_AT
from timely.worker.peer_pressure import MUCH, weight_of
from timely.worker.worker_messages import DataMessage, ProgressMessage

_TIME: Final = 0
_RECORDS: Final = 1
_OWNED: Final = 2
_BYTES: Final = 3


class MessageBatcher:
    """Collects what a dataflow sends in one step; ``flush`` sends the rest."""

    __slots__ = ("_dataflow", "_send", "held")

    def __init__(self, dataflow: int, send: Callable[[int, Any], None]) -> None:
        self._dataflow = dataflow
        self._send = send
        self.held: dict[tuple[int, int], list[Any]] = {}
        """By peer and channel: a time, records, whether the list is ours to change, and about how many bytes were added."""

    def send(self, peer: int, channel: int, time: Any, batch: Any) -> None:
        """Send a container on a channel to a peer, now or with the next ``flush``."""
        key = peer, channel
        held = self.held.get(key)
        small = type(batch) is list and len(batch) < FLUSH_AT
        if held is not None and small and held[_TIME] == time and len(held[_RECORDS]) < FLUSH_AT and held[_BYTES] < MUCH:
            held[_BYTES] += weight_of(batch)
            if held[_OWNED]:
                held[_RECORDS] += batch
            else:  # others may have that list too
                held[_RECORDS], held[_OWNED] = held[_RECORDS] + batch, True
            return
        if held is not None:
            del self.held[key]
            self._send(peer, DataMessage(self._dataflow, channel, held[_TIME], held[_RECORDS]))
        if small:
            self.held[key] = [time, batch, False, 0]
        else:
            self._send(peer, DataMessage(self._dataflow, channel, time, batch))

    def flush(self) -> None:
        """Send what is held."""
        for (peer, channel), held in self.held.items():
            self._send(peer, DataMessage(self._dataflow, channel, held[_TIME], held[_RECORDS]))
        self.held.clear()


def merge_progress(messages: list[Any]) -> list[Any]:
    """Return messages that wait, with the progress batches of each dataflow merged into the last of them.

    Nothing passes a message that is neither data nor progress: it may rely on what was sent before it.
    """
    queue: list[Any] = []
    waiting: dict[int, list[int]] = {}
    gone: set[int] = set()
    for message in [*messages, None]:
        kind = type(message)
        if kind is ProgressMessage:
            waiting.setdefault(message.dataflow, []).append(len(queue))
        elif kind is not DataMessage:
            for number, (first, *rest) in waiting.items():
                if rest:
                    merged = queue[first].batch.merged(queue[place].batch for place in rest)
                    gone.update((first, *rest[:-1]))
                    queue[rest[-1]] = ProgressMessage(number, merged)
            waiting.clear()
        queue.append(message)
    del queue[-1]
    return [message for place, message in enumerate(queue) if place not in gone]
