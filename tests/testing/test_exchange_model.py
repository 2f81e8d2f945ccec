"""Every interleaving of small configurations of workers that exchange progress (T6); the checker objects to broken rules (T9)."""

from __future__ import annotations

import random
from typing import Any

import attrs
import pytest

from timely.errors import InvariantViolation, ProgressError
from timely.progress import Product, ProductSummary, ProgressBatch, ProgressExchange, Source, Step, Target
from timely.testing import (
    Configuration,
    Do,
    ExchangeRules,
    ExchangeSimulation,
    ExchangeState,
    GraphSpec,
    NodeSpec,
    explore,
)

FEED = NodeSpec(0, 1, {}, ())
RELAY = NodeSpec(1, 1, {(0, 0): (Step(0),)}, ())
SINK = NodeSpec(1, 0, {}, (0,))
WATCHED = attrs.evolve(RELAY, observes=(0,))
LINE = GraphSpec(int, (FEED, WATCHED), ((Source(0, 0), Target(1, 0), False),))
CHAIN = GraphSpec(int, (FEED, RELAY, SINK), ((Source(0, 0), Target(1, 0), False), (Source(1, 0), Target(2, 0), False)))
LATER = attrs.evolve(WATCHED, summaries={(0, 0): (Step(1),)})
LOOP = GraphSpec(int, (WATCHED, LATER), ((Source(1, 0), Target(0, 0), False), (Source(0, 0), Target(1, 0), False)))
LOCAL = attrs.evolve(CHAIN, edges=((Source(0, 0), Target(1, 0), True), (Source(1, 0), Target(2, 0), False)))
AROUND = NodeSpec(1, 1, {(0, 0): (ProductSummary(Step(0), Step(1)),)}, (0,))
ROUNDS = GraphSpec(Product[int, int], (AROUND,), ((Source(0, 0), Target(0, 0), False),))


# -- the honest protocol -------------------------------------------------------------------------------------------------


CONFIGURATIONS = {
    "a line, two workers": (Configuration(LINE, 2, 3), 12704),
    "a chain, three workers": (Configuration(CHAIN, 3, 2), 8666),
    "a loop, three workers": (Configuration(LOOP, 3, 2), 9479),
    "a local edge": (Configuration(LOCAL, 2, 2, (1,)), 5145),
    "a loop over products": (Configuration(ROUNDS, 2, 2, (Product(1, 0),)), 1479),
}


