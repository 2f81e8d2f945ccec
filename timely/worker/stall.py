"""``StallDetector``: how workers find out that all of them wait for each other, and nothing is on its way.

A worker that waits for its dataflows to complete says so once it has been quiet for a while, together with how many messages
it has sent to each peer and got from each. The run has stalled when every worker has said so and, for every two of them, as
many messages were got as were sent: to do anything after its report a worker would need a message that is not in it, and the
first such message would have to be sent by a worker that has not moved either. Peers that have completed everything never
act again, so what was sent to them does not count. A worker that is quiet but could still go on by itself, since it only holds
input back, says that with its report: where nobody moves, but some could, the run rests, and has not stalled. A pure state
machine: messages go in and out of it by hand.
"""

from __future__ import annotations

from typing import TypeAlias

Report: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""How many messages a worker has sent to each worker, and got from each."""


class StallDetector:
    """Counts the messages of one worker, and knows the last report of every other.

    >>> one, two = StallDetector(0, 2), StallDetector(1, 2)
    >>> one.sent(1)
    >>> one.heard(1, two.report())
    >>> one.stalled()  # the message may still be on its way
    False
    >>> two.got(0)
    >>> one.heard(1, two.report())
    >>> one.stalled()
    True
    """

    __slots__ = ("_ended", "_final", "_got", "_index", "_reports", "_said", "_sent")

    def __init__(self, index: int, peers: int) -> None:
        self._index = index
        self._sent = [0] * peers
        self._got = [0] * peers
        self._reports: dict[int, Report] = {}
        self._final: dict[int, Report] = {}
        self._ended: set[int] = set()
        self._said: tuple[Report, bool] | None = None

    def sent(self, peer: int) -> None:
        """Count a message to ``peer``."""
        self._sent[peer] += 1

    def got(self, peer: int, count: int = 1) -> None:
        """Count a message from ``peer``, or one that stands for several."""
        self._got[peer] += count

    def report(self) -> Report:
        """Return what this worker has to say when it is quiet."""
        return tuple(self._sent), tuple(self._got)

    def news(self, final: bool = True) -> Report | None:
        """Return the report if it differs from the last one that this method returned, and ``None`` otherwise.

        ``final`` says that the worker can do nothing more by itself; that it has become so is news too.
        """
        said = self.report(), final
        if said == self._said:
            return None
        self._said = said
        return said[0]

    def heard(self, peer: int, report: Report, final: bool = True) -> None:
        """Take in the report of a quiet peer, which is its last so far."""
        self._reports[peer] = report
        if final:
            self._final[peer] = report

    def ended(self, peer: int) -> None:
        """Take in that ``peer`` has completed everything and will not act again."""
        self._ended.add(peer)

    def stalled(self) -> bool:
        """Return whether every worker is quiet for good and nothing is on its way, given that this worker is."""
        return self._all_quiet(self._final)

    def resting(self) -> bool:
        """Return whether every worker is quiet and nothing is on its way, given that this worker is quiet.

        Unlike a stall this may have passed: another worker may have found the same, and gone on.
        """
        return self._all_quiet(self._reports)

    def _all_quiet(self, heard: dict[int, Report]) -> bool:
        reports = {**heard, self._index: self.report()}
        waiting = [peer for peer in range(len(self._sent)) if peer not in self._ended]
        if any(peer not in reports for peer in waiting):
            return False
        senders = [peer for peer in reports if peer != self._index or peer in waiting]
        return all(reports[sender][0][receiver] == reports[receiver][1][sender] for receiver in waiting for sender in senders)
