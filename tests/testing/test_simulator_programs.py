"""The simulator objects to nothing that is right: all kinds of times, several dataflows, early drops, late messages.

White box: messages that are held back are recognised by their type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from tests.testing.programs import loops, nested_loops, rounds
from tests.testing.tampering import interpreted
from timely.errors import InvariantViolation, ProgressError
from timely.progress import ChangeBatch
from timely.scopes import Subgraph, SubgraphBuilder, ValidatingScope
from timely.testing import Delivery, Network, Resume, schedules, simulate
from timely.worker.worker_messages import DataMessage, ProgressMessage

# -- several dataflows -------------------------------------------------------------------------------------------------


@given(schedules(3, max_size=40), st.booleans())
def test_dataflows_that_feed_each_other(decisions: list[Resume | Delivery], swapped: bool) -> None:
    """An operator of one dataflow sends into another, which is built before it or after it; both run in any order."""

    def program(worker: timely.Worker) -> list[int]:
        inputs: list[timely.InputHandle[int, int]] = []

        def first() -> None:
            with worker.dataflow(int) as scope:
                stream = scope.to_stream(range(worker.index, 6, worker.peers)).exchange(lambda x: x)
                probes.append(stream.inspect(lambda x: inputs[0].send(10 * x)).probe())

        def second() -> None:
            with worker.dataflow(int) as scope:
                handle, stream = scope.new_input()
                inputs.append(handle)
                captures.append(stream.exchange(lambda x: x // 20).capture())

        probes: list[Any] = []
        captures: list[Any] = []
        for build in (second, first) if swapped else (first, second):
            build()
        worker.step_while(lambda: not probes[0].done())
        inputs[0].close()
        worker.run()
        return [x for _, batch in captures[0].extract() for x in batch]

    results = simulate(program, 3, decisions=decisions).results
    assert sorted(x for result in results for x in result) == [0, 10, 20, 30, 40, 50]


def test_a_dataflow_that_one_worker_has_dropped_before_another_builds_it() -> None:
    """The two others go on with it: what the last one sends is known to nobody who looks on, and no fault."""

    def program(worker: timely.Worker) -> None:
        with worker.dataflow() as scope:
            scope.to_stream([2] if worker.index == 1 else []).exchange(lambda x: x).probe()
        if worker.index:
            worker.step()
            worker.step()
        worker.drop_dataflow(scope)

    decisions: list[Resume | Delivery] = [Resume(2), Resume(0), Resume(1), Resume(1), Delivery(1, 2, 9), Resume(2), Resume(2)]
    assert simulate(program, decisions=decisions).results == [None] * 3


# -- capabilities that are given up before what was sent with them has left ----------------------------------------------


def by_with(capability: timely.Capability[int], output: Any, x: int) -> None:
    with capability, output.session(capability) as session:
        session.give(x)


def dropped(capability: timely.Capability[int], output: Any, x: int) -> None:
    output.session(capability).give(x)
    capability.drop()


def downgraded(capability: timely.Capability[int], output: Any, x: int) -> None:
    output.session(capability).give(x)
    capability.downgrade(capability.time + 7)
    capability.drop()


def lent(capability: timely.Capability[int], output: Any, x: int) -> None:
    with capability.copy() as copy:
        capability.drop()
        session = output.session(copy)
    session.give(x)


GIVEN_UP = [by_with, dropped, downgraded, lent]


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("give_up", GIVEN_UP)
@pytest.mark.parametrize("later", [False, True])
def test_OC2_what_is_sent_with_a_capability_given_up_in_the_same_activation(give_up: Any, workers: int, later: bool) -> None:
    """What one activation does is one statement, so that the order of what it does makes no difference."""

    def program(worker: timely.Worker) -> Any:
        def constructor(capability: Any, info: Any) -> Callable[..., object]:
            held: list[tuple[Any, list[int]]] = []

            def logic(input: Any, output: Any) -> None:
                if later:
                    while held:
                        send(*held.pop(), output)
                for arrived, batch in input:
                    held.append((arrived.retain(), batch))
                    info.activator.activate()
                if not later:
                    while held:
                        send(*held.pop(), output)

            def send(capability: Any, batch: list[int], output: Any) -> None:
                for x in batch[1:]:
                    give_up(capability.copy(), output, x)
                give_up(capability, output, batch[0])

            return logic

        with worker.dataflow(int) as scope:
            numbers, stream = scope.new_input()
            passed = stream.exchange(lambda x: x).unary(timely.Pipeline, "hasty", constructor)
            seen = passed.exchange(lambda x: x // 2).capture()
        for epoch in range(3):
            for x in range(3):
                numbers.send(epoch + x)
            numbers.advance_to(epoch + 1)
        numbers.close()
        worker.run()
        return seen.extract()

    for seed in range(3):
        results = simulate(program, workers, seed).results
        collected = sorted((time, x) for result in results for time, batch in result for x in batch)
        assert collected == sorted(workers * [(epoch, epoch + x) for epoch in range(3) for x in range(3)])


# -- nested scopes -----------------------------------------------------------------------------------------------------


class Reported:
    """A scope that has said what it has to say already."""

    def __init__(self, scope: Subgraph[Any, Any], counts: Any) -> None:
        self.inputs, self.outputs = scope.inputs, scope.outputs
        self._summary = scope.internal_summary, counts

    def get_internal_summary(self) -> Any:
        return self._summary

    def pull_internal_progress(self, internal: Any, consumed: Any, produced: Any) -> bool:
        return False


@interpreted
def test_OC6_a_nested_scope_that_reports_another_workers_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it says would be refused if it were held to what its own worker has; and it is right."""
    start, pull = SubgraphBuilder.get_internal_summary, Subgraph.pull_internal_progress
    locally: dict[int, ValidatingScope[Any]] = {}
    refused = 0

    def initial(self: SubgraphBuilder[Any, Any]) -> Any:
        (summaries, counts), scope = start(self), self.subgraph
        locally[id(scope)] = ValidatingScope(Reported(scope, counts), scope.name, scope.path)  # type: ignore[arg-type]  # asked no more
        locally[id(scope)].get_internal_summary()
        return summaries, counts

    def checked_pull(self: Subgraph[Any, Any], *lists: Sequence[ChangeBatch[Any]]) -> bool:
        nonlocal refused
        busy = pull(self, *lists)
        if lists[0]:
            try:
                locally[id(self)].pull_internal_progress(*lists)
            except ProgressError:
                refused += 1
        return busy

    monkeypatch.setattr(SubgraphBuilder, "get_internal_summary", initial)
    monkeypatch.setattr(Subgraph, "pull_internal_progress", checked_pull)
    for seed in range(20):
        simulate(nested_loops, 3, seed)
    assert refused > 0


