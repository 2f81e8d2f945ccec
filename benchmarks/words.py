"""The workloads of ``benchmarks.peers`` in this library, record by record; ``benchmarks.words_columns`` has them on columns.

Run by itself as ``python -m benchmarks.words``, as the contestants are. Each process reads its part of a file; a worker takes a
step after each batch that it has sent, as it would if they came one after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from operator import add
from typing import Any, TypeVar

import timely
from benchmarks.contestants.told import Answer, Task, main
from timely import Exchange, InputPort, Notificator, OutputPort, Pipeline, Stream
from timely.dataflow import Pact, records_of

Records = Stream[int, Any]
Build = Callable[[Records], Records]
S = TypeVar("S")


def run(task: Task, batches: Callable[[int], Iterable[Any]], build: Build, every: int = 1) -> list[Any]:
    """Run a dataflow on what is dealt to each process; return the records of the stream that it gives, of all of them.

    A worker takes a step whenever it has sent ``every`` batches.
    """

    def program(worker: timely.Worker) -> list[Any]:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            captured = build(stream).capture()
        for number, batch in enumerate(batches(worker.index), 1):
            handle.send_batch(batch)
            if number % every == 0:
                worker.step()
        handle.close()
        worker.run()
        return [record for _, records in captured.messages for record in records_of(records)]

    return [record for records in timely.execute(program, processes=task.processes) for record in records]


def at_the_end(
    stream: Records, pact: Pact, start: Callable[[], S], add: Callable[[S, Any], object], give: Callable[[S], list[Any]]
) -> Records:
    """Return, for each time when it is complete, what ``give`` makes of its state on this worker.

    ``start()`` is the state at first, and ``add(state, container)`` changes it.
    """
    states: dict[int, S] = {}

    def logic(input: InputPort[int, Any], output: OutputPort[int], notificator: Notificator[int]) -> None:
        for capability, batch in input:
            if capability.time not in states:
                states[capability.time] = start()
                notificator.notify_at(capability.retain())
            add(states[capability.time], batch)
        for complete, _ in notificator:
            output.session(complete).give_batch(give(states.pop(complete.time)))

    return stream.unary_notify(pact, "at the end", [], logic)


def word_count(task: Task) -> Answer:
    """With the operator that is there for it, which counts on each worker before anything is exchanged."""
    return run(task, task.lines, lambda lines: lines.flat_map(str.split).value_counts())


def word_count_exchanged(task: Task) -> Answer:
    """Every word goes to the worker that counts it, in an operator of one's own."""

    def build(lines: Records) -> Records:
        words = lines.flat_map(str.split)
        by_word = Exchange(lambda word: word)
        return at_the_end(words, by_word, Counter[str], Counter[str].update, lambda counts: list(counts.items()))

    return run(task, task.lines, build)


def word_count_by_batch(task: Task) -> Answer:
    """Each batch of lines is split and counted by hand, in one go."""

    def build(lines: Records) -> Records:
        return lines.map_batch(lambda batch: list(Counter(" ".join(batch).split()).items())).reduce_by_key(add)

    return run(task, task.lines, build)


def count_and_sum(numbers: Records, total: Callable[[Any], int] = sum) -> Records:
    """Return how many numbers there are on each worker, and their sum, where ``total(batch)`` is that of a batch."""

    def add(state: list[int], batch: Any) -> None:
        state[0] += len(batch)
        state[1] += int(total(batch))

    return at_the_end(numbers, Pipeline, lambda: [0, 0], add, lambda state: [("count", state[0]), ("sum", state[1])])


def map_filter_map(task: Task) -> Answer:
    """Three operators that are given a function each."""
    return run(task, _lists(task), _map_filter_map)


def map_filter_map_seldom(task: Task) -> Answer:
    """The same with a step for every hundred batches."""
    return run(task, _lists(task), _map_filter_map, every=100)


def _map_filter_map(numbers: Records) -> Records:
    return count_and_sum(numbers.map(lambda x: 3 * x + 1).filter(lambda x: x % 2 == 0).map(lambda x: x // 2))


def map_filter_map_by_batch(task: Task) -> Answer:
    """Three operators that get whole batches."""

    def build(numbers: Records) -> Records:
        grown = numbers.map_batch(lambda xs: [3 * x + 1 for x in xs])
        even = grown.map_batch(lambda xs: [x for x in xs if x % 2 == 0])
        return count_and_sum(even.map_batch(lambda xs: [x // 2 for x in xs]))

    return run(task, _lists(task), build)


def sum_by_key(task: Task) -> Answer:
    """Pairs whose values are added up for each of a thousand keys, on each worker before anything is exchanged."""
    return run(task, _lists(task), lambda numbers: numbers.map(lambda x: (str(x % 1000), x)).reduce_by_key(add))


def sum_by_key_exchanged(task: Task) -> Answer:
    """The same with all pairs exchanged."""

    def build(numbers: Records) -> Records:
        pairs = numbers.map(lambda x: (str(x % 1000), x))
        return pairs.aggregate(lambda key, value, total: value + (total or 0), lambda key, total: (key, total))

    return run(task, _lists(task), build)


def exchange(task: Task) -> Answer:
    """Every number goes to the worker that it belongs to."""
    return run(task, _lists(task), lambda numbers: count_and_sum(numbers.exchange(lambda x: x)))


def _lists(task: Task) -> Callable[[int], Iterator[list[int]]]:
    return lambda index: map(list, task.share(index))


if __name__ == "__main__":
    main(
        (
            word_count,
            word_count_exchanged,
            word_count_by_batch,
            map_filter_map,
            map_filter_map_seldom,
            map_filter_map_by_batch,
            sum_by_key,
            sum_by_key_exchanged,
            exchange,
        )
    )
