"""What somebody new to the library writes, and should not have: each message says where it is, what came, and what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import timely
from timely import (
    Antichain,
    Capability,
    CapabilityError,
    ConfigurationError,
    ContainerError,
    CycleError,
    GraphError,
    OperatorBuilder,
    OperatorError,
    PeerLostError,
    Pipeline,
    Product,
    RoutingError,
    ScopeBuilder,
    StalledError,
    Step,
    Stream,
    TimestampError,
)
from timely import differential as dd
from timely.operators.keyed.windows import windows

Build = Callable[[Any], Any]


def step(stream: Any, logic: Callable[[Any, Any], object]) -> Any:
    """An operator "mine" whose logic is a function of the capability and the output, for each batch that comes."""

    def constructor(capability: Any, info: Any) -> Callable[..., object]:
        return lambda input, output: [logic(cap, output) for cap, _ in input]

    return stream.unary(Pipeline, "mine", constructor)


def refilled(session: Any) -> None:
    """What a loop does that keeps one list for all batches."""
    batch = [1, 2]
    session.give_batch(batch)
    batch.pop()


def sent(container: Any, then: Callable[[Any], Any] = lambda stream: stream.map(str)) -> Build:
    """A dataflow into which a container is sent."""

    def build(scope: Any) -> Any:
        handle, stream = scope.new_input()
        handle.send_batch(container)
        return then(stream)

    return build


def looped(connect: Callable[[Any, Any], object], summary: Any = None) -> Build:
    """A dataflow with a loop that is connected so."""

    def build(scope: Any) -> Any:
        back, again = scope.feedback(summary)
        connect(back, again)
        return again

    return build


def in_loop(build: Callable[[Any, Any], Any]) -> Build:
    """A dataflow with a loop's scope, whose stream leaves it."""

    def built(scope: Any) -> Any:
        with scope.iterative("rounds") as rounds:
            return build(scope, rounds).leave()

    return built


def around_a_region(scope: Any) -> Any:
    handle, again = scope.feedback(Step(0))
    with scope.region("box") as box:
        inner = again.enter(box).map(str)
        inner.leave().connect_loop(handle)
        return inner.leave()


def two_levels(scope: Any) -> Any:
    with scope.region("outer") as outer, outer.region("inner") as inner:
        return scope.to_stream([1]).enter(inner)


