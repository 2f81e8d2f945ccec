"""What the strategies make is legal, covers what it should, and shrinks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.nesting import Nesting
from tests.support.nesting_strategy import nestings
from tests.testing.kits import KITS
from timely.errors import ConfigurationError
from timely.order import Product
from timely.progress import LoopTime, Step, Unit, time_domain
from timely.testing import (
    TimeKit,
    dataflows,
    graphs,
    ladders,
    scenarios,
    smallest,
    summaries,
    time_kit,
    times,
)
from timely.testing.random_dataflows import Concat, Dataflow, Input, Loop, Map, Sending, Total

ROOT = Path(__file__).resolve().parents[2]
SPECS: list[Any] = [int, Unit, LoopTime, Product[int, int], Product[Unit, int], Product[LoopTime, Unit]]
SPECS += [Product[Product[int, int], int], Product[Product[LoopTime, int], LoopTime], *KITS.values()]
ANY_SPEC = st.sampled_from(SPECS)


@given(st.data())
def test_times_and_what_is_made_of_them(data: st.DataObject) -> None:
    spec = data.draw(ANY_SPEC)
    domain: Any = time_domain(time_kit(spec).spec)
    time, summary = data.draw(times(spec)), data.draw(summaries(spec))
    domain.check(time)
    arrival = summary.results_in(time)
    assert arrival is None or time <= arrival


@given(st.data())
def test_G2_graphs_strictly_advance_on_every_cycle(data: st.DataObject) -> None:
    spec = data.draw(ANY_SPEC)
    stays = time_kit(spec).advancing.is_empty
    graph = data.draw(graphs(spec) if stays else st.one_of(graphs(spec), ladders(spec)))
    assert graph.builder().is_acyclic()


@given(scenarios(int))
def test_rounds_of_changes_keep_the_promises_of_local_edges(scenario: Any) -> None:
    graph, rounds = scenario
    counts: dict[Any, int] = {}
    for changes in rounds:
        for location, time, diff in changes:
            counts[location, time] = counts.get((location, time), 0) + diff
            assert counts[location, time] >= 0 or location not in graph.never_negative()


def test_a_type_without_a_kit_is_refused_and_one_with_it_is_not() -> None:
    with pytest.raises(ConfigurationError, match="no strategy is known for .*str.*: give a TimeKit"):
        times(str)
    kit = TimeKit(int, st.just(3), st.just(Step(1)), st.just(Step(0)))
    assert time_kit(kit) is kit
    assert smallest(times(kit), lambda time: True) == 3


@given(nestings())
def test_nestings_are_repaired(nesting: Nesting) -> None:
    assert nesting.repaired().stuck() == []


# -- whole dataflows -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Loop, Total, Concat], ids=["loop", "total", "concat"])
def test_the_smallest_dataflow_with_some_operator_has_nothing_else(kind: type) -> None:
    flow = smallest(dataflows(max_operators=3), lambda flow: any(isinstance(operator, kind) for operator in flow.operators))
    assert len(flow.operators) == 2
    assert not flow.sendings


def test_the_reference_of_a_nested_loop() -> None:
    inner = Loop(0, (Map(0, 1, 1),), 1)
    flow = Dataflow((Input(), Loop(0, (inner,), 1)), (Sending(0, 0, 2, (10,)),))
    assert flow.reference()[1] == {2: [11, 12, 12, 13, 13, 14]}
    assert flow.run(2) == flow.reference()


def test_without_hypothesis_the_package_is_named() -> None:
    program = (
        "import sys\n"
        "sys.modules['hypothesis'] = None\n"
        "import timely\n"
        "try:\n    import timely.testing\n"
        "except timely.ConfigurationError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "pip install hypothesis" in done.stdout
