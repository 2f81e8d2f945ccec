"""The simulator objects to each rule that is broken, and names the invariant; a checker that never fires proves nothing (T9).

Networks and operators that break a rule; ``tests/testing/test_simulator_broken.py`` has engines and workers that do.

White box: one test switches the checks off, to see that the protocol itself objects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import timely
from tests.testing.programs import loops, rounds
from tests.testing.tampering import (
    SEEDS,
    Doubling,
    Dropping,
    Forging,
    Losing,
    Reordering,
    Repeating,
    Splitting,
    SplittingKindly,
    Tampered,
    cunning,
    deceitful,
    epochs,
    forge,
    objections,
    overdraw,
    overrate,
    pretend,
    read_twice,
    send_late,
    silence,
    smuggle,
    smuggle_late,
)
from timely.errors import InvariantViolation, ProgressError, StalledError
from timely.testing import Simulation, simulate
from timely.testing.checker import InvariantChecker


@pytest.mark.parametrize(("workers", "seeds"), [(2, range(6)), (3, range(2))])
def test_the_honest_are_not_objected_to(workers: int, seeds: range) -> None:
    assert objections(workers=workers, seeds=seeds) == {"none"}
    assert objections(Tampered, workers, seeds=seeds) == set()


NETWORKS: list[tuple[type[Any], set[str]]] = [
    (Dropping, {"X3"}),
    (Repeating, {"X3"}),
    (Forging, {"X3"}),
    (Splitting, {"OC1", "X2"}),
    (SplittingKindly, {"OC1"}),
    (Reordering, {"X2"}),
    (Losing, {"OC3"}),
    (Doubling, {"OC3"}),
]


@pytest.mark.parametrize(("network", "named"), NETWORKS)
def test_T9_messages_that_are_tampered_with(network: type[Any], named: set[str]) -> None:
    assert objections(network) - {"ProgressError"} == named


@pytest.mark.parametrize(("network", "named"), [case for case in NETWORKS if issubclass(case[0], Tampered)])
def test_T9_batches_that_are_tampered_with_and_numbered_anew(network: type[Tampered], named: set[str]) -> None:
    harmless = {"none"} if network is Reordering else set()
    assert objections(cunning(network)) - harmless == named


@pytest.mark.parametrize("network", [Dropping, Repeating, Splitting, SplittingKindly, Reordering])
def test_T9_without_the_checks_of_the_simulator_the_protocol_itself_objects(
    network: type[Tampered], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches may be late, and are then taken in order; one that comes twice or out of order is refused with a typed error."""
    monkeypatch.setattr(InvariantChecker, "check", lambda self, turned: None)
    monkeypatch.setattr(InvariantChecker, "check_end", lambda self: None)
    with pytest.raises(ProgressError, match="expected progress batch"):
        for seed in SEEDS:
            simulate(rounds, 2, seed, network=network)


@pytest.mark.parametrize("change", [cunning, lambda network: network], ids=["numbered anew", "as they are"])
def test_T9_INV_X2_losses_that_are_sent_before_gains(
    change: Callable[[type[Tampered]], type[Tampered]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it is said in parts shows first: where nobody minds that, something hangs in the air."""
    silence(monkeypatch, ["OC1"])
    assert "X2" in objections(change(Splitting))
    assert "X2" not in objections(change(SplittingKindly))


def test_T9_I3_capabilities_in_two_batches() -> None:
    """With what is gone in a batch of its own, a new capability comes from nowhere, though none hangs in the air: it is held."""
    for workers in (2, 3):
        assert objections(Splitting, workers, [epochs]) == {"I3"}
        assert objections(SplittingKindly, workers, [epochs]) == {"OC1"}


DEEDS = [
    ("OC3", smuggle, {"I1"}),
    ("I7", smuggle_late, {"I1", "OC3"}),
    ("S0", send_late, {"OC2"}),
    ("OC2", forge, set()),
    ("OC4", overdraw, set()),
    ("OC4", overrate, set()),
    ("I1", read_twice, set()),
    ("G10", pretend, set()),
]


@pytest.mark.parametrize(("named", "deed", "besides"), DEEDS)
def test_T9_operators_that_go_round_the_engine(named: str, deed: Any, besides: set[str]) -> None:
    collected = set()
    for workers in (1, 2, 3):
        for seed in SEEDS:
            with pytest.raises(InvariantViolation) as violation:
                simulate(deceitful(deed), workers, seed)
            collected.add(violation.value.invariant)
    assert {named} <= collected <= {named, *besides}


def test_a_violation_comes_with_what_it_takes_to_see_it_again() -> None:
    run = Simulation(loops, 2, 3, network=Dropping)
    with pytest.raises(InvariantViolation, match="^X3: a worker's view and all that is still to come to it add up") as violation:
        run.run()
    assert violation.value.decisions == tuple(run.decisions)
    assert any("schedules(2)" in note or "runs into it again" in note for note in violation.value.__notes__)
    with pytest.raises(InvariantViolation, match="^X3"):
        simulate(loops, 2, decisions=run.decisions, network=Dropping)


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