BUILDING: dict[str, tuple[Build, type[Exception], str]] = {
    "forgets to return": (
        lambda scope: scope.to_stream([1]) and None,
        GraphError,
        r"build\(scope\) must return the stream .* not None",
    ),
    "returns both branches": (
        lambda scope: scope.to_stream([1]).branch(bool),
        GraphError,
        r"must return the stream .* not \(Stream",
    ),
    "returns what was captured": (
        lambda scope: scope.to_stream([1]).capture(),
        GraphError,
        "must return the stream .* not .*Capture",
    ),
    "a list for a stream": (
        lambda scope: scope.to_stream([1]).concat([2]),
        GraphError,
        r"not \[2\]: make one of it with scope.to_stream",
    ),
    "a list of streams": (
        lambda scope: scope.to_stream([1]).concat([scope.to_stream([2])]),
        GraphError,
        r"'concat' .*one by one, as in concat\(\*streams\)",
    ),
    "enters a name": (
        lambda scope: scope.to_stream([1]).enter("loop"),
        GraphError,
        "scope '/example' cannot enter 'loop', which is not nested directly in it",
    ),
    "the stream for the handle": (
        looped(lambda back, again: again.connect_loop(again)),
        GraphError,
        r"takes the handle, of the pair \(handle, stream\)",
    ),
    "the handle for the stream": (
        looped(lambda back, again: again.concat(back)),
        GraphError,
        r"not LoopHandle\('/example/feedback#0'\)",
    ),
    "a number for a summary": (
        looped(lambda back, again: again.connect_loop(back), 1),
        TimestampError,
        r"1, a summary of node 0 \(feedback\), does not fit .* type int: .*; one that fits is Step\(0\)",
    ),
    "windows of a number": (
        lambda scope: scope.to_stream([1]).apply(windows, 10, at=int)[0],
        ConfigurationError,
        r"takes tumbling\(size\).*not 10",
    ),
    "the name before the pact": (
        lambda scope: scope.to_stream([1]).unary("mine", Pipeline, None),
        GraphError,
        r"the name of an operator is a string, not PipelinePact\(\): a pact comes before the name",
    ),
    "a generator for a batch": (
        sent(x for x in [1]),
        ContainerError,
        r"send_batch: input 'input' \(/example/input#0\) .* this is a generator, which has no length: make a list of it",
    ),
    "a record for a batch": (sent(5), ContainerError, "sends containers, such as a list.* and this is a int"),
    "no with for a loop": (
        lambda scope: scope.iterative().feedback(),
        GraphError,
        r"iterative\(\) opens a scope: write `with ...iterative\(\) as scope:`, and scope.feedback in that block",
    ),
    "no with for what is entered": (
        lambda scope: scope.to_stream([1]).enter(scope.region()),
        GraphError,
        r"region\(\) opens a scope: write `with ...region\(\) as scope:`",
    ),
    "a table record by record": (
        lambda scope: scope.to_stream(pa.table({"a": [1]})),
        ContainerError,
        r"those of a Table are its columns: read it with scope.read_arrow\(table\)",
    ),
    "iterate without the scope": (
        lambda scope: dd.collection(scope, [1]).iterate(cast(Any, lambda numbers: numbers)).stream,
        GraphError,
        r"iterate calls f\(scope, collection\), and <lambda> is a function of other arguments: too many positional",
    ),
    "a collection for a stream": (
        lambda scope: dd.collection(scope, [1]),
        GraphError,
        r"must return the stream that is to be shown, not Collection\(.*: return its .stream",
    ),
    "a cycle that does not advance": (
        looped(lambda back, again: again.map(str).connect_loop(back), Step(0)),
        CycleError,
        "does not advance.*feedback.*map.*put a feedback on it",
    ),
    "a cycle through a region that does not advance": (around_a_region, CycleError, "does not advance"),
    "a loop without its end": (
        looped(lambda back, again: None),
        GraphError,
        r"loop /example/feedback#0 was never connected: call stream.connect_loop\(handle\)",
    ),
    "a loop that is connected twice": (
        looped(lambda back, again: (again.connect_loop(back), again.map(str).connect_loop(back))),
        GraphError,
        "/example/feedback#0 is connected already: concatenate",
    ),
    "a stream of another scope": (
        in_loop(lambda scope, rounds: scope.to_stream([2]).concat(scope.to_stream([1]).enter(rounds))),
        GraphError,
        "'concat'.*/example/rounds#0.*enter.*leave",
    ),
    "a loop fed from another scope": (
        in_loop(lambda scope, rounds: scope.to_stream([2]).connect_loop(rounds.feedback()[0])),
        GraphError,
        "'feedback'.*cannot read a stream of scope '/example'",
    ),
    "enters two levels at once": (
        two_levels,
        GraphError,
        "'/example' cannot enter '/example/outer#0/inner#0'.*not nested directly",
    ),
    "leaves the outermost scope": (
        lambda scope: scope.to_stream([1]).leave(),
        GraphError,
        "outermost scope '/example' cannot leave",
    ),
    "an operator that was never built": (
        lambda scope: OperatorBuilder(scope, "half").new_output(),
        GraphError,
        r"/example/half#0; call build",
    ),
    "a constructor that returns no logic": (
        lambda scope: scope.to_stream([1]).unary(Pipeline, "mine", lambda capability, info: None),
        OperatorError,
        r"'mine' \(/example/mine#1\).*constructor must return the logic.*returned None",
    ),
    "a summary to a missing output": (
        lambda scope: OperatorBuilder(scope, "mine").new_input(scope.empty(), Pipeline, {1: Antichain([Step(0)])}),
        GraphError,
        "input 0 has a summary to a missing output 1",
    ),
    "a summary from a missing input": (
        lambda scope: OperatorBuilder(scope, "half").new_output({0: Antichain([Step(1)])}),
        GraphError,
        "/example/half#0.*summary from a missing input 0",
    ),
    "a pact without its key": (
        lambda scope: scope.to_stream([1]).unary(timely.Exchange, "mine", None),
        GraphError,
        r"'mine' \(/example/mine#1\): a pact is timely.Pipeline, timely.Exchange\(key\)",
    ),
}


