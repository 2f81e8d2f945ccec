"""What progress costs on the way between workers, counted: messages, changes and bytes for each iteration of a dataflow.

:func:`lockstep` and :func:`scattered` count what real workers send, at two extremes of how their steps and the arrival of
messages may alternate; :func:`model` counts what a barrier takes without any dataflow, for as many workers as one likes. The
invariant: no count depends on a clock. A caller may compare two counts, and rely on ``model`` and ``lockstep`` to agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

import attrs

from timely.errors import ConfigurationError
from timely.progress import ProgressAggregator, ProgressBatch, ProgressGroups
from timely.testing import Network
from timely.worker import Worker
from timely.worker.wire import encode
from timely.worker.worker_messages import DataMessage, ProgressMessage, pack

Drive = Callable[[], int]
"""What a worker does of its own accord before each turn; returns how many iterations it has done."""

_MOST_TURNS: Final = 100_000


def hops(groups: ProgressGroups) -> int:
    """Return the most messages in a row between two workers.

    >>> hops(ProgressGroups.direct(64)), hops(ProgressGroups.process(64, 8)), hops(ProgressGroups.tree(64, 4))
    (1, 3, 5)
    """
    farthest = max(range(groups.workers), key=lambda worker: len(groups.path(0, worker)))  # an end of a longest path, in a tree
    return max(len(groups.path(farthest, worker)) - 1 for worker in range(groups.workers))


class _Counted(Worker):
    """A worker whose turns are all short, however slow the machine is."""

    def _is_slow(self, dataflow: Any) -> bool:
        return False


@attrs.define
class Traffic:
    """Messages of progress between processes, the changes and the bytes in them; ``local`` ones in memory; ones with ``data``.

    Bytes are those of a frame with this message alone (:mod:`timely.worker.wire`), before encryption.

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


@attrs.frozen
class Counted:
    """What ``iterations`` of a dataflow took: its traffic, and the ``turns`` that each worker had.

    ``busiest`` is how many messages the worker sent and received, within its process too, that had most of them.
    """

    traffic: Traffic
    iterations: int
    turns: int
    busiest: int


class Meter:
    """Counts what workers send, ``each`` of them in a process.

    >>> meter = Meter(4, 2)
    >>> for target in (1, 2):
    ...     meter.sent(0, target, ProgressMessage(0, ProgressBatch(0, 0, (("a", 1), ("b", -1)))))
    >>> meter.traffic.messages, meter.traffic.updates, meter.traffic.local
    (1, 2, 1)
    """

    def __init__(self, workers: int, each: int = 1) -> None:
        self.traffic = Traffic()
        self.handled = [0] * workers
        self._each = each
        self._last: Any = None
        self._size = 0

    def sent(self, source: int, target: int, message: Any) -> None:
        """Count a message."""
        if not isinstance(message, ProgressMessage):
            self.traffic.data += isinstance(message, DataMessage)
            return
        self.handled[source] += 1
        self.handled[target] += 1
        if source // self._each == target // self._each:
            self.traffic.local += 1
            return
        if message is not self._last:  # it is the same one for several peers
            self._last, self._size = message, sum(map(len, encode([pack(message)])))
        self.traffic.messages += 1
        self.traffic.updates += len(message.batch.updates)
        self.traffic.bytes += self._size


class Metered(Network):
    """A network that counts what is sent.

    >>> network = Metered(3)
    >>> network.transport(0).send(1, DataMessage(0, 0, 0, ["x"]))
    >>> network.meter.traffic.data
    1
    """

    def __init__(self, peers: int, each: int = 1) -> None:
        super().__init__(peers)
        self.meter = Meter(peers, each)

    def send(self, source: int, target: int, message: Any) -> None:
        """Take a message on its way."""
        self.meter.sent(source, target, message)
        super().send(source, target, message)

    def deliver_all(self) -> None:
        """Let everything arrive that is on its way."""
        for pair, queue in self.sent.items():
            if queue:
                self.deliver(*pair, len(queue))


class _Stretch:
    """What was counted between the first time and the last that so many iterations were done."""

    def __init__(self, meter: Meter, first: int, last: int) -> None:
        self._meter = meter
        self._first = first
        self._last = last
        self._start: tuple[int, int, Traffic, list[int]] | None = None

    def at(self, done: int, turn: int) -> Counted | None:
        """Take in how many iterations are done; return what was counted when they are all."""
        meter = self._meter
        if self._start is None:
            if done >= self._first:
                self._start = done, turn, attrs.evolve(meter.traffic), list(meter.handled)
            return None
        if done < self._last:
            return None
        begun, then, traffic, handled = self._start
        busiest = max(now - before for now, before in zip(meter.handled, handled, strict=True))
        return Counted(meter.traffic.since(traffic), done - begun, turn - then, busiest)


