"""Mistakes that mypy --strict finds before anything runs; each line that has one says in a comment which error it is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import timely
from timely import (
    Capability,
    GraphBuilder,
    InputHandle,
    InputPort,
    LoopHandle,
    OperatorInfo,
    OutputPort,
    Product,
    Source,
    Stream,
    Vertex,
)
from timely.operators.results import Err, Ok


def shout(word: str) -> str:
    return word.upper()


def elementwise(words: Stream[int, str], numbers: Stream[int, int]) -> None:
    numbers.map(shout)  # expect: arg-type
    words.map(lambda word: word + 1)  # expect: operator
    lengths: Stream[int, str] = words.map(len)  # expect: arg-type
    numbers.filter(shout)  # expect: arg-type
    numbers.flat_map(lambda n: n)  # expect: arg-type return-value
    words.inspect(lambda word: word.no_such_method())  # expect: attr-defined
    print(lengths)


def add(word: str, n: int, total: int | None) -> int:
    return (total or 0) + n


def name(word: str, total: str) -> str:
    return word + total


def next_state(word: str, n: int, state: int | None) -> tuple[str, list[int]]:
    return word, [n]


def parse(word: str) -> Ok[int] | Err[str]:
    return Ok(int(word))


def keyed(pairs: Stream[int, tuple[str, int]], numbers: Stream[int, int]) -> None:
    numbers.join(pairs)  # expect: call-arg
    pairs.join(numbers)  # expect: arg-type
    pairs.join(pairs, key=lambda word: word.no_such_method())  # expect: attr-defined
    pairs.aggregate(add, name)  # expect: misc
    totals: Stream[int, str] = pairs.aggregate(add, lambda word, total: total)  # expect: misc
    numbers.aggregate(add, lambda word, total: total)  # expect: misc
    numbers.reduce_by_key(max)  # expect: misc
    pairs.reduce_by_key(lambda a, b: a.no_such_field)  # expect: attr-defined
    pairs.state_machine(next_state)  # expect: misc
    pairs.state_machine(add)  # expect: arg-type
    pairs.exchange(lambda pair: pair.no_such_field)  # expect: attr-defined
    counted: Stream[int, str] = numbers.count()  # expect: assignment
    numbers.accumulate("", lambda total, n: total + n)  # expect: operator
    numbers.delay(lambda n, time: "later")  # expect: arg-type return-value
    numbers.ok_err(parse)  # expect: arg-type
    print(totals, counted)


class Late(Vertex[int]):
    def on_recv(self, port: int, batch: list[str], time: str) -> None:  # expect: override
        self.send_by(0, batch, time)  # expect: arg-type

    def on_notify(self, time: int) -> None:
        self.notify_at("later")  # expect: arg-type


class Inner(Vertex[Product[int, int]]):
    pass


async def look_up(word: str) -> int:
    return len(word)


async def by_name() -> AsyncIterator[tuple[str, list[int]]]:
    yield "first", [1]


async def by_time() -> AsyncIterator[tuple[int, list[float]]]:
    yield 0, [1.0]


def sources(words: Stream[int, str], probe: timely.ProbeHandle[int]) -> None:
    awaited = words.scope.from_async("numbers", by_time)
    by_hand = words.scope.iterator_source("numbers", [(0, [1])], probe, times=1)
    words.concat(awaited)  # expect: arg-type
    words.concat(by_hand)  # expect: arg-type
    words.scope.iterator_source("late", [("first", [1])], probe, times=1)  # expect: list-item


def agreed(worker: timely.Worker) -> None:
    names: list[str] = worker.all_gather(worker.index)  # expect: arg-type
    print(names)


def others(words: Stream[int, str], numbers: Stream[int, int], handle: InputHandle[int, str]) -> None:
    words.vertex(Inner)  # expect: arg-type
    words.vertex(Late, others=["words"])  # expect: list-item
    words.unary(timely.Exchange, "unfinished", lambda capability, info: print)  # expect: arg-type
    numbers.map_async(look_up)  # expect: arg-type
    words.map_async(shout)  # expect: arg-type
    words.scope.from_async("by name", by_name)  # expect: arg-type
    again: Stream[int, int] = words.scope.input_from(handle)  # expect: arg-type
    print(again)


def summing(capability: Capability[int], info: OperatorInfo) -> Callable[[InputPort[int, int], OutputPort[int]], None]:
    return lambda input, output: input.forward(output, sum)


def adding(
    capability: Capability[int], info: OperatorInfo
) -> Callable[[InputPort[int, int], InputPort[int, int], OutputPort[int]], None]:
    return lambda left, right, output: None


def reading(info: OperatorInfo) -> Callable[[InputPort[int, int]], None]:
    return lambda input: print(sum(n for _, batch in input for n in batch))


def operators(words: Stream[int, str], numbers: Stream[int, int], pairs: Stream[Product[int, int], int]) -> None:
    """Of one's own: what they read is what their streams carry."""
    words.unary(timely.Pipeline, "sum", summing)  # expect: arg-type
    words.unary_frontier(timely.Pipeline, "sum", summing)  # expect: arg-type
    pairs.unary(timely.Pipeline, "sum", summing)  # expect: arg-type
    numbers.binary(words, timely.Pipeline, timely.Pipeline, "add", adding)  # expect: arg-type
    words.binary_frontier(numbers, timely.Pipeline, timely.Pipeline, "add", adding)  # expect: arg-type
    words.sink(timely.Pipeline, "read", reading)  # expect: arg-type
    pairs.sink(timely.Pipeline, "read", reading)  # expect: arg-type


def structure(words: Stream[int, str], numbers: Stream[int, int], loop: LoopHandle[Product[int, int]]) -> None:
    words.concat(numbers)  # expect: arg-type
    words.partition(2, lambda word: word)  # expect: arg-type return-value
    words.connect_loop(loop)  # expect: arg-type
    with words.scope.iterative() as inner:
        entered: Stream[int, str] = words.enter(inner)  # expect: arg-type
    print(entered)


def times(handle: InputHandle[int, str], capability: Capability[Product[int, int]], words: Stream[int, str]) -> None:
    handle.send(7)  # expect: arg-type
    handle.advance_to("later")  # expect: arg-type
    capability.delayed(3)  # expect: arg-type
    words.probe().less_than(Product(1, 0))  # expect: arg-type
    words.inspect_time(lambda time, word: time + word)  # expect: operator


def by_hand() -> None:
    tracker = GraphBuilder(int).build()
    tracker.update(Source("source", 0), "later", +1)  # expect: arg-type
    GraphBuilder("int")  # expect: call-overload


def program(worker: timely.Worker) -> int:
    return worker.index


names: list[str] = timely.execute(program)  # expect: arg-type
timely.example(lambda scope: scope.to_stream([1, 2]).map(shout))  # expect: arg-type


def a_summary_of_other_times(numbers: Stream[int, int]) -> None:
    builder: timely.OperatorBuilder[int] = timely.OperatorBuilder(numbers.scope, "later")
    builder.new_input(numbers, timely.Pipeline)
    pairs = timely.Antichain([timely.ProductSummary(timely.Step(0), timely.Step(1))])
    builder.new_output(pairs)  # expect: arg-type
    builder.new_output(5)  # expect: arg-type
