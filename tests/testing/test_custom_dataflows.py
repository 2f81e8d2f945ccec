"""Every type of times that is shipped or shown, in random dataflows and nestings: the right records, and the right frontiers.

White box: an operator of the random dataflows is replaced by a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

import timely
from tests.properties.test_flattening import check_against_flat_graph
from tests.support.flat_graph import FlatGraph
from tests.support.nesting import Nesting, flat
from tests.support.nesting_builder import build_nesting
from tests.support.nesting_strategy import nestings, smallest_nesting, without_needless
from tests.testing.kits import KITS, QUARTERS, Quarter
from timely import ConfigurationError, Source, Step, Target, Worker
from timely.testing import TimeKit, dataflows, random_dataflows, simulate, smallest
from timely.testing.random_dataflows import Cycle, Dataflow, Input, Scoped, Total, dataflow_spec

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


@EVERY_KIT
@FEWER
@given(data=st.data(), sharing=st.booleans())
def test_frontiers_in_a_nesting_over_times_of_ones_own_are_those_of_the_flat_graph(
    kit: TimeKit, data: st.DataObject, sharing: bool
) -> None:
    check_against_flat_graph(data.draw(nestings(kit)), data, most=8, sharing=sharing)


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
    monkeypatch.setattr(dataflow_spec, "_total", hasty)
    flow = smallest(dataflows(KITS[name], max_operators=operators, max_sendings=operators + 1), differs)
    assert [type(operator) for operator in flow.operators if not isinstance(operator, Input)] in ([Total], [Cycle])
    assert sum(len(sending.records) for sending in flow.sendings) <= 3
    monkeypatch.undo()
    assert not differs(flow)


class Hasty(Quarter):
    """A wrong refinement: it rounds up what a path through a scope takes, so that outside one expects things too late."""

    @classmethod
    def summarize(cls, summary: Any) -> Step:
        return Step(-(-summary.by // 4))


def shows_too_little(nesting: Nesting) -> bool:
    """Return whether some frontier is not that of the flat graph, when the first operator alone holds what it has at first."""
    inputs: dict[int, list[Any]] = {}
    if not nesting.links or not any(scope.time for scope in nesting.scopes):
        return False  # nothing is translated on the way from anywhere to anywhere

    def make(op: int, ports: list[Any], capabilities: list[Any], info: Any) -> Callable[..., object]:
        inputs[op] = ports
        for capability in capabilities if op else []:
            capability.drop()
        return lambda *ports: len(capabilities)  # which holds them

    worker = Worker()
    build_nesting(nesting, worker, make)
    for _ in range(10):
        worker.step()
    held = [(Source(0, o), nesting.minimum(nesting.ops[0].scope)) for o in range(nesting.ops[0].outputs)]
    frontiers = FlatGraph(nesting).frontiers(held)
    return any(
        {flat(time) for time in port.frontier} != frontiers[Target(op, i)]
        for op, ports in inputs.items()
        for i, port in enumerate(ports)
        if nesting.ops[op].observes[i]
    )


def wrong_nestings() -> st.SearchStrategy[Nesting]:
    """Make nestings with a wrong refinement."""
    quarters = attrs.evolve(QUARTERS, spec=Hasty, times=QUARTERS.times.map(lambda time: Hasty(time.n)))
    kit = attrs.evolve(KITS["int"], inside=(quarters,))
    return nestings(kit, max_ops=4, max_scopes=3).map(Nesting.repaired)


def check_right_refinement(nesting: Nesting) -> None:
    """Check that a nesting that shows a wrong refinement shows nothing with the right one."""
    right = attrs.evolve(nesting, scopes=tuple(attrs.evolve(scope, time=scope.time and Quarter) for scope in nesting.scopes))
    assert not shows_too_little(right)


def test_T9_a_wrong_refinement_is_found() -> None:
    # Hypothesis shrinks for 20 s (the soak test below); here only what can be left out of its first find is.
    quick = settings(database=None, derandomize=True, max_examples=2_000, phases=[Phase.generate])
    nesting = without_needless(find(wrong_nestings(), shows_too_little, settings=quick), shows_too_little)
    assert len(nesting.scopes) <= 3
    assert len(nesting.ops) <= 3
    assert len(nesting.links) <= 2
    check_right_refinement(nesting)


@pytest.mark.soak
def test_T9_a_wrong_refinement_is_shrunk() -> None:
    nesting = smallest_nesting(wrong_nestings(), shows_too_little)
    assert len(nesting.scopes) == 2
    assert len(nesting.ops) == 3
    assert len(nesting.links) == 2
    check_right_refinement(nesting)


def test_an_input_in_a_nested_scope_is_refused() -> None:
    flow = Dataflow((Input(), Scoped(0, int, (Input(),))), ())
    with pytest.raises(ConfigurationError, match="an Input stands in the dataflow itself"):
        flow.run()
