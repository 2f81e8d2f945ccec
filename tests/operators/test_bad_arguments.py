"""Arguments that the operators cannot use: each is an error of ours that names the place and says what came."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import timely
from timely import (
    CapabilityError,
    ConfigurationError,
    GraphError,
    OperatorError,
    Product,
    TimelyError,
    TimestampError,
    graphs,
)
from timely.operators import reclock
from timely.operators.keyed.windows import Window, sessions, sliding, tumbling, windows


def refused(build: Any, kind: type[TimelyError], match: str) -> None:
    with pytest.raises(kind, match=match):
        timely.example(build)


def functions_of_a_stream() -> dict[str, Callable[[Any], object]]:
    """Every operator that is a function of a stream, called with what may stand in its place and nothing else to complain of."""
    both: Any = timely.Pipeline

    def nothing(*_: Any) -> Any:
        return None

    more: dict[str, tuple[Any, ...]] = {
        "accumulate": (0, max),
        "aggregate": (nothing, nothing),
        "all_reduce": (max,),
        "branch": (bool,),
        "branch_when": (bool,),
        "broadcast": (),
        "capture": (),
        "capture_into": ([],),
        "count": (),
        "delay": (max,),
        "delay_batch": (abs,),
        "distinct": (),
        "enter": (None,),
        "exchange": (abs,),
        "filter": (bool,),
        "flat_map": (range,),
        "group_by": ("a",),
        "inspect": (print,),
        "inspect_batch": (print,),
        "inspect_progress": (print, print),
        "inspect_time": (print,),
        "join": (None,),
        "leave": (),
        "map": (abs,),
        "map_async": (nothing,),
        "map_batch": (list,),
        "ok_err": (nothing,),
        "partition": (2, nothing),
        "probe": (),
        "reduce_by_key": (max,),
        "sink": (both, "sink", nothing),
        "state_machine": (nothing,),
        "unary": (both, "unary", nothing),
        "unary_frontier": (both, "unary_frontier", nothing),
        "unary_notify": (both, "unary_notify", [], nothing),
        "value_counts": (),
        "binary": (None, both, both, "binary", nothing),
        "binary_frontier": (None, both, both, "binary_frontier", nothing),
        "binary_notify": (None, both, both, "binary_notify", [], nothing),
    }
    functions: dict[str, Callable[[Any], object]] = {}
    functions |= {name: functools.partial(_called, getattr(timely.operators, name), inputs) for name, inputs in more.items()}
    functions["reclock"] = lambda inputs: reclock(inputs, inputs)
    functions["windows"] = lambda inputs: windows(inputs, tumbling(1), at=abs)
    functions["sessions"] = lambda inputs: sessions(inputs, 1, at=abs)
    functions["pregel"] = lambda inputs: graphs.pregel(inputs, inputs, nothing, nothing)
    functions["connected_components"] = lambda inputs: graphs.connected_components(inputs)
    return functions


def _called(function: Callable[..., object], arguments: tuple[Any, ...], value: Any) -> object:
    return function(value, *arguments)


FUNCTIONS = functions_of_a_stream()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_what_is_no_stream(name: str) -> None:
    worker = timely.Worker()
    with worker.dataflow() as scope:
        for argument in (None, [1], scope.new_input(), scope):
            with pytest.raises(GraphError, match=r"^operator '.*' reads a timely.Stream, not .*: .*(give|make|must return)"):
                FUNCTIONS[name](argument)
    worker.close()  # nothing was begun by what was refused: the dataflow was built


class Mute:
    """What cannot say what it is."""

    def __repr__(self) -> str:
        raise ValueError("not today")


def test_a_wrong_argument_may_be_large_or_without_a_repr() -> None:
    worker = timely.Worker()
    with worker.dataflow():
        for argument, says in (
            ([*range(10**5)], r"\[0, 1, 2, .* \.\.\.: make"),
            (Mute(), "a Mute, which raises ValueError .*: make"),
        ):
            message = rf"reads a timely.Stream, not {says} one of it with scope.to_stream\(\.\.\.\)$"
            with pytest.raises(GraphError, match=message) as refusal:
                timely.operators.map(argument, str)  # type: ignore[arg-type]
            assert len(str(refusal.value)) < 400
    worker.close()
    for argument in ([*range(10**5)], Mute()):
        with pytest.raises(GraphError) as refusal:
            timely.example(lambda scope, argument=argument: scope.to_stream([1]).concat(argument))  # type: ignore[misc]
        assert len(str(refusal.value)) < 400


def test_functions_of_a_stream_are_all_there() -> None:
    taking = {
        name
        for name, function in vars(timely.operators).items()
        if inspect.isfunction(function) and next(iter(inspect.signature(function).parameters), "") == "stream"
    }
    assert taking - set(FUNCTIONS) == {"concat", "connect_loop"}  # which are told of in the tests of their own


GIVEN: dict[str, tuple[Callable[[Any], Any], str]] = {
    "nothing": (lambda scope: None, "not None: a function that builds part of a dataflow must return its stream"),
    "what new_input returns": (lambda scope: scope.new_input(), r"not \(InputHandle.*, Stream.*: give that stream"),
    "the handle of an input": (lambda scope: scope.new_input()[0], "not InputHandle.*`handle, stream = .*: give that stream"),
    "an unordered input": (lambda scope: scope.new_unordered_input(), "returns its stream too, .*: give that stream"),
    "its handle": (lambda scope: scope.new_unordered_input()[0], "returns its stream too, .*: give that stream"),
    "streams": (lambda scope: (scope.empty(), scope.empty()), "give the streams in it one by one"),
    "a probe": (lambda scope: scope.empty().probe(), r"give the stream on which probe\(\) or"),
    "what is captured": (lambda scope: scope.empty().capture(), r"or capture\(\) was called"),
    "a scope": (lambda scope: scope, "not ScopeBuilder.*: give a stream of that scope"),
    "records": (lambda scope: [1], r"not \[1\]: make one of it with scope.to_stream"),
}


@pytest.mark.parametrize("kind", GIVEN)
@pytest.mark.parametrize("side", ["left", "right"])
def test_what_to_give_instead_of_what_is_no_stream(kind: str, side: str) -> None:
    make, match = GIVEN[kind]
    if side == "left":
        refused(lambda scope: timely.operators.join(make(scope), scope.empty()), GraphError, f"operator 'join' reads .*{match}")
    else:
        refused(lambda scope: scope.empty().join(make(scope)), GraphError, rf"input 1 of operator 'join' \(/ex.*reads .*{match}")


@pytest.mark.parametrize("n", ["2", None, -1, 0, 1.5])
def test_a_number_of_streams_that_is_none(n: Any) -> None:
    refused(lambda s: s.to_stream([1]).partition(n, lambda x: (0, x))[0], GraphError, "give the number of streams")


@pytest.mark.parametrize("step", [None, 3, (1,), (1, [], 3)])
def test_a_state_machine_that_returns_something_else(step: Any) -> None:
    refused(
        lambda s: s.to_stream([("k", 5)]).state_machine(lambda k, v, state: step),
        OperatorError,
        r"operator 'state_machine' .*fold\('k', 5, state\) must return \(next state, outputs\)",
    )


@pytest.mark.parametrize("size", ["a", None, 0, -1, float("nan"), timedelta(0)])
def test_lengths_of_windows(size: Any) -> None:
    with pytest.raises(ConfigurationError, match="0 < every <= size"):
        tumbling(size)
    refused(lambda s: s.to_stream([1]).apply(sessions, size, at=lambda e: e)[0], ConfigurationError, "with a gap of")


def test_spans_of_time_are_lengths() -> None:
    hour = timedelta(hours=1)
    assert sliding(2 * hour, hour)(2.5 * hour) == [Window(hour, 3 * hour), Window(2 * hour, 4 * hour)]
    assert tumbling(hour)(1.5 * hour) == [Window(hour, 2 * hour)]


def test_windows_in_a_loop_need_to_know_when_they_are_due() -> None:
    def build(scope: timely.ScopeBuilder[int], due: Any) -> Any:
        with scope.iterative() as loop:
            return windows(scope.to_stream([1, 12]).enter(loop), tumbling(10), at=lambda e: e, due=due)[0].leave()

    refused(lambda scope: build(scope, None), OperatorError, "'windows' .*: 10 is not a time of type Product")
    outputs = timely.example(lambda scope: build(scope, lambda end, time: Product(time.outer, end)))
    assert outputs == [(0, [(None, Window(0, 10), [1]), (None, Window(10, 20), [12])])]


@pytest.mark.parametrize("bound", [0, -1, 1.5, "3", True, None])
def test_bounds_of_flow_control(bound: Any) -> None:
    probe: timely.ProbeHandle[int] = timely.ProbeHandle()
    refused(lambda s: s.iterator_source("numbers", [(0, [1])], probe, records=bound), ConfigurationError, "source 'numbers'")


def test_a_probe_that_is_none() -> None:
    refused(lambda s: s.iterator_source("numbers", [(0, [1])], None, records=1), GraphError, "'numbers': probe is to be a")


# -- capabilities ------------------------------------------------------------------------------------------------------

PAIRS: Any = Product[int, int]


def held(time: Any = int) -> Any:
    with timely.Worker().dataflow(time) as scope:
        (handle, capability), _ = scope.new_unordered_input()
    return handle, capability


@pytest.mark.parametrize("time", [Product(0, "x"), Product(0, 1.5), Product(1, True), Product(1, Product(0, 0)), (0, 1), 3])
def test_a_time_with_a_wrong_coordinate(time: Any) -> None:
    _, capability = held(PAIRS)
    several = timely.CapabilitySet([capability.copy()])
    uses: list[Any] = [
        capability.delayed,
        capability.downgrade,
        several.delayed,
        lambda t: several.downgrade([Product(1, 1), t]),
    ]
    for use in uses:
        with pytest.raises(TimestampError, match=r"'unordered_input' .* is not a time of type Product\[int, int\]"):
            use(time)
    assert capability.time == Product(0, 0)
    assert several.frontier == timely.Antichain([Product(0, 0)])


def test_the_capability_of_the_input_delayed_to_a_wrong_coordinate() -> None:
    def constructor(capability: Any, info: Any) -> Any:
        def logic(input: Any, output: Any) -> None:
            for came, _ in input:
                came.delayed(Product(came.time.outer, "x"))

        return logic

    def build(scope: timely.ScopeBuilder[int]) -> Any:
        with scope.iterative() as loop:
            return scope.to_stream([1]).enter(loop).unary(timely.Pipeline, "late", constructor).leave()

    refused(build, OperatorError, r"'late' .*TimestampError: .*is not a time of type Product\[int, int\]")


@pytest.mark.parametrize("output", [1, -1, 5, "a", None])
@pytest.mark.parametrize("deed", [lambda came, output: came.retain(output), lambda came, output: came.delayed(3, output)])
def test_a_capability_for_an_output_that_is_not_there(deed: Any, output: Any) -> None:
    def constructor(capability: Any, info: Any) -> Any:
        def logic(input: Any, out: Any) -> None:
            for came, _ in input:
                deed(came, output)

        return logic

    refused(
        lambda s: s.to_stream([1]).unary(timely.Pipeline, "one", constructor),
        OperatorError,
        rf"GraphError: input 0 of operator 'one' .*there is no output {output!r}",
    )


def test_what_is_no_capability() -> None:
    handle, _ = held()
    for wrong in (5, None):
        with pytest.raises(CapabilityError, match=rf"input 'unordered_input' .* needs a capability, not {wrong}"):
            handle.session(wrong)
        with pytest.raises(CapabilityError, match="cannot hold"):
            timely.CapabilitySet([wrong])  # type: ignore[arg-type]


def test_a_capability_of_the_input_where_one_to_keep_is_needed() -> None:
    def into_a_set(capability: Any, info: Any) -> Any:
        return lambda input, output: [timely.CapabilitySet([came]) for came, _ in input]

    def ask(input: Any, output: Any, notificator: Any) -> None:
        for came, _ in input:
            notificator.notify_at(came)

    refused(
        lambda s: s.to_stream([1]).unary(timely.Pipeline, "keep", into_a_set), OperatorError, r"'keep' .*InputCapability\(0\)"
    )
    if timely.compiled:
        return  # what is of another type never gets into a compiled method: the compiler's own check raises a TypeError
    refused(lambda s: s.to_stream([1]).unary_notify(timely.Pipeline, "ask", [], ask), OperatorError, r"'ask' .*notify_at needs")


async def later(record: Any) -> Any:
    return record


@pytest.mark.parametrize("name", ["map", "filter", "flat_map", "map_batch", "inspect", "inspect_time", "inspect_batch"])
@pytest.mark.parametrize("f", [later, functools.partial(later)])
def test_an_async_function_where_nothing_awaits_it(name: str, f: Any) -> None:
    refused(
        lambda s: getattr(s.to_stream([1]), name)(f),
        ConfigurationError,
        rf"{name} in scope '/example' .* is an async def, which nothing would await: use map_async\(",
    )


@pytest.mark.parametrize("record", [[1], {"a": 1}, ("a", [1])])
def test_records_that_must_be_hashable(record: Any) -> None:
    builds: dict[str, Any] = {
        r"value_counts \(local\)": lambda s: s.to_stream([7, record]).value_counts(),
        "distinct": lambda s: s.to_stream([7, record]).distinct(key=lambda _: 0),
    }
    for name, build in builds.items():
        says = f"records must be hashable, and {re.escape(repr(record))} came: make tuples of them with map"
        refused(build, OperatorError, f"operator '{name}' .* {says}")


def test_an_error_in_the_hash_or_the_order_of_hashable_records_is_passed_on() -> None:
    class Odd:
        def __hash__(self) -> int:
            return 0

        def __eq__(self, other: object) -> bool:
            raise TypeError("odd")

    for build in (lambda s: s.to_stream([Odd(), Odd()]).value_counts(), lambda s: s.to_stream([Odd(), Odd()]).distinct(id)):
        refused(build, OperatorError, "TypeError: odd")


@pytest.mark.parametrize("which", [0.0, 1.0])
def test_a_stream_of_partition_that_is_no_whole_number(which: float) -> None:
    refused(
        lambda s: s.to_stream([7]).partition(2, lambda x: (which, x))[0],
        OperatorError,
        rf"partition\(2, f\): f\(7\) says stream {which!r}, which is no whole number: the streams are 0 to 1",
    )


@pytest.mark.parametrize("streams", [None, 5])
def test_what_is_no_list_of_streams(streams: Any) -> None:
    refused(lambda s: s.concatenate(streams), GraphError, f"the streams in a list, as in .*, not {streams}")
    refused(lambda s: s.concatenate(s.empty()), GraphError, "concatenate takes the streams in a list.*not Stream")
    refused(lambda s: timely.operators.concatenate([streams]), GraphError, f"'concatenate' reads a timely.Stream, not {streams}")
    refused(lambda s: timely.operators.concatenate([]), GraphError, "concatenate of no streams")
    refused(lambda s: s.concatenate([s.empty(), streams]), GraphError, f"input 1 of operator 'concatenate'.*not {streams}")


def test_streams_to_concatenate_may_come_from_an_iterator() -> None:
    assert timely.example(lambda s: timely.operators.concatenate(s.to_stream([x]) for x in range(3))) == [(0, [0, 1, 2])]
    assert timely.example(lambda s: s.concatenate(iter(()))) == []


def test_one_probe_for_times_of_two_types() -> None:
    worker, probe = timely.Worker(), timely.ProbeHandle[Any]()
    with worker.dataflow(int, name="whole") as scope:
        scope.to_stream([1]).probe(probe)
    message = r"/whole/probe#1\), .* type int, cannot show a stream of scope '/pairs' too, .* type Product\[int, int\]: take"
    with pytest.raises(TimestampError, match=message), worker.dataflow(Product[int, int], name="pairs") as pairs:
        pairs.to_stream([1]).probe(probe)
    with worker.dataflow(int) as scope, scope.iterative() as loop:
        stream = loop.empty()
        with pytest.raises(TimestampError, match="cannot show .*take another timely.ProbeHandle"):
            stream.probe(probe)
    assert len(probe.ports) == 1 and probe.less_equal(0)
    worker.run()
    assert probe.done()


@pytest.mark.parametrize("handle", [5, "probe", timely.ProbeHandle])
def test_what_is_no_probe_to_attach(handle: Any) -> None:
    refused(lambda s: s.empty().probe(handle), GraphError, "probe takes the timely.ProbeHandle that is to show this place")


@pytest.mark.parametrize("factory", [None, 5])
def test_what_makes_no_vertex(factory: Any) -> None:
    refused(lambda s: s.empty().vertex(factory), GraphError, f"vertex: {factory} must be or make a timely.Vertex")


@pytest.mark.parametrize("wrong", [{"inputs": [1]}, {"outputs": 2}])
def test_what_is_for_a_vertex_in_a_scope(wrong: dict[str, Any]) -> None:
    refused(lambda s: timely.operators.vertex(s.empty(), timely.Vertex, **wrong), GraphError, "vertex of a stream reads that and")


@pytest.mark.parametrize("wrong", [{"others": [1]}, {"pact": timely.Exchange(abs)}])
def test_what_is_for_a_vertex_of_a_stream(wrong: dict[str, Any]) -> None:
    refused(lambda s: timely.operators.vertex(s, timely.Vertex, **wrong), GraphError, "it takes no pact and no others")


@pytest.mark.parametrize("place", [None, 5, "scope"])
def test_what_is_no_scope_to_build_in(place: Any) -> None:
    match = f"operator 'odd' is built in a scope, .*, and not in {place!r}"
    refused(lambda s: timely.OperatorBuilder(place, "odd"), GraphError, match)
    refused(lambda s: timely.operators.source(place, "odd", lambda capability, info: print), GraphError, match)
    refused(lambda s: timely.operators.vertex(place, timely.Vertex, name="odd"), GraphError, match)
    refused(lambda s: timely.OperatorBuilder(s.empty(), "odd"), GraphError, "stream.scope, and not in Stream")


@pytest.mark.parametrize("place", [None, 5])
@pytest.mark.parametrize("name", ["feedback", "replay"])
def test_what_is_no_scope_for_an_operator_that_looks_into_it(name: str, place: Any) -> None:
    match = f"operator '{name}' is built in a scope, .*, and not in {place!r}"
    refused(lambda s: getattr(timely.operators, name)(place), GraphError, match)


def test_a_loop_over_times_without_a_step_of_one_is_refused() -> None:
    def build(scope: Any) -> Any:
        with scope.scoped(Product[int, timely.Unit], "units") as inner:
            return inner.feedback()[1].leave()

    refused(build, TimestampError, r"feedback in scope '/example/units#0' needs a summary for times of type Product\[int, Unit\]")


@pytest.mark.parametrize("handle", [None, 5, "handle"])
def test_what_is_no_handle_to_take_from(handle: Any) -> None:
    match = "input_from in scope '/example' takes the handle, of the pair .* that new_input returns, not"
    refused(lambda s: s.input_from(handle), GraphError, match)


@pytest.mark.parametrize("limit", [None, 0, "two", 1.5, True, int])
def test_limits_of_what_is_awaited(limit: Any) -> None:
    match = rf"map_async: limit={limit!r} lets nothing through: give a whole number"
    refused(lambda s: s.to_stream([1]).map_async(later, limit), ConfigurationError, match)


@pytest.mark.parametrize("keys", [None, 5, ["a", 5]])
def test_what_is_no_list_of_keys_to_group_by(keys: Any) -> None:
    refused(lambda s: s.empty().group_by(keys), GraphError, "group_by takes the name of a column, or a list of names, not")


@pytest.mark.parametrize("value", [None, 5])
def test_what_is_no_list_of_what_a_vertex_reads(value: Any) -> None:
    match = f"vertex: {{}} is a list of streams, each with its pact or without, not {value!r}"
    refused(lambda s: s.empty().vertex(timely.Vertex, others=value), GraphError, match.format("others"))
    refused(lambda s: timely.operators.vertex(s, timely.Vertex, inputs=value), GraphError, match.format("inputs"))


@pytest.mark.parametrize("outputs", [None, -1, "two", 1.5, int])
def test_what_is_no_number_of_outputs_of_a_vertex(outputs: Any) -> None:
    match = f"vertex: outputs={outputs!r} is no number of outputs"
    refused(lambda s: timely.operators.vertex(s, timely.Vertex, outputs=outputs), GraphError, match)


@pytest.mark.parametrize("name", ["delay", "delay_batch"])
def test_what_is_no_time_to_delay_to(name: str) -> None:
    with pytest.raises(OperatorError, match=f"'{name}' "):
        timely.example(lambda scope: getattr(scope.to_stream([1]), name)(lambda *_: "tomorrow"))
