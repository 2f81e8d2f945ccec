"""The control plane: what progress tracking costs when there is little or no data.

One unit is the same work everywhere. ``barrier``: one operator in a feedback loop that asks for a notification at t+1 when it
is notified at t, without data; a unit is one iteration. ``nested``: the same inside an iterative scope, 50 inner iterations for
each outer one. ``event_driven``: a dataflow of an input, a region with a chain of operators, and a probe; a unit is one epoch:
perhaps one record, ``advance_to``, and steps until the probe has passed. ``pingpong``: one record travels round a loop with
an exchange in it; a unit is one round. ``frontier``: one pointstamp goes or comes among many at incomparable times.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import timely
from benchmarks.measure import REFERENCE_LOOP, YARDSTICK, in_turn
from benchmarks.report import Row
from timely import Capability, InputPort, Notificator, OperatorInfo, OutputPort, Pipeline, Product, Stream, Worker
from timely.progress import GraphBuilder, Source, Target

INNER = 50


def barrier(iterations: int) -> Callable[[Worker], float]:
    """Return the program: seconds per iteration, building not included."""

    def program(worker: Worker) -> float:
        with worker.dataflow() as scope:
            handle, again = scope.feedback()

            def logic(input: InputPort[int, None], output: OutputPort[int], notificator: Notificator[int]) -> None:
                for capability, _ in notificator:
                    if capability.time < iterations:
                        capability.downgrade(capability.time + 1)
                        notificator.notify_at(capability)

            again.unary_notify(Pipeline, "barrier", [0], logic).connect_loop(handle)
        return _run(worker, iterations)

    return program


def nested(iterations: int) -> Callable[[Worker], float]:
    """Return the program: one record goes round an outer loop, and starts ``INNER`` turns of an inner one each time.

    The inner turns are as in ``barrier``, without data; the record goes on when the last of them was notified.
    """

    def program(worker: Worker) -> float:
        last = iterations // INNER
        turns = [0]

        def logic(
            input: InputPort[Product[int, int], int],
            _: InputPort[Product[int, int], int],
            output: OutputPort[Product[int, int]],
            notificator: Notificator[Product[int, int]],
        ) -> None:
            for came_with, _batch in input:
                notificator.notify_at(came_with.retain())
            for capability, _count in notificator:
                turns[0] += 1
                epoch, turn = capability.time
                if turn < INNER - 1:
                    capability.downgrade(Product(epoch, turn + 1))
                    notificator.notify_at(capability)
                else:
                    output.session(capability).give(epoch)

        with worker.dataflow() as scope:
            outer_handle, outer = scope.feedback(timely.Step(1, limit=last - 1))
            records = scope.to_stream([0]).concat(outer)
            with scope.iterative() as loop:
                inner_handle, inner = loop.feedback()
                looped = records.enter(loop).binary_notify(inner, Pipeline, Pipeline, "barrier", [], logic)
                looped.filter(lambda _: False).connect_loop(inner_handle)
                left = looped.leave()
            left.connect_loop(outer_handle)
        seconds = _run(worker, iterations)
        assert turns[0] == iterations, f"{turns[0]} notifications instead of {iterations}"
        return seconds

    return program


def _run(worker: Worker, units: int) -> float:
    """Return seconds per unit: of this process's processor where the worker is alone, of the clock where it waits for peers."""
    clock = time.process_time if worker.peers == 1 else time.perf_counter
    start = clock()
    worker.run()
    return (clock() - start) / units


def event_driven(length: int, epochs: int, *, record: bool) -> Callable[[Worker], float]:
    """Return the program: seconds per epoch of a chain of ``length`` operators that are not fused."""

    def program(worker: Worker) -> float:
        with worker.dataflow() as scope:
            numbers, stream = scope.new_input()
            with scope.region() as region:
                chain: Stream[int, int] = stream.enter(region)
                for _ in range(length):
                    chain = chain.unary(Pipeline, "pass on", pass_on)
                probe = chain.leave().probe()
        while probe.less_than(0) or not worker.idle:
            worker.step()
        start = time.process_time()
        for epoch in range(1, epochs + 1):
            if record:
                numbers.send(epoch)
            numbers.advance_to(epoch)
            while probe.less_than(epoch):
                worker.step()
        seconds = (time.process_time() - start) / epochs
        numbers.close()
        worker.run()
        return seconds

    return program


