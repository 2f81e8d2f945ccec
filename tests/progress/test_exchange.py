"""The exchange of progress: under any interleaving, step by step where the order matters, and its end alone.

``ExchangeSimulation`` knows the truth and checks every invariant after each step. All interleavings of small configurations are
in ``tests/testing/test_exchange_model.py``, and the rules broken on purpose, to which it must object, beside it.
"""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.exchange_simulation import ExchangeSimulation
from timely.errors import ConfigurationError, InvariantViolation, ProgressError
from timely.progress import LoopTime, Product, ProgressBatch, ProgressExchange, Source, Step, Target, Unit
from timely.testing import GraphSpec, NodeSpec, graphs, times

FEED, RELAY = NodeSpec(0, 1, {}, ()), NodeSpec(1, 1, {(0, 0): (Step(0),)}, (0,))
LINE = GraphSpec(int, (FEED, RELAY), ((Source(0, 0), Target(1, 0), False),))
MESSAGE = Target(1, 0), 0


SPECS: dict[str, Any] = {"int": int, "product": Product[int, int], "unit": Unit, "loop time": LoopTime}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@given(data=st.data())
def test_T6_INV_X1_to_INV_X6_and_I1_to_I7_under_any_interleaving(spec: Any, data: st.DataObject) -> None:
    graph = data.draw(graphs(spec, max_nodes=3))
    later = data.draw(st.lists(times(spec), max_size=3, unique=True))
    simulation = ExchangeSimulation(graph, data.draw(st.integers(1, 3)), later)
    for decision in data.draw(st.lists(st.integers(0, 10_000), max_size=50)):
        if possible := simulation.possible():
            simulation.decide(possible[decision % len(possible)])
    simulation.settle()
    truth = simulation.state.truth()
    assert all(view == truth for view in simulation.state.views)
    simulation.finish()


def one_message() -> ExchangeSimulation:
    """Of all work there is left one message, for node 1; and all have received that."""
    simulation = ExchangeSimulation(LINE, 2)
    simulation.do(0, [(*MESSAGE, 1)])
    for worker in range(2):
        simulation.do(worker, [(Source(0, 0), 0, -1), (Source(1, 0), 0, -1)])
    simulation.settle()
    assert dict(simulation.state.views[1]) == {MESSAGE: 1}
    return simulation


def test_S0_consumption_and_production_apart() -> None:
    simulation = one_message()
    simulation.do(0, [(*MESSAGE, -1), (Source(1, 0), 1, 1)])
    before = simulation.state
    simulation.flush(0)
    (batch,) = simulation.state.queues[1]
    assert dict(batch.updates) == {MESSAGE: -1, (Source(1, 0), 1): 1}
    rest = ProgressBatch(0, 0, tuple(update for update in batch.updates if update[1] > 0))
    half = frozenset[Any]()  # worker 1's view once it has counted the consumption alone
    torn = attrs.evolve(simulation.state, queues=((), (rest,), (), ()), views=(simulation.state.views[0], half))
    with pytest.raises(InvariantViolation, match="I3: worker 0 sends .* without a right to it"):
        simulation.checks.check(torn, before)
    invariants = {invariant for invariant, _ in simulation.checks.violations(torn, before)}
    assert invariants >= {"S0", "I3", "I6", "X4"}


def test_S0_in_one_batch_it_is_safe() -> None:
    simulation = one_message()
    simulation.do(0, [(*MESSAGE, -1), (Source(1, 0), 1, 1)])
    simulation.settle()
    assert dict(simulation.state.views[1]) == {(Source(1, 0), 1): 1}


def test_S0_batches_that_overtake() -> None:
    simulation = ExchangeSimulation(LINE, 2)
    simulation.do(1, [(Source(0, 0), 0, -1), (Source(1, 0), 0, -1)])
    simulation.do(0, [(Source(1, 0), 0, -1)])
    simulation.settle()
    simulation.do(0, [(*MESSAGE, 1)])
    simulation.flush(0)
    simulation.do(0, [(Source(0, 0), 0, -1)])
    simulation.flush(0)
    first, last = simulation.state.queues[1]
    with pytest.raises(ProgressError, match="worker 1 expected progress batch 1 of worker 0 but got 2"):
        simulation.state.exchanges[1].receive(last)
    overtaken = attrs.evolve(simulation.state, queues=((), (first,), (), ()), views=(simulation.state.views[0], frozenset()))
    with pytest.raises(InvariantViolation, match="X2: worker 0 sends"):
        simulation.checks.check(overtaken, simulation.state)
    assert "S0" in {invariant for invariant, _ in simulation.checks.violations(overtaken, simulation.state)}


