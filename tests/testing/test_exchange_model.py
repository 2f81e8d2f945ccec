"""Every interleaving of small configurations of workers that exchange progress (T6), and single runs, decision by decision.

What is broken on purpose, and which invariants object to it (T9), is in ``test_exchange_broken.py``; what is too large for every
change in ``tests/soak``.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.support.exchange_checks import Configuration
from tests.support.exchange_rules import Do
from tests.support.exchange_simulation import ExchangeSimulation
from tests.support.model_checker import explore
from tests.testing.exchanges import CHAIN, EITHER_WAY, GRAPHS, LINE, LOOP, ROUNDS
from timely.errors import ProgressError
from timely.progress import Source, Target

pytestmark = pytest.mark.usefixtures("collector_off")

# -- every interleaving --------------------------------------------------------------------------------------------------


SMALL = {"entered loop": (), "one time": ()}  # where there are too many interleavings for a later time, or no later time

CONFIGURATIONS = {
    **{
        f"{name}, two workers": (Configuration(graph, 2, 2, SMALL.get(name, (later,))), states)
        for (name, (graph, later)), states in zip(
            GRAPHS.items(), [3021, 5399, 5633, 5145, 8397, 8738, 1457, 1479, 1713, 3406], strict=True
        )
    },
    "line, three workers": (Configuration(LINE, 3, 2), 4769),
    "loop, three workers": (Configuration(LOOP, 3, 2), 9479),
    "rounds, three workers": (Configuration(ROUNDS, 3, 2), 2858),
    "either way, three workers": (Configuration(EITHER_WAY, 3, 2), 3671),
    "line, three statements": (Configuration(LINE, 2, 3), 12704),
    "rounds, three statements": (Configuration(ROUNDS, 2, 3), 7488),
}
LARGE = "rounds, three statements"  # for the soak: the line has three statements too


@pytest.mark.parametrize(
    ("configuration", "states"),
    [pytest.param(*case, id=name, marks=[pytest.mark.soak] * (name == LARGE)) for name, case in CONFIGURATIONS.items()],
)
def test_T6_every_interleaving_of_small_configurations(configuration: Configuration, states: int) -> None:
    explored = explore(configuration)
    assert explored.complete
    assert explored.states == states


def test_a_search_may_be_cut_short() -> None:
    explored = explore(Configuration(LINE, 2, 3), max_states=100)
    assert (explored.states, explored.complete) == (100, False)
    explored = explore(Configuration(LINE, 2, 3), max_seconds=0.0)
    assert (explored.states < 12704, explored.complete) == (True, False)
    assert explore(Configuration(LINE, 2, 2), max_states=808, max_seconds=1e9).complete


def test_a_search_visits_the_same_states_each_time() -> None:
    assert explore(Configuration(LOOP, 2, 2)) == explore(Configuration(LOOP, 2, 2))


# -- step by step --------------------------------------------------------------------------------------------------------


def test_a_simulation_is_a_function_of_its_decisions() -> None:
    choose = random.Random(3)
    simulation = ExchangeSimulation(LOOP, 3, [1, 2])
    for _ in range(40):
        simulation.decide(choose.choice(simulation.possible()))
    namespace: dict[str, Any] = {}
    exec(repr(simulation), namespace)
    assert namespace["simulation"].decisions == simulation.decisions
    assert namespace["simulation"].state == simulation.state


def test_OC2_OC4_what_is_not_permitted_is_refused() -> None:
    simulation = ExchangeSimulation(CHAIN, 2)
    with pytest.raises(ProgressError, match="OC4"):
        simulation.do(0, [(Target(1, 0), 0, -1)])
    simulation.do(0, [(Source(1, 0), 2, 1), (Source(1, 0), 0, -1)])
    with pytest.raises(ProgressError, match="OC2"):
        simulation.do(0, [(Target(2, 0), 1, 1)])
    with pytest.raises(ProgressError, match="OC2"):
        simulation.do(0, [(Source(1, 0), 1, 1)])
    simulation.do(1, [(Target(1, 0), 1, 1)])
    simulation.do(0, [(Target(1, 0), 1, -1), (Target(2, 0), 1, 1)])
    with pytest.raises(ProgressError, match="nothing is in flight"):
        simulation.deliver(0, 1)
    assert simulation.decisions == [
        Do(0, ((Source(1, 0), 2, 1), (Source(1, 0), 0, -1))),
        Do(1, ((Target(1, 0), 1, 1),)),
        Do(0, ((Target(1, 0), 1, -1), (Target(2, 0), 1, 1))),
    ]
