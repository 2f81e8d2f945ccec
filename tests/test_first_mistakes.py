"""What somebody new to the library writes, and should not have: each message says where it is, what came, and what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import timely
from timely import (
    CapabilityError,
    ConfigurationError,
    ContainerError,
    GraphError,
    OperatorError,
    PeerLostError,
    Pipeline,
    RoutingError,
    StalledError,
    Step,
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
    "joins with a list": (
        lambda scope: scope.to_stream([(1, 2)]).join([(1, 3)]),
        GraphError,
        r"'join' .*make one of it with scope.to_stream",
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
    "a state machine of one result": (
        lambda scope: scope.to_stream([(1, 2)]).state_machine(lambda key, value, state: value),
        TypeError,
        r"'state_machine' .*fold\(1, 2, state\) must return \(next state, outputs\): 2",
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
    "groups records": (
        lambda scope: scope.to_stream([1]).group_by("a", n="count"),
        ContainerError,
        "what came is a list: use value_counts or aggregate",
    ),
    "groups by a column that is misspelt": (
        sent(pa.record_batch({"src": [1]}), lambda s: s.group_by("scr", n="count")),
        ContainerError,
        r"group_by needs each of the columns \['scr'\] once, and a batch has \['src'\]",
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


def test_a_loop_over_times_that_have_no_next_one() -> None:
    message = r"feedback in scope '/batch' needs a summary for times of type Unit: give one .*, as in feedback\(summary\)"
    with pytest.raises(TimestampError, match=message), timely.Worker().dataflow(timely.Unit, name="batch") as scope:
        scope.feedback()


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


MUCH: list[Any] = [0] * 100_000

LONG: dict[str, Build] = {
    "a key": lambda stream: stream.distinct(),
    "a key that is missing": lambda stream: stream.exchange(lambda record: {"a": 1}[str(record)]),
    "what is no pair": lambda stream: stream.reduce_by_key(max),
    "what is not hashable": lambda stream: stream.value_counts(),
    "what fold returned": lambda stream: stream.map(lambda x: (1, x)).state_machine(lambda key, value, state: value),
    "what partition was told": lambda stream: stream.partition(2, lambda x: x)[0],
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
