"""Runs that are cut anywhere, with messages in flight and in the middle of loops, go on as if nothing had been.

White box: where a worker is in a loop is a matter of steps, so the workers are stepped by hand, on a network of the tests.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.recovery.cutting import EPOCHS, Build, Phase, Sends, feed, run, sends
from tests.recovery.test_operators_graphs import BUILDS, _batches, edges
from tests.recovery.test_operators_state import UNARY
from timely.testing import pause

Edges = list[list[tuple[int, list[tuple[int, int]]]]]
steps = st.lists(st.integers(1, 14), min_size=1, max_size=4)


def cut_run(build: Build, sent: Sends, after: Sequence[int], workers: int, *, compact: bool, seed: int) -> Counter[Any]:
    """What comes out of a run that is cut each time that some worker has taken so many steps more; all epochs are sent."""
    found: Counter[Any] = Counter()
    start: list[Any] = []
    choose = random.Random(seed)
    for place, count in enumerate(after):
        phase = Phase(build, 1, workers, start)
        if place == 0:
            feed(phase, [sent], 0, EPOCHS)
        phase.advance_to(EPOCHS)
        for _ in range(count * workers):
            for pair in phase.network.waiting():
                phase.network.deliver(*pair, choose.randint(0, 4))
            choose.choice(phase.workers).step()
        pause(phase.workers, phase.network)
        start = [registry.snapshot(compact=compact, in_flight=True) for registry in phase.state_registries]
        found += phase.outputs()
    last = Phase(build, 1, workers, start)
    last.advance_to(EPOCHS)
    last.end()
    return found + last.outputs()


@pytest.mark.parametrize("name", UNARY)
@given(sent=sends, after=steps, workers=st.integers(1, 3), compact=st.booleans(), seed=st.integers(0, 99))
@settings(max_examples=8)
def test_a_run_that_is_cut_in_the_middle_gives_what_one_without_a_cut_gives(
    name: str, sent: Sends, after: list[int], workers: int, compact: bool, seed: int
) -> None:
    build = UNARY[name]
    assert cut_run(build, sent, after, workers, compact=compact, seed=seed) == run(build, sent, workers=workers)


@pytest.mark.parametrize("name", BUILDS)
@given(given=edges, after=steps, workers=st.integers(1, 3), compact=st.booleans(), seed=st.integers(0, 99))
@example(given=[[(0, [(0, 1), (1, 2), (2, 3), (3, 4)])], [], [], []], after=[9, 9, 9], workers=2, compact=False, seed=1)
@settings(max_examples=8)
def test_a_graph_algorithm_that_is_cut_in_a_loop_gives_what_it_gives_without(
    name: str, given: Edges, after: list[int], workers: int, compact: bool, seed: int
) -> None:
    sent = _batches(given, "numbers")

    def build(scope: Any, stream: Any) -> Any:
        return BUILDS[name](stream, 3)

    assert cut_run(build, sent, after, workers, compact=compact, seed=seed) == run(build, sent, workers=workers)
