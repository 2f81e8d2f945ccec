"""No operator of ours has been left out: each says what it keeps, so that a run with it can be checkpointed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import timely
from tests.support.memory_registry import MemoryStateRegistry, undeclared
from timely import OperatorInfo, Pipeline, StateError, graphs, operators
from timely.operators import results
from timely.operators.keyed import windows
from timely.testing import Network

NOT_BUILDING = {"extract", "redistribute_by_key", "results.either", "windows.tumbling", "windows.sliding"}
NOT_BUILDING |= {"results.ok_err", "components_build"}
"""What makes no operator, or the same ones as another under the same name."""


async def _echo(record: Any) -> Any:
    return record


async def _nothing() -> Any:
    for each in list[Any]():
        yield each


def _silent(info: OperatorInfo) -> Callable[..., object]:
    info.declare_stateless()
    return lambda *ports: None


def _quiet(capability: Any, info: OperatorInfo) -> Callable[..., object]:
    return _silent(info)


def _loop(scope: Any) -> Any:
    handle, again = scope.feedback()
    again.connect_loop(handle)
    return again


def _nested(scope: Any, stream: Any) -> Any:
    with scope.region() as inner:
        return operators.leave(operators.enter(stream, inner))


def _flowing(scope: Any, stream: Any) -> Any:
    probe: timely.ProbeHandle[int] = timely.ProbeHandle()
    made = scope.iterator_source("source", iter([]), probe, records=1)
    made.probe(probe)
    return made


declare_stateless = OperatorInfo.declare_stateless
P = Pipeline

PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "accumulate": lambda scope, s: s.accumulate(0, max),
    "aggregate": lambda scope, s: s.aggregate(lambda k, v, state: v, lambda k, state: state),
    "all_reduce": lambda scope, s: s.apply(operators.all_reduce, max),
    "binary": lambda scope, s: s.binary(s, P, P, "mine", _quiet),
    "binary_frontier": lambda scope, s: s.binary_frontier(s, P, P, "mine", _quiet),
    "binary_notify": lambda scope, s: s.binary_notify(s, P, P, "mine", [], lambda *_: None, state=declare_stateless),
    "branch": lambda scope, s: s.branch(bool),
    "branch_when": lambda scope, s: s.branch_when(bool),
    "broadcast": lambda scope, s: s.broadcast(),
    "capture": lambda scope, s: s.capture(),
    "capture_into": lambda scope, s: s.capture_into([]),
    "concat": lambda scope, s: s.concat(s),
    "concatenate": lambda scope, s: scope.concatenate([s, s]),
    "connect_loop": lambda scope, s: _loop(scope),
    "count": lambda scope, s: s.count(),
    "delay": lambda scope, s: s.delay(lambda x, time: time),
    "delay_batch": lambda scope, s: s.delay_batch(lambda time: time),
    "distinct": lambda scope, s: s.distinct(),
    "empty": lambda scope, s: scope.empty(),
    "enter": _nested,
    "exchange": lambda scope, s: s.exchange(int),
    "feedback": lambda scope, s: _loop(scope),
    "filter": lambda scope, s: s.filter(bool),
    "flat_map": lambda scope, s: s.flat_map(list),
    "from_async": lambda scope, s: scope.from_async("async", _nothing),
    "input_from": lambda scope, s: scope.input_from(scope.new_input()[0]),
    "group_by": lambda scope, s: s.group_by("k", n="count"),
    "inspect": lambda scope, s: s.inspect(print),
    "inspect_batch": lambda scope, s: s.inspect_batch(print),
    "inspect_progress": lambda scope, s: s.inspect_progress(print, print),
    "inspect_time": lambda scope, s: s.inspect_time(print),
    "iterator_source": _flowing,
    "join": lambda scope, s: s.join(s),
    "leave": _nested,
    "map": lambda scope, s: s.map(int),
    "map_async": lambda scope, s: s.map_async(_echo),
    "map_batch": lambda scope, s: s.map_batch(list),
    "new_input": lambda scope, s: scope.new_input(),
    "new_unordered_input": lambda scope, s: scope.new_unordered_input(),
    "ok_err": lambda scope, s: s.ok_err(results.Ok),
    "partition": lambda scope, s: s.partition(2, lambda x: (0, x)),
    "probe": lambda scope, s: s.probe(),
    "reclock": lambda scope, s: s.apply(operators.reclock, s),
    "reduce_by_key": lambda scope, s: s.reduce_by_key(max),
    "replay": lambda scope, s: scope.replay([]),
    "sink": lambda scope, s: s.sink(P, "mine", _silent),
    "source": lambda scope, s: scope.source("mine", _quiet),
    "state_machine": lambda scope, s: s.state_machine(lambda k, v, state: (state, [])),
    "to_stream": lambda scope, s: scope.to_stream([1]),
    "unary": lambda scope, s: s.unary(P, "mine", _quiet),
    "unary_frontier": lambda scope, s: s.unary_frontier(P, "mine", _quiet),
    "unary_notify": lambda scope, s: s.unary_notify(P, "mine", [], lambda *_: None, state=declare_stateless),
    "value_counts": lambda scope, s: s.value_counts(),
    "vertex": lambda scope, s: s.vertex(timely.Vertex),
    "results.ok": lambda scope, s: s.apply(results.ok),
    "results.err": lambda scope, s: s.apply(results.err),
    "results.map_ok": lambda scope, s: s.apply(results.map_ok, int),
    "results.map_err": lambda scope, s: s.apply(results.map_err, int),
    "results.and_then": lambda scope, s: s.apply(results.and_then, results.Ok),
    "results.unwrap_or_else": lambda scope, s: s.apply(results.unwrap_or_else, int),
    "windows.windows": lambda scope, s: s.apply(windows.windows, windows.tumbling(1), int),
    "windows.sessions": lambda scope, s: s.apply(windows.sessions, 1, int),
}

GRAPHS: dict[str, Callable[[Any], Any]] = {
    "attach": lambda s: graphs.attach(s, s, 0),
    "breadth_first_search": lambda s: graphs.breadth_first_search(s, 0),
    "connected_components": lambda s: graphs.connected_components(s, vertices=s),
    "encode": lambda s: graphs.encode(s, lasting=True),
    "gather": lambda s: graphs.gather("mine", [(s, P)], 1, lambda *_: [[]]),
    "label_propagation": graphs.label_propagation,
    "name_components": lambda s: graphs.name_components(s, s),
    "name_values": lambda s: graphs.name_values(s, s, "x", np.abs),
    "pagerank": graphs.pagerank,
    "pregel": lambda s: graphs.pregel(s, s, lambda vertex, messages: (0, [])),
    "propagate": lambda s: graphs.propagate(s, s),
    "shortest_paths": lambda s: graphs.shortest_paths(s, 0),
    "strongly_connected_components": graphs.strongly_connected_components,
    "triangle_count": graphs.triangle_count,
    "without": lambda s: graphs.without(s, s, 0),
}


def functions() -> Iterator[str]:
    """The names of all public functions of operators, those of the convenience modules after the module's name."""
    yield from (name for name in operators.__all__ if inspect.isfunction(getattr(operators, name)))
    for module in (results, windows):
        short = module.__name__.rsplit(".", 1)[-1]
        own = (name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__)
        yield from (f"{short}.{name}" for name in own if inspect.isfunction(getattr(module, name)) and not name.startswith("_"))


