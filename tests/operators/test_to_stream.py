"""``to_stream``: what a generator yields does not wait for its end."""

from __future__ import annotations

import time
from collections.abc import Iterator

import timely
from timely import operators


def test_what_a_slow_generator_has_yielded_is_there_before_it_yields_more() -> None:
    come: list[int] = []
    there: list[list[int]] = []

    def slowly() -> Iterator[int]:
        for number in range(4):
            there.append(list(come))
            time.sleep(2 * operators.program_inputs.PROMPT)  # what is slow is the program, whoever waits
            yield number

    timely.example(lambda scope: scope.to_stream(slowly()).inspect(come.append))
    assert there == [[], [0], [0, 1], [0, 1, 2]]


def test_what_a_quick_generator_yields_comes_in_few_batches() -> None:
    def sizes(scope: timely.ScopeBuilder[int]) -> timely.Stream[int, int]:
        return scope.to_stream(iter(range(10_000))).map_batch(lambda batch: [len(batch)])

    [(_, outputs)] = timely.example(sizes)
    assert sum(outputs) == 10_000
    assert max(outputs) <= 4096
