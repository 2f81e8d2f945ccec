"""Programs that use the library as it is meant to be used: mypy --strict has nothing to say about them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import timely
from timely import (
    Antichain,
    Capability,
    GraphBuilder,
    InputHandle,
    InputPort,
    OperatorInfo,
    OutputPort,
    Product,
    ProductSummary,
    Source,
    Step,
    Stream,
    Vertex,
)
from timely.operators.keyed.windows import Window, tumbling, windows
from timely.operators.results import Err, Ok
from timely.recovery import Recovery


class Visit(NamedTuple):
    """A record of a type of one's own."""

    page: str
    seconds: int


def elementwise(words: Stream[int, str]) -> Stream[int, tuple[str, int]]:
    lengths: Stream[int, int] = words.map(len)
    odd: Stream[int, int] = lengths.filter(lambda n: n % 2 == 1)
    letters: Stream[int, str] = words.flat_map(list)
    both: tuple[Stream[int, str], Stream[int, str]] = letters.concat(words).branch(lambda word: word > "m")
    assert odd.scope is both[0].scope
    return words.map(lambda word: (word, len(word)))


def routing(visits: Stream[int, Visit]) -> list[Stream[int, str]]:
    return visits.exchange(lambda visit: visit.page).partition(2, lambda visit: (visit.seconds % 2, visit.page))


def keyed(visits: Stream[int, tuple[str, int]]) -> Stream[int, tuple[str, float]]:
    """State is of one type from the first record of a key on, and ``None`` before it."""

    def mean(page: str, seconds: int, so_far: tuple[int, int] | None) -> tuple[tuple[int, int], list[tuple[str, float]]]:
        visits, total = so_far or (0, 0)
        return (visits + 1, total + seconds), [(page, (total + seconds) / (visits + 1))]

    longest: Stream[int, tuple[str, int]] = visits.aggregate(lambda page, s, most: max(s, most or s), lambda page, s: (page, s))
    shortest: Stream[int, tuple[str, int]] = visits.reduce_by_key(min)
    both: Stream[int, tuple[str, tuple[int, int]]] = shortest.join(longest)
    running: Stream[int, tuple[str, int]] = visits.state_machine(lambda page, s, sum: ((sum or 0) + s, [(page, s)]))
    later: Stream[int, tuple[str, int]] = running.delay(lambda visit, time: time + visit[1])
    number: Stream[int, int] = both.count().accumulate(0, lambda total, n: total + n)
    assert number.scope is later.scope
    return visits.state_machine(mean)


def parsed(words: Stream[int, str]) -> tuple[Stream[int, int], Stream[int, str]]:
    def parse(word: str) -> Ok[int] | Err[str]:
        return Ok(int(word)) if word.isdigit() else Err(word)

    return words.ok_err(parse)


def by_minute(visits: Stream[int, Visit]) -> Stream[int, tuple[Any, Window, list[Visit]]]:
    complete, late = visits.apply(windows, tumbling(60), at=lambda visit: visit.seconds)
    missed: Stream[int, tuple[Window, Visit]] = late
    assert missed.scope is complete.scope
    return complete


class Latest(Vertex[int]):
    """Sends, of each time, the last record."""

    def __init__(self, start: str) -> None:
        self.latest: dict[int, str] = {}
        self.start = start

    def on_recv(self, port: int, batch: list[str], time: int) -> None:
        self.latest[time] = batch[-1]
        self.notify_at(time)

    def on_notify(self, time: int) -> None:
        self.send_by(0, [self.latest.pop(time, self.start)], time)


def latest(words: Stream[int, str]) -> Stream[int, str]:
    return words.vertex(Latest, "nothing", pact=timely.Exchange(len), others=[(words, timely.Pipeline)])


async def others() -> AsyncIterator[tuple[int, list[str]]]:
    yield 0, ["another"]


async def tables() -> AsyncIterator[tuple[int, dict[str, int] | list[str]]]:
    yield 0, ["of any kind"]


def awaited(words: Stream[int, str]) -> Stream[int, int]:
    async def look_up(word: str) -> int:
        return len(word)

    return words.concat(words.scope.from_async("others", others)).map_async(look_up, limit=4)


def fed(scope: timely.ScopeBuilder[int], probe: timely.ProbeHandle[int]) -> Stream[int, int]:
    """A source of lists knows what its records are, and one of other containers may be said to have any."""
    by_hand: Stream[int, int] = scope.iterator_source("tables", [(0, (1, 2)), (1, (3,))], probe, times=1)
    awaited: Stream[int, int] = scope.from_async("tables", tables)
    return by_hand.concat(awaited, scope.iterator_source("numbers", ((time, [time]) for time in range(3)), probe, times=1))


