"""Whole dataflows as data: what one computes by a sequential reference, and the real thing that must agree with it.

A :class:`Dataflow` is a sequence of operators, each of which reads streams made before it, and what is sent to its inputs at
which times. The reference interpreter knows nothing of workers, frontiers or batches: it takes each operator in turn and all
the records of each time together, and goes through a loop round by round (test T7). The invariant: what the operators make of
the records of a time depends on these records alone, so that every schedule and every number of workers must give the
reference's multisets. A caller may run :meth:`Dataflow.program` wherever a program runs: in ``timely.execute``, on simulated
workers, on Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import attrs

import timely
from timely.order import linear_extension
from timely.progress import ProductSummary, Step, time_domain
from timely.testing.code import Described

MODULUS = 101
"""Records are numbers below it."""

Contents: TypeAlias = dict[Any, Counter[int]]
"""What a stream carries: for each time, how often each record."""

Stream: TypeAlias = "timely.Stream[Any, Any]"


@attrs.frozen(repr=False)
class Input(Described):
    """A stream of what is sent from outside."""


@attrs.frozen(repr=False)
class Map(Described):
    """``x`` becomes ``factor * x + shift``, modulo ``MODULUS``."""

    source: int
    factor: int = 1
    shift: int = 0


@attrs.frozen(repr=False)
class Filter(Described):
    """Only what ``divisor`` does not divide goes through."""

    source: int
    divisor: int = 2


@attrs.frozen(repr=False)
class Repeat(Described):
    """Each record goes through as it is, and ``count - 1`` successors of it as well (a ``flat_map``)."""

    source: int
    count: int = 2


@attrs.frozen(repr=False)
class Shuffle(Described):
    """Each record goes to a worker that depends on it (an ``exchange``)."""

    source: int
    factor: int = 1


@attrs.frozen(repr=False)
class Concat(Described):
    """All that several streams carry."""

    sources: tuple[int, ...]


@attrs.frozen(repr=False)
class Distinct(Described):
    """Each record once for each time, as soon as it comes: an operator with state that is kept by time."""

    source: int


@attrs.frozen(repr=False)
class Total(Described):
    """The sum of each time's records, modulo ``MODULUS``, as soon as the time is complete: an operator that is notified."""

    source: int


@attrs.frozen(repr=False)
class Loop(Described):
    """A loop: stream 0 in ``body`` is ``source`` and what comes round; its last stream goes round ``rounds`` times, and out."""

    source: int
    body: tuple[Operator, ...]
    rounds: int = 1


Operator: TypeAlias = Input | Map | Filter | Repeat | Shuffle | Concat | Distinct | Total | Loop


@attrs.frozen(repr=False)
class Sending(Described):
    """``records`` that one worker sends to an input (by its stream's number) at a time."""

    stream: int
    worker: int
    time: int
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

    def reference(self) -> list[dict[Any, list[int]]]:
        """Return what each stream carries, by the sequential reference: for each time that has any, the records, sorted."""
        sent: dict[int, Contents] = {}
        for sending in self.sendings:
            sent.setdefault(sending.stream, {}).setdefault(sending.time, Counter()).update(sending.records)
        return [_plain(contents) for contents in _interpret(self.operators, [], sent)]

    def at_most(self) -> int:
        """Return an upper bound of how many records all operators make together, in every round of their loops.

        >>> Dataflow((Input(), Repeat(0, 2)), (Sending(0, 0, 0, (7, 8, 9)),)).at_most()
        9
        """
        sent = [0] * len(self.operators)
        for sending in self.sendings:
            sent[sending.stream] += len(sending.records)
        return _at_most(self.operators, [], sent)[1]

    def run(self, workers: int = 1) -> list[dict[Any, list[int]]]:
        """Return what each stream carries in a real run, in the form of :meth:`reference`."""
        return self.merged(timely.execute(self.program, workers=workers))

    def program(self, worker: timely.Worker) -> list[dict[Any, list[int]]]:
        """Build the dataflow on a worker, send its share of the input, run to the end; return what it saw of each stream."""
        inputs: dict[int, timely.InputHandle[int, int]] = {}
        with worker.dataflow(int, name="random") as scope:
            streams: list[Stream] = []
            _build(self.operators, scope, streams, inputs)
            seen = [stream.capture() for stream in streams]
        mine = [sending for sending in self.sendings if sending.worker % worker.peers == worker.index]
        for sending in sorted(mine, key=lambda sending: sending.time):
            handle = inputs[sending.stream]
            handle.advance_to(sending.time)
            for record in sending.records:
                handle.send(record)
            worker.step()
        for handle in inputs.values():
            handle.close()
        worker.run()
        return [dict(captured.extract()) for captured in seen]

    def merged(self, results: Sequence[list[dict[Any, list[int]]]]) -> list[dict[Any, list[int]]]:
        """Return what the workers have seen together, each as :meth:`program` returns it.

        >>> Dataflow((Input(),), ()).merged([[{0: [2]}], [{0: [1], 3: [4]}]])
        [{0: [1, 2], 3: [4]}]
        """
        found: list[Contents] = [{} for _ in self.operators]
        for seen in results:
            for contents, stream in zip(found, seen, strict=True):
                for time, records in stream.items():
                    contents.setdefault(time, Counter()).update(records)
        return [_plain(contents) for contents in found]


