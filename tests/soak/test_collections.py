"""Collections for long: every id under every condition, random programs, a million changes, 100,000 epochs in flight.

White box: the memory of the process says that state stays bounded.
"""

from __future__ import annotations

import gc
import inspect
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.differential import (
    test_groups,
    test_joins,
    test_linear,
    test_loops,
    test_operators,
)
from tests.differential.conftest import EVERY, RESUMED, name_of, running
from tests.support.collection_programs import CollectionProgram, programs
from timely import Product, Worker
from timely import differential as dd
from timely.monitor.memory import resident_memory
from timely.testing.differential import Case, cases, check_changes, few_times, run_resumed, updates_in_traces

pytestmark = pytest.mark.soak
PAIR: Any = Product[int, int]


def ids_of(module: ModuleType) -> Iterator[Callable[..., None]]:
    """Yield the tests of a module that take nothing but ``run``."""
    for name, test in vars(module).items():
        if name.startswith("test_") and list(inspect.signature(test).parameters) == ["run"]:
            yield test


@pytest.mark.parametrize("condition", [*EVERY, *RESUMED], ids=name_of)
def test_every_id_under_every_condition(condition: dict[str, Any], tmp_path: Path) -> None:
    modules = [test_joins, test_groups, test_loops]
    if "one_by_one" in condition:
        modules += [test_linear]
    for module in modules:
        for test in ids_of(module):
            test(running(condition, tmp_path / test.__name__))


LARGER = cases(2, few_times(int), size=20, containers=["columns", "mixed"])
LARGER_PAIRS = cases(2, few_times(PAIR), size=16, containers=["columns", "mixed"])


@given(programs(size=4), LARGER)
def test_random_programs_on_columns(program: CollectionProgram, case: Case) -> None:
    test_operators.check(program, case, int)


@given(programs(size=4), LARGER_PAIRS)
def test_random_programs_on_columns_at_pairs(program: CollectionProgram, case: Case) -> None:
    test_operators.check(program, case, PAIR)


@given(st.data(), st.sampled_from([int, PAIR]))
def test_operators_on_columns(data: st.DataObject, times: Any) -> None:
    name = data.draw(st.sampled_from([*test_operators.ONE, *test_operators.TWO]))
    inputs = 1 if name in test_operators.ONE else 2
    build, oracle = (test_operators.ONE if inputs == 1 else test_operators.TWO)[name]
    case = data.draw(cases(inputs, few_times(times), size=20, containers=["columns", "mixed"]))
    check_changes(case.run(build, times), case.inputs, oracle, times)


@given(programs(), cases(2, few_times(int), size=8), st.integers(0, 2), st.integers(1, 3))
def test_random_programs_resumed(program: CollectionProgram, case: Case, at: int, workers: int) -> None:
    if not any(case.inputs):
        return
    with tempfile.TemporaryDirectory() as directory:
        result = run_resumed(
            program.build,
            *case.inputs,
            directory=Path(directory),
            at=at,
            workers=(case.workers, workers),
            compact=case.compact,
            containers=case.containers,
        )
    check_changes(result, case.inputs, lambda *held: program.evaluate(held))


@pytest.mark.parametrize("one_by_one", [False, True], ids=["at once", "one by one"])
def test_DD_E9_100_000_epochs(one_by_one: bool) -> None:
    took = []
    for n in (10_000, 100_000):
        begun = time.process_time()
        test_joins.check_many_epochs(n, one_by_one)
        took.append(time.process_time() - begun)
    print(f"10,000 epochs took {took[0]:.1f} s, 100,000 took {took[1]:.1f} s")
    assert took[1] <= 30 * took[0]


NODES, EDGES = 5_000, 15_000
CHANGES = 1_000_000


def watched(edges: Any) -> list[Any]:
    """Return the results that a million changes keep up to date: a join with a reduction, and distances from node 0."""
    degrees = edges.count_by_key()
    reached = edges.join_map(degrees, lambda _, target, degree: (target, degree), columns=lambda keys, left, right: (left, right))
    roots = dd.collection(edges.scope, [0])
    return [reached.sum_by_key(), dd.graphs.breadth_first_search(edges, roots)]


class Running:
    """A worker with the collection of edges, and with what is kept up to date."""

    def __init__(self) -> None:
        self.worker = Worker()
        with self.worker.dataflow(int) as scope:
            self.session, edges = dd.new_collection(scope)
            results = watched(edges)
            self.outputs = [result.output() for result in results]
        self.longest = 0.0

    def settle(self, epoch: int) -> None:
        """Complete ``epoch``, and forget what was before it."""
        self.session.advance_to(epoch + 1)
        while not self.worker.idle:
            begun = time.thread_time()
            self.worker.step()
            self.longest = max(self.longest, time.thread_time() - begun)
        for output in self.outputs:
            output.forget(before=epoch)

    def held(self, epoch: int) -> list[dict[Any, int]]:
        """Return the results."""
        return [output.at(epoch) for output in self.outputs]


def resident() -> int:
    """Return how many bytes of memory this process has, without what waits to be collected."""
    gc.collect()
    return resident_memory()


def test_a_million_changes_in_flat_memory() -> None:
    random = Random(1)
    running = Running()
    edges = list({(random.randrange(NODES), random.randrange(NODES)) for _ in range(EDGES)})
    running.session.insert_columns(*map(np.array, zip(*edges, strict=True)))
    running.settle(0)
    at_load, running.longest = running.longest, 0.0
    done, epoch, halfway, held = 0, 0, 0, 0
    while done < CHANGES:
        epoch += 1
        size = 1 if epoch % 5 in (1, 2, 3) else 500  # edges that move; each is two changes
        gone, come = [], []
        for place in random.sample(range(len(edges)), size):
            gone.append(edges[place])
            edges[place] = random.randrange(NODES), random.randrange(NODES)
            come.append(edges[place])
        if size == 1:
            running.session.remove(gone[0])
            running.session.insert(come[0])
        else:
            for moved, diff in ((gone, -1), (come, 1)):
                running.session.insert_columns(*map(np.array, zip(*moved, strict=True)), diff=diff)
        running.settle(epoch)
        done += 2 * size
        if epoch % 100 == 0:
            held = max(held, sum(updates_in_traces()))
        if not halfway and 2 * done >= CHANGES:
            halfway = resident()
    final = resident()
    held = max(held, sum(updates_in_traces()))
    again = Running()
    again.session.insert_columns(*map(np.array, zip(*edges, strict=True)))
    again.settle(0)
    assert running.held(epoch) == again.held(0)
    longest = running.longest
    running.session.close()
    running.worker.run()
    del running
    live = sum(updates_in_traces())
    print(f"longest step {1000 * longest:.0f} ms, {1000 * at_load:.0f} ms while loading")
    print(f"{done:,} changes in {epoch:,} epochs; kept {held:,}, live {live:,}; {halfway:,} bytes at half, {final:,} at the end")
    assert held <= 4 * live + 10_000
    assert final <= 1.3 * halfway
    again.session.close()
