"""``StallDetector``: how workers find out that all of them wait for each other, and nothing is on its way.

A worker that waits for its dataflows to complete says so once it has been quiet for a while, together with how many messages
it has sent to each peer and got from each. The run has stalled when every worker has said so and, for every two of them, as
many messages were got as were sent: to do anything after its report a worker would need a message that is not in it, and the
first such message would have to be sent by a worker that has not moved either. Peers that have completed everything never
act again, so what was sent to them does not count; and to hear from one that it has ended is to have got all that it sent. A
worker that is quiet but could still go on by itself, since it only holds input back, says that with its report: where nobody
moves, but some could, the run rests, and has not stalled. Where all are quiet for good, each looks for what nothing refers to
any more, which Python may not have let go of yet, and says that it has; only when all have is that a stall. And one that stays
only to pass on what others tell says so: where all others have ended or said the same, nobody needs it any more.

A report is a few numbers, however many workers there are. Every pair of workers has a weight, which looks random and is the same
for all; instead of the counts a worker tells their sums, each times its weight, of what it sent and of what it got. Where the
counts agree for every pair, so do the sums over all workers of the one and of the other; where they do not, the sums agree with a
chance of one in 2 to the power of 127. (Comparing by a random linear combination is Freivalds' idea, 1977.) A pure state machine:
messages go in and out of it by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from timely.worker.digest import digest

_PRIME: Final = 2**127 - 1


class Report(NamedTuple):
    """What a quiet worker tells: of the messages to and from all workers but those that have ended, as weighted sums."""

    ended: int
    sent: int
    got: int
    searched: bool = False
    """Whether it has looked, since it moved last, for what nothing refers to any more."""


class StallDetector:
    """Counts the messages of one worker, and knows the last report of every other.

    >>> one, two = StallDetector(0, 2), StallDetector(1, 2)
    >>> one.sent(1)
    >>> one.heard(1, two.report())
    >>> one.stalled()  # the message may still be on its way
    False
    >>> two.got(0)
    >>> one.heard(1, two.report())
    >>> one.still(), one.stalled()
    (True, False)
    >>> for detector in (one, two):
    ...     detector.search_was_in_vain()
    >>> one.heard(1, two.report())
    >>> one.stalled()
    True
    """

    __slots__ = ("_content", "_ended", "_final", "_got", "_index", "_reports", "_said", "_searched", "_sent", "_weights", "moves")

    def __init__(self, index: int, peers: int) -> None:
        self._index = index
        self._sent = [0] * peers
        self._got = [0] * peers
        self._reports: dict[int, Report] = {}
        self._final: dict[int, Report] = {}
        self._ended: set[int] = set()
        self._content: set[int] = set()
        self._said: tuple[Report, bool] | None = None
        self._weights: tuple[list[int], list[int]] | None = None
        self._searched = -1
        self.moves = 0
        """How many messages were counted, and workers have ended or only serve, in all; it changes whenever the report does."""

    def sent(self, peer: int) -> None:
        """Count a message to ``peer``."""
        self._sent[peer] += 1
        self.moves += 1

    def got(self, peer: int, count: int = 1) -> None:
        """Count a message from ``peer``, or one that stands for several."""
        self._got[peer] += count
        self.moves += count

    def report(self) -> Report:
        """Return what this worker has to say when it is quiet. Takes time in the number of workers."""
        if self._weights is None:
            peers = range(len(self._sent))
            self._weights = [_weight(self._index, peer) for peer in peers], [_weight(peer, self._index) for peer in peers]
        there, back = self._weights
        sent = sum(count * there[peer] for peer, count in enumerate(self._sent) if peer not in self._ended)
        got = sum(count * back[peer] for peer, count in enumerate(self._got) if peer not in self._ended)
        ended = sum(_weight(peer, peer) for peer in self._ended)
        return Report(ended % _PRIME, sent % _PRIME, got % _PRIME, self.has_searched)

    def news(self, final: bool = True) -> Report | None:
        """Return the report if it differs from the last one that this method returned, and ``None`` otherwise.

        ``final`` says that the worker can do nothing more by itself; that it has become so is news too.
        """
        said = self.report(), final
        if said == self._said:
            return None
        self._said = said
        return said[0]

    @property
    def has_searched(self) -> bool:
        """Whether this worker has looked in vain for what nothing refers to any more, and has not moved since."""
        return self._searched == self.moves

    def search_was_in_vain(self) -> None:
        """Note that this worker has looked for what nothing refers to any more, and has found nothing of its own."""
        self._searched = self.moves

    def heard(self, peer: int, report: Report, final: bool = True) -> None:
        """Take in the report of a quiet peer, which is its last so far."""
        self._reports[peer] = report
        if final:
            self._final[peer] = report

    def ended(self, peer: int) -> None:
        """Take in, from ``peer`` itself, that it has completed everything and will not act again."""
        self._ended.add(peer)
        self._content.add(peer)
        self._reports.pop(peer, None)
        self._final.pop(peer, None)
        self.moves += 1

    def serves(self, peer: int) -> None:
        """Take in, from ``peer`` itself, that it has completed everything and only passes on what others tell from now on."""
        self._content.add(peer)
        self.moves += 1

    def unwanted(self) -> bool:
        """Return whether no peer wants anything any more: each has ended, or only passes on what others tell.

        >>> detector = StallDetector(0, 3)
        >>> detector.ended(1), detector.unwanted(), detector.serves(2), detector.unwanted()
        (None, False, None, True)
        """
        return len(self._content) == len(self._sent) - 1

    def still(self) -> bool:
        """Return whether every worker is quiet for good and nothing is on its way, given that this worker is.

        That may be for the sake of something that nothing refers to any more, and that Python has not found yet.
        """
        return self._all_quiet(self._final)

    def stalled(self) -> bool:
        """Return whether every worker is quiet for good, has searched in vain, and nothing is on its way."""
        return self.has_searched and all(report.searched for report in self._final.values()) and self.still()

    def resting(self) -> bool:
        """Return whether every worker is quiet and nothing is on its way, given that this worker is quiet.

        Unlike a stall this may have passed: another worker may have found the same, and gone on.
        """
        return self._all_quiet(self._reports)

    def _all_quiet(self, heard: Mapping[int, Report]) -> bool:
        if len(heard) < len(self._sent) - len(self._ended) - 1:
            return False
        mine = self.report()
        if any(report.ended != mine.ended for report in heard.values()):
            return False  # they do not speak of the same workers
        sent = mine.sent + sum(report.sent for report in heard.values())
        got = mine.got + sum(report.got for report in heard.values())
        return (sent - got) % _PRIME == 0


def _weight(sender: int, receiver: int) -> int:
    """Return what a message from one worker to another weighs; of a worker and itself, what it weighs that it has ended."""
    return int.from_bytes(digest(f"{sender} {receiver}"), "little") % _PRIME
