"""How building a dataflow, and letting go of it, grows with the number of its operators or of the ports of one of them.

Each shape is built at two sizes, one ten times the other; what counts is the time of one unit (an operator, or a port) in the
larger over that of one in the smaller, which is 1 where time is linear. Time is the processor's. While something is built the
garbage collector rests, whose passes over a growing heap are not ours and grow with what the caches do not hold; what it adds
stands beside the ratios. Most of letting go is its work, one pass over all that is to go. What is to be compared is the size of a
dataflow, and not how much of the heap the caches hold: so one of ten thousand is held against ten of a thousand that are let go
of together. What each of a thousand takes by itself stands beside. Last comes what dataflows that have nothing to do cost one
that has: an epoch of a chain of operators beside them over the same epoch without.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, TypeAlias

import timely
from benchmarks.measure import Measured, in_turn
from benchmarks.report import Row
from timely import (
    Antichain,
    Capability,
    InputPort,
    OperatorBuilder,
    OperatorInfo,
    OutputPort,
    Pipeline,
    ProbeHandle,
    ScopeBuilder,
    Step,
    Stream,
)
from timely.progress import GraphBuilder, PathSummary, Source, Target
from timely.worker.gc_control import collector_paused

Program: TypeAlias = Callable[[ScopeBuilder[int], int], object]
"""Builds a shape with so many units, and returns what has to stay alive."""

SMALL, LARGE = 1_000, 10_000
REGION = 100


def _pass_on(capability: Capability[Any], info: OperatorInfo) -> Callable[[InputPort[Any, int], OutputPort[Any]], None]:
    def logic(input: InputPort[Any, int], output: OutputPort[Any]) -> None:
        for capability, batch in input:
            output.session(capability).give_batch(batch)

    return logic


def _chained(stream: Stream[Any, int], length: int) -> Stream[Any, int]:
    for _ in range(length):
        stream = stream.unary(Pipeline, "pass on", _pass_on)
    return stream


def chain(scope: ScopeBuilder[int], units: int) -> object:
    """A chain of operators."""
    numbers, stream = scope.new_input()
    return numbers, _chained(stream, units).probe()


def loop(scope: ScopeBuilder[int], units: int) -> object:
    """A chain of operators inside a loop."""
    numbers, stream = scope.new_input()
    with scope.iterative() as inner:
        handle, again = inner.feedback()
        around = _chained(stream.enter(inner).concat(again), units)
        around.connect_loop(handle)
        probe = around.leave().probe()
    return numbers, probe


def regions(scope: ScopeBuilder[int], units: int) -> object:
    """A chain of regions, each with a chain of a hundred operators."""
    numbers, stream = scope.new_input()
    for _ in range(units // REGION):
        with scope.region() as region:
            stream = _chained(stream.enter(region), REGION).leave()
    return numbers, stream.probe()


def regions_in_loop(scope: ScopeBuilder[int], units: int) -> object:
    """The same inside a loop."""
    numbers, stream = scope.new_input()
    with scope.iterative() as inner:
        handle, again = inner.feedback()
        around = stream.enter(inner).concat(again)
        for _ in range(units // REGION):
            with inner.region() as region:
                around = _chained(around.enter(region), REGION).leave()
        around.connect_loop(handle)
        probe = around.leave().probe()
    return numbers, probe


def fan_out(scope: ScopeBuilder[int], units: int) -> object:
    """So many operators that read one stream."""
    numbers, stream = scope.new_input()
    for _ in range(units):
        stream.unary(Pipeline, "pass on", _pass_on)
    return numbers


def probes(scope: ScopeBuilder[int], units: int) -> object:
    """A chain of operators each of which asks for its frontier."""
    numbers, stream = scope.new_input()
    for _ in range(units):
        stream = stream.unary_frontier(Pipeline, "pass on", _pass_on)
    return numbers, stream.probe()


def random_graph(scope: ScopeBuilder[int], units: int) -> object:
    """Operators with two inputs each, which read streams drawn at random from those before."""
    choice = random.Random(1)
    numbers, first = scope.new_input()
    streams: list[Stream[int, int]] = [first]
    for _ in range(units):
        streams.append(choice.choice(streams).concat(choice.choice(streams)))
    return numbers, streams[-1].probe()


def lanes(scope: ScopeBuilder[int], units: int) -> object:
    """One operator with so many inputs and outputs, each input connected to one output only."""
    numbers, stream = scope.new_input()
    builder = OperatorBuilder(scope, "lanes")
    for _ in range(units):
        builder.new_input(stream, Pipeline, {}, notify=False)
    stay: Antichain[PathSummary[int]] = Antichain([Step(0)])
    last = [builder.new_output({port: stay}) for port in range(units)][-1]
    builder.build(lambda capabilities, info: lambda *ports: None)
    return numbers, last.probe()


def region_of_lanes(scope: ScopeBuilder[int], units: int) -> object:
    """A region that so many streams enter, each to go through an operator of its own and leave again."""
    numbers, stream = scope.new_input()
    with scope.region() as region:
        left = [_chained(stream.enter(region), 1).leave() for _ in range(units)]
    return numbers, left[-1].probe()


def many_inputs(scope: ScopeBuilder[int], units: int) -> object:
    """One operator with so many inputs and one output."""
    numbers, stream = scope.new_input()
    return numbers, scope.concatenate([stream] * units).probe()


def many_outputs(scope: ScopeBuilder[int], units: int) -> object:
    """A partition into so many streams."""
    numbers, stream = scope.new_input()
    return numbers, stream.partition(units, lambda record: (record % units, record))[-1].probe()


def partition_in_region(scope: ScopeBuilder[int], units: int) -> object:
    """A partition, after a chain of ten operators, into so many streams that all leave a region."""
    numbers, stream = scope.new_input()
    with scope.region() as region:
        parts = _chained(stream.enter(region), 10).partition(units, lambda record: (record % units, record))
        left = [part.leave() for part in parts]
    return numbers, left[-1].probe()


SHAPES: dict[str, Program] = {
    "a chain": chain,
    "a chain in a loop": loop,
    "regions of 100": regions,
    "regions of 100 in a loop": regions_in_loop,
    "a fan-out": fan_out,
    "a chain that observes": probes,
    "a random graph": random_graph,
    "one operator with sparse ports": lanes,
    "a region with as many streams through it": region_of_lanes,
    "one operator with many inputs": many_inputs,
    "a partition": many_outputs,
    "a partition in a region": partition_in_region,
}


def _times(program: Program, units: int, times: int = 1, *, collect: bool = False) -> tuple[float, float]:
    """Return the seconds that one unit takes to build, and to let go of once it has run, of so many dataflows at a time."""
    gc.collect()
    if not collect:
        gc.disable()
    with timely.Worker() as worker:
        start = time.process_time()
        alive = []
        for _ in range(times):
            with worker.dataflow() as scope:
                alive.append((scope, program(scope, units)))
        built = time.process_time()
        while not worker.idle:
            worker.step()
        ran = time.process_time()
        for scope, _ in alive:
            worker.drop_dataflow(scope)
        del scope, alive, _
    del worker
    gc.enable()
    gc.collect()
    return (built - start) / (times * units), (time.process_time() - ran) / (times * units)


def memory(program: Program, units: int) -> float:
    """Return the bytes that one unit takes once it is built."""
    gc.collect()
    with timely.Worker() as worker:
        tracemalloc.start()
        with worker.dataflow() as scope:
            alive = program(scope, units)
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        del alive
    return size / units


def _graph(units: int) -> float:
    """Return the seconds per node of compiling a chain in a loop with ``GraphBuilder``, and settling its frontiers once."""
    gc.collect()
    stay, onwards = [[Antichain([Step(0)])]], [[Antichain([Step(1)])]]
    with collector_paused():  # as inside of worker.dataflow
        start = time.process_time()
        graph: GraphBuilder[int] = GraphBuilder(int)
        for node in range(units):
            graph.add_node(node, 1, 1, onwards if node == 0 else stay)
        for node in range(units):
            graph.add_edge(Source(node, 0), Target((node + 1) % units, 0))
        tracker = graph.build()
        tracker.update(Source(0, 0), 0, 1)
        assert len(tracker.propagate()) == units
        return (time.process_time() - start) / units


def _sparse_node(units: int) -> float:
    """Return the seconds per port of compiling one node whose input ``i`` leads to its output ``i`` only."""
    gc.collect()
    with collector_paused():  # as inside of worker.dataflow
        start = time.process_time()
        graph: GraphBuilder[int] = GraphBuilder(int)
        graph.add_node(0, units, units, {port: {port: Antichain([Step(0)])} for port in range(units)})
        graph.add_node(1, units, 0, [[]] * units)
        for port in range(units):
            graph.add_edge(Source(0, port), Target(1, port))
        tracker = graph.build()
        tracker.update(Target(0, units - 1), 0, 1)
        assert [target.port for target, _, _ in tracker.propagate()] == [units - 1, units - 1]
        return (time.process_time() - start) / units


class Driven:
    """A worker with one chain of ``length`` operators that is given records, amid so many that are not."""

    def __init__(self, idle: int, length: int) -> None:
        self.worker = timely.Worker()
        self.handles: list[tuple[Any, ProbeHandle[int]]] = []
        for _ in range(idle + 1):
            with self.worker.dataflow() as scope:
                numbers, stream = scope.new_input()
                self.handles.append((numbers, _chained(stream, length).probe()))
        while not self.worker.idle:
            self.worker.step()
        self._driven = self.handles[idle // 2]

    def seconds(self, epochs: int) -> float:
        """Return the seconds of an epoch with one record."""
        worker, (numbers, probe) = self.worker, self._driven
        begin = numbers.time + 1
        start = time.process_time()
        for epoch in range(begin, begin + epochs):
            numbers.send(epoch)
            numbers.advance_to(epoch)
            while probe.less_than(epoch):
                worker.step()
        return (time.process_time() - start) / epochs


def _idle(idle: int, length: int, rounds: int) -> Row:
    """Return the row of one dataflow beside idle ones: the two take turns, one chain alone and one of those amid others."""
    gc.collect()
    alone, beside = Driven(0, length), Driven(idle, length)
    pairs = [(alone.seconds(20_000 // length), beside.seconds(20_000 // length)) for _ in range(4 * rounds)]
    ratio = statistics.median(with_others / by_itself for by_itself, with_others in pairs)
    return Row(f"an epoch beside {idle:,} idle dataflows of {length:,} operators", ratio, floor=1.05, aim=1, less=True)


def _lively(program: Program, units: int, dataflows: int, epochs: int) -> tuple[float, float]:
    """Return the seconds of a unit for an epoch with one record, and for closing, with the garbage collector on."""
    gc.collect()
    with timely.Worker() as worker:
        handles = []
        for _ in range(dataflows):
            with worker.dataflow() as scope:
                handles.append(program(scope, units))
        _rest(worker)
        all_units = units * dataflows
        start = time.process_time()
        for epoch in range(1, epochs + 1):
            for numbers in _first(handles):
                numbers.send(epoch)
                numbers.advance_to(epoch)
            _rest(worker)
        ran = time.process_time()
        for numbers in _first(handles):
            numbers.close()
        worker.run()
        return (ran - start) / epochs / all_units, (time.process_time() - ran) / all_units


def _rest(worker: timely.Worker) -> None:
    while not worker.idle:
        worker.step()


def _first(handles: list[Any]) -> list[Any]:
    return [found[0] if isinstance(found, tuple) else found for found in handles]


def _side_by_side(rounds: int) -> list[Row]:
    """Return the rows of an epoch and of closing: one large dataflow over as many operators in small ones."""
    found: dict[str, list[float]] = {"an epoch": [], "closing": [], "closing, over 1,000 alone": []}
    for _ in range(rounds):
        large, small = _lively(fan_out, 3 * LARGE, 1, 3), _lively(fan_out, SMALL, 3 * LARGE // SMALL, 3)
        found["an epoch"].append(large[0] / small[0])
        one, many, alone = _lively(chain, LARGE, 1, 1), _lively(chain, SMALL, LARGE // SMALL, 1), _lively(chain, SMALL, 1, 1)
        found["closing"].append(one[1] / many[1])
        found["closing, over 1,000 alone"].append(one[1] / alone[1])
    epoch, closing, over_alone = map(Measured, found.values())
    return [
        Row(f"a fan-out of {3 * LARGE:,} over {3 * LARGE // SMALL} of {SMALL:,}: an epoch with a record", epoch, 1.3, 1, True),
        Row(f"closing a chain of {LARGE:,} over {LARGE // SMALL} of {SMALL:,}, the collector on", closing, 1.5, 1, True),
        Row(f"closing a chain of {LARGE:,}, each over each of {SMALL:,} alone, the collector on", over_alone, note="caches"),
    ]


def _growth(name: str, program: Program, rounds: int) -> list[Row]:
    """Return the rows of one shape: the sizes take turns."""
    found: dict[int, list[tuple[float, float]]] = {SMALL: [], LARGE: []}
    together: list[float] = []
    collected: list[float] = []
    for _ in range(rounds):
        for units, times in found.items():
            # As many units in all at both sizes: what else the machine does weighs as much on the one as on the other.
            pairs = [_times(program, units) for _ in range(LARGE // units)]
            times.append((statistics.median(built for built, _ in pairs), statistics.median(gone for _, gone in pairs)))
        together.append(_times(program, SMALL, LARGE // SMALL)[1])
        collected.append(_times(program, LARGE, collect=True)[0])
    (small, small_gone), (large, large_gone) = (
        [statistics.median(column) for column in zip(*found[units], strict=True)] for units in (SMALL, LARGE)
    )
    sizes = f"each of {LARGE:,} over each of {SMALL:,}"
    ratio = large_gone / statistics.median(together)
    return [
        Row(f"{name}: time to build {sizes}", large / small, floor=1.5, aim=1, less=True),
        Row(f"{name}: time to let go of {sizes}, as many alive", ratio, floor=1.5, aim=1, less=True),
        Row(f"{name}: build, us each", 1e6 * large),
        Row(f"{name}: build, us each, with the garbage collector", 1e6 * statistics.median(collected)),
        Row(f"{name}: let go of, us each", 1e6 * large_gone),
        Row(f"{name}: let go of, us each, {SMALL:,} alone", 1e6 * small_gone),
        Row(f"{name}: memory, bytes each", memory(program, LARGE)),
    ]


def run(rounds: int = 5) -> list[Row]:
    """Build all shapes at both sizes, and run one dataflow beside idle ones; return the rows of the report."""
    rows: list[Row] = []
    for name, program in SHAPES.items():
        rows += _growth(name, program, rounds)
    works: dict[str, Callable[[], float]] = {}
    for name, build in {"GraphBuilder, a loop": _graph, "GraphBuilder, sparse ports": _sparse_node}.items():
        for units in (SMALL, LARGE):
            works[f"{name}, {units}"] = lambda build=build, units=units: build(units)  # type: ignore[misc]
    medians = in_turn(works, rounds)
    for name in ("GraphBuilder, a loop", "GraphBuilder, sparse ports"):
        ratio = medians[f"{name}, {LARGE}"] / medians[f"{name}, {SMALL}"]
        rows.append(Row(f"{name}: time for each of {LARGE:,} over each of {SMALL:,}", ratio, floor=1.5, aim=1, less=True))
    rows += [_idle(idle, length, rounds) for idle, length in ((1_000, 10), (100, 1_000))]
    return rows + _side_by_side(rounds)