def test_a_consumption_may_arrive_before_the_production() -> None:
    simulation = ExchangeSimulation(LINE, 3)
    simulation.do(0, [(*MESSAGE, 1)])
    simulation.flush(0)
    simulation.do(1, [(*MESSAGE, -1)])
    simulation.flush(1)
    simulation.deliver(1, 2)
    assert dict(simulation.state.views[2])[MESSAGE] == -1
    simulation.settle()
    assert MESSAGE not in dict(simulation.state.views[2])


def test_S0_the_initial_count_is_the_number_of_workers() -> None:
    simulation = ExchangeSimulation(LINE, 3)
    for worker in (0, 1):
        simulation.do(worker, [(Source(0, 0), 0, -1)])
        simulation.flush(worker)
        simulation.deliver(worker, 2)
        assert simulation.frontiers(2)[Target(1, 0)] == (0,)
    simulation.do(2, [(Source(0, 0), 0, -1)])
    simulation.flush(2)
    assert simulation.frontiers(2)[Target(1, 0)] == ()


def test_flush_sends_nothing_when_all_cancels() -> None:
    exchange: ProgressExchange[str] = ProgressExchange(0, 2)
    assert exchange.flush() is None
    exchange.changes.extend([("a", 1), ("b", 1), ("a", -1)])
    exchange.changes.update("b", -1)
    assert exchange.flush() is None
    exchange.changes.update("a", 2)
    assert exchange.flush() == ProgressBatch(0, 0, (("a", 2),))
    exchange.changes.update("b", -1)
    assert exchange.flush() == ProgressBatch(0, 1, (("b", -1),))


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        (ProgressBatch(0, 0, ()), "worker 1 expected progress batch 1 of worker 0 but got 0: it was delivered before"),
        (ProgressBatch(0, 2, ()), "worker 1 expected progress batch 1 of worker 0 but got 2: batches were lost"),
        (ProgressBatch(1, 0, ()), "worker 1 got its own progress batch 0: a worker counts its own"),
        (ProgressBatch(3, 0, ()), "worker 1 got a progress batch of worker 3, but the run's workers are 0 to 2"),
        (ProgressBatch(-1, 0, ()), "worker 1 got a progress batch of worker -1"),
    ],
)
def test_batches_out_of_place_are_refused(batch: ProgressBatch[str], says: str) -> None:
    exchange: ProgressExchange[str] = ProgressExchange(1, 3)
    assert exchange.receive(ProgressBatch(0, 0, (("a", 1),))) == (("a", 1),)
    with pytest.raises(ProgressError, match=says):
        exchange.receive(batch)
    assert exchange.receive(ProgressBatch(0, 1, (("a", -1),))) == (("a", -1),)
    assert exchange.receive(ProgressBatch(2, 0, (("b", 1),))) == (("b", 1),)


@pytest.mark.parametrize(("index", "peers"), [(0, 0), (2, 2), (-1, 2)])
def test_a_worker_is_one_of_its_peers(index: int, peers: int) -> None:
    with pytest.raises(ConfigurationError, match="there is no worker"):
        ProgressExchange(index, peers)
    assert (ProgressExchange(1, 2).index, ProgressExchange(1, 2).peers) == (1, 2)


def test_a_merged_batch_counts_as_many_as_it_was_made_of() -> None:
    first, second, third = (ProgressBatch(0, number, ((Target(1, 0), 1),)) for number in range(3))
    other: ProgressExchange[Any] = ProgressExchange(1, 2)
    assert other.receive(first.merged([second])) == ((Target(1, 0), 2),)
    with pytest.raises(ProgressError, match="expected progress batch 2 of worker 0 but got 1: it was delivered before"):
        other.receive(second)
    assert other.receive(third) == third.updates
