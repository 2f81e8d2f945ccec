"""L1: a capability that is held too long is named, with its operator and worker, though all results are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import timely
from timely.errors import InvariantViolation, StalledError
from timely.testing import simulate


def passing(stream: timely.Stream[int, int], hoard: bool) -> timely.Stream[int, int]:
    """Records as they are; with ``hoard`` the first capability is held until the input is closed."""

    def constructor(capability: Any, info: Any) -> Any:
        held: list[Any] = []
        capability.drop()

        def logic(input: Any, output: Any) -> None:
            for arrived, batch in input:
                with output.session(arrived) as session:
                    session.give_batch(batch)
                if hoard and not held:
                    held.append(arrived.retain())
            if not input.frontier:
                held.clear()

        return logic

    return stream.unary_frontier(timely.Pipeline, "hoarder", constructor)


def program(hoard: bool, wait: bool) -> Callable[[timely.Worker], Any]:
    def run(worker: timely.Worker) -> Any:
        with worker.dataflow(int) as scope:
            numbers, stream = scope.new_input()
            out = passing(stream.exchange(lambda x: x), hoard)
            seen, probe, entered = out.capture(), out.probe(), stream.probe()
        for epoch in range(2):
            numbers.send(epoch + worker.index)
            numbers.advance_to(epoch + 1)
            watched = probe if wait else entered
            worker.step_while(lambda: watched.less_than(epoch + 1))  # noqa: B023  # called at once
        numbers.close()
        worker.run()
        return sorted(record for _, records in seen.extract() for record in records)

    return run


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_T9_INV_L1_a_capability_that_is_held_too_long(workers: int) -> None:
    with pytest.raises(InvariantViolation, match=r"/hoarder#\d+ on worker \d holds a capability at 0 for its output 0") as caught:
        for seed in range(3):
            simulate(program(hoard=True, wait=True), workers, seed, liveness=True)
    assert caught.value.invariant == "L1"


def test_results_do_not_show_it() -> None:
    right = simulate(program(hoard=False, wait=False), 2, 1, liveness=True).results
    assert simulate(program(hoard=True, wait=False), 2, 1).results == right


def test_a_run_that_waits_for_it_ends_soon_and_names_what_is_held() -> None:
    with pytest.raises(StalledError, match=r"in 1001 steps .* a capability of /dataflow0/hoarder#\d+ on worker \d at 0"):
        simulate(program(hoard=True, wait=True), 2)
