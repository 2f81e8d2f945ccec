"""``StallDetector``: how workers find out that all of them wait for each other, and nothing is on its way. A pure state machine.

A worker that has nothing to do reports how many messages it has sent to each peer and received from each. The run has stalled
when all that have not ended have reported and the counts of every pair agree: the first message that could change anything would
have to come from a worker that has not moved. A worker that only holds input back reports too, but not as final: then the run
rests. Before a stall each worker also searches for garbage that Python has not collected yet.

A report has a constant size: instead of counts it has their sums, weighted by a pseudo-random number for each pair of workers.
Sums over all workers agree by chance with probability 2^-127 (Freivalds, 1977).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from timely.worker.graph_check import digest

_PRIME: Final = 2**127 - 1


class QuietReport(NamedTuple):
    """The messages of a quiet worker to and from all workers but those that have ended, as weighted sums."""

    ended: int
    sent: int
    received: int
    searched: bool = False
    """Whether it has searched for garbage since it moved last."""


class StallDetector:
    """Counts the messages of one worker, and knows the last report of every other."""

    __slots__ = (
        *("_ended", "_final", "_index", "_last", "_received", "_reports", "_satisfied", "_searched", "_sent", "_weights"),
        "moves",
    )

    def __init__(self, index: int, peers: int) -> None:
        self._index = index
        self._sent = [0] * peers
        self._received = [0] * peers
        self._reports: dict[int, QuietReport] = {}
        self._final: dict[int, QuietReport] = {}
        self._ended: set[int] = set()
        self._satisfied: set[int] = set()
        self._last: tuple[QuietReport, bool] | None = None
        self._weights: tuple[list[int], list[int]] | None = None
        self._searched = -1
        self.moves = 0
        """Changes whenever the report does."""

    def count_sent(self, peer: int) -> None:
        self._sent[peer] += 1
        self.moves += 1

    def count_received(self, peer: int, count: int = 1) -> None:
        """Count a message from ``peer``, or one that is the sum of several."""
        self._received[peer] += count
        self.moves += count

    def report(self) -> QuietReport:
        """Return what this worker reports when it is quiet. Takes time in the number of workers."""
        if self._weights is None:
            peers = range(len(self._sent))
            self._weights = [_weight(self._index, peer) for peer in peers], [_weight(peer, self._index) for peer in peers]
        there, back = self._weights
        sent = sum(count * there[peer] for peer, count in enumerate(self._sent) if peer not in self._ended)
        received = sum(count * back[peer] for peer, count in enumerate(self._received) if peer not in self._ended)
        ended = sum(_weight(peer, peer) for peer in self._ended)
        return QuietReport(ended % _PRIME, sent % _PRIME, received % _PRIME, self.has_searched)

    def news(self, final: bool = True) -> QuietReport | None:
        """Return the report if it, or ``final``, differs from what this method returned last; else ``None``.

        ``final``: the worker can do nothing more by itself.
        """
        report = self.report(), final
        if report == self._last:
            return None
        self._last = report
        return report[0]

    @property
    def has_searched(self) -> bool:
        """Whether this worker has searched for garbage in vain, and has not moved since."""
        return self._searched == self.moves

    def search_was_in_vain(self) -> None:
        """Note that this worker has searched for garbage, and found nothing of its own."""
        self._searched = self.moves

    def receive(self, peer: int, report: QuietReport, final: bool = True) -> None:
        """Receive the latest report of a quiet peer."""
        self._reports[peer] = report
        if final:
            self._final[peer] = report

    def end(self, peer: int) -> None:
        """Note that ``peer`` has completed everything and will not act again."""
        self._ended.add(peer)
        self._satisfied.add(peer)
        self._reports.pop(peer, None)
        self._final.pop(peer, None)
        self.moves += 1

    def serve(self, peer: int) -> None:
        """Note that ``peer`` has completed everything, and only passes progress on."""
        self._satisfied.add(peer)
        self.moves += 1

    def unwanted(self) -> bool:
        """Return whether every peer has ended, or only passes progress on."""
        return len(self._satisfied) == len(self._sent) - 1

    def still(self) -> bool:
        """Return whether every worker is quiet for good and nothing is on its way, given that this worker is quiet.

        Python may not have collected everything yet.
        """
        return self._all_quiet(self._final)

    def stalled(self) -> bool:
        """Return whether every worker is quiet for good, has searched in vain, and nothing is on its way."""
        return self.has_searched and all(report.searched for report in self._final.values()) and self.still()

    def resting(self) -> bool:
        """Return whether every worker was quiet and nothing on its way; unlike a stall this may be over by now."""
        return self._all_quiet(self._reports)

    def _all_quiet(self, reports: Mapping[int, QuietReport]) -> bool:
        if len(reports) < len(self._sent) - len(self._ended) - 1:
            return False
        own = self.report()
        if any(report.ended != own.ended for report in reports.values()):
            return False  # they count different workers
        sent = own.sent + sum(report.sent for report in reports.values())
        received = own.received + sum(report.received for report in reports.values())
        return (sent - received) % _PRIME == 0


def _weight(sender: int, receiver: int) -> int:
    """Return the weight of a message between two workers; of a worker and itself, the weight of its end."""
    return int.from_bytes(digest(f"{sender} {receiver}"), "little") % _PRIME
