"""Schedules of a simulation: which worker runs next, and which messages arrive. A run skips decisions that cannot be taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import TypeAlias

import attrs
from hypothesis import strategies as st

from timely.testing.simulated_network import Network


@attrs.frozen
class Resume:
    """The decision that ``worker`` runs until it would receive messages again, or wait.

    Of the dataflows that have something to do it runs the ``dataflow``-th, modulo their number; all of them if ``None``.

    >>> Resume(1)
    Resume(worker=1, dataflow=None)
    """

    worker: int
    dataflow: int | None = None


@attrs.frozen
class Delivery:
    """The decision that the oldest messages from worker ``source`` to worker ``target`` arrive: at most ``count`` of them.

    >>> Delivery(1, 0)
    Delivery(source=1, target=0, count=1)
    """

    source: int
    target: int
    count: int = 1


Decision: TypeAlias = Resume | Delivery


class RandomSchedule:
    """A seeded schedule: for a while some workers are slow and some messages late, and then others.

    ``waiting()`` are the workers whose programs have not ended; ``runnable(worker)`` says which of them can go on.
    """

    def __init__(self, seed: int, network: Network, waiting: Callable[[], list[int]], runnable: Callable[[int], bool]) -> None:
        self._random = Random(seed)
        self._network = network
        self._waiting = waiting
        self._runnable = runnable
        self._slow: set[int] = set()
        self._late: set[tuple[int, int]] = set()
        self._left = 0

    def decisions(self) -> Iterator[Decision]:
        """Yield decisions, each made for the state of the simulation when it is asked for."""
        while True:
            self._left -= 1
            if self._left < 0:
                self._choose_slow()
            yield self._decision()

    def _choose_slow(self) -> None:
        random, network = self._random, self._network
        self._left = random.choice([3, 10, 30, 100])
        self._slow = {index for index in range(network.peers) if random.random() < 0.2}
        share = random.choice([0.0, 0.3, 0.8])
        self._late = {pair for pair in network.sent if random.random() < share}

    def _decision(self) -> Decision:
        random, in_flight = self._random, self._network.waiting()
        deliveries = [pair for pair in in_flight if pair not in self._late]
        ready = list(filter(self._runnable, self._waiting()))
        workers = [index for index in ready if index not in self._slow]
        if not workers and not deliveries:
            self._left = 0
            workers, deliveries = ready, in_flight
        if (not workers and not deliveries) or random.random() < 0.02:
            workers = self._waiting()  # one of them has waited long enough
        if deliveries and (not workers or random.random() < 0.5):
            source, target = random.choice(deliveries)
            return Delivery(source, target, random.choice([1, 1, 1, 2, 5, 1000]))
        return Resume(random.choice(workers), random.choice([None, None, None, 0, 1, 2]))


def schedules(workers: int = 3, *, max_size: int = 60) -> st.SearchStrategy[list[Decision]]:
    """Return a strategy for decisions to give to ``simulate``, which shrink to few and simple ones.

    >>> from hypothesis import find
    >>> find(schedules(2), lambda decisions: len(decisions) > 1)
    [Resume(worker=0, dataflow=None), Resume(worker=0, dataflow=None)]
    """
    index = st.integers(0, workers - 1)
    resumes: st.SearchStrategy[Decision] = st.builds(Resume, index, st.none() | st.integers(0, 2))
    if workers < 2:
        return st.lists(resumes, max_size=max_size)
    pairs = st.permutations(range(workers))
    deliveries = st.builds(lambda pair, count: Delivery(pair[0], pair[1], count), pairs, st.sampled_from([1, 2, 1000]))
    return st.lists(resumes | deliveries, max_size=max_size)
