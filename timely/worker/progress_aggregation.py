"""``ProgressAggregator``: what a worker tells of progress where not everybody tells everybody, and whom.

It keeps what the worker did, and passes on what it heard, for each dataflow (:class:`timely.progress.Relay`), also of one that
was dropped here, since others may still run it; but not of one that is not built yet: until then nobody can conclude anything,
and whoever passes on has found that those around have built the same. It also passes on *sweeps*: the mark of a round goes
through each group behind all progress that was told before it, so that whoever has heard it from all around has heard all that
anybody did before the round. A pure state machine: messages go in and out of it by hand. The invariant: progress leaves in the
order in which it came, and whole. A caller sends what ``messages`` yields, in order, before the worker's turn is over: a worker
that waits then has nothing that others wait for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from timely.errors import ProgressError
from timely.progress import ProgressBatch, Relay
from timely.worker.messages import ProgressMessage, RoundMessage


class ProgressAggregator:
    """What one worker has to tell the others in its ``groups``.

    >>> middle = ProgressAggregator(1, [[0], [2]])
    >>> middle.hear(0, 7, ProgressBatch(0, 0, (("a", 1),)))
    >>> list(middle.messages())
    [(2, ProgressMessage(dataflow=7, batch=ProgressBatch(sender=1, sequence=0, updates=(('a', 1),))))]
    """

    __slots__ = ("_around", "_changed", "_closed", "_ends", "_groups", "_index", "_relays", "_sweeps")

    def __init__(self, index: int, groups: Sequence[Sequence[int]]) -> None:
        self._index = index
        self._groups = groups
        self._around = frozenset(member for members in groups for member in members)
        self._relays: dict[int, Relay[Any]] = {}
        self._changed: dict[int, Relay[Any]] = {}
        self._closed: set[int] = set()
        self._ends = len(groups) == 1
        self._sweeps: dict[int, AggregationRound] = {}

    @property
    def serving(self) -> bool:
        """Whether others may still need this worker to pass something on."""
        return not self._ends and bool(self._relays)

    def say(self, number: int, batch: ProgressBatch[Any]) -> None:
        """Take in what this worker's operators did in a dataflow."""
        self._relay(number).say(batch.updates)

    def hear(self, sender: int, number: int, batch: ProgressBatch[Any]) -> None:
        """Take in what a member of a group told of a dataflow. ``ProgressError`` if it is in no group with this worker."""
        self._check(sender)
        if not self._ends:
            self._relay(number).hear(sender, batch.updates)

    def _check(self, sender: int) -> None:
        if sender not in self._around:
            raise ProgressError(
                f"worker {sender} tells worker {self._index} of progress, which hears that from {sorted(self._around)}: give all"
                " workers of a run the same routes"
            )

    def _relay(self, number: int) -> Relay[Any]:
        relay = self._relays.get(number)
        if relay is None:
            relay = self._relays[number] = Relay(self._index, self._groups)
        self._changed[number] = relay
        return relay

    def completed(self, number: int) -> None:
        """Take in that a dataflow is complete: once what there is has gone, nothing more will be told of it by anybody."""
        self._closed.add(number)

    def dropped(self, number: int) -> None:
        """Take in that a dataflow was dropped here: others may go on with it, and hear of each other by way of this worker."""
        if self._ends:
            self._closed.add(number)

    # -- sweeps --------------------------------------------------------------------------------------------------------

    def begin(self, round: int) -> None:
        """Take in that this worker has come to a round."""
        self._sweep(round).begin()

    def swept(self, sender: int, round: int) -> None:
        """Take in the mark of a round, from a member of a group. ``ProgressError`` if it is in no group with this worker."""
        self._check(sender)
        self._sweep(round).heard(sender)

    def _sweep(self, round: int) -> AggregationRound:
        sweep = self._sweeps.get(round)
        if sweep is None:
            sweep = self._sweeps[round] = AggregationRound(self._groups)
        return sweep

    def sweeping(self, round: int) -> bool:
        """Return whether something that was told before a round may still be on its way to this worker."""
        sweep = self._sweeps.get(round)
        return sweep is not None and sweep.begun and sweep.missing > 0

    def concluded(self, round: int) -> None:
        """Forget a round."""
        self._sweeps.pop(round, None)

    # -- out -----------------------------------------------------------------------------------------------------------

    def messages(self) -> Iterator[tuple[int, Any]]:
        """Yield ``(peer, message)`` for all that is to be told now; the same message, where it is, to all members of a group."""
        if self._changed:
            changed, self._changed = self._changed, {}
            for number, relay in changed.items():
                for members, batch in relay.flush():
                    message = ProgressMessage(number, batch)
                    for peer in members:
                        yield peer, message
        for number in self._closed:
            self._relays.pop(number, None)
        self._closed.clear()
        for round, sweep in self._sweeps.items():
            for members in sweep.due():
                for peer in members:
                    yield peer, RoundMessage(round)


class AggregationRound:
    """The mark of one round as it goes by one worker: to a group, once it has come from all others, and this worker is there too.

    >>> sweep = AggregationRound([[0], [2, 3]])
    >>> sweep.heard(0)
    >>> sweep.due()
    []
    >>> sweep.begin()
    >>> sweep.due(), sweep.missing
    ([[2, 3]], 2)
    >>> sweep.heard(2), sweep.heard(3)
    (None, None)
    >>> sweep.due(), sweep.missing
    ([[0]], 0)
    """

    __slots__ = ("_groups", "_left", "_places", "_told", "begun", "missing")

    def __init__(self, groups: Sequence[Sequence[int]]) -> None:
        self.begun = False
        self.missing = sum(map(len, groups))
        self._groups = groups
        self._places = {member: place for place, members in enumerate(groups) for member in members}
        self._left = [len(members) for members in groups]
        self._told = [False] * len(groups)

    def begin(self) -> None:
        """Take in that this worker is there."""
        self.begun = True

    def heard(self, sender: int) -> None:
        """Take in that all behind ``sender`` are."""
        self._left[self._places[sender]] -= 1
        self.missing -= 1

    def due(self) -> list[Sequence[int]]:
        """Return the groups that are to be told now."""
        if not self.begun:
            return []
        due: list[Sequence[int]] = []
        for place, members in enumerate(self._groups):
            if not self._told[place] and self.missing == self._left[place]:
                self._told[place] = True
                due.append(members)
        return due
