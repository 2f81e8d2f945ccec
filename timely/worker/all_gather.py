"""``AllGather``: values that all workers have told each other, round by round, beside the dataflows.

What a run has to agree on that no dataflow carries: which checkpoint it goes on from, and whether the next one is complete. In
each round every worker gives one value, and gets those of all, in worker order. Workers take part in the same rounds in the same
order; one that is ahead is waited for by nobody, since what it says is kept until the others come to that round. A pure state
machine: messages go in and out of it by hand. The invariant: a round is over for a worker when all have given their value to it;
and a worker that has left, and not spoken, is known to be waited for in vain.
"""

from __future__ import annotations

from typing import Any


class AllGather:
    """The rounds of one worker.

    >>> zero, one = AllGather(0, 2), AllGather(1, 2)
    >>> one.heard(0, zero.speak("a"), "a")
    >>> zero.missing()
    [1]
    >>> zero.heard(1, one.speak("b"), "b")
    >>> zero.conclude(), one.conclude()
    (['a', 'b'], ['a', 'b'])
    """

    __slots__ = ("_index", "_left", "_peers", "_round", "_said")

    def __init__(self, index: int, peers: int) -> None:
        self._index = index
        self._peers = peers
        self._round = 0
        self._left: set[int] = set()
        self._said: dict[int, dict[int, Any]] = {}

    @property
    def round(self) -> int:
        """The number of the present round."""
        return self._round

    def speak(self, value: Any) -> int:
        """Give this worker's value to the present round; return the number of the round, to tell the peers with the value."""
        self.heard(self._index, self._round, value)
        return self._round

    def heard(self, peer: int, number: int, value: Any) -> None:
        """Take in the value that ``peer`` gave to the round ``number``."""
        self._said.setdefault(number, {})[peer] = value

    def left(self, peer: int) -> None:
        """Take in that ``peer`` gives no values any more."""
        self._left.add(peer)

    def in_vain(self) -> bool:
        """Return whether a value is waited for that will never come.

        >>> council = AllGather(0, 2)
        >>> council.left(1)
        >>> council.in_vain(), council.speak("a"), council.in_vain()
        (False, 0, True)
        """
        return bool(self._left) and not self._left.isdisjoint(self.missing())

    def missing(self) -> list[int]:
        """Return which workers have not given a value to the present round; none are missing where this worker has not spoken."""
        said = self._said.get(self._round, {})
        return [peer for peer in range(self._peers) if peer not in said] if self._index in said else []

    def conclude(self) -> list[Any]:
        """Return the values of the present round, which is over, and begin the next."""
        said = self._said.pop(self._round)
        self._round += 1
        return [said[peer] for peer in range(self._peers)]
