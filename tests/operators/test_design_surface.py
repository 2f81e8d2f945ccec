"""The public names of the design's chapter on dataflows, each called exactly as it is given there."""

from __future__ import annotations

import copy
import inspect
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import timely
from timely import operators


def program(worker: timely.Worker) -> list[int]:
    with worker.dataflow(int, name="doubled") as scope:
        numbers, stream = scope.new_input()
        doubled = stream.map(lambda x: 2 * x).exchange(lambda x: x)
        seen, probe = doubled.capture(), doubled.probe()
    for epoch in range(3):
        numbers.send(epoch)
        numbers.advance_to(epoch + 1)
        worker.step_while(lambda: probe.less_than(epoch + 1))  # noqa: B023  # called at once
    numbers.close()
    worker.run()
    return [x for _, batch in seen.extract() for x in batch]


def test_the_program() -> None:
    assert timely.execute(program, workers=2) == [[0, 0, 2, 2, 4, 4], []]
    assert timely.execute(program) == [[0, 2, 4]]
    places = timely.execute(lambda worker: (worker.index, worker.peers), workers=2, processes=2)
    assert places == [(index, 4) for index in range(4)]


SIGNATURES: dict[Any, dict[str, str]] = {
    timely.execute: {"workers": "1", "processes": "1"},
    timely.ScopeBuilder.feedback: {"summary": "None"},
    timely.ScopeBuilder.iterative: {"name": "None"},
    timely.ScopeBuilder.region: {"name": "None"},
    timely.ScopeBuilder.scoped: {"name": "None"},
    timely.OperatorBuilder.new_input: {"summaries": "None"},
    timely.OperatorBuilder.new_output: {"summaries": "None"},
}
if not timely.compiled:  # a compiled method shows no signature
    SIGNATURES[timely.Worker.dataflow] = {"time": "int", "name": "None"}


@pytest.mark.parametrize("function", SIGNATURES)
def test_defaults(function: Any) -> None:
    parameters = inspect.signature(function).parameters
    for name, default in SIGNATURES[function].items():
        found = parameters[name].default
        assert (found.__name__ if isinstance(found, type) else repr(found)) == default


def test_a_worker_by_hand() -> None:
    worker = timely.Worker()
    assert (worker.index, worker.peers) == (0, 1)
    with worker.dataflow() as scope:
        handle, stream = scope.new_input()
        probe = stream.probe()
    assert worker.step() is True
    handle.advance_to(2)
    worker.step_while(lambda: probe.less_than(2))
    worker.drop_dataflow(scope)
    assert worker.step() is False
    worker.run()


def test_an_input_handle() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        seen, probe = stream.capture(), stream.probe()
    with handle:
        handle.send(1)
        handle.send_batch([2, 3])
        handle.flush()
        handle.advance_to(4)
        assert handle.time == 4
        with pytest.raises(timely.TimelyError):
            handle.advance_to(3)
        assert probe.less_than(4)
        assert probe.less_equal(4)
        assert not probe.done()
        assert probe.frontier() == timely.Antichain([0])
    with pytest.raises(timely.TimelyError):
        handle.send(5)
    handle.close()
    worker.run()
    assert probe.done()
    assert probe.frontier() == timely.Antichain()
    assert seen.extract() == [(0, [1, 2, 3])]


