"""What progress costs on the way between workers, counted: messages, changes and bytes for each iteration of a dataflow.

:func:`lockstep` and :func:`scattered` count what real workers send, at two extremes of how their steps and the arrival of
messages may alternate; :func:`weigh` counts what one round takes without any workers, for as many as one likes. The invariant:
no count depends on a clock. A caller may compare two counts, and rely on ``weigh`` and ``lockstep`` to agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, Final

import attrs

from timely.errors import ConfigurationError
from timely.progress import ChangeBatch, ProgressBatch
from timely.testing.accumulated import Accumulated, Traffic
from timely.testing.forest import Forest
from timely.worker import Worker

Drive = Callable[[], int]
"""What a worker does of its own accord before each turn; returns how many iterations it has done."""

_MOST_TURNS: Final = 100_000


@attrs.frozen
class Counted:
    """What ``iterations`` of a dataflow took: its traffic, and the ``turns`` that each worker had."""

    traffic: Traffic
    iterations: int
    turns: int


def lockstep(build: Callable[[Worker], Drive], forest: Forest, first: int = 3, last: int = 8) -> Counted:
    """Count what iterations ``first`` to ``last`` cost where all workers step together, and all arrives between two steps.

    ``build(worker)`` builds the dataflow and returns what the worker does before each step. Workers are real; they cost as
    much in another rhythm if nobody is so slow that what waits for it is merged.

    >>> def build(worker):
    ...     with worker.dataflow() as scope:
    ...         numbers, stream = scope.new_input()
    ...         probe = stream.probe()
    ...     def drive():
    ...         if not probe.less_than(numbers.time):
    ...             numbers.advance_to(numbers.time + 1)
    ...         return numbers.time
    ...     return drive
    >>> counted = lockstep(build, Forest.broadcast(3))
    >>> counted.traffic.messages // counted.iterations, counted.traffic.updates // counted.iterations
    (6, 12)
    """
    network = Accumulated(forest)
    workers = [Worker(network.transport(index)) for index in range(forest.workers)]
    drives = [build(worker) for worker in workers]
    marks: list[tuple[int, int, Traffic]] = []
    for turn in range(_MOST_TURNS):
        done = min(drive() for drive in drives)
        if done >= (last if marks else first):
            marks.append((done, turn, attrs.evolve(network.traffic)))
            if len(marks) == 2:
                (before, then, old), (after, now, new) = marks
                return Counted(new.since(old), after - before, now - then)
        for worker in workers:
            worker.step()
        network.settle()
    raise ConfigurationError(f"lockstep: in {_MOST_TURNS} turns there were {done} iterations of {last}: what ends them?")


def scattered(build: Callable[[Worker], Drive], workers: int, first: int = 2, last: int = 4, seed: int = 0) -> Counted:
    """Count as :func:`lockstep` does where every message arrives by itself, in any order, and is acted upon before the next.

    It is the other extreme: nothing that a worker does in answer to several messages goes out together. ``turns`` is how many
    steps all workers took. Without accumulators.

    >>> def build(worker):
    ...     with worker.dataflow() as scope:
    ...         numbers, stream = scope.new_input()
    ...         probe = stream.probe()
    ...     def drive():
    ...         if not probe.less_than(numbers.time):
    ...             numbers.advance_to(numbers.time + 1)
    ...         return numbers.time
    ...     return drive
    >>> counted = scattered(build, 3, first=3, last=8)
    >>> counted.traffic.messages // counted.iterations
    6
    """
    network = Accumulated(Forest.broadcast(workers), seed)
    members = [Worker(network.transport(index)) for index in range(workers)]
    drives = [build(worker) for worker in members]
    for worker in members:
        worker.step()
    network.settle()
    done, random = [0] * workers, Random(seed)
    mark: tuple[int, int, Traffic] | None = None
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
        if mark is None and min(done) >= first:
            mark = min(done), turn, attrs.evolve(network.traffic)
        elif mark is not None and min(done) >= last:
            return Counted(network.traffic.since(mark[2]), min(done) - mark[0], turn - mark[1])
    raise ConfigurationError(f"scattered: not every worker has done {last} iterations, but {done}: what ends them?")


def weigh(forest: Forest, batches: Sequence[ProgressBatch[Any]], number: int = 0) -> Traffic:
    """Return what it takes for every worker to hear of these batches, one of each worker, if all are there at the same time.

    >>> batches = [ProgressBatch(worker, 0, ((("t", 0), -1), (("t", 1), 1))) for worker in range(8)]
    >>> [weigh(forest, batches).messages for forest in (Forest.broadcast(8), Forest.processes(8, 4), Forest.central(8))]
    [56, 2, 16]
    """
    traffic = Traffic()
    totals: list[ChangeBatch[Any]] = [ChangeBatch() for _ in forest.parents]
    for batch in batches:
        totals[batch.sender].extend(batch.updates)
    sequence = batches[0].sequence
    for node, parent in enumerate(forest.parents):
        if parent is not None:
            _count(traffic, forest, node, (parent,), totals[node], number, sequence)
            totals[parent].extend(totals[node])
    for root in forest.roots:
        for node, targets in _downward(forest, root):
            _count(traffic, forest, node, targets, totals[root], number, sequence)
    return traffic


def _downward(forest: Forest, root: int) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield who tells whom what a root has added up."""
    others = [other for other in forest.roots if other != root]
    yield root, (*others, *forest.children[root])
    below = [*others, *forest.children[root]]
    while below:
        node = below.pop()
        if forest.children[node]:
            yield node, forest.children[node]
            below.extend(forest.children[node])


def _count(
    traffic: Traffic, forest: Forest, node: int, targets: Sequence[int], total: ChangeBatch[Any], number: int, sequence: int
) -> None:
    local = sum(forest.is_local(node, target) for target in targets)
    traffic.local += local
    if len(targets) > local:
        traffic.add(ProgressBatch(node, sequence, tuple(total)), number, len(targets) - local)