def test_there_is_a_program_for_each_public_operator() -> None:
    assert set(PROGRAMS) == set(functions()) - NOT_BUILDING
    assert set(GRAPHS) == {name for name in graphs.__all__ if inspect.isfunction(getattr(graphs, name))} - NOT_BUILDING


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", [*PROGRAMS, *(f"graphs.{name}" for name in GRAPHS)])
def test_every_operator_declares_what_it_keeps(name: str, workers: int) -> None:
    worker = timely.Worker(Network(workers).transport(0))
    MemoryStateRegistry(worker)
    with worker.dataflow(int) as scope:
        _, stream = scope.new_input()
        if name.startswith("graphs."):
            GRAPHS[name.removeprefix("graphs.")](stream)
        else:
            PROGRAMS[name](scope, stream)
    assert undeclared(scope) == []


def test_an_operator_that_declares_nothing_is_refused_by_name() -> None:
    worker = timely.Worker()
    MemoryStateRegistry(worker)
    with pytest.raises(StateError, match=r"/demo/mine#1.*/demo/yours#2.*stateless"), worker.dataflow(int, name="demo") as scope:
        stream = scope.to_stream([1]).unary(P, "mine", lambda capability, info: lambda input, output: None)
        stream.unary_notify(P, "yours", [], lambda input, output, notificator: None)
