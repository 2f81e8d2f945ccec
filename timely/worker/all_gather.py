"""``AllGather``: rounds in which every worker gives one value and receives those of all. A pure state machine.

Invariant: a round is over when all have given a value. A value that comes early is kept until its round.
"""

from __future__ import annotations

from typing import Any


class AllGather:
    """The rounds of one worker."""

    __slots__ = ("_index", "_left", "_peers", "_values", "round")

    def __init__(self, index: int, peers: int) -> None:
        self._index = index
        self._peers = peers
        self._left: set[int] = set()
        self._values: dict[int, dict[int, Any]] = {}
        self.round = 0

    def give(self, value: Any) -> int:
        """Give this worker's value to the current round; return the number of the round."""
        self.receive(self._index, self.round, value)
        return self.round

    def receive(self, peer: int, round: int, value: Any) -> None:
        """Receive the value that ``peer`` gave to a round."""
        self._values.setdefault(round, {})[peer] = value

    def leave(self, peer: int) -> None:
        """Note that ``peer`` gives no more values."""
        self._left.add(peer)

    def in_vain(self) -> bool:
        """Return whether this worker waits for a value that will never come."""
        return bool(self._left) and not self._left.isdisjoint(self.missing())

    def missing(self) -> list[int]:
        """Return the workers whose value for the current round is missing; none if this worker has not given its own."""
        values = self._values.get(self.round, {})
        return [peer for peer in range(self._peers) if peer not in values] if self._index in values else []

    def conclude(self) -> list[Any]:
        """Return the values of the current round, which is over, and begin the next."""
        values = self._values.pop(self.round)
        self.round += 1
        return [values[peer] for peer in range(self._peers)]
