"""What workers agree on, by the ids of the conformance list (2.11): barriers, one sequence for all."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from timely import Barrier, CapabilityError, Sequencer
from timely.testing import simulate


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_W11_sequencer(workers: int, seed: int | None) -> None:
    """Every worker pushes strings: the same order everywhere, the preloaded ones first, each worker's own in its order."""

    def program(worker: timely.Worker) -> list[str]:
        seen: list[str] = []
        with Sequencer(worker, ["preloaded 0", "preloaded 1"]) as sequence:
            for number in range(10):
                sequence.push(f"worker {worker.index}: {number}")
                worker.step()
                seen.extend(sequence)
            while len(seen) < 2 + 10 * worker.peers:
                worker.step_or_park(1.0)
                seen.extend(sequence)
        worker.run()
        assert list(sequence) == []
        return seen

    results = timely.execute(program, workers=workers) if seed is None else simulate(program, workers, seed).results
    assert all(seen == results[0] for seen in results)
    assert results[0][:2] == ["preloaded 0", "preloaded 1"]
    for index in range(workers):
        own = [element for element in results[0] if element.startswith(f"worker {index}:")]
        assert own == [f"worker {index}: {number}" for number in range(10)]


def test_W11_pushing_after_the_end_is_refused_and_earlier_elements_stay() -> None:
    worker = timely.Worker()
    sequence: Sequencer[int] = Sequencer(worker)
    sequence.push(1)
    sequence.close()
    with pytest.raises(CapabilityError, match="sequencer"):
        sequence.push(2)
    worker.run()
    assert list(sequence) == [1]


@given(st.integers(1, 3), st.integers(1, 4), st.none() | st.integers(0, 10**6))
def test_nobody_passes_a_barrier_before_all_have_come(workers: int, rounds: int, seed: int | None) -> None:
    come: list[int] = []

    def program(worker: timely.Worker) -> None:
        with Barrier(worker) as barrier:
            for number in range(rounds):
                come.append(number)
                barrier.wait()
                assert come.count(number) == workers

    if seed is None:
        timely.execute(program, workers=workers)
    else:
        simulate(program, workers, seed)
    assert len(come) == rounds * workers


def test_a_barrier_is_reached_only_when_the_slowest_has_come() -> None:
    reached: list[bool] = []

    def program(worker: timely.Worker) -> None:
        with Barrier(worker) as barrier:
            if worker.index == 0:
                barrier.advance()
                for _ in range(5):
                    worker.step()
                reached.append(barrier.reached())
                first.wait()
                worker.step_while(lambda: not barrier.reached())
            else:
                first.wait()
                barrier.wait()
            reached.append(barrier.reached())

    first = threading.Barrier(2)
    timely.execute(program, workers=2)
    assert reached == [False, True, True]
