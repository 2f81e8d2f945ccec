"""Every type of times that is shipped or shown, in random dataflows and nestings: the right records, and the right frontiers.

White box: an operator of the random dataflows is replaced by a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timely
from tests.testing.kits import KITS
from timely import ConfigurationError
from timely.testing import TimeKit, dataflows, random_dataflows, simulate, smallest
from timely.testing.random_dataflows import Cycle, Dataflow, Input, Scoped, Total

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