# -- what the protocol allows --------------------------------------------------------------------------------------------


class Late(Network):
    """Holds back all messages of one kind from one worker to another until nobody else has anything to do."""

    kind: type = ProgressMessage

    def deliver(self, source: int, target: int, count: int = 1) -> int:
        queue = self.sent[source, target]
        if (source, target) == (0, 1) and queue and type(queue[0]) is self.kind and len(self.waiting()) > 1:
            return 0
        return super().deliver(source, target, count)


class LateData(Late):
    """Holds back records, and the progress that comes behind them."""

    kind = DataMessage


@pytest.mark.parametrize("network", [Late, LateData])
@pytest.mark.parametrize("program", [loops, nested_loops, rounds])
def test_messages_may_be_as_late_as_they_like(network: type[Network], program: Any) -> None:
    for workers in (2, 3):
        expected = timely.execute(program, workers=workers)
        for seed in range(4):
            assert simulate(program, workers, seed, network=network).results == expected


def test_a_violation_is_raised_even_if_the_program_catches_it() -> None:
    def program(worker: timely.Worker) -> None:
        def steal(info: Any) -> Callable[[Any], None]:
            def logic(input: Any) -> None:
                for capability, _ in input:
                    input._messages.update_at(input.number, capability.time, -1)

            return logic

        with worker.dataflow(int) as scope:
            scope.to_stream([1]).sink(timely.Pipeline, "thief", steal)
        try:
            worker.run()
        except Exception:
            pass

    with pytest.raises(InvariantViolation, match="^I1"):
        simulate(program, 2)
