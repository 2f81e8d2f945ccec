"""Random dataflows over a type of times, each with the result that it must have: made by ``dataflows``.

An operator is data: how a user would build it, and what it makes by a sequential reference, without workers, frontiers or
batches. Invariant: what it makes of the records of a time depends on these records alone. So every schedule and every number of
workers must give the multisets of the reference (test T7), for every type of times that obeys the laws.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias, cast, get_args, get_origin

import attrs
from hypothesis import reject
from hypothesis import strategies as st

import timely
from timely.operators import Capture
from timely.order import linear_extension
from timely.progress import ProductSummary, Step, refinement, time_domain
from timely.testing.strategies import TimeKit, time_kit

__all__ = [
    "Advance",
    "Begun",
    "Concat",
    "Cycle",
    "Dataflow",
    "Described",
    "Distinct",
    "Filter",
    "Input",
    "Loop",
    "Map",
    "Repeat",
    "Scoped",
    "Sending",
    "Shuffle",
    "Total",
    "dataflows",
]

Stream: TypeAlias = "timely.Stream[Any, Any]"

Contents: TypeAlias = dict[Any, Counter[int]]
"""What a stream carries: for each time, how often each record."""

Records: TypeAlias = list[dict[Any, list[int]]]
"""What each stream carries: for each time that has any, the records, sorted."""

MODULUS: Final = 101
"""Records are whole numbers below it."""

MOST_RECORDS: Final = 300
"""How many records a stream has at most: loops in loops could multiply them without end."""


class Described:
    """A base of value classes (attrs): ``repr`` is the call that makes the value, without arguments that are as by default.

    A product is written ``Product(0, 1)``, not ``(0, 1)``, which is a tuple and has another order.

    >>> from timely.order import Product
    >>> @attrs.frozen(repr=False)
    ... class Window(Described):
    ...     start: Product
    ...     kind: type
    ...     size: int = 1
    >>> Window(Product(0, 5), int), Window(Product(0, 5), Product[int, int], 3)
    (Window(Product(0, 5), int), Window(Product(0, 5), Product[int, int], 3))
    """

    __slots__ = ()

    def __repr__(self) -> str:
        arguments: list[str] = []
        skipped = False
        cls: Any = type(self)  # of attrs, as those derived from this one are
        for field in attrs.fields(cls):
            content = getattr(self, field.name)
            if field.default is not attrs.NOTHING and content == field.default:
                skipped = True
            else:
                arguments.append(f"{field.name}={_code(content)}" if skipped else _code(content))
        return f"{type(self).__name__}({', '.join(arguments)})"


def _code(value: Any) -> str:
    """Return an expression for a value; for a time of one's own it is its ``repr``."""
    origin = get_origin(value)
    if origin is not None:
        return f"{_code(origin)}[{_listed(get_args(value))}]"
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return f"{type(value).__name__}({_listed(value)})"
    if type(value) is tuple:
        return f"({_listed(value)},)" if len(value) == 1 else f"({_listed(value)})"
    return repr(value)


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(map(_code, values))


# -- operators -----------------------------------------------------------------------------------------------------------


class OperatorSpec(Described):
    """An operator as data, which reads streams that were made before it, named by their places."""

    __slots__ = ()

    def build(self, scope: Any, streams: Sequence[Stream], rounds: int) -> Stream:
        """Return its stream, built by the method that a user would call, ``rounds`` loops deep in its scope."""
        raise NotImplementedError

    def result(self, time: Any, streams: Sequence[Contents]) -> Contents:
        """Return what its stream carries by the reference, in a scope with times of type ``time``."""
        raise NotImplementedError


@attrs.frozen(repr=False)
class Input(OperatorSpec):
    """A stream of what is sent from outside.

    >>> Dataflow((Input(),), (Sending(0, 0, 3, (7, 5)),)).run()
    [{3: [5, 7]}]
    """

    def build(self, scope: Any, streams: Sequence[Stream], rounds: int) -> Stream:
        raise timely.ConfigurationError("an Input stands in the dataflow itself, not in a nested scope")


@attrs.frozen(repr=False)
class Concat(OperatorSpec):
    """All that several streams carry.

    >>> Dataflow((Input(), Concat((0, 0))), (Sending(0, 0, 0, (7,)),)).run()[1]
    {0: [7, 7]}
    """

    sources: tuple[int, ...]

    def build(self, scope: Any, streams: Sequence[Stream], rounds: int) -> Stream:
        return timely.operators.concatenate([streams[source] for source in self.sources])

    def result(self, time: Any, streams: Sequence[Contents]) -> Contents:
        return _together(streams[source] for source in self.sources)


