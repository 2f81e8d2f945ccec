"""What the strategies make is legal, covers what it should, and shrinks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.nesting import Nesting
from tests.support.nesting_strategy import nestings
from tests.testing.kits import KITS
from timely.errors import ConfigurationError, InvariantViolation
from timely.order import Product
from timely.progress import LoopTime, ProductSummary, Source, Step, Target, Unit, time_domain
from timely.testing import (
    GraphSpec,
    NodeSpec,
    Oracle,
    TimeKit,
    check_tracker,
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


RELAY = NodeSpec(1, 1, {(0, 0): (Step(0),)}, ())
SINK = NodeSpec(1, 0, {}, (0,))
LINE = GraphSpec(int, (RELAY, SINK), ((Source(0, 0), Target(1, 0), False),))


def test_could_result_in_is_by_some_path_and_in_time() -> None:
    fork = NodeSpec(1, 2, {(0, 0): (Step(2),), (0, 1): (Step(5, limit=6),)}, ())
    join = NodeSpec(2, 0, {}, (0, 1))
    graph = GraphSpec(int, (fork, join), ((Source(0, 0), Target(1, 0), False), (Source(0, 1), Target(1, 1), False)))
    assert Oracle(graph).leads((Target(0, 0), 1), (Target(1, 0), 3))
    assert not Oracle(graph).leads((Target(0, 0), 1), (Target(1, 0), 2))
    assert Oracle(graph).leads((Target(0, 0), 1), (Target(1, 1), 6))
    assert not Oracle(graph).leads((Target(0, 0), 2), (Target(1, 1), 99))
    assert not Oracle(graph).leads((Target(1, 0), 0), (Target(0, 0), 9))


def test_summaries_of_a_loop_of_two_kinds_of_steps() -> None:
    steps = (ProductSummary(Step(1), Step(0)), ProductSummary(Step(0), Step(1)))
    graph = GraphSpec(Product[int, int], (NodeSpec(1, 1, {(0, 0): steps}, (0,)),), ((Source(0, 0), Target(0, 0), False),))
    assert Oracle(graph).summaries[Target(0, 0)][Source(0, 0)] == list(steps)
    assert Oracle(graph).frontiers({(Target(0, 0), Product(0, 0)): 1})[Source(0, 0)] == {Product(1, 0), Product(0, 1)}


def objected(graph: GraphSpec, wrong: GraphSpec, rounds: list[list[Any]]) -> str:
    """Return which rule is broken when ``wrong`` takes the place of a graph."""
    with pytest.raises(InvariantViolation) as caught:
        check_tracker(graph, rounds, wrong.build())
    return caught.value.invariant


def test_T9_a_dropped_summary() -> None:
    deaf = attrs.evolve(LINE, nodes=(attrs.evolve(RELAY, summaries={}), SINK))
    assert objected(LINE, deaf, [[(Target(0, 0), 3, 1)]]) == "G9"


def test_T9_a_contraction_that_must_not_be() -> None:
    """Counted in one place, what is missing at one end of an edge cancels what is there at the other."""
    contracted = attrs.evolve(LINE, edges=((Source(0, 0), Target(1, 0), True),))
    feed = NodeSpec(0, 1, {}, ())
    longer = GraphSpec(int, (feed, RELAY, SINK), ((Source(0, 0), Target(1, 0), False), (Source(1, 0), Target(2, 0), False)))
    wrong = attrs.evolve(longer, edges=tuple((source, target, True) for source, target, _ in longer.edges))
    rounds: list[list[Any]] = [[(Target(1, 0), 3, -1), (Source(1, 0), 3, +1)]]
    assert check_tracker(longer, rounds) > 0
    assert objected(longer, wrong, rounds) == "G9"
    assert check_tracker(LINE, [[(Source(0, 0), 3, +1)]], contracted.build()) > 0


def test_T9_changes_that_are_not_reported() -> None:
    mute = attrs.evolve(LINE, nodes=(RELAY, attrs.evolve(SINK, observes=())))
    assert objected(LINE, mute, [[(Source(0, 0), 3, 1)]]) == "G9"


def test_T9_changes_that_get_lost_on_the_way() -> None:
    class Lossy:
        """A tracker that reports no change."""

        def __init__(self) -> None:
            self.engine = LINE.build()
            self.observed, self.frontier, self.update = self.engine.observed, self.engine.frontier, self.engine.update

        def propagate(self) -> list[Any]:
            self.engine.propagate()
            return []

    with pytest.raises(InvariantViolation, match="G10: the reported changes of Target"):
        check_tracker(LINE, [[(Source(0, 0), 3, 1)]], cast("Any", Lossy()))
