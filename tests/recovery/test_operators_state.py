"""Operators that keep something, none left out: a run that is cut at any boundaries gives what a run without a cut gives.

White box: the graph algorithms that run in steps are in modules of their own, and not among the names of ``timely.graphs``.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import timely
from tests.recovery.cutting import EPOCHS, Build, Cut, Sends, cuts, run, sends
from tests.support.memory_registry import MemoryStateRegistry, undeclared
from timely import OperatorInfo, Pipeline, StateError, graphs, operators
from timely.dataflow import route
from timely.graphs.graphframes.pregel.peeling import k_core
from timely.operators import results
from timely.operators.keyed import windows as window_module
from timely.operators.keyed.windows import sessions, sliding, windows
from timely.testing import Network


def _value(pair: tuple[Any, int]) -> int:
    return pair[1]


def _per_time(scope: Any, stream: Any) -> Any:
    """A running sum for each key, over the sums of each time."""
    sums = stream.aggregate(lambda key, value, total: (total or 0) + value, lambda key, total: (key, total))

    def fold(key: Any, value: int, total: int | None) -> tuple[int | None, list[Any]]:
        total = (total or 0) + value
        return (None if total > 12 else total), [(key, total)]

    return sums.state_machine(fold)


def _grouped(scope: Any, stream: Any) -> Any:
    """Sums and numbers of rows on columns, for the keys as text, since they are of several types."""

    def columns(pairs: list[Any]) -> Any:
        return pa.record_batch({"key": [str(key) for key, _ in pairs], "value": [value for _, value in pairs]})

    return stream.map_batch(columns).group_by("key", rows="count", total=("value", "sum"))


def _joined(scope: Any, stream: Any) -> Any:
    """Rows of columns joined with themselves, of which some wait for their time to be complete."""

    def columns(name: str) -> Any:
        return lambda pairs: pa.record_batch({"key": [str(key) for key, _ in pairs], name: [value for _, value in pairs]})

    return stream.map_batch(columns("left")).join(stream.map_batch(columns("right")), on="key")


def _pregap(scope: Any, stream: Any) -> Any:
    events = stream.map(lambda pair: (pair[0], 2 * pair[1] + 4))
    complete, late = sessions(events, 3, at=_value, key=lambda event: event[0])
    return complete.map(lambda result: (result[0], result[1], sorted(result[2]))), late


def _windowed(scope: Any, stream: Any) -> Any:
    complete, late = windows(stream, sliding(4, 2), at=_value, key=lambda pair: pair[0])
    return complete.map(lambda result: (result[0], result[1], sorted(result[2]))), late


def _on_columns(scope: Any, stream: Any) -> Any:
    """Windows and sessions on columns, for the keys as text, since they are of several types."""

    def columns(pairs: list[Any]) -> Any:
        return pa.record_batch({"key": [str(key) for key, _ in pairs], "at": [2 * value + 4 for _, value in pairs]})

    batches = stream.map_batch(columns)
    complete, late = windows(batches, sliding(4, 2), at="at", key="key", rows="count")
    ended, missed = sessions(batches, 3, at="at", key="key", rows="count")
    everyone, _ = sessions(batches, 3, at="at", rows="count")
    return tuple(result.map(tuple) for result in (complete, late, ended, missed, everyone))


def _notified(scope: Any, stream: Any) -> Any:
    """A closure of one's own, with its state declared."""
    groups: dict[tuple[int, Any], int] = {}

    def logic(input: Any, output: Any, notificator: Any) -> None:
        for capability, batch in input:
            notificator.notify_at(capability.retain())
            for key, value in batch:
                groups[capability.time, key] = groups.get((capability.time, key), 0) + value
        for capability, _ in notificator:
            session = output.session(capability)
            for time, key in [place for place in groups if place[0] == capability.time]:
                session.give((key, groups.pop((time, key))))

    def register(info: timely.OperatorInfo) -> None:
        info.register_state(lambda: ((route(place[1]), (place, value)) for place, value in groups.items()), groups.update)

    return stream.unary_notify(timely.Exchange(lambda pair: pair[0]), "mine", [], logic, state=register)


class Tally(timely.Vertex[int]):
    """Sums by time and key, with the times that are to come and the ones that were asked for at the start."""

    def __init__(self) -> None:
        self.sums: dict[Any, dict[int, int]] = {}
        self.notify_at(2)

    def on_recv(self, port: int, batch: Any, time: int) -> None:
        self.notify_at(time)
        for key, value in batch:
            times = self.sums.setdefault(key, {})
            times[time] = times.get(time, 0) + value

    def on_notify(self, time: int) -> None:
        collected = [(key, times.pop(time)) for key, times in self.sums.items() if time in times]
        self.send_by(0, collected, time)

    def redistribute(self, states: Any, index: int, peers: int) -> Any:
        return {"sums": operators.redistribute_by_key([state["sums"] for state in states], index, peers)}


def _round_and_round(scope: Any, stream: Any) -> Any:
    with scope.iterative() as loop:
        handle, again = loop.feedback()
        known = stream.enter(loop).concat(again).distinct()
        known.filter(lambda pair: pair[1] > 0).map(lambda pair: (pair[0], pair[1] - 1)).connect_loop(handle)
        return known.leave()


