"""A network between real workers on which their progress is added up on the way, by the accumulators of a forest.

The batches that workers flush are summed, what cancels is dropped, and what each worker gets is the sum less what it said
itself, since it has counted that already. The invariant: to get such a sum is to get the batches in it one after another, before
anything is derived, so that the rules of the exchange of progress (whole batches, those of a sender in order) hold as they do
without it. A caller need not believe it: under ``timely.testing.simulate`` every invariant is checked against the batches as they
were flushed.
"""

from __future__ import annotations

import functools
import operator
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import Any

import attrs

from timely.progress import ChangeBatch, ProgressBatch
from timely.testing.forest import Forest
from timely.testing.network import Network, SimulatedTransport
from timely.worker.coalesce import DATA, PROGRESS
from timely.worker.wire import encode
from timely.worker.worker import GRAPH


@attrs.define
class Traffic:
    """Messages of progress between processes, the changes and the bytes in them; ``local`` ones in memory; ones with ``data``.

    Bytes are those of a frame with this message alone (:func:`timely.worker.wire.encode`), before encryption.

    >>> Traffic(messages=3, bytes=300).since(Traffic(messages=1, bytes=100))
    Traffic(messages=2, updates=0, bytes=200, local=0, data=0)
    """

    messages: int = 0
    updates: int = 0
    bytes: int = 0
    local: int = 0
    data: int = 0

    def since(self, before: Traffic) -> Traffic:
        """Return what has been counted since there was ``before``."""
        return Traffic(*(now - then for now, then in zip(attrs.astuple(self), attrs.astuple(before), strict=True)))

    def add(self, batch: ProgressBatch[Any], number: int, links: int) -> None:
        """Count a batch of dataflow ``number`` that is sent to so many other processes."""
        self.messages += links
        self.updates += links * len(batch.updates)
        self.bytes += links * sum(map(len, encode([(PROGRESS, number, batch)])))


@attrs.frozen
class _Packet:
    """A sum of batches on its way, and which: of each worker how many, from which on."""

    number: int
    updates: tuple[tuple[Any, int], ...]
    included: Mapping[int, tuple[int, int]]

    def plus(self, other: _Packet) -> _Packet:
        changes = ChangeBatch(self.updates)
        changes.extend(other.updates)
        included = dict(self.included)
        for worker, (first, count) in other.included.items():
            begin, had = included.get(worker, (first, 0))
            included[worker] = (begin, had + count)
        return _Packet(self.number, tuple(changes), included)


