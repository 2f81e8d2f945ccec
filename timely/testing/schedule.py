"""Schedules of a simulation: the decisions that there are to take, and two ways to come by them.

A run is a function of its decisions: which worker goes on, or which messages arrive. The invariant: any list of decisions may be
given to any run, which passes over those that cannot be taken. A caller draws them with Hypothesis (``schedules``), or has them
made up as the run goes, by a seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Protocol, TypeAlias

import attrs
from hypothesis import strategies as st

from timely.testing.code import Described
from timely.testing.network import Network


@attrs.frozen(repr=False)
class Turn(Described):
    """The decision that ``worker`` goes on: it takes in what has arrived, and runs until it would take in more, or wait.

    Of several dataflows that have something to do it runs the ``dataflow``-th, counted round and round; all of them if ``None``.
    A worker that waits has waited for long enough.

    >>> from timely.testing import simulate
    >>> simulate(lambda worker: worker.index, workers=2, seed=4).decisions[0]
    Turn(1)
    """

    worker: int
    dataflow: int | None = None


@attrs.frozen(repr=False)
class Delivery(Described):
    """The decision that the oldest messages from worker ``source`` to worker ``target`` arrive: at most ``count`` of them.

    >>> from timely.testing import simulate
    >>> def program(worker):
    ...     with worker.dataflow() as scope:
    ...         seen = scope.to_stream([worker.index]).exchange(lambda x: 0).capture()
    ...     worker.run()
    ...     return seen.extract()
    >>> simulate(program, workers=2, decisions=[Turn(0), Turn(1), Delivery(1, 0, 5)]).results
    [[(0, [0, 1])], []]
    """

    source: int
    target: int
    count: int = 1


Decision: TypeAlias = Turn | Delivery


class Run(Protocol):
    """What a seeded schedule goes by."""

    network: Network

    @property
    def workers(self) -> Sequence[object]:
        """All workers."""

    def waiting(self) -> list[int]:
        """Return the workers whose programs have not ended."""

    def runnable(self, index: int) -> bool:
        """Return whether a worker can go on without having waited in vain."""


class Whims:
    """A seeded schedule: for a while some workers are slow and some messages are late, and then others."""

    def __init__(self, simulation: Run, seed: int) -> None:
        self._simulation = simulation
        self._random = Random(seed)
        self._lazy: set[int] = set()
        self._late: set[tuple[int, int]] = set()
        self._left = 0

    def decisions(self) -> Iterator[Decision]:
        """Yield decisions, each made for how things stand when it is asked for."""
        while True:
            self._change_mood()
            yield self._decision()

    def _change_mood(self) -> None:
        """Once in a while, choose anew who is slow and what is late."""
        self._left -= 1
        if self._left < 0:
            random, simulation = self._random, self._simulation
            self._left = random.choice([3, 10, 30, 100])
            self._lazy = {index for index in range(len(simulation.workers)) if random.random() < 0.2}
            share = random.choice([0.0, 0.3, 0.8])
            self._late = {pair for pair in simulation.network.sent if random.random() < share}

    def _decision(self) -> Decision:
        simulation, random = self._simulation, self._random
        under_way = simulation.network.waiting()
        deliveries = [pair for pair in under_way if pair not in self._late]
        ready = [index for index in simulation.waiting() if simulation.runnable(index)]
        turns = [index for index in ready if index not in self._lazy]
        if not turns and not deliveries:
            self._left = 0
            turns, deliveries = ready, under_way
        if (not turns and not deliveries) or random.random() < 0.02:
            turns = simulation.waiting()  # somebody has waited for long enough
        if deliveries and (not turns or random.random() < 0.5):
            source, target = random.choice(deliveries)
            return Delivery(source, target, random.choice([1, 1, 1, 2, 5, 1000]))
        return Turn(random.choice(turns), random.choice([None, None, None, 0, 1, 2]))


def schedules(workers: int = 3, *, max_size: int = 60) -> st.SearchStrategy[list[Decision]]:
    """Return a strategy for decisions to give to ``simulate``, which shrink to few and simple ones.

    >>> from hypothesis import find
    >>> find(schedules(2), lambda decisions: len(decisions) > 1)
    [Turn(0), Turn(0)]
    """
    index = st.integers(0, workers - 1)
    turns: st.SearchStrategy[Decision] = st.builds(Turn, index, st.none() | st.integers(0, 2))
    if workers < 2:
        return st.lists(turns, max_size=max_size)
    pairs = st.permutations(range(workers))
    deliveries = st.builds(lambda pair, count: Delivery(pair[0], pair[1], count), pairs, st.sampled_from([1, 2, 1000]))
    return st.lists(turns | deliveries, max_size=max_size)