def _plain(contents: Contents) -> dict[Any, list[int]]:
    return {time: sorted(contents[time].elements()) for time in linear_extension(contents) if contents[time]}


# -- the reference -------------------------------------------------------------------------------------------------------


def _interpret(operators: Sequence[Operator], entered: list[Contents], sent: dict[int, Contents]) -> list[Contents]:
    """Return what each stream carries, first those that were there before."""
    streams = list(entered)
    for operator in operators:
        if isinstance(operator, Input):
            streams.append(sent.get(len(streams), {}))
        elif isinstance(operator, Concat):
            streams.append(_together([streams[source] for source in operator.sources]))
        elif isinstance(operator, Loop):
            streams.append(_go_round(operator, streams[operator.source]))
        else:
            streams.append({time: _made(operator, records) for time, records in streams[operator.source].items()})
    return streams


def _together(streams: Sequence[Contents]) -> Contents:
    found: Contents = {}
    for stream in streams:
        for time, records in stream.items():
            found.setdefault(time, Counter()).update(records)
    return found


def _at_most(operators: Sequence[Operator], entering: list[int], sent: Sequence[int]) -> tuple[list[int], int]:
    """Return how many records each stream can have, given those that enter, and how many all of them are, loops unrolled."""
    sizes, work = list(entering), 0
    for place, operator in enumerate(operators):
        if isinstance(operator, Input):
            made = sent[place]
        elif isinstance(operator, Concat):
            made = sum(sizes[source] for source in operator.sources)
        elif isinstance(operator, Loop):
            made, going = 0, sizes[operator.source]
            for _ in range(operator.rounds + 1):
                inside, cost = _at_most(operator.body, [going], [])
                going = inside[-1]
                made += going
                work += cost
        else:
            made = sizes[operator.source] * (operator.count if isinstance(operator, Repeat) else 1)
        sizes.append(made)
        work += made
    return sizes, work


def _go_round(loop: Loop, entering: Contents) -> Contents:
    rounds: list[Contents] = []
    for _ in range(loop.rounds + 1):
        entering = _interpret(loop.body, [entering], {})[-1]
        rounds.append(entering)
    return _together(rounds)


def _made(operator: Map | Filter | Repeat | Shuffle | Distinct | Total, records: Counter[int]) -> Counter[int]:
    """Return what an operator makes of all the records of a time."""
    if isinstance(operator, Shuffle):
        return records
    if isinstance(operator, Distinct):
        return Counter(dict.fromkeys(+records, 1))
    if isinstance(operator, Total):
        present = list(records.elements())
        return Counter([sum(present) % MODULUS] if present else [])
    return Counter(made for record in records.elements() for made in _record_wise(operator, record))


def _record_wise(operator: Map | Filter | Repeat, record: int) -> list[int]:
    if isinstance(operator, Map):
        return [(operator.factor * record + operator.shift) % MODULUS]
    if isinstance(operator, Filter):
        return [record] if record % operator.divisor else []
    return [(record + n) % MODULUS for n in range(operator.count)]


# -- the dataflow --------------------------------------------------------------------------------------------------------


def _build(
    operators: Sequence[Operator], scope: Any, streams: list[Stream], inputs: dict[int, timely.InputHandle[int, int]]
) -> None:
    """Add a stream for each operator to ``streams``."""
    for operator in operators:
        if isinstance(operator, Input):
            inputs[len(streams)], stream = scope.new_input()
            streams.append(stream)
        elif isinstance(operator, Concat):
            streams.append(timely.operators.concatenate([streams[source] for source in operator.sources]))
        elif isinstance(operator, Loop):
            streams.append(_build_loop(operator, scope, streams[operator.source]))
        else:
            streams.append(_build_simple(operator, streams[operator.source]))


def _build_loop(operator: Loop, scope: Any, source: Stream) -> Stream:
    with scope.iterative() as loop:
        handle, again = loop.feedback(ProductSummary(time_domain(scope.time).identity, Step(1, limit=operator.rounds)))
        streams = [source.enter(loop).concat(again)]
        _build(operator.body, loop, streams, {})
        streams[-1].connect_loop(handle)
        return streams[-1].leave()


def _build_simple(operator: Map | Filter | Repeat | Shuffle | Distinct | Total, stream: Stream) -> Stream:
    """Build an operator by the method that a user would call."""
    if isinstance(operator, Map):
        return stream.map(lambda record: _record_wise(operator, record)[0])
    if isinstance(operator, Filter):
        return stream.filter(lambda record: bool(_record_wise(operator, record)))
    if isinstance(operator, Repeat):
        return stream.flat_map(lambda record: _record_wise(operator, record))
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