def test_what_a_scope_builds() -> None:
    worker = timely.Worker()

    def one_and_over(capability: Any, info: Any) -> Any:
        def logic(output: Any) -> None:
            if capability.held:
                output.session(capability).give("source")
                capability.drop()

        return logic

    with worker.dataflow(int) as scope:
        (handle, capability), unordered = scope.new_unordered_input()
        streams = [scope.to_stream(["iterable"]), scope.source("name", one_and_over), scope.empty(), unordered]
        with scope.region() as region, scope.region("name") as named:
            streams += [streams[0].enter(region).leave(), streams[0].enter(named).leave()]
        pairs: Any = timely.Product[int, int]
        with scope.scoped(pairs) as inner, scope.scoped(int, "again") as again:
            streams += [streams[0].enter(inner).leave(), streams[0].enter(again).leave()]
        with scope.iterative("rounds") as loop:
            turn, round_again = loop.feedback()
            around = streams[0].enter(loop).concat(round_again)
            around.filter(lambda x: len(x) < 10).map(lambda x: x + "!").connect_loop(turn)
            streams.append(around.leave())
        back, later = scope.feedback(timely.Step(3))
        streams[0].map(lambda x: x + " later").connect_loop(back)
        seen = scope.concatenate([*streams, later]).capture()
        assert streams[0].scope is scope
    handle.session(capability.delayed(2)).give("unordered")
    capability.drop()
    worker.run()
    assert seen.extract() == [
        (0, ["iterable"] * 6 + ["iterable!", "iterable!!", "source"]),
        (2, ["unordered"]),
        (3, ["iterable later"]),
    ]


def logic_of(deed: Any) -> Any:
    """The constructor of an operator that sends ``deed(record)`` for each record, on one input or two."""

    def constructor(capability: Any, info: Any) -> Any:
        def logic(*ports: Any) -> None:
            for input in ports[:-1]:
                for cap, batch in input:
                    with ports[-1].session(cap) as session:
                        session.give_many(deed(x) for x in batch)

        return logic

    return constructor


def notified(*ports: Any) -> None:
    *inputs, output, notificator = ports
    for input in inputs:
        for capability, _ in input:
            notificator.notify_at(capability.retain())
    for capability, count in notificator:
        output.session(capability).give((capability.time, count))


class Add(timely.Vertex[int]):
    def __init__(self, more: int = 1) -> None:
        self.more = more

    def on_recv(self, port: int, batch: Any, time: int) -> None:
        self.send_by(0, [x + self.more + port for x in batch], time)
        self.notify_at(time)

    def on_notify(self, time: int) -> None:
        self.send_by(0, [-time], time)


def one_each(record: int) -> tuple[int, int]:
    return record, 1


PIPE, BY_ITSELF = timely.Pipeline, timely.Exchange(lambda x: x)

STREAM_METHODS: dict[str, tuple[Any, list[Any]]] = {
    "map": (lambda s: s.map(lambda x: x + 1), [2, 3, 3]),
    "filter": (lambda s: s.filter(lambda x: x > 1), [2, 2]),
    "flat_map": (lambda s: s.flat_map(range), [0, 0, 0, 1, 1]),
    "map_batch": (lambda s: s.map_batch(lambda batch: [len(batch)]), [3]),
    "inspect": (lambda s: s.inspect(lambda x: None), [1, 2, 2]),
    "inspect_batch": (lambda s: s.inspect_batch(lambda time, batch: None), [1, 2, 2]),
    "concat": (lambda s: s.concat(s), [1, 1, 2, 2, 2, 2]),
    "exchange": (lambda s: s.exchange(lambda x: x), [1, 2, 2]),
    "broadcast": (lambda s: s.broadcast(), [1, 2, 2]),
    "partition": (lambda s: s.partition(3, lambda x: (x, 10 * x))[2], [20, 20]),
    "branch": (lambda s: s.branch(lambda x: x > 1)[0], [1]),
    "ok_err": (lambda s: s.ok_err(lambda x: operators.results.Ok(x) if x > 1 else operators.results.Err("no"))[1], ["no"]),
    "delay": (lambda s: s.delay(lambda record, time: record).inspect_time(lambda time, x: None), [1, 2, 2]),
    "count": (lambda s: s.count(), [3]),
    "accumulate": (lambda s: s.accumulate(0, lambda total, x: total + x), [5]),
    "aggregate": (lambda s: s.map(one_each).aggregate(lambda k, v, n: (n or 0) + v, lambda k, n: (k, n)), [(1, 1), (2, 2)]),
    "state_machine": (lambda s: s.map(one_each).state_machine(lambda k, v, n: ((n or 0) + v, [(n or 0) + v])), [1, 1, 2]),
    "distinct": (lambda s: s.distinct(), [1, 2]),
    "join": (lambda s: s.map(lambda x: (x, "a")).join(s.map(lambda x: (x, "b"))), [(1, ("a", "b"))] + 4 * [(2, ("a", "b"))]),
    "unary": (lambda s: s.unary(timely.Pipeline, "name", logic_of(str)), ["1", "2", "2"]),
    "unary_frontier": (lambda s: s.unary_frontier(BY_ITSELF, "name", logic_of(str)), ["1", "2", "2"]),
    "unary_notify": (lambda s: s.unary_notify(PIPE, "name", [], notified), [(0, 1)]),
    "binary": (lambda s: s.binary(s, PIPE, BY_ITSELF, "name", logic_of(str)), ["1", "1", "2", "2", "2", "2"]),
    "binary_frontier": (lambda s: s.binary_frontier(s, PIPE, PIPE, "name", logic_of(str)), ["1", "1", "2", "2", "2", "2"]),
    "binary_notify": (lambda s: s.binary_notify(s, PIPE, PIPE, "name", [0], notified), [(0, 3)]),
    "vertex": (lambda s: s.vertex(Add, 10, pact=BY_ITSELF, others=[s]), [0, 11, 12, 12, 12, 13, 13]),
    "apply": (lambda s: s.apply(lambda stream, power: stream.map(lambda x: x**power), 3), [1, 8, 8]),
}