UNARY: dict[str, Build] = {
    "state_machine": _per_time,
    "aggregate": lambda scope, stream: stream.aggregate(lambda k, v, total: (total or 0) + v, lambda k, total: (k, total)),
    "value_counts": lambda scope, stream: stream.value_counts(),
    "reduce_by_key": lambda scope, stream: stream.reduce_by_key(int.__add__),
    "group_by": _grouped,
    "join on columns": _joined,
    "distinct": lambda scope, stream: stream.distinct(),
    "distinct by key": lambda scope, stream: stream.distinct(key=lambda pair: pair[0]),
    "delay": lambda scope, stream: stream.delay(lambda pair, time: time + pair[1]),
    "delay_batch": lambda scope, stream: stream.delay_batch(lambda time: time + 2),
    "windows": _windowed,
    "sessions": _pregap,
    "windows and sessions on columns": _on_columns,
    "unary_notify": _notified,
    "vertex": lambda scope, stream: stream.vertex(Tally, pact=timely.Exchange(lambda pair: pair[0])),
    "loop": _round_and_round,
    "stateless": lambda scope, stream: stream.exchange(_value).map(_value).filter(bool).branch(lambda x: x > 2),
}


@pytest.mark.parametrize("name", UNARY)
@given(sends=sends, cuts=cuts, workers=st.integers(1, 3), compact=st.booleans())
@example(sends=[[(1, (0, 2))], [(0, (0, 2))], [], []], cuts=[(1, 1)], workers=2, compact=False)  # one record on either side
@example(sends=[[(2, (0, 2)), (2, (0, 2))], [], [], []], cuts=[(1, 2)], workers=1, compact=False)  # two states become one
@settings(max_examples=9)
def test_a_run_that_is_cut_gives_what_one_without_a_cut_gives(
    name: str, sends: Sends, cuts: list[Cut], workers: int, compact: bool
) -> None:
    build = UNARY[name]
    assert run(build, sends, cuts=cuts, workers=workers, compact=compact) == run(build, sends)


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
    "windows.windows": lambda scope, s: s.apply(windows, window_module.tumbling(1), int),
    "windows.sessions": lambda scope, s: s.apply(sessions, 1, int),
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
    for module in (results, window_module):
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


Edges = list[list[tuple[int, list[tuple[int, int]]]]]

pairs = st.tuples(st.integers(0, 9), st.integers(0, 9))
batches = st.tuples(st.integers(0, 2), st.lists(pairs, min_size=1, max_size=6))
edges = st.lists(st.lists(batches, max_size=3), min_size=EPOCHS, max_size=EPOCHS)


def _batches(batches: Edges, kind: str) -> list[list[tuple[int, Any]]]:
    """The edges as Arrow batches, between whole numbers or names."""

    def column(ends: list[int]) -> pa.Array:
        return pa.array(ends, pa.int64()) if kind == "numbers" else pa.array([f"n{end}" for end in ends])

    def batch(pairs: list[tuple[int, int]]) -> pa.RecordBatch:
        weights = [1.0 + (3 * a + b) % 4 for a, b in pairs]
        return pa.record_batch({"src": column([a for a, _ in pairs]), "dst": column([b for _, b in pairs]), "weight": weights})

    return [[(later, batch(pairs)) for later, pairs in sent] for sent in batches]


def _ranked(scope: Any, stream: Any) -> Any:
    ranks = graphs.pagerank(stream, rounds=3)
    return ranks.map(lambda row: (row[0], int(row[1] * 1e7 / math.pi)))  # which no rank comes near a border of


def _pregel(scope: Any, stream: Any) -> Any:
    pairs = stream.flat_map(lambda row: [(row[0], row[1])])
    nodes = pairs.flat_map(lambda pair: list(pair)).distinct().map(lambda node: (node, node))

    def least(vertex: Any, messages: list[Any]) -> Any:
        state = min([vertex.state, *messages])
        seen = vertex.superstep == 0 or state < vertex.state
        return state, [(target, state) for target in vertex.edges if seen]

    return graphs.pregel(nodes, pairs, least, min)


def _cores(scope: Any, stream: Any) -> Any:
    """A program in steps."""
    nodes = stream.flat_map(lambda row: [row[0], row[1]]).distinct()
    return k_core(stream, nodes.map_batch(lambda batch: pa.record_batch({"node": list(batch)})))


def _encoded(scope: Any, stream: Any) -> Any:
    """The names of a lasting dictionary: each node is named once."""
    _, names = graphs.encode(stream, lasting=True)
    return names.map(lambda row: row[1])


BUILDS: dict[str, Any] = {
    "connected_components": lambda stream, source: graphs.connected_components(stream),
    "triangle_count": lambda stream, source: graphs.triangle_count(stream),
    "shortest_paths": lambda stream, source: graphs.shortest_paths(stream, source),
    "breadth_first_search": lambda stream, source: graphs.breadth_first_search(stream, source),
    "strongly_connected_components": lambda stream, source: graphs.strongly_connected_components(stream),
    "label_propagation": lambda stream, source: graphs.label_propagation(stream),
    "pagerank": lambda stream, source: _ranked(None, stream),
    "pregel": lambda stream, source: _pregel(None, stream),
    "encode": lambda stream, source: _encoded(None, stream),
}

IN_STEPS: dict[str, Any] = {"k_core": lambda stream, source: _cores(None, stream)}
"""A checkpoint is between two times, never in the middle of a program."""


@pytest.mark.parametrize("name", [*BUILDS, *IN_STEPS])
@given(batches=edges, cuts=cuts, workers=st.integers(1, 3), compact=st.booleans(), kind=st.sampled_from(["numbers", "names"]))
@settings(max_examples=5)
def test_a_graph_algorithm_that_is_cut_gives_what_it_gives_without(
    name: str, batches: Edges, cuts: list[Cut], workers: int, compact: bool, kind: str
) -> None:
    sent = _batches(batches, kind)

    def build(scope: Any, stream: Any) -> Any:
        return {**BUILDS, **IN_STEPS}[name](stream, 3 if kind == "numbers" else "n3")

    assert run(build, sent, cuts=cuts, workers=workers, compact=compact) == run(build, sent)