@pytest.mark.parametrize("mistake", BUILDING)
def test_while_it_is_built(mistake: str) -> None:
    build, kind, message = BUILDING[mistake]
    with pytest.raises(kind, match=message):
        timely.example(build)


class Backwards(timely.Vertex[int]):
    def on_recv(self, port: int, batch: Any, time: int) -> None:
        self.send_by(batch, 0, time)


def source(scope: Any, deed: Callable[[Any, Any], object]) -> Any:
    """A source "mine" whose logic is a function of the capability and the output."""
    return scope.source("mine", lambda capability, info: lambda output: deed(capability, output))


def two_sends(capability: Any, output: Any) -> None:
    with output.session(capability) as session:
        session.give(1)
    session.give(2)


def incomparable(capability: Any, output: Any) -> None:
    capability.downgrade(Product(0, 3))
    capability.delayed(Product(1, 2))


def again_later(scope: Any, keep: Callable[[Any, Any], Any], use: Callable[[Any, Any], object]) -> Any:
    """An operator that keeps something of its first activation, and uses it in the next."""

    def constructor(initial: Any, info: timely.OperatorInfo) -> Callable[..., object]:
        held: list[Any] = []

        def logic(input: Any, output: Any) -> None:
            if held:
                use(held[0], output)
            for capability, _ in input:
                held.append(keep(capability, output))
                info.activator.activate()

        return logic

    return scope.to_stream([1]).unary(Pipeline, "mine", constructor)