def lockstep(build: Callable[[Worker], Drive], routes: ProgressGroups, first: int = 3, last: int = 8, each: int = 1) -> Counted:
    """Count what iterations ``first`` to ``last`` cost where all workers step together, and all arrives between two steps.

    ``build(worker)`` builds the dataflow and returns what the worker does before each step; ``each`` workers are in a process.
    Workers are real; they cost as much in another rhythm if nobody is so slow that what waits for it is merged.

    >>> def build(worker):
    ...     with worker.dataflow() as scope:
    ...         numbers, stream = scope.new_input()
    ...         probe = stream.probe()
    ...     def drive():
    ...         if not probe.less_than(numbers.time):
    ...             numbers.advance_to(numbers.time + 1)
    ...         return numbers.time
    ...     return drive
    >>> counted = lockstep(build, ProgressGroups.direct(3))
    >>> counted.traffic.messages // counted.iterations, counted.traffic.updates // counted.iterations
    (6, 12)
    """
    network = Metered(routes.workers, each)
    workers = [_Counted(network.transport(index), groups=routes) for index in range(routes.workers)]
    drives = [build(worker) for worker in workers]
    stretch = _Stretch(network.meter, first, last)
    for turn in range(_MOST_TURNS):
        done = min(drive() for drive in drives)
        counted = stretch.at(done, turn)
        if counted is not None:
            return counted
        for worker in workers:
            worker.step()
        network.deliver_all()
    raise ConfigurationError(f"lockstep: in {_MOST_TURNS} turns there were {done} iterations of {last}: what ends them?")


def scattered(build: Callable[[Worker], Drive], routes: ProgressGroups, first: int = 2, last: int = 4, seed: int = 0) -> Counted:
    """Count as :func:`lockstep` does where every message arrives by itself, in any order, and is acted upon before the next.

    It is the other extreme: nothing that a worker does in answer to several messages goes out together. ``turns`` is how many
    steps all workers took.

    >>> def build(worker):
    ...     with worker.dataflow() as scope:
    ...         numbers, stream = scope.new_input()
    ...         probe = stream.probe()
    ...     def drive():
    ...         if not probe.less_than(numbers.time):
    ...             numbers.advance_to(numbers.time + 1)
    ...         return numbers.time
    ...     return drive
    >>> counted = scattered(build, ProgressGroups.direct(3), first=3, last=8)
    >>> counted.traffic.messages // counted.iterations
    6
    """
    workers = routes.workers
    network = Metered(workers)
    members = [_Counted(network.transport(index), groups=routes) for index in range(workers)]
    drives = [build(worker) for worker in members]
    for worker in members:
        worker.step()
    network.deliver_all()
    done, random, stretch = [0] * workers, Random(seed), _Stretch(network.meter, first, last)
    awake = set(range(workers))
    for turn in range(_MOST_TURNS * workers):
        waiting = network.waiting()
        if awake or not waiting:
            awake = awake or set(range(workers))  # nothing is on its way: it is for them to go on
            target = awake.pop()
        else:
            source, target = random.choice(waiting)
            network.deliver(source, target)
        done[target] = drives[target]()
        members[target].step()
        if not members[target].idle:
            awake.add(target)
        counted = stretch.at(min(done), turn)
        if counted is not None:
            return counted
    raise ConfigurationError(f"scattered: not every worker has done {last} iterations, but {done}: what ends them?")


def model(routes: ProgressGroups, first: int = 3, last: int = 8, each: int = 1) -> Counted:
    """Count as :func:`lockstep` does for a barrier, without dataflows: what workers say of one operator in a loop, and pass on.

    Each worker goes from one iteration to the next when it has heard that all others have come to it.

    >>> for routes, each in ((ProgressGroups.direct(8), 1), (ProgressGroups.process(8, 4), 4), (ProgressGroups.central(8), 1)):
    ...     counted = model(routes, each=each)
    ...     print(counted.traffic.messages / counted.iterations, counted.turns / counted.iterations)
    56.0 1.0
    4.0 3.0
    14.0 2.0
    """
    members = [_Member(index, routes) for index in range(routes.workers)]
    meter = Meter(routes.workers, each)
    stretch = _Stretch(meter, first, last)
    for turn in range(_MOST_TURNS):
        counted = stretch.at(min(member.time for member in members), turn)
        if counted is not None:
            return counted
        told = [(member.index, peer, message) for member in members for peer, message in member.turn()]
        for source, target, message in told:
            meter.sent(source, target, message)
            members[target].hear(source, message)
    raise AssertionError("unreachable: every worker hears of every other one")


class _Member:
    """A worker of the model: how many have not left its present iteration yet, as far as it knows."""

    def __init__(self, index: int, routes: ProgressGroups) -> None:
        self.index = index
        self.time = 0
        self._aggregator = ProgressAggregator(index, routes)
        self._counts = {0: routes.workers}

    def hear(self, sender: int, message: Any) -> None:
        """Take in what another worker tells."""
        self._aggregator.receive(sender, message.dataflow, message.batch)
        self._count(message.batch.updates)

    def turn(self) -> Sequence[tuple[int, Any]]:
        """Go on, if nobody is an iteration behind; return what is to be told."""
        if not self._counts.get(self.time - 1):
            updates = ((0, 1, self.time), -1), ((0, 1, self.time + 1), 1)
            self._count(updates)
            self.time += 1
            self._aggregator.add(0, ProgressBatch(self.index, 0, updates))
        batches = self._aggregator.flush()
        return [(peer, ProgressMessage(number, batch)) for members, number, batch in batches for peer in members]

    def _count(self, updates: Sequence[tuple[Any, int]]) -> None:
        for (_, _, time), diff in updates:
            self._counts[time] = self._counts.get(time, 0) + diff