@pytest.mark.parametrize("name", STREAM_METHODS)
def test_what_a_stream_offers(name: str) -> None:
    build, expected = STREAM_METHODS[name]
    found = timely.example(lambda scope: build(scope.to_stream([1, 2, 2])))
    assert sorted(record for _, batch in found for record in batch) == expected
    assert callable(getattr(timely.Stream, name))
    assert name == "apply" or callable(getattr(operators, name))


def test_a_sink() -> None:
    seen: list[Any] = []

    def constructor(info: Any) -> Any:
        return lambda input: seen.extend((cap.time, list(batch)) for cap, batch in input)

    def build(scope: timely.ScopeBuilder[int]) -> Any:
        stream = scope.to_stream([1, 2])
        stream.sink(timely.Pipeline, "name", constructor)
        return stream

    timely.example(build)
    assert seen == [(0, [1, 2])]


def test_the_operator_builder_and_capabilities() -> None:
    told = []

    def build(scope: timely.ScopeBuilder[int]) -> Any:
        stream = scope.to_stream([1, 2])
        builder = timely.OperatorBuilder(scope, "name")
        builder.new_input(stream, timely.Pipeline)
        late = builder.new_output({0: timely.Antichain([timely.Step(5)])})
        builder.new_input(stream, timely.Exchange(lambda x: x), {0: timely.Antichain()})
        plain = builder.new_output()

        def constructor(capabilities: Any, info: Any) -> Any:
            _, second = capabilities
            told.append((info.index, info.path, info.activator))
            with second.delayed(3) as later:
                assert (second.time, later.time) == (0, 3)
            copied = copy.copy(second)
            copied.downgrade(1)
            copied.drop()
            kept: list[Any] = []

            def logic(left: Any, right: Any, late: Any, plain: Any) -> None:
                for capability, batch in left:
                    late.session(capability.delayed(5, 0)).give_batch(batch)
                    kept.append(capability.retain(1))
                for capability, batch in right:
                    plain.session(capability).give_batch(pa.record_batch({"x": batch}))
                if kept and not left.frontier:
                    plain.session(kept.pop()).give("kept")

            return logic

        builder.build(constructor)
        return late.concat(plain.map(str))

    assert timely.example(build) == [(0, ["(1,)", "(2,)", "kept"]), (5, [1, 2])]
    [(index, path, activator)] = told
    assert (index, path) == (1, "/example/name#1")
    activator.activate()


def test_a_vertex_has_state_to_save() -> None:
    old, new = Add(5), Add()
    new.restore(old.checkpoint())
    assert new.more == 5


