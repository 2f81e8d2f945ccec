"""Nested dataflows written out by hand: the cases on which hierarchical progress has gone wrong somewhere before.

White box: a message is recognised by its type, to see that records leave before their progress.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

import timely
from timely import Antichain, Capability, CycleError, InputPort, OutputPort, Pipeline, Product, ScopeBuilder, Step, Stream
from timely.dataflow import Activator
from timely.testing import Network
from timely.worker.worker_messages import DataMessage, ProgressMessage


class Holder:
    """An operator that passes records on, and keeps the capability that it began with until its test drops it."""

    def __init__(self, stream: Stream[Any, Any], name: str = "holder") -> None:
        self.capability: Capability[Any] | None = None
        self.input: InputPort[Any, Any] | None = None
        self.stream = stream.unary_frontier(Pipeline, name, self._construct)

    def _construct(self, capability: Capability[Any], info: timely.OperatorInfo) -> Callable[..., None]:
        self.capability = capability

        def logic(input: InputPort[Any, Any], output: OutputPort[Any]) -> None:
            self.input = input
            for arrived, batch in input:
                output.session(arrived).give_batch(batch)

        return logic

    @property
    def frontier(self) -> Antichain[Any]:
        assert self.input is not None
        return self.input.frontier

    @property
    def held(self) -> Capability[Any]:
        assert self.capability is not None
        return self.capability


def settle(worker: timely.Worker) -> None:
    while not worker.idle:
        worker.step()


def test_a_capability_in_a_child_reaches_its_own_input_through_the_parent() -> None:
    worker = timely.Worker()
    with worker.dataflow() as scope:
        handle, again = scope.feedback()
        with scope.iterative() as loop:
            holder = Holder(again.enter(loop))
            holder.stream.leave().connect_loop(handle)
    settle(worker)
    assert holder.frontier == Antichain([Product(1, 0)])
    holder.held.downgrade(Product(3, 9))
    settle(worker)
    assert holder.frontier == Antichain([Product(4, 0)])
    holder.held.drop()
    settle(worker)
    assert holder.frontier == Antichain()
    assert not worker.step()


def test_a_loop_through_the_parent_does_not_keep_itself_alive() -> None:
    """The child passes its input on, the parent feeds it back: once the outside is closed there is nothing to wait for."""
    worker = timely.Worker()
    with worker.dataflow() as scope:
        numbers, stream = scope.new_input()
        handle, again = scope.feedback()
        with scope.region() as inner:
            holder = Holder(stream.concat(again).enter(inner))
            holder.stream.filter(lambda x: x > 0).map(lambda x: x - 1).leave().connect_loop(handle)
        holder.held.drop()
        probe = again.probe()
    numbers.send(5)
    numbers.advance_to(2)
    settle(worker)
    assert holder.frontier == Antichain([2])
    assert probe.frontier() == Antichain([3])
    numbers.close()
    settle(worker)
    assert holder.frontier == Antichain()
    assert probe.done()
    assert not worker.step()


def test_a_capability_in_a_scope_without_outputs_keeps_the_dataflow_alive() -> None:
    worker = timely.Worker()
    with worker.dataflow() as scope, scope.region() as outer, outer.iterative() as inner:
        holder = Holder(inner.empty())
    settle(worker)
    assert worker.step()
    with pytest.raises(timely.StalledError, match="holder"):
        worker.run()
    holder.held.drop()
    worker.run()
    assert not worker.step()


def test_a_region_in_which_nobody_observes_anything() -> None:
    worker = timely.Worker()
    with worker.dataflow() as scope:
        numbers, stream = scope.new_input()
        with scope.region() as outer, outer.region() as inner:
            within = stream.enter(outer).enter(inner).map(lambda x: x + 1)
            probe = within.leave().leave().probe()
    numbers.advance_to(4)
    settle(worker)
    assert probe.frontier() == Antichain([4])
    numbers.close()
    settle(worker)
    assert probe.done()


def test_regions_with_nothing_in_them_pass_progress_on() -> None:
    worker = timely.Worker()
    with worker.dataflow() as scope:
        numbers, stream = scope.new_input()
        with scope.region() as outer, outer.iterative() as inner, inner.region() as innermost:
            entered = stream.enter(outer).enter(inner).enter(innermost)
            probe = entered.leave().leave().leave().probe()
        with scope.region():
            pass
    for epoch in range(1, 4):
        numbers.send(epoch)
        numbers.advance_to(epoch)
        settle(worker)
        assert probe.frontier() == Antichain([epoch])
    numbers.close()
    worker.run()


def test_three_levels_of_loops_each_with_its_own_times() -> None:
    worker = timely.Worker()
    handles: list[timely.LoopHandle[Any]] = []
    with worker.dataflow() as scope, ExitStack() as stack:
        scopes: list[ScopeBuilder[Any]] = [scope]
        stream: Stream[Any, Any] = scope.empty()
        for _ in range(3):
            scopes.append(stack.enter_context(scopes[-1].iterative()))
            handle, again = scopes[-1].feedback()
            handles.append(handle)
            stream = stream.enter(scopes[-1]).concat(again)
        holder = Holder(stream)
        out = holder.stream
        for handle in reversed(handles):
            out.connect_loop(handle)
            out = out.leave()
        probe = out.probe()
    settle(worker)

    def time(*coordinates: int) -> Any:
        a, b, c, d = coordinates
        return Product(Product(Product(a, b), c), d)

    assert holder.frontier == Antichain([time(0, 0, 0, 1), time(0, 0, 1, 0), time(0, 1, 0, 0)])
    holder.held.downgrade(time(2, 3, 4, 5))
    settle(worker)
    assert holder.frontier == Antichain([time(2, 3, 4, 6), time(2, 3, 5, 0), time(2, 4, 0, 0)])
    assert probe.frontier() == Antichain([2])
    holder.held.drop()
    worker.run()
    assert holder.frontier == Antichain()
    assert probe.done()


def test_three_levels_of_loops_over_data() -> None:
    """Three rounds of three rounds of three rounds."""

    def thrice(stream: Stream[Any, Any], scope: ScopeBuilder[Any], levels: int) -> Stream[Any, Any]:
        if levels == 0:
            return stream.map(lambda x: x + 1)
        with scope.iterative() as loop:
            handle, again = loop.feedback()
            body = thrice(stream.enter(loop).concat(again), loop, levels - 1)
            done, more = body.branch_when(lambda time: time.inner < 2)
            more.connect_loop(handle)
            return done.leave()

    assert timely.example(lambda scope: thrice(scope.to_stream([0, 100]), scope, 3)) == [(0, [27, 127])]


def test_two_scopes_that_feed_each_other() -> None:
    worker = timely.Worker()
    with worker.dataflow() as scope:
        handle, again = scope.feedback(Step(2))
        with scope.iterative() as left:
            one = Holder(again.enter(left), "one")
            between = one.stream.leave()
        with scope.region() as right:
            two = Holder(between.enter(right), "two")
            two.stream.leave().connect_loop(handle)
    settle(worker)
    assert (one.frontier, two.frontier) == (Antichain([Product(2, 0)]), Antichain([0]))
    one.held.downgrade(Product(7, 3))
    settle(worker)
    assert (one.frontier, two.frontier) == (Antichain([Product(2, 0)]), Antichain([2]))
    two.held.downgrade(6)
    settle(worker)
    assert (one.frontier, two.frontier) == (Antichain([Product(8, 0)]), Antichain([7]))
    one.held.drop()
    settle(worker)
    assert (one.frontier, two.frontier) == (Antichain([Product(8, 0)]), Antichain([8]))
    two.held.drop()
    worker.run()


def test_a_loop_with_a_bound_in_a_child_lets_the_parent_go_on() -> None:
    """What is dropped at the bound of an inner loop holds nothing back further out."""
    worker = timely.Worker()
    stay = timely.ProductSummary(Step(0), Step(1, limit=3))
    with worker.dataflow() as scope:
        numbers, stream = scope.new_input()
        with scope.iterative() as loop:
            handle, again = loop.feedback(stay)
            merged = stream.enter(loop).concat(again)
            merged.connect_loop(handle)
            rounds = again.map(lambda x: x)
            probe, seen = rounds.probe(), merged.leave().capture()
    numbers.send(1)
    numbers.advance_to(1)
    settle(worker)
    assert probe.frontier() == Antichain([Product(1, 1)])
    assert seen.extract() == [(0, [1, 1, 1, 1])]
    numbers.close()
    worker.run()


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_a_cycle_through_the_parent_needs_a_feedback_there(levels: int) -> None:
    """Rounds of a loop inside are forgotten on the way out, so they cannot make the cycle advance."""
    worker = timely.Worker()

    def build(*, feedback: Step) -> None:
        with worker.dataflow() as scope, ExitStack() as stack:
            handle, again = scope.feedback(feedback)
            stream: Stream[Any, Any] = again
            inner: ScopeBuilder[Any] = scope
            for _ in range(levels):
                inner = stack.enter_context(inner.iterative())
                stream = stream.enter(inner)
            inner_handle, inner_again = inner.feedback()
            stream.connect_loop(inner_handle)
            stream = inner_again
            for _ in range(levels):
                stream = stream.leave()
            stream.connect_loop(handle)

    with pytest.raises(CycleError):
        build(feedback=Step(0))
    build(feedback=Step(1))
    worker.run()


def test_what_happens_in_a_dataflow_that_is_no_more_is_ignored() -> None:
    worker = timely.Worker()
    with worker.dataflow() as scope:
        holder = Holder(scope.empty())
        handle, _ = scope.new_input()
    with pytest.raises(CycleError), worker.dataflow() as broken:
        loop, again = broken.feedback(Step(0))
        again.connect_loop(loop)
    worker.step()
    worker.drop_dataflow(scope)
    handle.send(1)
    handle.close()
    holder.held.drop()
    assert not worker.step()
    assert not worker.step()


def test_a_scope_that_exchanges_waits_for_a_silent_peer() -> None:
    """Two workers; one is built late and steps rarely: the other's inner loop must not get ahead of it."""
    network = Network(2)
    workers = [timely.Worker(network.transport(index)) for index in range(2)]
    seen: list[list[tuple[Any, int]]] = [[], []]
    handles: list[timely.InputHandle[Any, int]] = []

    def build(worker: timely.Worker) -> None:
        with worker.dataflow() as scope:
            handle, stream = scope.new_input()
            handles.append(handle)
            with scope.iterative() as loop:
                feedback, again = loop.feedback()
                stepped = stream.enter(loop).concat(again).exchange(lambda x: x).map(lambda x: x - 1)
                done, more = stepped.branch(lambda x: x > 0)
                more.connect_loop(feedback)
                inner = done.inspect_time(lambda time, x: seen[worker.index].append((time, x)))
            worker_probes.append(inner.leave().probe())

    worker_probes: list[timely.ProbeHandle[Any]] = []
    build(workers[0])
    handles[0].send(6)
    handles[0].close()
    for _ in range(20):
        workers[0].step()
    assert not worker_probes[0].done()
    assert worker_probes[0].frontier() == Antichain([0])
    build(workers[1])
    handles[1].close()
    for _ in range(200):
        for source, target in network.waiting():
            network.deliver(source, target, 1)
        for worker in workers:
            worker.step()
    assert worker_probes[0].done() and worker_probes[1].done()
    assert sorted(seen[0] + seen[1]) == [(Product(0, 5), 0)]
    assert not any(worker.step() for worker in workers)


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


@pytest.mark.parametrize("levels", [0, 1, 3])
def test_every_operator_runs_once_more_when_its_frontier_has_become_empty(levels: int) -> None:
    """A sink that writes when all is complete gets to do so before the dataflow is gone."""
    worker = timely.Worker()
    seen: list[Antichain[Any]] = []

    def constructor(info: timely.OperatorInfo) -> Callable[[InputPort[Any, Any]], None]:
        def logic(input: InputPort[Any, Any]) -> None:
            for _ in input:
                pass
            seen.append(input.frontier)

        return logic

    with worker.dataflow() as scope, ExitStack() as stack:
        stream: Stream[Any, Any] = scope.to_stream([1])
        for _ in range(levels):
            inner: ScopeBuilder[Any] = stack.enter_context(stream.scope.iterative())
            stream = stream.enter(inner)
        stream.sink(Pipeline, "sink", constructor)
    worker.run()
    assert seen[-1] == Antichain()
