"""How much workers tell each other of their progress: counted for four dataflows, in three rhythms, and for ways to add it up.

The workers are real; the counts depend on no clock. *barrier*: one operator in a loop that goes on by notifications.
*exchange*: a loop in which each worker sends every worker a record in each iteration, as PageRank does. *epochs*: an input, an
exchange and a probe; each worker sends one record an epoch. *nested*: the barrier in an inner loop of ten iterations. What was
found with few workers is compared with more of them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs

import timely
from benchmarks.plot import Curve, plot
from benchmarks.progress_traffic import Counted, Drive, lockstep, model, scattered
from benchmarks.report import Row
from timely import Exchange, InputPort, Notificator, OutputPort, Pipeline, Product, Step, Worker
from timely.progress import ProgressGroups
from timely.progress.exchange import FAN_OUT

INNER = 10
SIZES = tuple(2**k for k in range(1, 11))


# -- the dataflows -----------------------------------------------------------------------------------------------------


def barrier(worker: Worker) -> Drive:
    """One operator in a loop, without records."""
    done = [0]
    with worker.dataflow() as scope:
        handle, again = scope.feedback()

        def logic(input: InputPort[int, None], output: OutputPort[int], notificator: Notificator[int]) -> None:
            for capability, _ in notificator:
                done[0] += 1
                capability.downgrade(capability.time + 1)
                notificator.notify_at(capability)

        again.unary_notify(Pipeline, "barrier", [0], logic).connect_loop(handle)
    return lambda: done[0]


def exchange(worker: Worker) -> Drive:
    """A loop in which every worker sends every worker a record in each iteration."""
    done = [0]
    with worker.dataflow() as scope:
        handle, again = scope.feedback()

        def logic(input: InputPort[int, int], output: OutputPort[int], notificator: Notificator[int]) -> None:
            for came_with, _ in input:
                notificator.notify_at(came_with.retain())
            for capability, _count in notificator:
                done[0] = capability.time + 1
                output.session(capability).give_many(range(worker.peers))

        again.unary_notify(Exchange(lambda x: x), "rank", [0], logic).connect_loop(handle)
    return lambda: done[0]


def epochs(worker: Worker) -> Drive:
    """An input, an exchange and a probe; one record of each worker in each epoch."""
    with worker.dataflow() as scope:
        numbers, stream = scope.new_input()
        probe = stream.exchange(lambda x: x).probe()

    def drive() -> int:
        if not probe.less_than(numbers.time):
            numbers.send(worker.index + numbers.time)
            numbers.advance_to(numbers.time + 1)
        return numbers.time

    return drive


def nested(worker: Worker) -> Drive:
    """The barrier in a loop of ten iterations, in a loop."""
    done = [0]
    with worker.dataflow() as scope:
        numbers, stream = scope.new_input()
        with scope.iterative() as loop:
            handle, again = loop.feedback()

            def logic(
                input: InputPort[Product[int, int], int],
                _: InputPort[Product[int, int], int],
                output: OutputPort[Product[int, int]],
                notificator: Notificator[Product[int, int]],
            ) -> None:
                for came_with, _batch in input:
                    notificator.notify_at(came_with.retain())
                for capability, _count in notificator:
                    done[0] += 1
                    epoch, turn = capability.time
                    if turn < INNER - 1:
                        capability.downgrade(Product(epoch, turn + 1))
                        notificator.notify_at(capability)

            looped = stream.enter(loop).binary_notify(again, Pipeline, Pipeline, "barrier", [], logic)
            looped.filter(lambda _: False).connect_loop(handle)
            probe = looped.leave().probe()

    def drive() -> int:
        if not probe.less_than(numbers.time):
            numbers.send(0)
            numbers.advance_to(numbers.time + 1)
        return done[0]

    return drive


DATAFLOWS: dict[str, Callable[[Worker], Drive]] = {"barrier": barrier, "exchange": exchange, "epochs": epochs, "nested": nested}


# -- what progress costs -----------------------------------------------------------------------------------------------


@attrs.frozen
class Cost:
    """What one worker sends to one other in one iteration: batches, changes, and bytes of frames."""

    batches: float
    changes: float
    bytes: float

    @classmethod
    def of(cls, counted: Counted, workers: int) -> Cost:
        """Return the mean over workers, peers and iterations."""
        pairs, found = counted.iterations * workers * (workers - 1), counted.traffic
        return cls(found.messages / pairs, found.updates / pairs, found.bytes / pairs)


def cost(name: str, workers: int) -> tuple[Cost, float]:
    """Return what an iteration of a dataflow costs with so many workers, and how many steps it takes."""
    first, last = (INNER, 3 * INNER) if name == "nested" else (3, 7)
    counted = lockstep(DATAFLOWS[name], ProgressGroups.direct(workers), first, last)
    return Cost.of(counted, workers), counted.turns / counted.iterations


def cost_scattered(name: str, workers: int) -> Cost:
    """Return what an iteration costs where every message arrives by itself, and is answered before the next."""
    first, last = (2, 4) if name == "exchange" else (INNER, 4 * INNER)
    return Cost.of(scattered(DATAFLOWS[name], ProgressGroups.direct(workers), first, last), workers)


def scattered_rows(sizes: tuple[int, ...] = (4, 8, 16), check: int = 32) -> list[Row]:
    """Count the other extreme, and compare the straight line through the last two sizes with ``check`` workers."""
    rows = []
    for name in DATAFLOWS:
        found = {workers: cost_scattered(name, workers) for workers in (*sizes, check)}
        for workers, each in found.items():
            shown = f"{each.batches:.3g} batches, {each.changes:.3g} changes"
            rows.append(Row(f"{name}, {workers} workers, scattered: bytes to each peer per iteration", each.bytes, note=shown))
        (low, less), (high, more) = ((workers, found[workers].bytes) for workers in sizes[-2:])
        line = more + (more - less) / (high - low) * (check - high)
        rows.append(Row(f"{name}, {check} workers, scattered: counted over the line through fewer", found[check].bytes / line))
    return rows


def traffic_rows(largest: int = 32, check: int = 128) -> list[Row]:
    """Count the four dataflows, and compare what was found with ``largest`` workers with ``check`` of them."""
    rows = []
    for name in DATAFLOWS:
        sizes = [2**k for k in range(1, largest.bit_length())]
        costs = {workers: cost(name, workers) for workers in sizes}
        for workers, (each, steps) in costs.items():
            shown = f"{each.batches:.3g} batches, {each.changes:.3g} changes, {steps:.3g} steps"
            rows.append(Row(f"{name}, {workers} workers: bytes to each peer per iteration", each.bytes, note=shown))
        fitted = costs[largest][0].bytes
        beyond = cost(name, check)[0].bytes
        rows.append(Row(f"{name}, {check} workers counted over {largest} workers counted", beyond / fitted))
    return rows


def freely(workers: int, iterations: int = 50) -> float:
    """Return how many batches a worker sends each peer in an iteration of *exchange*, where workers are processes."""

    def program(worker: Worker) -> int:
        with worker.dataflow() as scope:
            handle, again = scope.feedback(Step(1, limit=iterations))

            def logic(input: InputPort[int, int], output: OutputPort[int], notificator: Notificator[int]) -> None:
                for came_with, _ in input:
                    notificator.notify_at(came_with.retain())
                for capability, _count in notificator:
                    output.session(capability).give_many(range(worker.peers))

            again.unary_notify(Exchange(lambda x: x), "rank", [0], logic).connect_loop(handle)
        said = scope.exchange
        assert said is not None
        batches = 0
        while worker.run_step():
            batches = said._sequence
        return batches

    return sum(timely.execute(program, processes=workers)) / workers / iterations


def freely_rows(sizes: tuple[int, ...] = (2, 4, 8)) -> list[Row]:
    """Count what lies between the two extremes, which depends on the machine."""
    return [Row(f"exchange, {workers} processes: batches to each peer per iteration", freely(workers)) for workers in sizes]


# -- modes -------------------------------------------------------------------------------------------------------------

EACH = 8


@attrs.frozen
class Shape:
    """ProgressGroups for any number of workers, and how many of those are in a process."""

    name: str
    routes: Callable[[int], ProgressGroups]
    each: Callable[[int], int]

    def model(self, workers: int, first: int, last: int) -> Counted:
        """Return what an iteration of the barrier costs in this shape."""
        return model(self.routes(workers), first, last, self.each(workers))


def _one(workers: int) -> int:
    return 1


def _several(workers: int) -> int:
    return min(EACH, workers)


SHAPES = (
    Shape("direct", ProgressGroups.direct, _one),
    Shape(f"process, {EACH} in each", lambda workers: ProgressGroups.process(workers, _several(workers)), _several),
    Shape("central", ProgressGroups.central, _one),
    Shape(f"central, {EACH} in each", lambda workers: ProgressGroups.central(workers, _several(workers)), _several),
    Shape(f"tree of {FAN_OUT}", lambda workers: ProgressGroups.tree(workers, FAN_OUT), _one),
    Shape(
        f"tree of {FAN_OUT}, {EACH} in each",
        lambda workers: ProgressGroups.tree(workers, FAN_OUT, _several(workers)),
        _several,
    ),
)


def shapes(sizes: tuple[int, ...] = SIZES) -> dict[str, list[tuple[int, Counted]]]:
    """Return for each shape, for so many workers, what an iteration of the barrier takes."""
    return {shape.name: [(workers, shape.model(workers, 2, 4)) for workers in sizes] for shape in SHAPES}


def mode_rows(sizes: tuple[int, ...] = (8, 64, 1024), real: int = 64) -> list[Row]:
    """Return the table of the modes for an iteration of the barrier, and of dataflows with so many real workers in step."""
    rows = []
    for shape in SHAPES:
        for workers in sizes:
            rows.append(_mode_row(f"barrier, {shape.name}, {workers} workers", shape.model(workers, 2, 4)))
        for name, first, last in (("exchange", 3, 5), ("nested", INNER, 3 * INNER)):
            counted = lockstep(DATAFLOWS[name], shape.routes(real), first, last, shape.each(real))
            rows.append(_mode_row(f"{name}, {shape.name}, {real} workers", counted))
    return rows


def _mode_row(name: str, counted: Counted) -> Row:
    messages, turns, busiest = (n / counted.iterations for n in (counted.traffic.messages, counted.turns, counted.busiest))
    note = f"{messages:,.0f} messages, {turns:.3g} turns, {busiest:,.0f} messages at the busiest worker"
    return Row(f"{name}: bytes per iteration", counted.traffic.bytes / counted.iterations, note=note)


def draw(folder: Path) -> None:
    """Draw the bytes and the messages of the modes, and the messages of their busiest worker."""
    found = shapes()
    pictures: dict[str, tuple[str, Callable[[Counted], float]]] = {
        "bytes": ("bytes of progress between processes", lambda counted: counted.traffic.bytes),
        "messages": ("messages of progress between processes", lambda counted: counted.traffic.messages),
        "busiest": ("messages of progress at the busiest worker", lambda counted: counted.busiest),
        "turns": ("messages in a row", lambda counted: counted.turns),
    }
    for what, (title, value) in pictures.items():
        curves = [
            Curve(name, [(workers, value(counted) / counted.iterations) for workers, counted in points if value(counted)])
            for name, points in found.items()
        ]
        picture = plot(f"Barrier: {title} per iteration, by number of workers", curves)
        (folder / f"progress-{what}.svg").write_text(picture, encoding="utf-8")