class Later:
    """A scope of one's own: its records come out one time later."""

    inputs, outputs = 1, 1
    inlet: Any
    outlet: Any

    def connect(self, inlets: Any, outlets: Any, activate: Any) -> None:
        self.inlet, self.outlet = inlets[0], outlets[0]

    def get_internal_summary(self) -> Any:
        return [[timely.Antichain([timely.Step(1)])]], [[]]

    def set_external_summary(self, summaries: Any, external: Any) -> None:
        pass

    def push_external_progress(self, external: Any) -> None:
        pass

    def pull_internal_progress(self, internal: Any, consumed: Any, produced: Any) -> bool:
        for time, batch in self.inlet:
            self.outlet.send(time + 1, batch)
            consumed[0].update(time, len(batch))
            produced[0].update(time + 1, len(batch))
        return False


def test_a_scope_of_ones_own() -> None:
    assert timely.example(lambda scope: scope.add_scope(Later(), [scope.to_stream([1, 2])])[0]) == [(1, [1, 2])]


def test_arguments_by_their_names_in_the_design() -> None:
    worker = timely.Worker()

    def constructor(capability: Any, info: Any) -> Any:
        def logic(input: Any, output: Any) -> None:
            for capability, batch in input:
                with output.session(capability=capability) as session:
                    session.give_batch(container=batch)

        return logic

    with worker.dataflow(time=int, name="named") as scope:
        handle, sent = scope.new_input()
        (unordered, capability), more = scope.new_unordered_input()
        given = scope.to_stream(iterable=[1, 2])
        both = scope.concatenate(streams=[given, sent, more]).unary(timely.Pipeline, name="name", constructor=constructor)
        [later] = scope.add_scope(scope_object=Later(), inputs=[both])
        seen = later.capture()
    handle.send_batch(container=[3])
    handle.close()
    with unordered.session(capability=capability) as session:
        session.give_batch(container=[4])
    capability.drop()
    worker.run()
    assert seen.extract() == [(1, [1, 2, 3, 4])]


def test_recorded_and_replayed(tmp_path: Path) -> None:
    def record(scope: timely.ScopeBuilder[int]) -> Any:
        stream = scope.to_stream([1, 2])
        stream.capture_into(timely.FileSink(tmp_path / "recorded"))
        return stream

    timely.example(record)
    assert timely.example(lambda scope: scope.replay(timely.FileSource(tmp_path / "recorded"))) == [(0, [1, 2])]
    assert timely.Messages(3, [1]).time == 3
    assert timely.Progress([(3, -1)]).changes
    (tmp_path / "recorded").write_bytes((tmp_path / "recorded").read_bytes()[:-3])
    with pytest.raises(timely.TimelyError):
        timely.example(lambda scope: scope.replay(timely.FileSource(tmp_path / "recorded")))


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_an_error_in_an_operator(workers: int) -> None:
    def raising(worker: timely.Worker) -> None:
        with worker.dataflow() as scope:
            scope.to_stream([0]).map(lambda x: 1 // x)
        worker.run()

    with pytest.raises(timely.OperatorError, match=r"'map' \(/dataflow0/map#1\) on worker \d raised ZeroDivisionError") as caught:
        timely.execute(raising, workers=workers)
    assert isinstance(caught.value, timely.TimelyError)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert (caught.value.name, caught.value.path) == ("map", "/dataflow0/map#1")


def test_a_vertex_is_a_function_of_a_stream_too() -> None:
    def build(scope: timely.ScopeBuilder[int]) -> Any:
        one, two = scope.to_stream([1]), scope.to_stream([2])
        both = operators.vertex(one, Add, 7, pact=timely.Exchange(abs), others=[two], name="both")
        return operators.vertex(one, Add, 5).concat(both)

    assert timely.example(build) == [(0, [0, 0, 6, 8, 10])]


@pytest.mark.parametrize("name", ["enter", "leave", "connect_loop", "probe", "capture", "sink"])
def test_the_other_methods_are_functions_too(name: str) -> None:
    assert callable(getattr(timely.Stream, name))
    assert callable(getattr(operators, name))