RUNNING: dict[str, tuple[Build, type[Exception], str]] = {
    "no function": (lambda scope: scope.to_stream([1]).map(None), TypeError, "'map' .*'NoneType' object is not callable"),
    "a function of two": (
        lambda scope: scope.to_stream([(1, 2)]).map(lambda a, b: a),
        TypeError,
        "'map' .*missing 1 required positional",
    ),
    "nothing to iterate over": (
        lambda scope: scope.to_stream(None),
        TypeError,
        "'to_stream' .*'NoneType' object is not iterable",
    ),
    "no list from flat_map": (
        lambda scope: scope.to_stream([1]).flat_map(lambda x: x),
        TypeError,
        "'flat_map' .*'int' object is not iterable",
    ),
    "joins what are no pairs": (
        lambda scope: scope.to_stream([1]).join(scope.to_stream([2])),
        RoutingError,
        r"into input 0 of operator 'join' .*pairs of a key and a value, and 1 came: make pairs with map",
    ),
    "reduces what are no pairs": (
        lambda scope: scope.to_stream([("a", 1), ("b", 2, 3)]).reduce_by_key(max),
        RoutingError,
        r"operator 'reduce_by_key \(local\)' .*pairs of a key and a value, and \('b', 2, 3\) came",
    ),
    "aggregates what are no pairs": (
        lambda scope: scope.to_stream([None]).aggregate(lambda k, v, s: s, lambda k, s: k),
        RoutingError,
        "into input 0 of operator 'aggregate' .*pairs of a key and a value, and None came",
    ),
    "a fold that returns one output": (
        lambda scope: scope.to_stream([(1, 2)]).state_machine(lambda key, value, state: (0, value)),
        TypeError,
        r"fold\(1, 2, state\) must return \(next state, outputs\), where outputs are the records to send, in a list: \(0, 2\)",
    ),
    "a key that is a dict": (
        lambda scope: scope.to_stream([1]).exchange(lambda x: {}),
        RoutingError,
        "a key must be a number.* is of type dict: give key=",
    ),
    "a column of records": (
        lambda scope: scope.to_stream([1]).exchange("key"),
        RoutingError,
        "no column 'key': give a function of the record",
    ),
    "a column that is misspelt": (
        sent(pa.record_batch({"src": [1]}), lambda s: s.exchange("scr")),
        RoutingError,
        "no column 'scr'; the batch has 'src'",
    ),
    "a stream that is not there": (
        lambda scope: scope.to_stream([5]).partition(2, lambda x: (x, x))[0],
        RoutingError,
        r"f\(5\) says stream 5, and there are 0 to 1",
    ),
    "partition without the record": (
        lambda scope: scope.to_stream([5]).partition(2, lambda x: x % 2)[0],
        RoutingError,
        r"partition\(2, f\): f\(5\) must return \(which stream, record\): 1",
    ),
    "a list that is changed afterwards": (
        lambda scope: step(scope.to_stream([1]), lambda cap, output: refilled(output.session(cap))).map(str),
        ContainerError,
        r"input 0 of operator 'map' .*: a list that was sent with 2 records has 1 where it is read.*: send a copy",
    ),
    "a list that somebody else reads, too": (
        lambda scope: (numbers := scope.to_stream([1, 2])).inspect_batch(lambda _, batch: batch.clear()).concat(numbers),
        ContainerError,
        "was sent with 2 records has 0 where it is read",
    ),
    "a string for a batch": (sent("word"), ContainerError, r"type str cannot be read by record: send\(\) sends one record"),
    "a dict for a batch": (sent({"a": 1}), ContainerError, r"type dict .*such as list\(batch.items\(\)\)"),
    "a frame of pandas": (
        sent(pd.DataFrame({"a": [1]})),
        ContainerError,
        r"type DataFrame .*pyarrow.RecordBatch.from_pandas\(frame, preserve_index=False\)",
    ),
    "a table of Arrow": (sent(pa.table({"a": [1]})), ContainerError, r"type Table .*the batches of its to_batches\(\)"),
    "a time for a capability": (
        lambda scope: step(scope.to_stream([1]), lambda cap, output: output.session(cap.time)),
        CapabilityError,
        r"'mine' \(/example/mine#1\): a session needs a capability, not 0: the one that came with the input",
    ),
    "a time that has passed": (
        lambda scope: step(scope.to_stream([1]), lambda cap, output: cap.delayed(-1)),
        CapabilityError,
        "-1 is not at or after .* may have a later time, never an earlier one",
    ),
    "logic of the input alone": (
        lambda scope: scope.to_stream([1]).unary(Pipeline, "mine", lambda capability, info: lambda input: None),
        TypeError,
        r"'mine' .*takes 1 positional argument but 2 were given; its logic is called with \(InputPort, OutputPort\);",
    ),
    "a constructor where logic is due": (
        lambda scope: scope.to_stream([1]).unary_notify(Pipeline, "mine", [], lambda capability, info: None),
        TypeError,
        r"'mine' .*; its logic is called with \(InputPort, OutputPort, Notificator\);",
    ),
    "logic where a constructor is due": (
        lambda scope: scope.to_stream([1]).unary(Pipeline, "mine", lambda input, output, notificator: None),
        TypeError,
        r"'mine' .*; a constructor is called with \(capability, info\), and that of a sink with \(info\);",
    ),
    "a call in the logic that lacks something": (
        lambda scope: step(scope.to_stream([1]), lambda cap, output: output.session()),
        TypeError,
        r"'mine' .*missing .*argument:? 'capability'.*; 'mine' was built",
    ),
    "a downgrade that goes back": (
        lambda scope: step(scope.to_stream([1]), lambda cap, output: (held := cap.delayed(5)).downgrade(3) or held),
        CapabilityError,
        r"output 0 of operator 'mine' .* for 5 to 3, which is not at or after it; keep a copy\(\) of it from before",
    ),
    "a delay of what was dropped": (
        lambda scope: step(scope.to_stream([1]), lambda cap, output: (held := cap.retain()).drop() or held.delayed(3)),
        CapabilityError,
        r"cannot delay the capability for 0 to 3: it was dropped already; keep it, or a copy\(\) of it",
    ),
    "a vertex that sends the batch first": (
        lambda scope: scope.to_stream([1]).vertex(Backwards),
        GraphError,
        r"vertex 'Backwards' .*: send_by on output \[1\], .*: the order is send_by\(port, batch, time\)",
    ),
    "the frontier of an input that does not observe it": (
        lambda scope: scope.to_stream([1]).unary(Pipeline, "mine", lambda cap, info: lambda input, output: input.frontier),
        GraphError,
        "input 0 of operator 'mine'.*use unary_frontier",
    ),
    "a send with a dropped capability": (
        lambda scope: source(scope, lambda capability, output: capability.drop() or output.session(capability)),
        CapabilityError,
        r"/example/mine#0.*for 0 was dropped before the send; keep it",
    ),
    "a delay to an incomparable time": (
        in_loop(lambda scope, rounds: source(rounds, incomparable)),
        CapabilityError,
        "cannot delay the capability for .*not at or after",
    ),
    "a session after its with-block": (
        lambda scope: source(scope, two_sends),
        CapabilityError,
        "or with its own with-block; open a new one",
    ),
    "the capability of an input after its activation": (
        lambda scope: again_later(scope, lambda capability, _: capability, lambda held, output: output.session(held).give(1)),
        CapabilityError,
        r"'mine'.*after the activation.*retain\(\)",
    ),
    "a session after its activation": (
        lambda scope: again_later(scope, lambda cap, output: output.session(cap.retain()), lambda held, _: held.give("late")),
        CapabilityError,
        "ended with the activation.*open a new one",
    ),
    "a delay that goes back": (
        lambda scope: scope.to_stream([1]).delay(lambda x, time: time - 1),
        CapabilityError,
        "'delay' .*never an earlier one",
    ),
}