def pass_on(capability: Capability[int], info: OperatorInfo) -> Callable[[InputPort[int, int], OutputPort[int]], None]:
    def logic(input: InputPort[int, int], output: OutputPort[int]) -> None:
        for capability, batch in input:
            output.session(capability).give_batch(batch)

    return logic


def pingpong(rounds: int) -> Callable[[Worker], float]:
    """Return the program: seconds per round of one record that is exchanged in each round."""

    def program(worker: Worker) -> float:
        with worker.dataflow() as scope:
            handle, again = scope.feedback(timely.Step(1, limit=rounds))
            start = scope.to_stream([0] if worker.index == 0 else [])
            start.concat(again).map(lambda x: x + 1).exchange(lambda x: x).connect_loop(handle)
        return _run(worker, rounds)

    return program


def crowded_frontier(times: int, rounds: int) -> float:
    """Return the seconds of one update of a place with so many incomparable times: one of them goes, or comes back."""
    graph: GraphBuilder[Product[int, int]] = GraphBuilder(Product[int, int])
    graph.add_node("sends", 0, 1, [])
    graph.add_node("observes", 1, 0, [[]])
    graph.add_edge(Source("sends", 0), Target("observes", 0))
    tracker = graph.build()
    place = Source("sends", 0)
    for number in range(times):
        tracker.update(place, Product(number, times - number), 1)
    assert len(tracker.propagate()) == times
    start = time.process_time()
    for number in range(rounds):
        chosen = Product(number % times, times - number % times)
        for diff in (-1, 1):
            tracker.update(place, chosen, diff)
            assert tracker.propagate() == [(Target("observes", 0), chosen, diff)]
    return (time.process_time() - start) / (2 * rounds)


def _alone(program: Callable[[Worker], float]) -> Callable[[], float]:
    return lambda: timely.execute(program)[0]


def _in_two_processes(program: Callable[[Worker], float]) -> Callable[[], float]:
    return lambda: max(timely.execute(program, processes=2))


def run(rounds: int = 5) -> list[Row]:
    """Run the four workloads and return the rows of the report, those with a bar first."""
    lengths = (10, 100, 1000)
    works = {
        "barrier": _alone(barrier(20_000)),
        "nested": _alone(nested(20_000)),
        "barrier, two processes": _in_two_processes(barrier(10_000)),
        "pingpong": _alone(pingpong(5_000)),
        "pingpong, two processes": _in_two_processes(pingpong(3_000)),
    }
    for length in lengths:
        works[f"event_driven 1x{length}, no record"] = _alone(event_driven(length, 5_000, record=False))
        works[f"event_driven 1x{length}, one record"] = _alone(event_driven(length, 20_000 // length, record=True))
    for times in (1, 100, 1000):
        works[f"frontier of {times}"] = lambda times=times: crowded_frontier(times, 1_000)  # type: ignore[misc]
    medians = in_turn(works, rounds)
    scale = REFERENCE_LOOP / medians[YARDSTICK]
    iterations = 1 / medians["barrier"]
    ratio = medians["event_driven 1x1000, no record"] / medians["event_driven 1x10, no record"]
    rows = [
        Row("empty loop, 10 M passes, s", medians[YARDSTICK], note="the yardstick"),
        Row("barrier, iterations/s", iterations, floor=150_000 * scale, aim=300_000 * scale, note="bars scaled by the yardstick"),
        Row("barrier, two processes, iterations/s", 1 / medians["barrier, two processes"], floor=10_000, aim=15_000),
        Row("nested x50, iterations/s", 1 / medians["nested"]),
        Row("nested against barrier, per iteration", medians["nested"] / medians["barrier"], floor=4, aim=2, less=True),
        Row("event_driven, no record: L=1000 over L=10", ratio, floor=1.5, aim=1.0, less=True),
        Row("pingpong, rounds/s", 1 / medians["pingpong"]),
        Row("pingpong, two processes, rounds/s", 1 / medians["pingpong, two processes"]),
    ]
    for times in (1, 100, 1000):
        rows.append(Row(f"one update of a frontier of {times:,} incomparable times, us", 1e6 * medians[f"frontier of {times}"]))
    growth = medians["frontier of 1000"] / medians["frontier of 100"]
    rows.append(Row("one update of a frontier: of 1,000 times over of 100", growth, floor=10, aim=5, less=True))
    for length in lengths:
        for kind in ("no record", "one record"):
            name = f"event_driven 1x{length}, {kind}"
            rows.append(Row(f"{name}, us/epoch", 1e6 * medians[name]))
    return rows