@pytest.mark.parametrize(("configuration", "states"), CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_T6_every_interleaving_of_small_configurations(configuration: Configuration, states: int) -> None:
    explored = explore(configuration)
    assert explored.complete
    assert explored.states == states


@pytest.mark.soak
@pytest.mark.parametrize("graph", [LINE, CHAIN, LOOP, LOCAL, ROUNDS], ids=["line", "chain", "loop", "local", "rounds"])
@pytest.mark.parametrize(("workers", "statements"), [(2, 3), (3, 3)])
def test_T6_every_interleaving_of_larger_configurations(graph: GraphSpec, workers: int, statements: int) -> None:
    later = Product(1, 0) if graph is ROUNDS else 1
    assert explore(Configuration(graph, workers, statements, (later,)), max_states=150_000).states > 10_000


def test_a_search_may_be_cut_short() -> None:
    explored = explore(Configuration(LINE, 2, 3), max_states=100)
    assert (explored.states, explored.complete) == (100, False)


def test_a_search_visits_the_same_states_each_time() -> None:
    assert explore(Configuration(LOOP, 2, 2)) == explore(Configuration(LOOP, 2, 2))


# -- broken on purpose ---------------------------------------------------------------------------------------------------


class Splitting(ExchangeRules):
    """Breaks batches up, and tells of what went before what came."""

    def pack(self, batch: ProgressBatch[Any]) -> tuple[ProgressBatch[Any], ...]:
        updates = sorted(batch.updates, key=lambda update: update[1])
        return tuple(ProgressBatch(batch.sender, batch.sequence, (update,)) for update in updates)

    def receive(self, exchange: ProgressExchange[Any], batch: ProgressBatch[Any]) -> Any:
        return batch.updates


class Overtaking(ExchangeRules):
    """Lets the batches of one sender arrive in any order, past the check that would refuse it."""

    def deliverable(self, queue: tuple[Any, ...]) -> list[tuple[Any, Any]]:
        return [(batch, queue[:place] + queue[place + 1 :]) for place, batch in enumerate(queue)]

    def receive(self, exchange: ProgressExchange[Any], batch: ProgressBatch[Any]) -> Any:
        return batch.updates


class Twice(ExchangeRules):
    """May deliver a batch and keep it, to deliver it again, past the check that would refuse it."""

    def deliverable(self, queue: tuple[Any, ...]) -> list[tuple[Any, Any]]:
        return [(queue[0], queue[1:]), (queue[0], queue)] if queue else []

    def receive(self, exchange: ProgressExchange[Any], batch: ProgressBatch[Any]) -> Any:
        return batch.updates


class Lossy(ExchangeRules):
    """May lose a batch."""

    def deliverable(self, queue: tuple[Any, ...]) -> list[tuple[Any, Any]]:
        return [(queue[1], queue[2:])] if len(queue) > 1 else []


class OneForAll(ExchangeRules):
    """Begins with one capability in all, not one for each worker."""

    def initial_count(self) -> int:
        return 1


class Forging(ExchangeRules):
    """Lets workers send without a capability."""

    def permit(self, state: ExchangeState, worker: int, statement: Any) -> None:
        """Everything is permitted."""

    def statements(self, state: ExchangeState, worker: int) -> Any:
        yield from super().statements(state, worker)
        yield ((Target(1, 0), 0, 1),)


class Doubling(ExchangeRules):
    """Counts what comes in twice over."""

    def receive(self, exchange: ProgressExchange[Any], batch: ProgressBatch[Any]) -> Any:
        return [(pointstamp, 2 * diff) for pointstamp, diff in super().receive(exchange, batch)]


BROKEN = {
    Splitting: {"S0", "I3", "I6"},
    Overtaking: {"S0", "I3", "I6"},
    Twice: {"X3"},
    Lossy: {"protocol", "X3"},
    OneForAll: {"X3"},
    Forging: {"I3"},
    Doubling: {"X3"},
}


@pytest.mark.parametrize("graph", [LINE, CHAIN, LOOP], ids=["line", "chain", "loop"])
@pytest.mark.parametrize(("rules", "invariants"), BROKEN.items(), ids=[rules.__name__ for rules in BROKEN])
def test_T9_the_checker_objects(rules: type[ExchangeRules], invariants: set[str], graph: GraphSpec) -> None:
    with pytest.raises(InvariantViolation) as caught:
        explore(Configuration(graph, 2, 3 if rules is Forging else 2, rules=rules))
    assert caught.value.invariant in invariants


class Unwatched(ExchangeRules):
    """Checks safety alone, so that what is not safe is seen to be so, and not only to be wrong."""

    def _check_conservation(self, state: ExchangeState, worker: int, truth: Any) -> None:
        """Not looked at."""

    def _check_justified(self, state: ExchangeState, worker: int) -> None:
        """Not looked at."""


class SplittingBlind(Splitting, Unwatched):
    pass


class OvertakingBlind(Overtaking, Unwatched):
    pass


class TwiceBlind(Twice, Unwatched):
    pass


class OneForAllBlind(OneForAll, Unwatched):
    pass


class ForgingBlind(Forging, Unwatched):
    pass


@pytest.mark.parametrize("rules", [SplittingBlind, OvertakingBlind, TwiceBlind, OneForAllBlind, ForgingBlind])
def test_T9_what_is_broken_is_not_safe(rules: type[ExchangeRules]) -> None:
    with pytest.raises(InvariantViolation) as caught:
        explore(Configuration(LINE, 2, 3, rules=rules), max_states=40_000)
    assert caught.value.invariant in {"S0", "I5", "I6"}


@pytest.mark.parametrize("graph", [LINE, CHAIN, LOOP], ids=["line", "chain", "loop"])
def test_T9_a_dropped_summary(graph: GraphSpec) -> None:
    deaf = attrs.evolve(graph, nodes=tuple(attrs.evolve(node, summaries={}) for node in graph.nodes))
    if graph is LINE:
        deaf = attrs.evolve(graph, edges=())
    with pytest.raises(InvariantViolation) as caught:
        explore(Configuration(graph, 2, 2, believed=deaf))
    assert caught.value.invariant in {"S0", "I5", "I6"}


@pytest.mark.parametrize("rules", [Overtaking, Twice, Splitting])
def test_T9_the_real_protocol_refuses_what_the_rules_let_through(rules: type[ExchangeRules]) -> None:
    refused: type[ExchangeRules] = type(f"Checked{rules.__name__}", (rules, Unwatched), {"receive": ExchangeRules.receive})
    with pytest.raises(InvariantViolation, match=r"^protocol: worker \d expected progress batch"):
        explore(Configuration(LINE, 2, 3, rules=refused))


def test_T9_a_violation_comes_with_the_shortest_program_that_shows_it() -> None:
    with pytest.raises(InvariantViolation) as caught:
        explore(Configuration(LINE, 2, 3, rules=OvertakingBlind))
    program = str(caught.value).partition("; after\n")[2]
    with pytest.raises(InvariantViolation, match=caught.value.invariant):
        exec(program, {})
    assert "simulation.flush(0)" in program
    assert "simulation.deliver(" in program or "simulation.decide(" in program


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
    with pytest.raises(ProgressError, match="nothing is on its way"):
        simulation.deliver(0, 1)
    assert simulation.decisions == [
        Do(0, ((Source(1, 0), 2, 1), (Source(1, 0), 0, -1))),
        Do(1, ((Target(1, 0), 1, 1),)),
        Do(0, ((Target(1, 0), 1, -1), (Target(2, 0), 1, 1))),
    ]
