"""Which workers' batches each aggregated batch of progress is made of.

It follows what an aggregating worker should do, not what it does, so that a wrong sum shows up in the counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

from timely.progress import GroupBatch, ProgressAggregator, ProgressBatch, ProgressGroups
from timely.worker.worker_messages import ProgressMessage

Batch: TypeAlias = ProgressBatch[Any]

Origins: TypeAlias = list[tuple[int, Batch]]
"""Batches as they were flushed, each with its worker, oldest first."""


class BatchProvenance:
    """The batches in the sums that workers pass on by these ``groups``."""

    def __init__(self, groups: ProgressGroups) -> None:
        self.groups = groups
        neighbours = [groups.neighbours(worker) for worker in range(groups.workers)]
        self._groups = [{member: group for group, members in enumerate(groups) for member in members} for groups in neighbours]
        self._group_counts = list(map(len, neighbours))
        self._waiting: defaultdict[tuple[int, int, int], Origins] = defaultdict(list)
        self._in_flight: dict[tuple[int, int, int, int], Origins] = {}

    def flushed(self, worker: int, number: int, batch: Batch) -> None:
        """Record that a worker has flushed a batch of a dataflow, to be sent to each of its groups."""
        for group in range(self._group_counts[worker]):
            self._waiting[worker, group, number].append((worker, batch))

    def received(self, worker: int, sender: int, number: int, batch: Batch) -> None:
        """Record that a worker has received a sum, to be sent to its other groups."""
        origins = self._in_flight.get((sender, worker, number, batch.sequence), [])
        for group in range(self._group_counts[worker]):
            if group != self._groups[worker][sender]:
                self._waiting[worker, group, number] += origins

    def sent(self, worker: int, batches: Sequence[GroupBatch]) -> Sequence[GroupBatch]:
        """Record and return what a worker sends at the end of a step; what else was waiting has cancelled."""
        for members, number, batch in batches:
            origins = self._waiting.pop((worker, self._groups[worker][members[0]], number), [])
            for peer in members:
                self._in_flight[worker, peer, number, batch.sequence] = origins
        for gone in [key for key in self._waiting if key[0] == worker]:
            del self._waiting[gone]
        return batches

    def batches(self, number: int, source: int, target: int, messages: Callable[[int, int], Sequence[Any]]) -> list[Batch]:
        """Return the batches of one worker that another has not applied yet, oldest first.

        ``messages(sender, receiver)`` are those that the receiver has not applied.
        """
        sent: list[Batch] = []
        for sender, receiver in reversed(list(pairwise(self.groups.path(source, target)))):
            for message in messages(sender, receiver):
                if isinstance(message, ProgressMessage) and message.dataflow == number:
                    origins = self._in_flight.get((sender, receiver, number, message.batch.sequence), [])
                    sent += [batch for origin, batch in origins if origin == source]
            waiting = self._waiting.get((sender, self._groups[sender][receiver], number), ())
            sent += [batch for origin, batch in waiting if origin == source]
        return sent


class TracedAggregator(ProgressAggregator):
    """The aggregator of a simulated worker, which reports what goes in and out."""

    __slots__ = ("_provenance",)

    def __init__(self, index: int, provenance: BatchProvenance) -> None:
        super().__init__(index, provenance.groups)
        self._provenance = provenance

    def add(self, dataflow: int, batch: Batch) -> None:
        self._provenance.flushed(self._index, dataflow, batch)
        super().add(dataflow, batch)

    def receive(self, sender: int, dataflow: int, batch: Batch) -> None:
        self._provenance.received(self._index, sender, dataflow, batch)
        super().receive(sender, dataflow, batch)

    def flush(self) -> list[GroupBatch]:
        return list(self._provenance.sent(self._index, super().flush()))
