"""Whole dataflows as data: what one computes by a sequential reference, and the real thing that must agree with it.

What the operators make of the records of a time depends on these records alone. So every schedule and every number of workers
must give the multisets of the reference (test T7).
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import attrs

import timely
from timely.operators import Capture
from timely.order import linear_extension
from timely.progress import ProductSummary, Step, time_domain
from timely.testing.random_dataflows.described import Described
from timely.testing.random_dataflows.operator_specs import (
    MODULUS,
    Advance,
    Concat,
    Cycle,
    Distinct,
    Filter,
    Input,
    Loop,
    Map,
    Operator,
    Repeat,
    Scoped,
    Shuffle,
    Simple,
    Total,
    record_wise,
)
from timely.testing.random_dataflows.reference_interpreter import Contents, at_most, interpret

Stream: TypeAlias = "timely.Stream[Any, Any]"


@attrs.frozen(repr=False)
class Sending(Described):
    """``records`` that one worker sends to an input (by its stream's number) at a time.

    >>> Dataflow((Input(),), (Sending(0, 0, 0, (7,)), Sending(0, 1, 2, (8, 8)))).run(workers=2)
    [{0: [7], 2: [8, 8]}]
    """

    stream: int
    worker: int
    time: Any
    records: tuple[int, ...]


@attrs.frozen(repr=False)
class Dataflow(Described):
    """Operators, each named by its place, and what is sent to their inputs, by workers counted modulo how many there are.

    >>> flow = Dataflow((Input(), Loop(0, (Map(0, shift=1),), rounds=2)), (Sending(0, 0, 3, (5,)),))
    >>> flow.reference()
    [{3: [5]}, {3: [6, 7, 8]}]
    >>> flow.run(workers=2) == flow.reference()
    True
    >>> eval(repr(flow)) == flow
    True
    """

    operators: tuple[Operator, ...]
    sendings: tuple[Sending, ...]
    time: Any = int

    def reference(self) -> list[dict[Any, list[int]]]:
        """Return what each stream carries, by the sequential reference: for each time that has any, the records, sorted."""
        sent: dict[int, Contents] = {}
        for sending in self.sendings:
            sent.setdefault(sending.stream, {}).setdefault(sending.time, Counter()).update(sending.records)
        return [_plain(contents) for contents in interpret(self.operators, self.time, [], sent)]

    def at_most(self) -> int:
        """Return an upper bound of how many records all operators make together, in every round of their loops.

        >>> Dataflow((Input(), Repeat(0, 2)), (Sending(0, 0, 0, (7, 8, 9)),)).at_most()
        9
        """
        sent = [0] * len(self.operators)
        for sending in self.sendings:
            sent[sending.stream] += len(sending.records)
        return at_most(self.operators, [], sent)[1]

    def run(self, workers: int = 1) -> list[dict[Any, list[int]]]:
        """Return what each stream carries in a real run, in the form of :meth:`reference`."""
        return self.merged(timely.execute(self.program, workers=workers))

    def program(self, worker: timely.Worker) -> list[dict[Any, list[int]]]:
        """Build the dataflow on a worker, send its share of the input, run to the end; return what it saw of each stream."""
        begun = self.begin(worker)
        worker.run()
        return begun.seen()

    def begin(self, worker: timely.Worker) -> Begun:
        """Build the dataflow on a worker and send its share of the input; the rest is to be run.

        Where times are totally ordered, records are sent by a :class:`~timely.InputHandle`, in order, with a step after each
        sending; otherwise by a source that holds a capability for each time at which it will send.

        >>> worker = timely.Worker()
        >>> begun = Dataflow((Input(), Map(0, 2)), (Sending(0, 0, 0, (7,)),)).begin(worker)
        >>> worker.run()
        >>> begun.seen()
        [{0: [7]}, {0: [14]}]
        """
        mine = [sending for sending in self.sendings if sending.worker % worker.peers == worker.index]
        total = time_domain(self.time).total
        handles: dict[int, timely.InputHandle[Any, int]] = {}
        with worker.dataflow(self.time, name="random") as scope:
            streams: list[Stream] = []
            for operator in self.operators:
                if not isinstance(operator, Input):
                    streams.append(_build(operator, scope, streams, 0))
                elif total:
                    handles[len(streams)], stream = scope.new_input()
                    streams.append(stream)
                else:
                    script = [sending for sending in mine if sending.stream == len(streams)]
                    streams.append(scope.source("input", functools.partial(_script, script)))
            captured = [stream.capture() for stream in streams]
        if total:
            _send(worker, mine, handles)
        return Begun(scope, captured)

    def merged(self, results: Sequence[list[dict[Any, list[int]]]]) -> list[dict[Any, list[int]]]:
        """Return what the workers have seen together, each as :meth:`program` returns it.

        >>> Dataflow((Input(),), ()).merged([[{0: [2]}], [{0: [1], 3: [4]}]])
        [{0: [1, 2], 3: [4]}]
        """
        sums: list[Contents] = [{} for _ in self.operators]
        for seen in results:
            for contents, stream in zip(sums, seen, strict=True):
                for time, records in stream.items():
                    contents.setdefault(time, Counter()).update(records)
        return [_plain(contents) for contents in sums]


@attrs.frozen
class Begun:
    """A dataflow that was begun on a worker: its scope, and what is captured of each stream."""

    scope: timely.ScopeBuilder[Any]
    captured: Sequence[Capture[Any, int]]

    def seen(self) -> list[dict[Any, list[int]]]:
        """Return what each stream has carried on this worker so far, in the form of :meth:`Dataflow.reference`."""
        return [dict(captured.extract()) for captured in self.captured]


def _plain(contents: Contents) -> dict[Any, list[int]]:
    return {time: sorted(contents[time].elements()) for time in linear_extension(contents) if contents[time]}


# -- sending -------------------------------------------------------------------------------------------------------------


def _send(worker: timely.Worker, sendings: Sequence[Sending], handles: dict[int, timely.InputHandle[Any, int]]) -> None:
    """Send everything in the order of its times, stepping in between, and close the inputs."""
    for time in linear_extension(dict.fromkeys(sending.time for sending in sendings)):
        for sending in sendings:
            if sending.time == time:
                handle = handles[sending.stream]
                handle.advance_to(time)
                for record in sending.records:
                    handle.send(record)
                worker.step()
    for handle in handles.values():
        handle.close()


def _script(sendings: Sequence[Sending], capability: Any, info: Any) -> Callable[..., object]:
    """Return the logic of a source that sends one thing in each activation, and holds no more than it needs for the rest."""
    script = [(capability.delayed(sending.time), sending.records) for sending in sendings]
    capability.drop()

    def logic(output: Any) -> None:
        if script:
            held, records = script.pop(0)
            with held, output.session(held) as session:
                session.give_many(records)
            info.activator.activate()

    return logic


# -- building ------------------------------------------------------------------------------------------------------------


def _build(operator: Operator, scope: Any, streams: Sequence[Stream], rounds: int) -> Stream:
    """Return the stream of an operator, built by the method that a user would call, ``rounds`` loops deep in its scope."""
    if isinstance(operator, Concat):
        return timely.operators.concatenate([streams[source] for source in operator.sources])
    if isinstance(operator, Input):
        raise timely.ConfigurationError("an Input stands in the dataflow itself, not in a nested scope")
    stream = streams[operator.source]
    if isinstance(operator, Advance):
        handle, moved = scope.feedback(_in_rounds(operator.summary, rounds))
        stream.connect_loop(handle)
        return cast("Stream", moved)
    if isinstance(operator, Cycle):
        handle, again = scope.feedback(_in_rounds(operator.summary, rounds))
        totals = _build(Total(0), scope, [stream.concat(again)], rounds)
        totals.filter(lambda total: total > 1).map(lambda total: total // 2).connect_loop(handle)
        return totals
    if isinstance(operator, Loop):
        return _build_loop(operator, scope, stream, rounds)
    if isinstance(operator, Scoped):
        with scope.scoped(operator.time) as inner:
            return _build_body(operator.body, inner, stream.enter(inner), 0).leave()
    return _build_simple(operator, stream)


def _in_rounds(summary: Any, rounds: int) -> Any:
    """Return a summary of the times of a scope as one of the times so many loops deep in it."""
    for _ in range(rounds):
        summary = ProductSummary(summary, Step(0))
    return summary


def _build_loop(operator: Loop, scope: Any, source: Stream, rounds: int) -> Stream:
    with scope.iterative() as loop:
        handle, again = loop.feedback(ProductSummary(time_domain(scope.time).identity, Step(1, limit=operator.rounds)))
        last = _build_body(operator.body, loop, source.enter(loop).concat(again), rounds + 1)
        last.connect_loop(handle)
        return last.leave()


def _build_body(body: Sequence[Operator], scope: Any, entered: Stream, rounds: int) -> Stream:
    """Return the last stream of a nested scope."""
    streams = [entered]
    for operator in body:
        streams.append(_build(operator, scope, streams, rounds))
    return streams[-1]


def _build_simple(operator: Simple, stream: Stream) -> Stream:
    if isinstance(operator, Map):
        return stream.map(lambda record: record_wise(operator, record)[0])
    if isinstance(operator, Filter):
        return stream.filter(lambda record: bool(record_wise(operator, record)))
    if isinstance(operator, Repeat):
        return stream.flat_map(lambda record: record_wise(operator, record))
    if isinstance(operator, Shuffle):
        return stream.exchange(lambda record: operator.factor * record)
    if isinstance(operator, Distinct):
        return stream.unary(timely.Exchange(lambda record: record), "distinct", _distinct)
    return stream.unary_notify(timely.Exchange(lambda record: 0), "total", [], _total())


def _distinct(capability: Any, info: Any) -> Callable[..., object]:
    seen: dict[Any, set[int]] = {}

    def logic(input: Any, output: Any) -> None:
        for cap, batch in input:
            known = seen.setdefault(cap.time, set())
            fresh = [record for record in dict.fromkeys(batch) if record not in known]
            known.update(fresh)
            output.session(cap).give_many(fresh)

    return logic


def _total() -> Callable[..., object]:
    sums: dict[Any, int] = {}

    def logic(input: Any, output: Any, notificator: Any) -> None:
        for cap, batch in input:
            sums[cap.time] = sums.get(cap.time, 0) + sum(batch)
            notificator.notify_at(cap.retain())
        for cap, _ in notificator:
            output.session(cap).give(sums.pop(cap.time) % MODULUS)

    return logic
