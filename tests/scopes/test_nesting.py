"""A nested dataflow written out by hand: a case on which hierarchical progress has gone wrong before.

White box: a message is recognised by its type, to see that records leave before their progress.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import timely
from timely import Antichain, Capability, OutputPort
from timely.dataflow import Activator
from timely.testing import Network
from timely.worker.worker_messages import DataMessage, ProgressMessage


def test_work_that_is_negative_in_transit_hides_no_other_work_from_the_parent() -> None:
    """A worker reads what a peer sent before it receives that it was sent: inside the scope that counts -1 for a while. Added up
    with the peer's capability, at the same output, it would come to nothing, and the frontier outside would pass too early.
    """
    network = Network(2)
    workers = [timely.Worker(network.transport(index)) for index in range(2)]
    capabilities: list[Capability[Any]] = []
    activators: list[Activator] = []
    probes: list[timely.ProbeHandle[Any]] = []

    def constructor(capability: Capability[Any], info: timely.OperatorInfo) -> Callable[[OutputPort[Any]], None]:
        capabilities.append(capability)
        activators.append(info.activator)
        calls: list[int] = []

        def logic(output: OutputPort[Any]) -> None:
            calls.append(1)
            if info.worker == 1 and len(calls) == 2:
                output.session(capability).give(0)

        return logic

    for worker in workers:
        with worker.dataflow() as scope:
            with scope.region() as inner:
                inside = inner.source("source", constructor).exchange(lambda x: x).concat(scope.empty().enter(inner))
            probes.append(inside.leave().probe())

    def settle_both() -> None:
        for _ in range(20):
            network.deliver_all()
            for worker in workers:
                worker.step()

    capabilities[0].drop()
    settle_both()
    activators[1].activate()
    workers[1].step()
    assert [type(message) for message in network.sent[1, 0]] == [DataMessage, ProgressMessage]
    network.deliver(1, 0, 1)
    for _ in range(3):
        workers[0].step()
        assert probes[0].frontier() == Antichain([0]), "worker 1 may still send at 0"
    capabilities[1].drop()
    settle_both()
    assert probes[0].done() and probes[1].done()
    assert not any(worker.dataflows for worker in workers)