@attrs.frozen(repr=False)
class _Reader(OperatorSpec):
    """Reads one stream."""

    source: int

    def build(self, scope: Any, streams: Sequence[Stream], rounds: int) -> Stream:
        return self._built(scope, streams[self.source], rounds)

    def result(self, time: Any, streams: Sequence[Contents]) -> Contents:
        return self._made(time, streams[self.source])

    def _built(self, scope: Any, stream: Stream, rounds: int) -> Stream:
        raise NotImplementedError

    def _made(self, time: Any, contents: Contents) -> Contents:
        return {at: self._of_time(records) for at, records in contents.items()}

    def _of_time(self, records: Counter[int]) -> Counter[int]:
        """Return what it makes of all the records of a time."""
        return Counter(made for record in records.elements() for made in self._of(record))

    def _of(self, record: int) -> list[int]:
        raise NotImplementedError


@attrs.frozen(repr=False)
class Map(_Reader):
    """``x`` becomes ``factor * x + shift``, modulo ``MODULUS``.

    >>> Dataflow((Input(), Map(0, 2, 1)), (Sending(0, 0, 0, (3, 50)),)).run()[1]
    {0: [0, 7]}
    """

    factor: int = 1
    shift: int = 0

    def _built(self, scope: Any, stream: Stream, rounds: int) -> Stream:
        return stream.map(lambda record: self._of(record)[0])

    def _of(self, record: int) -> list[int]:
        return [(self.factor * record + self.shift) % MODULUS]


@attrs.frozen(repr=False)
class Filter(_Reader):
    """Only what ``divisor`` does not divide goes through.

    >>> Dataflow((Input(), Filter(0, 3)), (Sending(0, 0, 0, (2, 3, 4)),)).run()[1]
    {0: [2, 4]}
    """

    divisor: int = 2

    def _built(self, scope: Any, stream: Stream, rounds: int) -> Stream:
        return stream.filter(lambda record: bool(self._of(record)))

    def _of(self, record: int) -> list[int]:
        return [record] if record % self.divisor else []


@attrs.frozen(repr=False)
class Repeat(_Reader):
    """Each record goes through as it is, and ``count - 1`` successors of it as well (a ``flat_map``).

    >>> Dataflow((Input(), Repeat(0, 3)), (Sending(0, 0, 0, (7,)),)).run()[1]
    {0: [7, 8, 9]}
    """

    count: int = 2

    def _built(self, scope: Any, stream: Stream, rounds: int) -> Stream:
        return stream.flat_map(self._of)

    def _of(self, record: int) -> list[int]:
        return [(record + n) % MODULUS for n in range(self.count)]


@attrs.frozen(repr=False)
class Shuffle(_Reader):
    """Each record goes to a worker that depends on it (an ``exchange``).

    >>> Dataflow((Input(), Shuffle(0)), (Sending(0, 0, 0, (7, 8)),)).run(workers=2)[1]
    {0: [7, 8]}
    """

    factor: int = 1

    def _built(self, scope: Any, stream: Stream, rounds: int) -> Stream:
        return stream.exchange(lambda record: self.factor * record)

    def _of_time(self, records: Counter[int]) -> Counter[int]:
        return records


@attrs.frozen(repr=False)
class Distinct(_Reader):
    """Each record once for each time, as soon as it comes: an operator with state that is kept by time.

    >>> Dataflow((Input(), Distinct(0)), (Sending(0, 0, 0, (7, 7)), Sending(0, 1, 1, (7,)))).run(workers=2)[1]
    {0: [7], 1: [7]}
    """

    def _built(self, scope: Any, stream: Stream, rounds: int) -> Stream:
        return stream.unary(timely.Exchange(lambda record: record), "distinct", _distinct)

    def _of_time(self, records: Counter[int]) -> Counter[int]:
        return Counter(dict.fromkeys(+records, 1))


def _distinct(capability: Any, info: Any) -> Callable[..., object]:
    seen: dict[Any, set[int]] = {}

    def logic(input: Any, output: Any) -> None:
        for cap, batch in input:
            known = seen.setdefault(cap.time, set())
            fresh = [record for record in dict.fromkeys(batch) if record not in known]
            known.update(fresh)
            output.session(cap).give_many(fresh)

    return logic


