"""What a user does wrong: each a typed error that says which operator or scope, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import timely
from timely import (
    Antichain,
    Capability,
    CapabilityError,
    ConfigurationError,
    CycleError,
    GraphError,
    OperatorBuilder,
    OperatorError,
    Pipeline,
    Product,
    ProductSummary,
    RoutingError,
    ScopeBuilder,
    StalledError,
    Step,
    Stream,
    TimestampError,
)

Deed = Callable[[Capability[int], Any], object]


def source(deed: Deed) -> list[Any]:
    """Run a source called "bad" whose logic is ``deed``."""
    return timely.example(lambda scope: scope.source("bad", lambda cap, info: lambda output: deed(cap, output)))


def cause(error: pytest.ExceptionInfo[OperatorError]) -> BaseException | None:
    """What the operator raised."""
    return error.value.__cause__


def new_input() -> tuple[timely.Worker, timely.InputHandle[int, Any], Stream[int, Any]]:
    """A worker with one dataflow that has one input."""
    worker = timely.Worker()
    with worker.dataflow(int, name="demo") as scope:
        handle, stream = scope.new_input()
        stream.probe()
    return worker, handle, stream


# -- graphs ------------------------------------------------------------------------------------------------------------


def test_a_cycle_that_does_not_advance() -> None:
    def build(scope: ScopeBuilder[int]) -> Stream[int, Any]:
        handle, again = scope.feedback(Step(0))
        again.map(str).connect_loop(handle)
        return again

    with pytest.raises(CycleError, match="does not advance.*feedback.*map.*put a feedback on it") as error:
        timely.example(build)
    assert len(error.value.nodes) >= 2


def test_a_cycle_that_does_not_advance_in_a_nested_scope() -> None:
    def build(scope: ScopeBuilder[int]) -> Stream[int, Any]:
        with scope.iterative() as loop:
            handle, again = loop.feedback(ProductSummary(Step(0), Step(0)))
            again.map(str).connect_loop(handle)
            return again.leave()

    with pytest.raises(CycleError, match="scope '/example/iterative#0': time does not advance on the cycle node"):
        timely.example(build)


def test_a_cycle_through_a_region_that_does_not_advance() -> None:
    def build(scope: ScopeBuilder[int]) -> Stream[int, Any]:
        handle, again = scope.feedback(Step(0))
        with scope.region("box") as box:
            inner = again.enter(box).map(str)
            inner.leave().connect_loop(handle)
            return inner.leave()

    with pytest.raises(CycleError, match="does not advance"):
        timely.example(build)


@pytest.mark.parametrize("nested", [False, True])
def test_an_unconnected_loop(nested: bool) -> None:
    def build(scope: ScopeBuilder[int]) -> Stream[int, Any]:
        if not nested:
            return scope.feedback()[1]
        with scope.iterative("rounds") as loop:
            return loop.feedback()[1].leave()

    path = "/example/rounds#0/feedback#0" if nested else "/example/feedback#0"
    with pytest.raises(GraphError, match=rf"loop {path} was never connected: call stream.connect_loop\(handle\)"):
        timely.example(build)


def test_a_loop_that_is_connected_twice() -> None:
    def build(scope: ScopeBuilder[int]) -> Stream[int, Any]:
        handle, again = scope.feedback()
        again.connect_loop(handle)
        again.map(str).connect_loop(handle)
        return again

    with pytest.raises(GraphError, match="/example/feedback#0 is connected already: concatenate"):
        timely.example(build)


def test_a_stream_of_another_scope() -> None:
    def build(scope: ScopeBuilder[int]) -> Stream[int, Any]:
        with scope.iterative("rounds") as loop:
            inner = scope.to_stream([1]).enter(loop)
        return scope.to_stream([2]).concat(inner)  # type: ignore[arg-type]  # the mistake

    with pytest.raises(GraphError, match="'concat'.*/example/rounds#0.*enter.*leave"):
        timely.example(build)


def test_a_loop_is_fed_from_another_scope() -> None:
    def build(scope: ScopeBuilder[int]) -> Stream[int, Any]:
        with scope.region("box") as box:
            handle, again = box.feedback()
            scope.to_stream([2]).connect_loop(handle)
            return again.leave()

    with pytest.raises(GraphError, match="'feedback'.*cannot read a stream of scope '/example'"):
        timely.example(build)


def test_a_stream_of_another_dataflow() -> None:
    worker = timely.Worker()
    wrong = pytest.raises(GraphError, match="'concat'.*cannot read.*'/two': that is another dataflow: .*capture_into")
    with wrong, worker.dataflow(int, name="one") as one, worker.dataflow(int, name="two") as two:
        one.to_stream([1]).concat(two.to_stream([2]))


def test_entering_two_levels_at_once() -> None:
    def build(scope: ScopeBuilder[int]) -> Stream[int, Any]:
        with scope.region("outer") as outer, outer.region("inner") as inner:
            return scope.to_stream([1]).enter(inner)

    with pytest.raises(GraphError, match="'/example' cannot enter '/example/outer#0/inner#0'.*not nested directly"):
        timely.example(build)


def test_leaving_the_outermost_scope() -> None:
    with pytest.raises(GraphError, match="outermost scope '/example' cannot leave"):
        timely.example(lambda scope: scope.to_stream([1]).leave())


@pytest.mark.parametrize(
    "use",
    [
        lambda stream: stream.map(str),
        lambda stream: stream.probe(),
        lambda stream: stream.capture(),
        lambda stream: stream.scope.new_input(),
        lambda stream: stream.scope.feedback(),
        lambda stream: stream.scope.region().__enter__(),
    ],
)
def test_building_on_after_the_with_block(use: Callable[[Stream[int, Any]], object]) -> None:
    worker, handle, stream = new_input()
    with pytest.raises(GraphError, match="scope '/demo' is built already: add operators inside its with-block"):
        use(stream)
    handle.close()
    worker.run()  # and the dataflow is none the worse for it


def test_an_operator_that_was_begun_and_never_built() -> None:
    def build(scope: ScopeBuilder[int]) -> Stream[int, Any]:
        builder = OperatorBuilder(scope, "half")
        return builder.new_output()

    with pytest.raises(GraphError, match=r"/example/half#0; call build"):
        timely.example(build)


def test_a_constructor_that_returns_no_logic() -> None:
    with pytest.raises(OperatorError, match=r"'mine' \(/example/mine#1\).*constructor must return the logic.*returned None"):
        timely.example(lambda scope: scope.to_stream([1]).unary(Pipeline, "mine", lambda cap, info: None))  # type: ignore[arg-type, return-value]


def a_generator(*ports: Any) -> Any:
    yield ports


async def a_coroutine(*ports: Any) -> Any:
    return ports


class Called:
    async def __call__(self, *ports: Any) -> Any:
        yield ports


@pytest.mark.parametrize(
    ("logic", "what"),
    [
        (a_generator, "a generator function"),
        (partial(partial(a_generator, 1), 2), "a generator function"),
        (a_coroutine, "an async function"),
        (Called(), "an async generator function"),
    ],
)
def test_logic_that_does_nothing_when_it_is_called(logic: Any, what: str) -> None:
    builds: list[Callable[[ScopeBuilder[int]], Stream[int, Any]]] = [
        lambda scope: scope.source("mine", lambda capability, info: logic),
        lambda scope: scope.to_stream([1]).unary(Pipeline, "mine", lambda capability, info: logic),
        lambda scope: scope.to_stream([1]).unary_notify(Pipeline, "mine", [], logic),
    ]
    for build in builds:
        with pytest.raises(OperatorError, match=rf"'mine' .*works when it is called, and .* is {what}: send by output.session"):
            timely.example(build)


@pytest.mark.parametrize("name", ["on_recv", "on_notify"])
@pytest.mark.parametrize(("callback", "what"), [(a_generator, "a generator function"), (a_coroutine, "an async function")])
def test_a_vertex_that_does_nothing_when_it_is_called(name: str, callback: Any, what: str) -> None:
    idle = type("Idle", (timely.Vertex,), {name: callback})
    with pytest.raises(GraphError, match=f"^vertex Idle: {name} is {what}, and does nothing when it is called"):
        timely.example(lambda scope: scope.to_stream([1]).vertex(idle))


def test_the_frontier_of_an_input_that_does_not_observe_it() -> None:
    def build(scope: ScopeBuilder[int]) -> Stream[int, Any]:
        return scope.to_stream([1]).unary(Pipeline, "mine", lambda cap, info: lambda input, output: input.frontier)

    with pytest.raises(OperatorError, match=r"input 0 of operator 'mine'.*use unary_frontier"):
        timely.example(build)


def test_a_session_used_after_its_with_block() -> None:
    def constructor(capability: Any, info: timely.OperatorInfo) -> Callable[[Any], object]:
        def logic(output: Any) -> None:
            with output.session(capability) as session:
                session.give(1)
            session.give(2)

        return logic

    with pytest.raises(OperatorError, match="or with its own with-block; open a new one"):
        timely.example(lambda scope: scope.source("late", constructor))


def test_an_operator_that_is_built_twice_or_added_to_later() -> None:
    with timely.Worker().dataflow(int) as scope:
        builder = timely.OperatorBuilder(scope, "mine")
        builder.new_output()
        builder.build(lambda capabilities, info: lambda output: None)
        for deed in (
            builder.new_output,
            lambda: builder.new_input(scope.empty(), timely.Pipeline),
            lambda: builder.build(lambda capabilities, info: lambda output: None),
        ):
            with pytest.raises(GraphError, match="'/dataflow0/mine#0' is built already"):
                deed()


def test_a_summary_to_an_output_that_is_not_there() -> None:
    with timely.Worker().dataflow(int) as scope:
        builder = timely.OperatorBuilder(scope, "mine")
        with pytest.raises(GraphError, match="input 0 has a summary to a missing output 1"):
            builder.new_input(scope.empty(), timely.Pipeline, {1: timely.Antichain([timely.Step(0)])})
        builder.build(lambda capabilities, info: lambda: None)


def test_a_summary_from_an_input_that_is_not_there() -> None:
    def build(scope: ScopeBuilder[int]) -> Stream[int, Any]:
        return OperatorBuilder(scope, "half").new_output({0: Antichain([Step(1)])})

    with pytest.raises(GraphError, match="/example/half#0.*summary from a missing input 0"):
        timely.example(build)


# -- capabilities ------------------------------------------------------------------------------------------------------


def test_a_send_with_a_dropped_capability() -> None:
    def deed(capability: Capability[int], output: Any) -> None:
        capability.drop()
        output.session(capability)

    with pytest.raises(OperatorError, match=r"/example/bad#0.*for 0 was dropped before the send; keep it") as error:
        source(deed)
    assert isinstance(cause(error), CapabilityError)


def test_a_delay_to_a_time_that_cannot_be_compared_with_its_own() -> None:
    def build(scope: ScopeBuilder[int]) -> Stream[int, Any]:
        def deed(capability: Any, output: Any) -> None:
            capability.downgrade(Product(0, 3))
            capability.delayed(Product(1, 2))

        with scope.iterative() as loop:
            return loop.source("bad", lambda cap, info: lambda output: deed(cap, output)).leave()

    with pytest.raises(OperatorError, match="cannot delay the capability for .*not at or after"):
        timely.example(build)


def test_a_capability_of_the_input_used_after_its_activation() -> None:
    def constructor(initial: Capability[int], info: timely.OperatorInfo) -> Callable[[Any, Any], object]:
        held: list[Any] = []

        def logic(input: Any, output: Any) -> None:
            if held:
                output.session(held[0]).give("late")
            for capability, _ in input:
                held.append(capability)
                info.activator.activate()

        return logic

    with pytest.raises(OperatorError, match=r"'late'.*after the activation.*retain\(\)") as error:
        timely.example(lambda scope: scope.to_stream([1]).unary(Pipeline, "late", constructor))
    assert isinstance(cause(error), CapabilityError)


def test_a_session_used_after_its_activation() -> None:
    def constructor(capability: Capability[int], info: timely.OperatorInfo) -> Callable[[Any], object]:
        held: list[Any] = []

        def logic(output: Any) -> None:
            if held:
                held[0].give("late")
            else:
                held.append(output.session(capability))
                info.activator.activate()

        return logic

    with pytest.raises(OperatorError, match="ended with the activation.*open a new one"):
        timely.example(lambda scope: scope.source("late", constructor))


def test_a_session_opened_outside_any_activation() -> None:
    outputs: list[Any] = []
    capabilities: list[Capability[int]] = []

    def constructor(capability: Capability[int], info: timely.OperatorInfo) -> Callable[[Any], object]:
        capabilities.append(capability)
        return outputs.append

    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        scope.source("leaky", constructor)
    worker.step()
    with pytest.raises(CapabilityError, match="'leaky'.*only while the operator's logic runs"):
        outputs[0].session(capabilities[0])
    capabilities.clear()
    worker.run()


# -- inputs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deed", [lambda h: h.send(1), lambda h: h.send_batch([1]), lambda h: h.advance_to(9)])
def test_input_after_close(deed: Callable[[timely.InputHandle[int, Any]], object]) -> None:
    worker, handle, _ = new_input()
    handle.advance_to(3)
    handle.close()
    handle.close()
    with pytest.raises(CapabilityError, match=r"/demo/input#0.*was closed at 3.*close it after all that is sent"):
        deed(handle)
    worker.run()


def test_an_input_that_goes_back() -> None:
    _, handle, _ = new_input()
    handle.advance_to(3)
    with pytest.raises(TimestampError, match=r"/demo/input#0.*is at 3 and cannot advance to 2"):
        handle.advance_to(2)
    assert handle.time == 3


@pytest.mark.parametrize(
    ("time", "why"),
    [
        ("1", "'1' is of type str, not int"),
        (None, "not int"),
        (1.5, "1.5 is of type float, not int"),
        (True, "not int"),
        (-1, "-1 is before the minimum, 0"),
        (Product(1, 1), "not int"),
    ],
)
def test_an_input_at_a_time_of_another_type(time: Any, why: str) -> None:
    _, handle, _ = new_input()
    with pytest.raises(TimestampError, match=rf"advance_to: input 'input' \(/demo/input#0\): .*{why}"):
        handle.advance_to(time)
    assert handle.time == 0


def test_waiting_for_what_cannot_change() -> None:
    with pytest.raises(StalledError, match="every dataflow is complete"):
        timely.Worker().step_while(lambda: True)


# -- records -----------------------------------------------------------------------------------------------------------


KEYED: dict[str, Callable[[Stream[int, Any]], Stream[int, Any]]] = {
    "exchange": lambda stream: stream.exchange(lambda pair: pair[0]["absent"]),
    "distinct": lambda stream: stream.distinct(key=lambda pair: pair[0]["absent"]),
    "value_counts": lambda stream: stream.value_counts(key=lambda pair: pair[0]["absent"]),
    "join": lambda stream: stream.join(stream, key=lambda k: k["absent"]),
    "state_machine": lambda stream: stream.state_machine(lambda k, v, s: (s, []), key=lambda k: k["absent"]),
}


class Wide(dict[str, int]):
    """A record that is hashable, without that key."""

    def __hash__(self) -> int:  # type: ignore[override]
        return 0


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", KEYED)
def test_a_key_that_fails_blames_the_operator_that_it_was_given_to(name: str, workers: int) -> None:
    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int, name="df") as scope:
            pairs = scope.to_stream([(Wide(), 1)]).map(lambda pair: pair)
            KEYED[name](pairs)

    with pytest.raises(OperatorError, match=rf"operator '{name}.* raised RoutingError: .*KeyError: 'absent'") as error:
        timely.execute(program, workers=workers)
    line = KEYED[name].__code__.co_firstlineno
    assert str(error.value).endswith(f"was built at test_bad_input.py:{line} in <lambda>")
    assert error.value.name.startswith(name) and f"/{name}" in error.value.path
    failure = cause(error)
    assert isinstance(failure, RoutingError) and isinstance(failure.__cause__, KeyError)


def test_a_function_of_records_for_a_batch_of_columns() -> None:
    batch = pa.record_batch({"src": [1], "dst": [2]})
    with pytest.raises(OperatorError, match="by the name of a column") as error:
        timely.example(lambda scope: scope.to_stream([1]).map_batch(lambda _: batch).exchange(lambda x: x))
    assert isinstance(cause(error), RoutingError)


def test_records_that_cannot_be_sent_to_another_process() -> None:
    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int) as scope:
            scope.to_stream([lambda: 1]).exchange(lambda x: 1).probe()

    label = r"exchange into input 0 of operator 'exchange' \(/dataflow0/exchange#1\)"
    with pytest.raises(RoutingError, match=f"{label}: a record of type function cannot be pickled"):
        timely.execute(program, processes=2)


def test_records_that_cannot_be_sent_do_not_hide_a_failure() -> None:
    def program(worker: timely.Worker) -> None:
        def constructor(capability: timely.Capability[int], info: timely.OperatorInfo) -> Callable[[Any], object]:
            def logic(output: Any) -> None:
                with output.session(capability) as session:
                    session.give_many([lambda: 1, lambda: 2])
                capability.drop()
                if worker.index == 0:
                    raise ValueError("boom")

            return logic

        with worker.dataflow(int) as scope:
            scope.source("bad", constructor).exchange(lambda x: 1 - worker.index).probe()

    with pytest.raises((OperatorError, RoutingError), match=r"'bad' .* raised ValueError: boom|cannot be pickled"):
        timely.execute(program, processes=2)


# -- runs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", [{"workers": 0}, {"workers": -1}, {"processes": 0}, {"workers": 1.5}, {"workers": "2"}])
def test_a_count_of_workers_that_cannot_be(counts: dict[str, Any]) -> None:
    [name] = counts
    with pytest.raises(ConfigurationError, match=f"{name}=.*give a whole number of at least 1; use {name}=1"):
        timely.execute(lambda worker: None, **counts)


def run_both(build: Callable[[timely.Worker, ScopeBuilder[int]], object], processes: int) -> None:
    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int, name="demo") as scope:
            build(worker, scope)

    timely.execute(program, workers=2 // processes, processes=processes)


@pytest.mark.parametrize("processes", [1, 2])
def test_different_graphs_on_different_workers(processes: int) -> None:
    def build(worker: timely.Worker, scope: ScopeBuilder[int]) -> None:
        stream = scope.to_stream([1]).exchange(lambda x: x)
        (stream.map(str) if worker.index else stream.filter(bool)).probe()

    with pytest.raises(GraphError, match=r"dataflow 0.*(/demo/filter#2.*/demo/map#2|map.*filter).*same order"):
        run_both(build, processes)


@pytest.mark.parametrize("processes", [1, 2])
def test_one_operator_more_on_one_worker(processes: int) -> None:
    def build(worker: timely.Worker, scope: ScopeBuilder[int]) -> None:
        stream = scope.to_stream([1]).exchange(lambda x: x)
        stream.probe()
        if worker.index:
            stream.probe()

    with pytest.raises(GraphError, match="dataflow 0 is not the same on workers"):
        run_both(build, processes)


def test_different_pacts_on_different_workers() -> None:
    def build(worker: timely.Worker, scope: ScopeBuilder[int]) -> None:
        pact = timely.Exchange(lambda x: x) if worker.index else Pipeline
        scope.to_stream([1]).sink(pact, "sink", lambda info: lambda input: [None for _ in input])

    with pytest.raises(GraphError, match="exchanged"):
        run_both(build, 1)


@pytest.mark.parametrize("processes", [1, 2])
def test_different_times_on_different_workers(processes: int) -> None:
    def program(worker: timely.Worker) -> None:
        time: Any = Product[int, int] if worker.index else int
        with worker.dataflow(time) as scope:
            scope.to_stream([1]).exchange(lambda x: x).probe()

    with pytest.raises(GraphError, match=r"times (int|Product\[int, int\])"):
        timely.execute(program, workers=2 // processes, processes=processes)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_dataflow_that_one_worker_does_not_build(processes: int) -> None:
    def program(worker: timely.Worker) -> None:
        if worker.index == 0:
            with worker.dataflow(int, name="demo") as scope:
                scope.to_stream([1]).exchange(lambda x: x).probe()

    with pytest.raises(GraphError, match=r"worker 1 has ended without building dataflow 0 \('demo'\)"):
        timely.execute(program, workers=2 // processes, processes=processes)


def test_a_mistake_in_a_with_block_leaves_the_worker_usable() -> None:
    worker = timely.Worker()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), worker.dataflow(int) as scope, scope.iterative() as loop:
            loop.feedback()
            scope.new_input()
            raise ZeroDivisionError
    with worker.dataflow(int) as scope:
        seen = scope.to_stream([1]).capture()
    worker.run()
    assert seen.extract() == [(0, [1])]