@pytest.mark.parametrize("mistake", RUNNING)
def test_while_it_runs(mistake: str) -> None:
    build, kind, message = RUNNING[mistake]
    with pytest.raises(OperatorError, match=message) as failure:
        timely.example(build)
    assert isinstance(failure.value.__cause__, kind)
    assert f"{failure.value.name!r} was built at {Path(__file__).name}:" in str(failure.value)


def test_arrays_are_read_by_record() -> None:
    assert timely.example(sent(np.array([1, 2]))) == [(0, ["1", "2"])]


INPUTS: dict[str, tuple[Callable[[Any, Any, Any], object], type[Exception], str]] = {
    "waits for a time without advancing to it": (
        lambda worker, handle, probe: (handle.send(1), worker.step_while(lambda: probe.less_than(1))),
        StalledError,
        "a capability of /demo/input#0 at 0 in dataflow 'demo': advance or close the inputs, and drop or downgrade",
    ),
    "waits until the present time is over": (
        lambda worker, handle, probe: (handle.advance_to(1), worker.step_while(lambda: probe.less_equal(1))),
        StalledError,
        "a capability of /demo/input#0 at 1 in dataflow 'demo': advance or close the inputs",
    ),
    "runs on with an open input": (
        lambda worker, handle, probe: worker.run(),
        StalledError,
        "a capability of /demo/input#0 at 0 in dataflow 'demo': close the inputs and drop the capabilities",
    ),
    "asks once": (
        lambda worker, handle, probe: worker.step_while(probe.less_than(1)),
        ConfigurationError,
        r"takes a function, as in step_while\(lambda: probe.less_than\(1\)\), not True",
    ),
    "sends after it was closed": (
        lambda worker, handle, probe: (handle.advance_to(3), handle.close(), handle.close(), handle.send(1)),
        CapabilityError,
        "/demo/input#0.*was closed at 3.*close it after all that is sent",
    ),
    "sends a batch after it was closed": (
        lambda worker, handle, probe: (handle.close(), handle.send_batch([1])),
        CapabilityError,
        "/demo/input#0.*was closed at 0",
    ),
    "advances after it was closed": (
        lambda worker, handle, probe: (handle.close(), handle.advance_to(9)),
        CapabilityError,
        "/demo/input#0.*was closed at 0",
    ),
    "goes back": (
        lambda worker, handle, probe: (handle.advance_to(3), handle.advance_to(2)),
        TimestampError,
        "/demo/input#0.*is at 3 and cannot advance to 2",
    ),
    "waits for what cannot change": (
        lambda worker, handle, probe: (handle.close(), worker.step_while(lambda: True)),
        StalledError,
        "every dataflow is complete",
    ),
}


