"""``Cluster``: workers that are stepped by hand, so that a run follows from what the test does and can be repeated."""

from __future__ import annotations

from random import Random

from timely import Worker
from timely.testing.simulated_network import Network


class Cluster:
    """Workers of one process over a ``Network``, stepped by hand.

    >>> cluster = Cluster(3)
    >>> probes = []
    >>> for worker in cluster.workers:
    ...     with worker.dataflow() as scope:
    ...         probes.append(scope.to_stream([worker.index]).exchange(lambda x: 0).probe())
    >>> cluster.settle()
    >>> [probe.done() for probe in probes]
    [True, True, True]
    """

    def __init__(self, workers: int = 1) -> None:
        self.network = Network(workers)
        self.workers = [Worker(self.network.transport(index)) for index in range(workers)]

    @property
    def idle(self) -> bool:
        """Whether no worker has anything to do, and no message is on its way."""
        return all(worker.idle for worker in self.workers) and self.network.quiet

    def step(self) -> None:
        """Step every worker once, and let everything arrive."""
        for worker in self.workers:
            worker.step()
        self.network.deliver_all()

    def settle(self) -> None:
        """Step until nothing is left to be done."""
        while not self.idle:
            self.step()

    def step_some(self, random: Random) -> None:
        """Step some workers, and let some messages arrive."""
        for _ in range(random.randrange(4)):
            waiting = self.network.waiting()
            if waiting and random.random() < 0.5:
                self.network.deliver(*random.choice(waiting), random.randint(1, 3))
            else:
                random.choice(self.workers).step()
