"""What each sum of progress is made of that a simulated worker passes on: who said which batches that are in it.

A worker in several groups adds up what it heard before it tells it to others (:mod:`timely.progress.relay`), and a sum does not
say what is in it. A ``Passage`` listens to the workers and keeps the account. The invariant: it takes what a relay is to do for
granted, and nothing that it does, so that a sum which is not what it should be is found when counts are compared. A caller gets,
of each worker, the batches that another one has yet to hear, as they were flushed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from timely.progress import ProgressBatch, Routes
from timely.testing.network import Network
from timely.worker.messages import ProgressMessage
from timely.worker.progress_aggregation import ProgressAggregator

Batch = ProgressBatch[Any]
Cargo = list[tuple[int, Batch]]
"""Batches as they were flushed, and by whom, oldest first."""


class Passage:
    """The account of what is in the sums that workers pass on, by these ``routes``, over a network.

    >>> network, passage = Network(3), Passage(Routes.central(3))
    >>> said = ProgressBatch(1, 0, (("a", 1),))
    >>> passage.said(1, 7, said)
    >>> for peer, message in passage.sent(1, [(0, ProgressMessage(7, said))]):
    ...     network.send(1, peer, message)
    >>> passage.batches(network, 7, 1, 2, lambda worker, sender: []) == [said]
    True
    """

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._places = [
            {member: place for place, members in enumerate(routes.around(worker)) for member in members}
            for worker in range(routes.workers)
        ]
        self._groups = [len(routes.around(worker)) for worker in range(routes.workers)]
        self._waiting: defaultdict[tuple[int, int, int], Cargo] = defaultdict(list)
        self._carried: dict[tuple[int, int, int, int], Cargo] = {}
        self._ways: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def said(self, worker: int, number: int, batch: Batch) -> None:
        """Take in what a worker has said of a dataflow: it waits to be told to each of its groups."""
        for place in range(self._groups[worker]):
            self._waiting[worker, place, number].append((worker, batch))

    def heard(self, worker: int, sender: int, number: int, batch: Batch) -> None:
        """Take in that a worker has heard a sum: what is in it waits to be told to its other groups."""
        cargo = self._carried.get((sender, worker, number, batch.sequence), [])
        for place in range(self._groups[worker]):
            if place != self._places[worker][sender]:
                self._waiting[worker, place, number] += cargo

    def sent(self, worker: int, messages: Sequence[tuple[int, Any]]) -> Sequence[tuple[int, Any]]:
        """Take in all that a worker tells those around at the end of a turn, and return it; what is left has cancelled."""
        groups: dict[tuple[int, int, int], Cargo] = {}
        for peer, message in messages:
            if isinstance(message, ProgressMessage):
                number, batch = message
                key = self._places[worker][peer], number, batch.sequence
                if key not in groups:
                    groups[key] = self._waiting.pop((worker, *key[:2]), [])
                self._carried[worker, peer, number, batch.sequence] = groups[key]
        for gone in [key for key in self._waiting if key[0] == worker]:
            del self._waiting[gone]
        return messages

    def batches(
        self, network: Network, number: int, source: int, target: int, early: Callable[[int, int], Sequence[Any]]
    ) -> list[Batch]:
        """Return the batches of one worker that another has not acted on, oldest first.

        ``early(worker, sender)`` are the messages that a worker has received from a neighbour, and not acted on. What came for a
        dataflow before it was built is heard when it is, and may wait there for the next turn.
        """
        found: list[Batch] = []
        for sender, receiver in reversed(self._way(source, target)):
            for message in (*early(receiver, sender), *network.between(sender, receiver)):
                if isinstance(message, ProgressMessage) and message.dataflow == number:
                    cargo = self._carried.get((sender, receiver, number, message.batch.sequence), [])
                    found += [batch for origin, batch in cargo if origin == source]
            waiting = self._waiting.get((sender, self._places[sender][receiver], number), ())
            found += [batch for origin, batch in waiting if origin == source]
        return found

    def _way(self, source: int, target: int) -> list[tuple[int, int]]:
        way = self._ways.get((source, target))
        if way is None:
            way = self._ways[source, target] = list(pairwise(self._routes.way(source, target)))
        return way


class OverheardAccumulator(ProgressAggregator):
    """The accumulator of a simulated worker: it tells the passage what goes in and out."""

    __slots__ = ("_passage",)

    def __init__(self, index: int, routes: Routes, passage: Passage) -> None:
        super().__init__(index, routes.around(index))
        self._passage = passage

    def say(self, number: int, batch: Batch) -> None:
        """Take in what this worker's operators did in a dataflow."""
        self._passage.said(self._index, number, batch)
        super().say(number, batch)

    def hear(self, sender: int, number: int, batch: Batch) -> None:
        """Take in what a member of a group told of a dataflow."""
        self._passage.heard(self._index, sender, number, batch)
        super().hear(sender, number, batch)

    def messages(self) -> Iterator[tuple[int, Any]]:
        """Yield ``(peer, message)`` for all that is to be told now."""
        yield from self._passage.sent(self._index, list(super().messages()))