@pytest.mark.parametrize("mistake", INPUTS)
def test_from_outside(mistake: str) -> None:
    deed, kind, message = INPUTS[mistake]
    worker = timely.Worker()
    with worker.dataflow(int, name="demo") as scope:
        handle, stream = scope.new_input()
        probe = stream.probe()
    with pytest.raises(kind, match=message):
        deed(worker, handle, probe)


def test_to_read_on_after_a_failure() -> None:
    worker = timely.Worker()
    with worker.dataflow(int, name="demo") as scope:
        numbers, collection = dd.new_collection(scope)
        result = collection.map(lambda n: 1 // n).output()
    numbers.insert(0)
    numbers.close()
    with pytest.raises(OperatorError, match="ZeroDivisionError"):
        result.at(0)
    for read in (lambda: result.at(0), result.to_arrow, result.changes, lambda: worker.step_while(lambda: True)):
        with pytest.raises(PeerLostError, match="worker 0 has failed already, and a new one is needed: operator 'map'"):
            read()


def test_a_name_for_the_type_of_times() -> None:
    name: Any = "words"
    with pytest.raises(TimestampError, match="'words' is not a type of times: .*; a name is given as name='words'"):
        timely.Worker().dataflow(name).__enter__()


@pytest.mark.parametrize("time", [complex, list, Step])
def test_times_that_are_none(time: Any) -> None:
    message = rf"{time.__name__} cannot be a type of times: it lacks .*; take int where any will do, and see docs/timestamps.md"
    with pytest.raises(TimestampError, match=message), timely.Worker().dataflow(time):
        pass


class Moved(int):
    """A type of times."""

    @classmethod
    def minimum(cls) -> Moved:
        return cls(0)

    @classmethod
    def identity(cls) -> Any:
        return Step(0)


class Half:
    def results_in(self, time: int) -> int:
        return time + 1


class Incomparable(Half):
    def followed_by(self, other: Half) -> Half:
        return self


@pytest.mark.parametrize(("summary", "missing"), [(Half, r"followed_by\(\), __le__\(\)"), (Incomparable, r"__le__\(\)")])
def test_a_summary_that_lacks_something(summary: Any, missing: str) -> None:
    with pytest.raises(TimestampError, match=rf"summary of node 0 \(feedback\), .*: it is no path summary, and lacks {missing};"):
        timely.example(looped(lambda back, again: again.connect_loop(back), summary()))


@pytest.mark.parametrize(("identity", "missing"), [(None, r"results_in\(\), followed"), (Half(), "followed_by")])
def test_an_identity_that_is_no_summary(identity: Any, missing: str) -> None:
    time: Any = type("Moment", (Moved,), {"identity": classmethod(lambda cls: identity)})
    message = rf"Moment.identity\(\) returned .*, no path summary: it lacks {missing}"
    with pytest.raises(TimestampError, match=message), timely.Worker().dataflow(time):
        pass


def test_times_that_are_never_equal() -> None:
    class Day:
        def __init__(self, number: int) -> None:
            self.number = number

        def __le__(self, other: Day) -> bool:
            return self.number <= other.number

        def __lt__(self, other: Day) -> bool:
            return self.number < other.number

        @classmethod
        def minimum(cls) -> Day:
            return cls(0)

        @classmethod
        def identity(cls) -> Step:
            return Step(0)

    time: Any = Day
    message = r"Day.minimum\(\) returned two times that are not equal, .* both: give it an __eq__\(\) by value"
    with pytest.raises(TimestampError, match=message), timely.Worker().dataflow(time):
        pass


def test_what_opens_a_scope_has_none_of_the_names_that_python_looks_for() -> None:
    opening = timely.Worker().dataflow()
    assert not hasattr(opening, "__wrapped__")
    with opening as scope:
        assert scope.path == "/dataflow0"


def test_to_run_what_is_still_being_built() -> None:
    worker = timely.Worker()
    with worker.dataflow(name="numbers") as scope:
        seen = scope.to_stream([1]).capture()
        with pytest.raises(GraphError, match=r"dataflow 'numbers' is still being built, .*: call run\(\) after its with-block"):
            worker.run()
    with worker.dataflow(name="more"):
        worker.run()  # there is another to run
    assert seen.extract() == [(0, [1])]
    worker.run()


def test_to_run_what_is_paused() -> None:
    worker = timely.Worker()
    with worker.dataflow() as scope:
        scope.to_stream([1]).probe()
    worker.paused = True
    with pytest.raises(StalledError, match=r"worker 0 is paused, .*/to_stream#0 at 0 .*: set its paused to False"):
        worker.run()
    worker.paused = False
    worker.run()


def test_an_operator_that_does_not_read() -> None:
    def build(scope: Any) -> Any:
        return scope.to_stream([1]).unary(Pipeline, "blind", lambda capability, info: lambda input, output: None)

    with pytest.raises(StalledError, match="a message for /example/blind#1 .*, and have operators read what comes to them"):
        timely.example(build)


@pytest.mark.parametrize("program", ["main", 5, None])
def test_a_program_that_is_no_function(program: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"execute\(program\) takes a function, .* not {program!r}"):
        timely.execute(program, workers=2)


async def awaiting(worker: Any) -> int:
    return 1


@pytest.mark.parametrize(("program", "kind"), [(lambda worker: (yield 1), "a generator"), (awaiting, "an async")])
def test_a_program_that_does_nothing_when_it_is_called(program: Any, kind: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"execute\(program\) .* is {kind} function: have it return its result"):
        timely.execute(program)


def test_entering_a_scope_of_another_dataflow() -> None:
    worker = timely.Worker()
    wrong = pytest.raises(GraphError, match="'/two' cannot enter '/one/box#0'.*that is another dataflow: .*capture_into.*replay")
    with wrong, worker.dataflow(int, name="one") as one, worker.dataflow(int, name="two") as two, one.region("box") as box:
        two.to_stream([2]).enter(box)


def test_an_operator_on_a_stream_of_a_dataflow_that_is_built() -> None:
    worker = timely.Worker()
    with worker.dataflow(name="demo") as scope:
        handle, stream = scope.new_input()
    wrong = "'probe' cannot be added: scope '/demo' is built already: .*capture_into there and replay here"
    with pytest.raises(GraphError, match=wrong), worker.dataflow(int, name="other"):
        stream.probe()
    handle.close()
    worker.run()


@pytest.mark.parametrize(
    "opened",
    [
        lambda worker, scope: scope.iterative(int),
        lambda worker, scope: scope.region(3),
        lambda worker, scope: scope.scoped(int, int),
        lambda worker, scope: worker.dataflow(name=int),
    ],
)
def test_a_scope_whose_name_is_none(opened: Callable[[Any, Any], Any]) -> None:
    worker = timely.Worker()
    with worker.dataflow() as scope:
        with pytest.raises(GraphError, match=r"the name of a scope is a string, not .*: scoped\(time_type\) opens one"):
            opened(worker, scope).__enter__()
        seen = scope.to_stream([1]).capture()
    worker.run()
    assert seen.extract() == [(0, [1])]


def new_input() -> tuple[timely.Worker, timely.InputHandle[int, Any], Stream[int, Any]]:
    """A worker with one dataflow that has one input."""
    worker = timely.Worker()
    with worker.dataflow(int, name="demo") as scope:
        handle, stream = scope.new_input()
        stream.probe()
    return worker, handle, stream


def test_a_stream_of_another_dataflow() -> None:
    worker = timely.Worker()
    wrong = pytest.raises(GraphError, match="'concat'.*cannot read.*'/two': that is another dataflow: .*capture_into")
    with wrong, worker.dataflow(int, name="one") as one, worker.dataflow(int, name="two") as two:
        one.to_stream([1]).concat(two.to_stream([2]))


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
    assert str(error.value).endswith(f"was built at test_first_mistakes.py:{line} in <lambda>")
    assert error.value.name.startswith(name) and f"/{name}" in error.value.path
    failure = error.value.__cause__
    assert isinstance(failure, RoutingError) and isinstance(failure.__cause__, KeyError)


def test_a_function_of_records_for_a_batch_of_columns() -> None:
    batch = pa.record_batch({"src": [1], "dst": [2]})
    with pytest.raises(OperatorError, match="by the name of a column") as error:
        timely.example(lambda scope: scope.to_stream([1]).map_batch(lambda _: batch).exchange(lambda x: x))
    assert isinstance(error.value.__cause__, RoutingError)


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


MUCH: list[Any] = [0] * 100_000

LONG: dict[str, Build] = {
    "a key": lambda stream: stream.distinct(),
    "a key that is missing": lambda stream: stream.exchange(lambda record: {"a": 1}[str(record)]),
    "what is no pair": lambda stream: stream.reduce_by_key(max),
    "what is not hashable": lambda stream: stream.value_counts(),
    "what fold returned": lambda stream: stream.map(lambda x: (1, x)).state_machine(lambda key, value, state: value),
    "what the function of partition returned": lambda stream: stream.partition(2, lambda x: x)[0],
    "which stream": lambda stream: stream.partition(2, lambda x: (x, x))[0],
    "what is no Ok": lambda stream: stream.ok_err(lambda x: x)[0],
    "a batch for a capability": lambda stream: step(stream, lambda cap, output: output.session([MUCH])),
    "a batch for a time": lambda stream: step(stream, lambda cap, output: cap.delayed(MUCH)),
    "a batch for an output": lambda stream: step(stream, lambda cap, output: cap.retain(MUCH)),
    "a vertex that sends the batch first": lambda stream: stream.vertex(Backwards),
    "a batch for logic": lambda stream: stream.unary(Pipeline, "mine", lambda capability, info: MUCH),
}


WITHOUT = """
import sys
sys.modules.update(pyarrow=None, numpy=None)  # as if they were not installed
import timely
from timely import differential as dd
from timely.cli import main

with (worker := timely.Worker()).dataflow(int) as scope:
    session, collection = dd.new_collection(scope)
    numbers, output = scope.to_stream([1]), collection.output()
    captured = numbers.capture()
session.close()
worker.run()
for mistake in (
    lambda: numbers.group_by("src", degree="count"),
    lambda: captured.to_arrow("n long"),
    lambda: output.to_pandas(),
    lambda: session.insert_columns([1]),
):
    try:
        mistake()
    except timely.ConfigurationError as error:
        print(error)
open("program.py", "w").write("OUTPUTS = {'out': 'src long'}\\ndef build(scope, edges): return {'out': edges}\\n")
sys.exit(main(["run", "program.py:build", "--input", "edges=.", "--output", "out=out"]))
"""


def test_without_arrow_one_line_says_what_to_install(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(timely.__file__).parents[1])}
    command = [sys.executable, "-c", WITHOUT]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    advice = 'pip install "timely-dataflow[arrow]"'
    assert done.stdout.splitlines() == [
        f"group_by needs the package pyarrow: {advice}",
        f"to_arrow needs the package pyarrow: {advice}",
        f"to_arrow needs the package pyarrow: {advice}",
        f"insert_columns needs the package numpy: {advice}",
    ]
    assert (done.returncode, done.stderr) == (1, f"timely: timely run needs the package pyarrow: {advice}\n")


@pytest.mark.parametrize("mistake", LONG)
def test_of_much_the_beginning_is_shown(mistake: str) -> None:
    with pytest.raises(OperatorError) as failure:
        timely.example(lambda scope: LONG[mistake](scope.to_stream([MUCH])))
    assert "0, 0, 0" in str(failure.value)
    assert len(str(failure.value)) < 5000
    assert str(failure.value).rpartition("; ")[2].startswith(f"{failure.value.name!r} was built at ")
