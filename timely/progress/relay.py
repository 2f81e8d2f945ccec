"""``Relay``: how a worker that is in several groups (:mod:`timely.progress.routes`) passes on what it hears in them.

To each group it tells one sum: of what it did itself, and of what it heard in its other groups. The invariant is that of the
exchange of progress (:mod:`timely.progress.exchange`): a batch that is handed out is a sum of whole batches, and after it follows
whatever the same workers said later. So to hear it is to hear those batches one after another before anything is derived; since
those of different workers may come in any order, it is as safe as hearing each by itself. What cancels is not told at all. A
caller hands in every batch once, and sends what ``flush`` returns in order. A relay that waits for more before it is flushed is
safe as well, but others may wait for what it has: whoever holds one flushes it before it waits for anything itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeAlias, TypeVar

from timely.progress.change_batch import ChangeBatch
from timely.progress.exchange import ProgressBatch

K = TypeVar("K", bound=Hashable)
Updates: TypeAlias = tuple[tuple[K, int], ...]


class Relay(Generic[K]):
    """What one worker has to pass on of one dataflow: ``groups`` are the others in each of its groups.

    >>> relay = Relay(1, [[0], [2, 3]])
    >>> relay.hear(0, [("a", -1), ("b", 1)])
    >>> relay.say([("b", -1), ("c", 1)])
    >>> for members, batch in relay.flush():
    ...     print(members, batch)
    [0] ProgressBatch(sender=1, sequence=0, updates=(('c', 1), ('b', -1)))
    [2, 3] ProgressBatch(sender=1, sequence=0, updates=(('a', -1), ('c', 1)))
    """

    __slots__ = ("_groups", "_heard", "_index", "_places", "_sequences", "_total")

    def __init__(self, index: int, groups: Sequence[Sequence[int]]) -> None:
        self._index = index
        self._groups = groups
        self._places = {member: place for place, members in enumerate(groups) for member in members}
        self._sequences = [0] * len(groups)
        self._total: ChangeBatch[K] = ChangeBatch()
        self._heard: dict[int, ChangeBatch[K]] = {}

    def say(self, updates: Iterable[tuple[K, int]]) -> None:
        """Take in what this worker did: all groups are to hear of it."""
        self._total.extend(updates)

    def hear(self, sender: int, updates: Updates[K]) -> None:
        """Take in a batch of a member of one of the groups: all other groups are to hear of it."""
        self._total.extend(updates)
        place = self._places[sender]
        heard = self._heard.get(place)
        if heard is None:
            self._heard[place] = ChangeBatch(updates)
        else:
            heard.extend(updates)

    def flush(self) -> list[tuple[Sequence[int], ProgressBatch[K]]]:
        """Return for each group what its members are to hear, and whom that is; nothing for a group for which all cancels.

        Takes time in the number of groups and of changes. Groups that are to hear the same get the same batch, if they can.
        """
        told: list[tuple[Sequence[int], ProgressBatch[K]]] = []
        total = tuple(self._total.drain())
        made: dict[tuple[int, Updates[K]], ProgressBatch[K]] = {}
        for place, members in enumerate(self._groups):
            heard = self._heard.get(place)
            key = self._sequences[place], () if heard is None else tuple(heard)
            batch = made.get(key)
            if batch is None:
                batch = made[key] = ProgressBatch(self._index, key[0], _without(total, key[1]))
            if batch.updates:
                self._sequences[place] += 1
                told.append((members, batch))
        self._heard.clear()
        return told


def _without(total: Updates[K], heard: Updates[K]) -> Updates[K]:
    """Return what is left of a sum without a part of it."""
    if not heard:
        return total
    changes = ChangeBatch(total)
    for key, diff in heard:
        changes.update(key, -diff)
    return tuple(changes)