@attrs.frozen(repr=False)
class Total(_Reader):
    """The sum of each time's records, modulo ``MODULUS``, as soon as the time is complete: an operator that is notified.

    >>> Dataflow((Input(), Total(0)), (Sending(0, 0, 0, (1, 2)), Sending(0, 1, 0, (3,)))).run(workers=2)[1]
    {0: [6]}
    """

    def _built(self, scope: Any, stream: Stream, rounds: int) -> Stream:
        return stream.unary_notify(timely.Exchange(lambda record: 0), "total", [], _total())

    def _of_time(self, records: Counter[int]) -> Counter[int]:
        present = list(records.elements())
        return Counter([sum(present) % MODULUS] if present else [])


def _total() -> Callable[..., object]:
    sums: dict[Any, int] = {}

    def logic(input: Any, output: Any, notificator: Any) -> None:
        for cap, batch in input:
            sums[cap.time] = sums.get(cap.time, 0) + sum(batch)
            notificator.notify_at(cap.retain())
        for cap, _ in notificator:
            output.session(cap).give(sums.pop(cap.time) % MODULUS)

    return logic


@attrs.frozen(repr=False)
class Advance(_Reader):
    """All that comes moves along a path: from its time to what ``summary`` makes of that, and nowhere if that is None.

    >>> from timely import Step
    >>> Dataflow((Input(), Advance(0, Step(2, limit=6))), (Sending(0, 0, 3, (7,)), Sending(0, 0, 5, (8,)))).run()[1]
    {5: [7]}
    """

    summary: Any

    def _built(self, scope: Any, stream: Stream, rounds: int) -> Stream:
        handle, moved = scope.feedback(_in_rounds(self.summary, rounds))
        stream.connect_loop(handle)
        return cast("Stream", moved)

    def _made(self, time: Any, contents: Contents) -> Contents:
        return _moved(contents, self.summary.results_in)


