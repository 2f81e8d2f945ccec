"""Loops in loops, as many as a number says, in one flat scope with the times of Naiad's paper; against a count by hand."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from timely import LoopSummary, LoopTime, Stream
from timely.testing import simulate

Visits = Counter[tuple[LoopTime, int]]


def along(stream: Stream[LoopTime, int], summary: LoopSummary) -> Stream[LoopTime, int]:
    handle, moved = stream.scope.feedback(summary)
    stream.connect_loop(handle)
    return moved


def loops(
    stream: Stream[LoopTime, int], rounds: list[int], seen: list[tuple[LoopTime, int]], level: int = 1
) -> Stream[LoopTime, int]:
    """Have records go round ``rounds[level - 1]`` times in the loop at ``level``, and in those inside it in each of these."""
    if level > len(rounds):
        return stream.inspect_time(lambda time, x: seen.append((time, x))).exchange(lambda x: x + 1)
    again, back = stream.scope.feedback(LoopSummary.feedback(level))
    inside = along(stream, LoopSummary.ingress(level)).concat(back)
    done = loops(inside, rounds, seen, level + 1)
    over, more = done.branch_when(lambda time: time.counters[level - 1] + 1 < rounds[level - 1])
    more.connect_loop(again)
    return along(over, LoopSummary.egress(level))


def program(rounds: list[int], records: int) -> Any:
    def run(worker: timely.Worker) -> tuple[Visits, Visits]:
        seen: list[tuple[LoopTime, int]] = []
        with worker.dataflow(LoopTime) as scope:
            mine = scope.to_stream(range(records) if worker.index == 0 else [])
            out = loops(mine, rounds, seen).capture()
        worker.run()
        return Counter(seen), Counter((time, x) for time, batch in out.messages for x in batch)

    return run


def expected(rounds: list[int], records: int) -> tuple[Visits, Visits]:
    every_round = itertools.product(*map(range, rounds))
    visits = Counter((LoopTime(0, counters), x) for counters in every_round for x in range(records))
    return visits, Counter((LoopTime(0), x) for x in range(records))


def total(results: list[tuple[Visits, Visits]]) -> tuple[Visits, Visits]:
    visits, out = zip(*results, strict=True)
    return sum(visits, Counter()), sum(out, Counter())


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("rounds", [[], [4], [2, 3], [2, 1, 2, 2]])
def test_every_round_of_every_loop_is_made_once(rounds: list[int], workers: int) -> None:
    assert total(timely.execute(program(rounds, 3), workers=workers)) == expected(rounds, 3)


@given(st.lists(st.integers(1, 3), max_size=3), st.integers(1, 3), st.integers(0, 10**6))
def test_under_every_schedule(rounds: list[int], workers: int, seed: int) -> None:
    assert total(simulate(program(rounds, 2), workers, seed).results) == expected(rounds, 2)
