"""Timestamps beyond pairs: Naiad's LoopTime, and the types of the examples. Each obeys the laws, and is used in dataflows."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timely
from examples.timestamps import (
    bounded_loop,
    bounded_out_of_orderness,
    lexicographic_pair,
    naiad_loop_time,
    sets,
    system_and_event_time,
)
from tests.testing.kits import KITS
from timely import ConfigurationError, LoopSummary, LoopTime, Product
from timely.errors import TimestampError
from timely.testing import (
    TimeKit,
    check_summary,
    check_timestamp,
    check_tracker,
    dataflows,
    random_dataflows,
    scenarios,
    simulate,
    smallest,
)
from timely.testing.random_dataflows import Cycle, Dataflow, Input, Scoped, Total

SMALL = st.integers(0, 3)
COUNTERS = st.lists(SMALL, max_size=3).map(tuple)
TIMES = st.builds(LoopTime, SMALL, COUNTERS)
INNER = st.builds(LoopSummary, SMALL, st.integers(1, 3), SMALL, COUNTERS)
SUMMARIES = st.builds(LoopSummary, SMALL) | INNER | st.builds(LoopSummary, SMALL, st.just(0), st.just(0), COUNTERS)


def test_T4_loop_times_obey_the_laws() -> None:
    check_timestamp(LoopTime, TIMES)
    check_summary(LoopTime, SUMMARIES, TIMES)


def test_the_next_round_is_later_than_every_round_of_a_loop_inside() -> None:
    assert LoopTime(0, (1, 99)) < LoopTime(0, (2, 0))
    assert not Product(Product(0, 1), 99) <= Product(Product(0, 2), 0)
    assert not LoopTime(1, (0,)) <= LoopTime(0, (5,)) and not LoopTime(0, (5,)) <= LoopTime(1, (0,))


@pytest.mark.parametrize("bad", [(-1, ()), (0, (-1,)), (0.5, ()), (0, [1]), (0, ("a",)), (True, ())])
def test_what_is_no_loop_time_is_refused(bad: Any) -> None:
    with pytest.raises(TimestampError, match="whole numbers of at least 0"):
        LoopTime(*bad)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LoopSummary(epoch=-1),
        lambda: LoopSummary(keep=-1),
        lambda: LoopSummary(increment=1),
        lambda: LoopSummary(keep=0, increment=1),
        lambda: LoopSummary(append=(0,)),
        lambda: LoopSummary.ingress(0),
        lambda: LoopSummary.egress(-1),
        lambda: LoopSummary.feedback(0),
    ],
)
def test_what_is_no_loop_summary_is_refused(make: Callable[[], LoopSummary]) -> None:
    with pytest.raises(TimestampError):
        make()


@given(TIMES, SUMMARIES)
def test_loop_times_and_summaries_travel_and_print(time: LoopTime, summary: LoopSummary) -> None:
    for value in (time, summary):
        assert pickle.loads(pickle.dumps(value)) == value
        assert eval(repr(value), {"LoopTime": LoopTime, "LoopSummary": LoopSummary}) == value


BOX = [LoopTime(0, counters) for depth in range(5) for counters in product((0, 1, 9), repeat=depth)]


@given(SUMMARIES, SUMMARIES)
def test_a_summary_is_at_most_another_exactly_if_no_time_ends_up_later(p: LoopSummary, q: LoopSummary) -> None:
    arrivals: list[Any] = [(p.results_in(time), q.results_in(time)) for time in BOX]
    assert (p <= q) == all(first <= second for first, second in arrivals)
    assert (p < q) == (p <= q and p != q)


@pytest.mark.parametrize("kit", KITS.values(), ids=KITS.keys())
@given(data=st.data())
def test_T5_frontiers_of_random_graphs_over_times_of_ones_own_are_those_of_brute_force(kit: Any, data: st.DataObject) -> None:
    check_tracker(*data.draw(scenarios(kit)))


EXAMPLES = {
    "bounded_loop": bounded_loop,
    "bounded_out_of_orderness": bounded_out_of_orderness,
    "lexicographic_pair": lexicographic_pair,
    "naiad_loop_time": naiad_loop_time,
    "sets": sets,
    "system_and_event_time": system_and_event_time,
}
DIRECTORY = Path(naiad_loop_time.__file__).parent


def test_every_example_is_here_and_short() -> None:
    lines = {path.stem: len(path.read_text(encoding="utf-8").splitlines()) for path in DIRECTORY.glob("*.py")}
    assert lines.keys() == EXAMPLES.keys()
    assert max(lines.values()) < 60


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_holds_what_it_asserts_on_any_number_of_workers(name: str, workers: int) -> None:
    main: Callable[[int], None] = getattr(EXAMPLES[name], "main")  # noqa: B009  # what every example has
    main(workers)


def test_every_example_has_a_kit_with_which_its_times_are_tested() -> None:
    assert [name for name in EXAMPLES if name not in KITS] == []


def test_sets_are_genuinely_incomparable() -> None:
    assert not sets.Passed("a") <= sets.Passed("b") and not sets.Passed("b") <= sets.Passed("a")


FEWER = settings(max_examples=settings().max_examples // 2)
"""For what is tried with every kit."""

EVERY_KIT = pytest.mark.parametrize("kit", KITS.values(), ids=KITS.keys())


@EVERY_KIT
@FEWER
@given(data=st.data(), workers=st.integers(1, 3), seed=st.integers(0, 10**6))
def test_law_2_T7_a_dataflow_over_custom_times_computes_what_the_reference_computes(
    kit: TimeKit, data: st.DataObject, workers: int, seed: int
) -> None:
    flow = data.draw(dataflows(kit))
    assert flow.merged(simulate(flow.program, workers=workers, seed=seed).results) == flow.reference()


@given(dataflows())
def test_a_dataflow_prints_as_what_makes_it(flow: Dataflow) -> None:
    assert eval(repr(flow), {**vars(timely), **vars(random_dataflows)}) == flow


# -- what is wrong is found, and shrunk ------------------------------------------------------------------------------------


def hasty() -> Callable[..., object]:
    """A wrong ``total``: it gives the sum of what has come as soon as nothing can come at an earlier time."""
    sums: dict[Any, int] = {}

    def logic(input: Any, output: Any, notificator: Any) -> None:
        for capability, batch in input:
            sums[capability.time] = sums.get(capability.time, 0) + sum(batch)
            if not input.frontier.less_than(capability.time):
                output.session(capability).give(sums[capability.time])

    return logic


def differs(flow: Dataflow) -> bool:
    """Return whether some simple schedule makes a difference between a dataflow and its reference."""
    expected = flow.reference()
    return any(flow.merged(simulate(flow.program, workers=2, seed=seed).results) != expected for seed in range(3))


@pytest.mark.parametrize(
    ("name", "operators"),
    [("sets", 1), *(pytest.param(name, 2, marks=pytest.mark.soak) for name in ("naiad_loop_time", "quarters_in_hours", "sets"))],
)
def test_T9_a_wrong_operator_is_shrunk(name: str, operators: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_dataflows, "_total", hasty)
    flow = smallest(dataflows(KITS[name], max_operators=operators, max_sendings=operators + 1), differs)
    assert [type(operator) for operator in flow.operators if not isinstance(operator, Input)] in ([Total], [Cycle])
    assert sum(len(sending.records) for sending in flow.sendings) <= 3
    monkeypatch.undo()
    assert not differs(flow)


def test_an_input_in_a_nested_scope_is_refused() -> None:
    flow = Dataflow((Input(), Scoped(0, int, (Input(),))), ())
    with pytest.raises(ConfigurationError, match="an Input stands in the dataflow itself"):
        flow.run()
