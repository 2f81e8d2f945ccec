"""The simulator runs users' programs unchanged, again and again the same way, and objects to nothing that is right.

White box: messages that are held back are recognised by their type.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from tests.dataflow.own_scopes import Batches, Stubborn
from tests.testing.programs import interpreted, loops, nested_loops, rounds
from timely.errors import ConfigurationError, GraphError, InvariantViolation, OperatorError, ProgressError, StalledError
from timely.progress import ChangeBatch, Source
from timely.scopes import Subgraph, SubgraphBuilder, ValidatingScope
from timely.testing import Delivery, Network, Resume, Simulation, schedules, simulate
from timely.worker.worker_messages import DataMessage, ProgressMessage

PROGRAMS = (loops, nested_loops, rounds)
PLAIN = {program: timely.execute(program, workers=3) for program in PROGRAMS}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_results_are_those_of_real_workers(program: Any, workers: int) -> None:
    expected = timely.execute(program, workers=workers)
    for seed in range(3):
        assert simulate(program, workers, seed).results == expected


@given(schedules(3, max_size=40), st.sampled_from(PROGRAMS))
def test_T6_T7_any_decisions_will_do(decisions: list[Resume | Delivery], program: Any) -> None:
    assert simulate(program, decisions=decisions).results == PLAIN[program]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_run_is_a_function_of_its_decisions(program: Any) -> None:
    def noting(worker: timely.Worker) -> Any:
        happened.append(("begun", worker.index))
        result = program(worker)
        happened.append(("ended", worker.index))
        return result

    histories = []
    run = Simulation(noting, 3, 5)
    for again in (run, Simulation(noting, 3, 5), None):
        happened: list[tuple[str, int]] = []
        simulation = (again or Simulation(noting, 3, decisions=run.decisions)).run()
        histories.append((happened, simulation.decisions, simulation.results, simulation.network.count))
    assert histories[0] == histories[1] == histories[2]
    assert histories[0][1] != Simulation(noting, 3, 6).run().decisions


def test_decisions_print_as_code() -> None:
    decisions = simulate(rounds, 2, 3).decisions
    assert eval(repr(decisions)) == decisions
    assert {type(decision) for decision in decisions} == {Resume, Delivery}


def test_several_dataflows_run_in_any_order() -> None:
    orders = set()

    def program(worker: timely.Worker) -> list[str]:
        order: list[str] = []
        for name in "ab":
            with worker.dataflow(name=name) as scope:
                scope.to_stream([name]).exchange(len).inspect(order.append)
        worker.run()
        return order

    for seed in range(20):
        orders.add(tuple(simulate(program, 1, seed).results[0]))
    assert orders == {("a", "b"), ("b", "a")}


# -- the tests of the conformance list, on simulated workers -----------------------------------------------------------

MODULES = [f"tests.conformance.test_{name}" for name in ("loops", "programs", "worker", "operators")]
MODULES += ["tests.dataflow.test_nesting", "tests.dataflow.test_custom_operators"]


def multi_worker_tests() -> Iterator[Any]:
    """Yield every test of those modules that runs a program on several workers, with so many of them, in one process."""
    for name in MODULES:
        for test in vars(importlib.import_module(name)).values():
            marks = getattr(test, "pytestmark", ()) if inspect.isfunction(test) else ()
            for mark in marks:
                if mark.name == "parametrize" and mark.args[0] == ("workers", "processes") and len(marks) == 1:
                    for workers, processes in mark.args[1]:
                        if workers > 1 and processes == 1:
                            yield pytest.param(test, workers, id=f"{test.__name__}[{workers}]")


@pytest.mark.parametrize(("test", "workers"), list(multi_worker_tests()))
def test_conformance(test: Callable[..., None], workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = itertools.count()

    def execute(program: Any, *, workers: int = 1, processes: int = 1) -> list[Any]:
        return simulate(program, workers * processes, next(seeds)).results

    monkeypatch.setattr(timely, "execute", execute)
    for _ in range(3):
        test(workers=workers, processes=1)


# -- scopes of one's own -----------------------------------------------------------------------------------------------


class Ticks(Stubborn):
    """A scope of the protocol alone, with one output: it holds its capability for so many pulls, and downgrades it at each."""

    outputs = 1
    time = 0

    def get_internal_summary(self) -> Any:
        return [], [[(0, 1)]]

    def pull_internal_progress(self, internal: Batches, consumed: Batches, produced: Batches) -> bool:
        if self.left:
            internal[0].update(self.time, -1)
            self.left -= 1
            if self.left:
                self.time += 1
                internal[0].update(self.time, 1)
        return self.left > 0


def test_a_scope_of_ones_own_is_looked_at() -> None:
    def program(worker: timely.Worker) -> list[int]:
        seen = []
        with worker.dataflow(int) as scope:
            child = scope.subgraph_builder.add_child("ticks", Ticks(3 + worker.index))
            probe = timely.Stream(scope, Source(child, 0), []).probe()
        while not probe.done():
            seen += list(probe.frontier())
            worker.step()
        return seen

    for seed in range(5):
        for index, seen in enumerate(simulate(program, 2, seed).results):
            assert seen == sorted(seen)
            assert seen[-1] <= 3, index


# -- errors ------------------------------------------------------------------------------------------------------------


def test_an_operator_error_arrives_as_from_execute() -> None:
    def program(worker: timely.Worker) -> None:
        with worker.dataflow() as scope:
            scope.to_stream([1, 0]).exchange(lambda x: x).map(lambda x: 1 // x).capture()
        worker.run()

    for seed in range(5):
        with pytest.raises(OperatorError, match="ZeroDivisionError") as failure:
            simulate(program, 3, seed)
        assert isinstance(failure.value.__cause__, ZeroDivisionError)
        assert any("in a simulation" in note for note in failure.value.__notes__)


def test_what_a_program_raises_arrives_as_it_is() -> None:
    def program(worker: timely.Worker) -> None:
        with worker.dataflow() as scope:
            scope.to_stream([1]).exchange(lambda x: x).capture()
        if worker.index == 1:
            raise KeyError("mine")
        worker.run()

    with pytest.raises(KeyError, match="mine"):
        simulate(program, 3, 1)


def test_different_graphs_are_found_out() -> None:
    def program(worker: timely.Worker) -> None:
        with worker.dataflow() as scope:
            stream = scope.to_stream([1])
            (stream.map(str) if worker.index else stream.filter(bool)).exchange(lambda x: 0).capture()
        worker.run()

    for seed in range(5):
        with pytest.raises(GraphError):
            simulate(program, 2, seed)


def test_workers_that_wait_for_each_other_for_ever_have_stalled() -> None:
    def program(worker: timely.Worker) -> None:
        with worker.dataflow() as scope:
            handle, stream = scope.new_input()
            probe = stream.probe()
        worker.step_while(lambda: probe.less_than(1))
        handle.close()

    with pytest.raises(StalledError, match="worker 0, worker 1 wait for something that never comes"):
        simulate(program, 2)


def test_finally_clauses_run_when_a_run_is_given_up() -> None:
    left = []

    def program(worker: timely.Worker) -> None:
        try:
            with worker.dataflow() as scope:
                handle, _ = scope.new_input()
            while not handle.closed:
                worker.step()
        finally:
            left.append(worker.index)

    with pytest.raises(StalledError):
        simulate(program, 3)
    assert sorted(left) == [0, 1, 2]
    assert gc.isenabled()


def test_bad_arguments() -> None:
    with pytest.raises(ConfigurationError, match="at least one"):
        simulate(rounds, 0)


# -- several dataflows -------------------------------------------------------------------------------------------------


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
        for seed in range(2):
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