def agreed(worker: timely.Worker, recovery: Recovery) -> tuple[list[str], list[int | None]]:
    return worker.all_gather("this one"), recovery.agree(None if worker.index else 7)


def shared(handle: InputHandle[int, str], scope: timely.ScopeBuilder[int]) -> Stream[int, str]:
    def alternate(time: int, batch: list[str], workers: int) -> list[tuple[int, list[str]]]:
        return [(time % workers, batch)]

    return scope.input_from(handle).vertex(Latest, "", pact=timely.Distribute(alternate))


def steps_to_one(numbers: Stream[int, int]) -> Stream[int, tuple[int, int]]:
    """A loop: the times inside are products."""
    with numbers.scope.iterative("halving") as loop:
        start: Stream[Product[int, int], tuple[int, int]] = numbers.map(lambda n: (n, 0)).enter(loop)
        again, back = loop.feedback(ProductSummary(Step(0), Step(1)))
        more, done = start.concat(back).branch(lambda pair: pair[0] <= 1)
        more.map(lambda pair: (pair[0] // 2, pair[1] + 1)).connect_loop(again)
        return done.leave()


def summing(capability: Capability[int], info: OperatorInfo) -> Callable[[InputPort[int, int], OutputPort[int]], None]:
    capability.drop()
    total = 0

    def logic(input: InputPort[int, int], output: OutputPort[int]) -> None:
        nonlocal total
        for cap, batch in input:
            total += sum(batch)
            with output.session(cap) as session:
                session.give(total)

    return logic


def running_sum(numbers: Stream[int, int]) -> Stream[int, int]:
    return numbers.unary(timely.Pipeline, "running sum", summing)


def read(info: OperatorInfo) -> Callable[[InputPort[int, int]], None]:
    def logic(input: InputPort[int, int]) -> None:
        for _, batch in input:
            assert sum(batch) >= 0

    return logic


def subtypes(flags: Stream[int, bool]) -> Stream[int, int]:
    """An operator for records of a type takes those of its subtypes; without annotations the stream says what there is."""
    flags.sink(timely.Pipeline, "read", read)
    negated: Stream[int, bool] = flags.unary(
        timely.Pipeline,
        "in one line",
        lambda capability, info: lambda input, output: input.forward_records(output, lambda flags: [not flag for flag in flags]),
    )
    return negated.unary_frontier(timely.Pipeline, "running sum", summing)


def defaults(scope: timely.ScopeBuilder) -> Stream[int]:
    """Times are whole numbers unless a parameter says otherwise, and records may be of any type."""
    words: Stream[int, str] = scope.to_stream([1, 2]).map(str)
    anything: Stream = words
    return anything.concat(scope.concatenate([words]))


def by_hand() -> tuple[Antichain[int], Antichain[Product[int, int]], Antichain[int]]:
    """Progress tracking alone: what the times are is known from what the builder is given."""
    numbers, rounds, default = GraphBuilder(int), GraphBuilder(Product[int, int]), GraphBuilder()
    for graph in (numbers, rounds, default):
        graph.add_node("source", 0, 1, [])
    place = Source("source", 0)
    return numbers.build().frontier(place), rounds.build().frontier(place), default.build().frontier(place)


def summaries_of_a_class(numbers: Stream[int, int]) -> Stream[int, int]:
    builder: timely.OperatorBuilder[int] = timely.OperatorBuilder(numbers.scope, "later")
    later = timely.Antichain([timely.Step(1)])
    by_port: dict[int, timely.Antichain[timely.Step]] = {0: later}
    builder.new_input(numbers, timely.Pipeline)
    builder.new_output(later)
    builder.new_output([later])
    builder.new_output({0: later})
    return builder.new_output(by_port)


def program(worker: timely.Worker) -> list[tuple[int, list[tuple[str, int]]]]:
    with worker.dataflow(int, name="words") as scope:
        handle: InputHandle[int, str]
        words: Stream[int, str]
        handle, words = scope.new_input()
        seen, probe = elementwise(words).capture(), words.probe()
    with handle:
        handle.send("word")
        handle.advance_to(1)
        worker.step_while(lambda: probe.less_than(1))
    worker.run()
    return seen.extract()


results: list[list[tuple[int, list[tuple[str, int]]]]] = timely.execute(program, workers=2)
