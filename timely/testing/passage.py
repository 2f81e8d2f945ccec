"""What each sum of progress is made of that a simulated worker passes on: who said which batches that are in it.

A worker in several groups sends sums (:mod:`timely.progress.aggregation`), which do not say what is in them. A ``Passage``
observes the workers and keeps the account. The invariant: it relies on what an aggregator is to do, never on what it does, so a
wrong sum is found when counts are compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from timely.progress import GroupBatch, ProgressAggregator, ProgressBatch, ProgressGroups
from timely.testing.network import Network
from timely.worker.progress_batching import PROGRESS

Batch = ProgressBatch[Any]
Cargo = list[tuple[int, Batch]]
"""Batches as they were flushed, and by whom, oldest first."""


class Passage:
    """The account of what is in the sums that workers pass on, by these ``routes``, over a network.

    >>> network, passage = Network(3), Passage(ProgressGroups.central(3))
    >>> said = ProgressBatch(1, 0, (("a", 1),))
    >>> passage.said(1, 7, said)
    >>> for members, dataflow, batch in passage.sent(1, [GroupBatch([0], 7, said)]):
    ...     network.send(1, members[0], ("progress", dataflow, batch))
    >>> passage.batches(network, 7, 1, 2, lambda worker, sender: []) == [said]
    True
    """

    def __init__(self, routes: ProgressGroups) -> None:
        self._routes = routes
        self._places = [
            {member: place for place, members in enumerate(routes.neighbours(worker)) for member in members}
            for worker in range(routes.workers)
        ]
        self._groups = [len(routes.neighbours(worker)) for worker in range(routes.workers)]
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

    def sent(self, worker: int, batches: Sequence[GroupBatch]) -> Sequence[GroupBatch]:
        """Take in all that a worker sends its groups at the end of a turn, and return it; what is left has cancelled."""
        for members, number, batch in batches:
            cargo = self._waiting.pop((worker, self._places[worker][members[0]], number), [])
            for peer in members:
                self._carried[worker, peer, number, batch.sequence] = cargo
        for gone in [key for key in self._waiting if key[0] == worker]:
            del self._waiting[gone]
        return batches

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
                if message[0] == PROGRESS and message[1] == number:
                    cargo = self._carried.get((sender, receiver, number, message[2].sequence), [])
                    found += [batch for origin, batch in cargo if origin == source]
            waiting = self._waiting.get((sender, self._places[sender][receiver], number), ())
            found += [batch for origin, batch in waiting if origin == source]
        return found

    def _way(self, source: int, target: int) -> list[tuple[int, int]]:
        way = self._ways.get((source, target))
        if way is None:
            way = self._ways[source, target] = list(pairwise(self._routes.path(source, target)))
        return way


class ObservedAggregator(ProgressAggregator):
    """The aggregator of a simulated worker: it tells the passage what goes in and out."""

    __slots__ = ("_passage",)

    def __init__(self, index: int, routes: ProgressGroups, passage: Passage) -> None:
        super().__init__(index, routes)
        self._passage = passage

    def add(self, dataflow: int, batch: Batch) -> None:
        """Take a batch of this worker."""
        self._passage.said(self._index, dataflow, batch)
        super().add(dataflow, batch)

    def receive(self, sender: int, dataflow: int, batch: Batch) -> None:
        """Take a batch of a neighbour."""
        self._passage.heard(self._index, sender, dataflow, batch)
        super().receive(sender, dataflow, batch)

    def flush(self) -> list[GroupBatch]:
        """Return the batches to send now."""
        return list(self._passage.sent(self._index, super().flush()))