@attrs.frozen(repr=False)
class Cycle(_Reader):
    """The sum of each time's records; and half of it goes round, at a time that is later by ``summary``, as long as there is any.

    A cycle in the scope's own times, with an operator on it that is notified: it gives a sum too early if a frontier passes too
    early, and none if one never passes.

    >>> from timely import Step
    >>> Dataflow((Input(), Cycle(0, Step(1))), (Sending(0, 0, 0, (4, 4)), Sending(0, 1, 1, (1,)))).run(workers=2)[1]
    {0: [8], 1: [5], 2: [2], 3: [1]}
    """

    summary: Any

    def _built(self, scope: Any, stream: Stream, rounds: int) -> Stream:
        handle, again = scope.feedback(_in_rounds(self.summary, rounds))
        totals = Total(0).build(scope, [stream.concat(again)], rounds)
        totals.filter(lambda total: total > 1).map(lambda total: total // 2).connect_loop(handle)
        return totals

    def _made(self, time: Any, contents: Contents) -> Contents:
        """Go round: a minimal time of those that are left is complete, as whatever comes round comes later."""
        waiting, halved = _together([contents]), Contents()
        while waiting:
            at = linear_extension(waiting)[0]
            totals = halved[at] = Total(0)._of_time(waiting.pop(at))
            later = self.summary.results_in(at)
            if later is not None:
                waiting = _together([waiting, {later: Counter(total // 2 for total in totals if total > 1)}])
                waiting = {left: records for left, records in waiting.items() if records}
        return halved


@attrs.frozen(repr=False)
class Loop(_Reader):
    """A loop: stream 0 in ``body`` is ``source`` and what comes round; its last stream goes round ``rounds`` times, and out.

    >>> Dataflow((Input(), Loop(0, (Map(0, 2),), 2)), (Sending(0, 0, 0, (3,)),)).run()[1]
    {0: [6, 12, 24]}
    """

    body: tuple[OperatorSpec, ...]
    rounds: int = 1

    def _built(self, scope: Any, stream: Stream, rounds: int) -> Stream:
        with scope.iterative() as loop:
            handle, again = loop.feedback(ProductSummary(time_domain(scope.time).identity, Step(1, limit=self.rounds)))
            last = _build_body(self.body, loop, stream.enter(loop).concat(again), rounds + 1)
            last.connect_loop(handle)
            return last.leave()

    def _made(self, time: Any, contents: Contents) -> Contents:
        rounds = [contents]
        for _ in range(self.rounds + 1):
            rounds.append(_result_of_body(self.body, time, rounds[-1]))
        return _together(rounds[1:])


@attrs.frozen(repr=False)
class Scoped(_Reader):
    """A scope whose times, of type ``time``, refine those around: stream 0 in ``body`` is what enters, the last one leaves.

    Not for the body of a :class:`Loop`, whose times are pairs.

    >>> from timely import Product, ProductSummary, Step
    >>> inside = Scoped(0, Product[int, int], (Cycle(0, ProductSummary(Step(0), Step(1))),))
    >>> Dataflow((Input(), inside), (Sending(0, 0, 5, (3,)),)).run()[1]
    {5: [1, 3]}
    """

    time: Any
    body: tuple[OperatorSpec, ...]

    def _built(self, scope: Any, stream: Stream, rounds: int) -> Stream:
        with scope.scoped(self.time) as inner:
            return _build_body(self.body, inner, stream.enter(inner), 0).leave()

    def _made(self, time: Any, contents: Contents) -> Contents:
        into = refinement(time, self.time)
        return _moved(_result_of_body(self.body, self.time, _moved(contents, into.to_inner)), into.to_outer)


def _build_body(body: Sequence[OperatorSpec], scope: Any, entered: Stream, rounds: int) -> Stream:
    """Return the last stream of a nested scope."""
    streams = [entered]
    for operator in body:
        streams.append(operator.build(scope, streams, rounds))
    return streams[-1]


def _result_of_body(body: Sequence[OperatorSpec], time: Any, entered: Contents) -> Contents:
    streams = [entered]
    for operator in body:
        streams.append(_small(operator.result(time, streams)))
    return streams[-1]


def _small(contents: Contents) -> Contents:
    if sum(map(Counter.total, contents.values())) > MOST_RECORDS:
        raise timely.ConfigurationError(f"a stream of the dataflow has more than {MOST_RECORDS} records: send fewer")
    return contents


def _in_rounds(summary: Any, rounds: int) -> Any:
    """Return a summary of the times of a scope as one of the times so many loops deep in it."""
    for _ in range(rounds):
        summary = ProductSummary(summary, Step(0))
    return summary


def _together(streams: Iterable[Contents]) -> Contents:
    union: Contents = {}
    for stream in streams:
        for time, records in stream.items():
            union.setdefault(time, Counter()).update(records)
    return union


def _moved(contents: Contents, move: Callable[[Any], Any]) -> Contents:
    """Return the contents at the times that ``move`` makes of theirs; what it makes None of is gone."""
    arrivals = [(move(time), records) for time, records in contents.items()]
    return _together({time: records} for time, records in arrivals if time is not None)


# -- dataflows -----------------------------------------------------------------------------------------------------------


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

    operators: tuple[OperatorSpec, ...]
    sendings: tuple[Sending, ...]
    time: Any = int

    def reference(self) -> Records:
        """Return what each stream carries, by the sequential reference; ``ConfigurationError`` for too many records in one."""
        streams: list[Contents] = []
        for operator in self.operators:
            if isinstance(operator, Input):
                sent = [sending for sending in self.sendings if sending.stream == len(streams)]
                streams.append(_together({sending.time: Counter(sending.records)} for sending in sent))
            else:
                streams.append(_small(operator.result(self.time, streams)))
        return list(map(_plain, streams))

    def run(self, workers: int = 1) -> Records:
        """Return what each stream carries in a real run."""
        return self.merged(timely.execute(self.program, workers=workers))

    def program(self, worker: timely.Worker) -> Records:
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
                    streams.append(operator.build(scope, streams, 0))
                elif total:
                    handles[len(streams)], stream = scope.new_input()
                    streams.append(stream)
                else:
                    script = [sending for sending in mine if sending.stream == len(streams)]
                    streams.append(scope.source("input", functools.partial(_script, script)))
            captured = [stream.capture() for stream in streams]
        for time in linear_extension(dict.fromkeys(sending.time for sending in mine)) if total else ():
            for sending in mine:
                if sending.time == time:
                    handles[sending.stream].advance_to(time)
                    for record in sending.records:
                        handles[sending.stream].send(record)
                    worker.step()
        for handle in handles.values():
            handle.close()
        return Begun(scope, captured)

    def merged(self, results: Sequence[Records]) -> Records:
        """Return what the workers have seen together, each as :meth:`program` returns it.

        >>> Dataflow((Input(),), ()).merged([[{0: [2]}], [{0: [1], 3: [4]}]])
        [{0: [1, 2], 3: [4]}]
        """
        return [
            _plain(_together({time: Counter(records) for time, records in part.items()} for part in parts))
            for parts in zip(*results, strict=True)
        ]


def _plain(contents: Contents) -> dict[Any, list[int]]:
    return {time: sorted(contents[time].elements()) for time in linear_extension(contents) if contents[time]}


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


@attrs.frozen
class Begun:
    """A dataflow that was begun on a worker: its scope, and what is captured of each stream."""

    scope: timely.ScopeBuilder[Any]
    captured: Sequence[Capture[Any, int]]

    def seen(self) -> Records:
        """Return what each stream has carried on this worker so far."""
        return [dict(captured.extract()) for captured in self.captured]


# -- strategies ----------------------------------------------------------------------------------------------------------

_RECORDS = st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple)


@st.composite
def dataflows(draw: st.DrawFn, spec: Any = int, *, max_operators: int = 6, max_sendings: int = 5) -> Dataflow:
    """Make whole dataflows over times of a type or a ``TimeKit``, with what is sent; every one ends.

    Operators work on records and on whole times, exchange, keep state, ask for notifications and advance times, on cycles too,
    in nested loops and scopes. ``flow.run(workers) == flow.reference()`` for a lawful type; a dataflow prints as what makes it.

    >>> from hypothesis import given, settings
    >>> from timely import Product
    >>> @settings(max_examples=5, deadline=None)
    ... @given(dataflows(Product[int, int]))
    ... def test(flow):
    ...     assert flow.run(workers=2) == flow.reference()
    >>> test()
    >>> from timely.testing import smallest
    >>> smallest(dataflows(), lambda flow: any(isinstance(operator, Total) for operator in flow.operators))
    Dataflow((Input(), Total(0)), ())
    """
    kit = time_kit(spec)
    inputs = draw(st.integers(1, 2))
    operators: list[OperatorSpec] = [Input() for _ in range(inputs)]
    for _ in range(draw(st.integers(0, max_operators))):
        operators.append(draw(_operators(len(operators), kit, depth=0, looping=False)))
    sendings = st.builds(Sending, st.integers(0, inputs - 1), st.integers(0, 2), kit.times, _RECORDS)
    flow = Dataflow(tuple(operators), tuple(draw(st.lists(sendings, max_size=max_sendings))), kit.spec)
    try:
        flow.reference()
    except timely.ConfigurationError:
        reject()
    return flow


@st.composite
def _operators(draw: st.DrawFn, streams: int, kit: TimeKit, depth: int, looping: bool) -> OperatorSpec:
    """Make an operator that reads some of so many streams, in a scope whose times, but for the rounds of loops, a kit makes."""
    source = st.integers(0, streams - 1)
    nested = draw(st.integers(0, 4)) if depth < 2 else 0
    if nested < 3:
        return draw(_simple(source, kit))
    if nested == 4 and not looping:
        inner = draw(st.sampled_from([kit, *kit.inside]))
        return Scoped(draw(source), inner.spec, draw(_bodies(inner, depth, looping=False)))
    return Loop(draw(source), draw(_bodies(kit, depth, looping=True)), draw(st.integers(0, 3)))


def _simple(source: st.SearchStrategy[int], kit: TimeKit) -> st.SearchStrategy[OperatorSpec]:
    kinds: list[st.SearchStrategy[OperatorSpec]] = [
        st.builds(Map, source, st.integers(0, 3), st.integers(0, 3)),
        st.builds(Filter, source, st.integers(2, 4)),
        st.builds(Shuffle, source, st.integers(1, 3)),
        st.builds(Concat, st.lists(source, min_size=1, max_size=3).map(tuple)),
        st.builds(Distinct, source),
        st.builds(Total, source),
        st.builds(Repeat, source, st.integers(0, 2)),
        st.builds(Advance, source, kit.summaries | kit.advancing),
    ]
    if not kit.advancing.is_empty:
        kinds.append(st.builds(Cycle, source, kit.advancing))
    return st.one_of(kinds)


@st.composite
def _bodies(draw: st.DrawFn, kit: TimeKit, depth: int, looping: bool) -> tuple[OperatorSpec, ...]:
    body: list[OperatorSpec] = []
    for _ in range(draw(st.integers(1, 3))):
        body.append(draw(_operators(len(body) + 1, kit, depth + 1, looping)))
    return tuple(body)