class Accumulated(Network):
    """A network on which progress travels through the accumulators of a forest; anything else goes as it always does.

    When an accumulator hands on what it has added up is decided by ``seed``, or by :meth:`settle`. What has been sent is counted
    in ``traffic``.

    >>> from timely.testing import simulate
    >>> def program(worker):
    ...     with worker.dataflow() as scope:
    ...         seen = scope.to_stream([worker.index]).exchange(lambda x: x + 1).capture()
    ...     worker.run()
    ...     return seen.extract()
    >>> forest = Forest.central(3)
    >>> simulate(program, workers=3, seed=5, network=lambda workers: Accumulated(forest)).results
    [[(0, [2])], [(0, [0])], [(0, [1])]]
    """

    def __init__(self, forest: Forest, seed: int = 0) -> None:
        super().__init__(forest.workers)
        self.forest = forest
        self.traffic = Traffic()
        self._random = Random(seed)
        self._haste = self._random.choice([0.1, 0.5, 0.9])
        self._links: dict[tuple[int, int], deque[_Packet]] = {}
        self._sums: dict[int, dict[int, _Packet]] = {}
        self._sequences: dict[tuple[int, int], int] = {}
        self._own: dict[tuple[int, int], deque[ProgressBatch[Any]]] = {}
        self._built: set[tuple[int, int]] = set()
        self._kept: dict[tuple[int, int], list[_Packet]] = {}
        self._unread: dict[tuple[int, int], deque[Any]] = {pair: deque() for pair in self.sent}
        self._under_way = dict.fromkeys(self.sent, 0)

    # -- what a network offers -------------------------------------------------------------------------------------------

    def transport(self, index: int, pause: Callable[[bool], None] | None = None) -> SimulatedTransport:
        """Return the end of worker ``index``, which tells the network what it has received."""
        return _Door(self, index, pause)

    def send(self, source: int, target: int, message: Any) -> None:
        """Take a message on its way; a batch of progress once, though it is sent to everybody."""
        self._unread[source, target].append(message)
        if message[0] != PROGRESS:
            self.traffic.data += message[0] == DATA
            if message[0] == GRAPH:
                self._open(source, message[1])
            super().send(source, target, message)
            return
        self._under_way[source, target] += 1
        _, number, batch = message
        own = self._own.setdefault((source, number), deque())
        if not own or own[-1] is not batch:
            own.append(batch)
            self._emit(source, _Packet(number, batch.updates, {source: (batch.sequence, batch.count)}))
        if source in self.forest.roots:
            own.clear()  # nobody adds it to anything, so that it never comes back
            own.append(batch)

    def deliver(self, source: int, target: int, count: int = 1) -> int:
        """Let messages from one worker to another arrive, and progress that is on the way between them go on, ``count`` times."""
        moved = super().deliver(source, target, count)
        for _ in range(max(count, 1)):
            if not self._hop(source, target):
                break
            moved += 1
        return moved

    def waiting(self) -> list[tuple[int, int]]:
        """Return the pairs of workers between which something is on its way."""
        return [pair for pair, queue in self.sent.items() if queue or self._under_way[pair]]

    def between(self, source: int, target: int) -> list[Any]:
        """Return all that one worker has sent to another and the other has not received yet, as it was sent."""
        return list(self._unread[source, target])

    def received(self, target: int, arrived: Sequence[tuple[int, Any]]) -> None:
        """Take in what a worker has received."""
        for source, message in arrived:
            unread = self._unread[source, target]
            if message[0] != PROGRESS:
                _remove(unread, functools.partial(operator.is_, message))
                continue
            for _ in range(message[2].count):
                _remove(unread, functools.partial(_is_progress, message[1]))

    def settle(self) -> None:
        """Let everything arrive that is on its way; every accumulator hands on one sum of all that comes up to it."""
        forest = self.forest
        for node in range(forest.workers, len(forest.parents)):
            for child in forest.children[node]:
                self._drain((child, node))
            for number in list(self._sums.get(node, ())):
                self._flush(node, number)
        while self._links:
            for link in list(self._links):
                self._drain(link)
        for pair, queue in self.sent.items():
            if queue:
                super().deliver(*pair, len(queue))

    # -- on the way ------------------------------------------------------------------------------------------------------

    def _emit(self, node: int, packet: _Packet) -> None:
        """Send a sum up, or from a root to everybody."""
        sequence = self._sequences[node, packet.number] = self._sequences.get((node, packet.number), -1) + 1
        parent = self.forest.parents[node]
        if parent is not None:
            self._send_on(node, (parent,), packet, sequence)
        else:
            roots = tuple(root for root in self.forest.roots if root != node)
            self._send_on(node, (*roots, *self.forest.children[node]), packet, sequence)

    def _send_on(self, node: int, targets: Sequence[int], packet: _Packet, sequence: int) -> None:
        local = sum(self.forest.is_local(node, target) for target in targets)
        self.traffic.local += local
        if len(targets) > local:
            self.traffic.add(ProgressBatch(node, sequence, packet.updates), packet.number, len(targets) - local)
        for target in targets:
            self._links.setdefault((node, target), deque()).append(packet)

    def _arrive(self, source: int, node: int, packet: _Packet) -> None:
        if self.forest.parents[source] == node:
            sums = self._sums.setdefault(node, {})
            sums[packet.number] = sums[packet.number].plus(packet) if packet.number in sums else packet
        elif node >= self.forest.workers:
            children = self.forest.children[node]
            self._send_on(node, children, packet, self._sequences.get((node, packet.number), 0))
        elif (node, packet.number) in self._built:
            self._unfold(node, packet)
        else:
            self._kept.setdefault((node, packet.number), []).append(packet)

    def _open(self, worker: int, number: int) -> None:
        """Hand a worker that has built a dataflow what has come for it."""
        self._built.add((worker, number))
        for packet in self._kept.pop((worker, number), ()):
            self._unfold(worker, packet)

    def _unfold(self, worker: int, packet: _Packet) -> None:
        """Hand a worker the sum less its own part, as the last of the batches in it; the others are empty."""
        changes = ChangeBatch(packet.updates)
        if worker in packet.included:
            for _ in range(packet.included[worker][1]):
                own = self._own[worker, packet.number].popleft()
                changes.extend((key, -diff) for key, diff in own.updates)
        others = [sender for sender in packet.included if sender != worker]
        for sender in others:
            first, count = packet.included[sender]
            updates = tuple(changes.drain()) if sender == others[-1] else ()
            self.inboxes[worker].append((sender, (PROGRESS, packet.number, ProgressBatch(sender, first, updates, count))))
            self._under_way[sender, worker] -= count

    def _flush(self, node: int, number: int) -> None:
        self._emit(node, self._sums[node].pop(number))

    def _pass(self, link: tuple[int, int]) -> None:
        queue = self._links[link]
        packet = queue.popleft()
        if not queue:
            del self._links[link]
        self._arrive(*link, packet)

    def _drain(self, link: tuple[int, int]) -> None:
        while link in self._links:
            self._pass(link)

    def _hop(self, source: int, target: int) -> bool:
        """Let something between two workers go on by one step, or have sums grow first; return whether anything could."""
        way = self.forest.way(source, target)
        links = [link for link in pairwise(way) if link in self._links]
        sums = [(node, number) for node in dict.fromkeys(way) for number in self._sums.get(node, ())]
        if not links and not sums:
            return False
        if sums and self._random.random() < self._haste:
            self._flush(*self._random.choice(sums))
        elif links or self._links:
            self._pass(self._random.choice(links or list(self._links)))
        else:
            self._flush(*sums[0])
        return True


class _Door(SimulatedTransport):
    """One worker's end of an ``Accumulated`` network."""

    _network: Accumulated

    def receive(self) -> Sequence[tuple[int, Any]]:
        """Return what has arrived."""
        arrived = super().receive()
        self._network.received(self.index, arrived)
        return arrived


def _is_progress(number: int, message: Any) -> bool:
    return bool(message[0] == PROGRESS and message[1] == number)


def _remove(messages: deque[Any], wanted: Callable[[Any], bool]) -> None:
    """Remove the first message that is wanted."""
    for place, message in enumerate(messages):
        if wanted(message):
            del messages[place]
            return
