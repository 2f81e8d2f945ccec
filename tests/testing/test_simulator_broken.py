"""The simulator objects to engines and workers that break a rule, each by its id (T9); so every invariant is shown to be checked.

Where a rule follows from others, those whose checks come first are silenced, as if they failed to notice.

White box: only a change of the engine itself breaks these rules, and counts that no right run has tell what is upright.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

import timely
from tests.testing import test_simulator_negative
from tests.testing.programs import interpreted, loops, nested_loops, rounds
from tests.testing.test_simulator_negative import (
    SEEDS,
    Splitting,
    cunning,
    deceitful,
    epochs,
    forge,
    is_named,
    objections,
    send_late,
    silence,
)
from timely.errors import CycleError, InvariantViolation, OperatorError
from timely.progress import Antichain, ProgressExchange, Source, Step, Target, Tracker
from timely.progress import graph as graph_module
from timely.progress.compiler import Plan
from timely.progress.engine import PartialTracker, TotalTracker
from timely.progress.topology import Topology
from timely.scopes import SubgraphBuilder
from timely.testing import INVARIANTS, Invariant, Network, simulate
from timely.testing.flat_dataflow import Counts, FlatDataflow


def one_behind(worker: timely.Worker) -> None:
    """Only worker 0 holds anything back at one of two inputs, epoch by epoch; all of them keep the other one open meanwhile."""
    with worker.dataflow(int) as scope:
        numbers, stream = scope.new_input()
        others, other = scope.new_input()
        stream.probe()
        other.probe()
    if worker.index:
        numbers.close()
    for epoch in range(1, 5):
        worker.step()
        if worker.index == 0:
            numbers.advance_to(epoch)
        worker.step()
    numbers.close()
    others.close()
    worker.run()


SAID = ("X1", "X2", "I3", "OC1")
"""Those who look at what workers say."""


FOLLOWS: list[tuple[str, Sequence[str], Sequence[Any]]] = [
    ("X4", SAID, [nested_loops]),
    ("I4", SAID, [loops]),
    ("I6", (*SAID, "X4"), [loops]),
    ("Z1", (*SAID, "X4", "I6"), [loops]),
    ("Z2", (*SAID, "X4", "I6"), [one_behind]),
    ("I7", (*SAID, "X4", "I6", "Z1", "Z2"), [loops]),
    ("S0", (*SAID, "X4", "I6", "Z1", "Z2"), [nested_loops]),
    ("I5", (*SAID, "X4", "I6", "Z1", "Z2"), [rounds]),
    ("X5", (*SAID, "X4", "I6", "Z1", "Z2", "I4", "I5", "I7"), [loops]),
    ("G4", (*SAID, "X4", "I6", "Z1", "Z2", "I4", "I5", "I7", "S0", "X5"), [loops]),
    ("Z3", (*SAID, "X4", "I6", "Z1", "Z2", "I4", "I5", "I7", "S0", "X5", "G4"), [loops]),
]


@pytest.mark.parametrize(("named", "silent", "programs"), FOLLOWS)
def test_T9_what_follows_when_batches_are_split(
    named: str, silent: Sequence[str], programs: Sequence[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    silence(monkeypatch, silent)
    assert is_named(named, cunning(Splitting), programs)


FORGED: list[tuple[Any, str, Sequence[str]]] = [
    (forge, "G4", ("OC2",)),
    (forge, "S0", ("OC2", "G4")),
    (forge, "Z3", ("OC2", "G4", "S0")),
    (forge, "X6", ("OC2", "G4", "S0", "Z3")),
    (forge, "X5", ("OC2", "G4", "S0", "Z3", "X2", "I7")),
    (forge, "I5", ("OC2", "G4", "S0", "Z3", "X2", "I7", "X5", "X6")),
    (send_late, "S0", ("OC2",)),
    (send_late, "I7", ("OC2", "G4", "S0", "Z3")),
]


@pytest.mark.parametrize(("deed", "named", "silent"), FORGED)
def test_T9_what_follows_from_a_send_without_a_capability(
    deed: Any, named: str, silent: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    silence(monkeypatch, silent)
    assert is_named(named, Network, [deceitful(deed)], (1, 2, 3))


# -- workers -----------------------------------------------------------------------------------------------------------


def test_T9_INV_X1_gains_that_are_never_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ProgressExchange.flush

    def flush(self: ProgressExchange[Any]) -> Any:
        held = [(stamp, diff) for stamp, diff in self.changes if diff > 0]
        self.changes.extend((stamp, -diff) for stamp, diff in held)
        batch = honest(self)
        self.changes.extend(held)
        return batch

    monkeypatch.setattr(ProgressExchange, "flush", flush)
    for workers in (2, 3):
        assert {"X1"} <= objections(workers=workers) <= {"X1", "OC1"}
    assert objections(programs=[epochs]) == {"I3"}


@interpreted
def test_T9_INV_X3_initial_counts_that_are_not_times_the_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = SubgraphBuilder._count_initial

    def count_once(self: SubgraphBuilder[Any, Any], *inputs: Any) -> None:
        peers, self.subgraph.peers = self.subgraph.peers, 1
        honest(self, *inputs)
        self.subgraph.peers = peers

    monkeypatch.setattr(SubgraphBuilder, "_count_initial", count_once)
    assert objections() == objections(workers=3) == {"X3"}


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_T9_OC5_an_operator_that_steps_its_worker(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker refuses it; where it does not, the simulator objects."""

    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int) as scope:
            scope.to_stream([1, 2]).inspect(lambda x: worker.step()).exchange(lambda x: x).probe()
        worker.run()

    for seed in SEEDS:
        with pytest.raises(OperatorError, match="WorkerError: worker . is stepped while one of its operators runs"):
            simulate(program, workers, seed)
    monkeypatch.setattr(timely.Worker, "_check_outside", lambda self: None)
    for seed in SEEDS:
        with pytest.raises(InvariantViolation, match=r"^OC5: .* in the middle of /dataflow0/inspect"):
            simulate(program, workers, seed)


def test_T9_Z5_a_worker_that_forgets_a_dataflow() -> None:
    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            stream.probe()
        worker.step()
        worker._dataflows.clear()
        held.append(handle)

    held: list[timely.InputHandle[int, int]] = []

    for workers in (1, 2, 3):
        with pytest.raises(InvariantViolation, match="^Z5: when all is done, nothing is left anywhere; but there is still"):
            simulate(program, workers)


def eager(*, early: bool) -> Callable[[timely.Worker], None]:
    """A program with an operator that takes its frontier for empty: before it asks what is complete, or for ever after."""

    def program(worker: timely.Worker) -> None:
        def logic(input: Any, output: Any, notificator: Any) -> None:
            if early:
                for capability, _ in input:
                    notificator.notify_at(capability.retain())
            del input.elements[:]
            for capability, _ in notificator:
                output.session(capability).give(capability.time)

        with worker.dataflow(int) as scope:
            numbers, stream = scope.new_input()
            stream.unary_notify(timely.Exchange(lambda x: x), "eager", [], logic).probe()
        for epoch in range(3):
            numbers.send(epoch)
            worker.step()
            numbers.advance_to(epoch + 1)
            worker.step()
        numbers.close()
        worker.run()

    return program


@pytest.mark.parametrize("early", [True, False])
def test_T9_Z4_a_time_that_is_reported_complete_and_is_not(early: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notification that is early is found when it is delivered; a message that is left lying when the turn is over."""
    for workers in (1, 2, 3):
        named = objections(workers=workers, programs=[eager(early=early)])
        assert {"Z4"} <= named <= {"Z4", "G10"}


# -- trackers ----------------------------------------------------------------------------------------------------------


def test_T9_G1_summaries_that_do_not_compose() -> None:
    @attrs.frozen
    class Odd:
        """Advances by one, or by two where that is even; follows others as if it always were one."""

        def results_in(self, time: int) -> int:
            return time + 1 + time % 2

        def followed_by(self, other: Any) -> Any:
            return Step(1).followed_by(other) if isinstance(other, Step) else Step(2)

        def __le__(self, other: Any) -> bool:
            return bool(Step(1) <= other) if isinstance(other, Step) else True

    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int) as scope:
            builder = timely.OperatorBuilder(scope, "odd")
            builder.new_input(scope.to_stream([1]), timely.Pipeline)
            builder.new_output({0: Antichain([Odd()])})
            builder.build(lambda capabilities, info: lambda input, output: drain(input))
        worker.run()

    with pytest.raises(InvariantViolation, match=r"^G1: .* in /dataflow0, the law 'composition' is broken by \(Odd\(\)"):
        simulate(program, 2)


def drain(input: Any) -> None:
    for _ in input:
        pass


def test_T9_G2_a_loop_that_does_not_advance(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int) as scope:
            handle, again = scope.feedback(Step(0))
            again.map(lambda x: x).connect_loop(handle)
        worker.run()

    with pytest.raises(CycleError):
        simulate(program, 2)
    monkeypatch.setattr(graph_module, "find_stuck_cycle", lambda topology: None)
    for workers in (1, 2):
        with pytest.raises(InvariantViolation, match="^G2: whatever goes round a cycle comes back strictly later"):
            simulate(program, workers)


def test_T9_G3_path_summaries_that_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Tracker.summaries_from

    def forgetful(self: Tracker[Any], a: Any) -> Any:
        ways = dict(honest(self, a))
        ways.popitem()
        return ways

    monkeypatch.setattr(Tracker, "summaries_from", forgetful)
    assert objections() == {"G3"}


def change_plan(monkeypatch: pytest.MonkeyPatch, change: Callable[[Plan[Any]], None]) -> None:
    """Have every plan changed after it was made."""
    honest = Plan.__init__

    def init(self: Plan[Any], topology: Topology[Any]) -> None:
        honest(self, topology)
        change(self)

    monkeypatch.setattr(Plan, "__init__", init)


def test_T9_G5_cells_out_of_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(plan: Plan[Any]) -> None:
        if len(plan.predecessors) > 1:
            plan.predecessors[0].append((len(plan.predecessors) - 1, None))

    change_plan(monkeypatch, change)
    assert objections() == {"G5"}


@interpreted
def test_T9_G6_counts_that_are_gone_and_still_hold_a_frontier_back(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = TotalTracker.update_at

    def update_at(self: TotalTracker[Any], index: int, time: Any, diff: int) -> None:
        before = list(self.dirty)
        honest(self, index, time, diff)
        if diff < 0:
            self.dirty[:] = before
            self._marked = [cell in before for cell in range(len(self._marked))]

    monkeypatch.setattr(TotalTracker, "update_at", update_at)
    for workers in (1, 2):
        assert objections(workers=workers, programs=[rounds, epochs]) == {"G6"}


@interpreted
def test_T9_G7_cells_that_do_not_look_at_what_they_depend_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(engine: Any) -> None:
        honest = engine.__init__

        def init(self: Any, plan: Plan[Any]) -> None:
            honest(self, plan)
            self._cells = [(times, counts, ways[:1], *others) for times, counts, ways, *others in self._cells]

        monkeypatch.setattr(engine, "__init__", init)

    blind(TotalTracker)
    blind(PartialTracker)
    assert {"G7"} <= objections() <= {"G7", "none"}


def test_T9_G8_a_summary_that_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tracker's own paths know of it, the engine does not."""

    def change(plan: Plan[Any]) -> None:
        for predecessors in plan.predecessors:
            del predecessors[1:]

    change_plan(monkeypatch, change)
    assert {"G8"} <= objections() <= {"G8", "none"}


def test_T9_G8_exchanged_edges_that_are_treated_as_local_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is counted there may be negative for a while, and hides what is counted in the same cell."""
    honest = SubgraphBuilder.add_edge

    def add_edge(self: SubgraphBuilder[Any, Any], source: Source, target: Target, *, local: bool) -> None:
        honest(self, source, target, local=True)

    monkeypatch.setattr(SubgraphBuilder, "add_edge", add_edge)
    assert "G8" in objections() <= {"G8", "none"}


def delayed(worker: timely.Worker) -> None:
    """What an operator reads leaves it five later."""
    with worker.dataflow(int) as scope:
        numbers, stream = scope.new_input()
        builder = timely.OperatorBuilder(scope, "delayed")
        builder.new_input(stream, timely.Exchange(lambda x: x))
        out = builder.new_output({0: Antichain([Step(5)])})

        def constructor(capabilities: list[Any], info: Any) -> Callable[..., object]:
            capabilities.clear()

            def logic(input: Any, output: Any) -> None:
                for capability, batch in input:
                    with capability.delayed(capability.time + 5) as later:
                        output.session(later).give_many(batch)

            return logic

        builder.build(constructor)
        probe = out.probe()
    numbers.send(worker.index)
    worker.step_while(lambda: probe.less_than(5))
    numbers.close()
    worker.run()


def test_T9_G9_a_summary_that_is_treated_as_the_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frontiers are earlier than they should be, which is safe, and not exact."""

    def change(plan: Plan[Any]) -> None:
        for predecessors in plan.predecessors:
            predecessors[:] = [(cell, None) for cell, _ in predecessors]

    change_plan(monkeypatch, change)
    assert objections(programs=[delayed]) == {"G9"}


@interpreted
def test_T9_G11_propagation_that_stops_early(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = TotalTracker.propagate_observed
    calls = 0

    def now_and_then(self: TotalTracker[Any]) -> Any:
        nonlocal calls
        calls += 1
        return honest(self) if calls % 5 else []

    monkeypatch.setattr(TotalTracker, "propagate_observed", now_and_then)
    assert "G11" in objections(programs=[rounds, epochs])


PAGE = Path(__file__).parents[2] / "docs" / "invariants.md"

NUMBERS = {
    "S": range(1),
    "OC": range(1, 7),
    "X": range(1, 7),
    "I": range(1, 8),
    "G": range(1, 12),
    "Z": range(1, 6),
    "L": range(1, 2),
}


def paragraphs() -> dict[str, str]:
    """Each invariant's paragraphs in the page, by its id."""
    parts = re.split(r"^##+ (.*)$", PAGE.read_text(), flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True) if re.fullmatch(r"[A-Z]+\d+", name)}


def test_every_invariant_is_there_once() -> None:
    assert list(INVARIANTS) == [f"{letters}{number}" for letters, numbers in NUMBERS.items() for number in numbers]
    assert all(invariant.sentence and invariant.source for invariant in INVARIANTS.values())


def test_every_invariant_has_a_paragraph_in_the_docs() -> None:
    result = paragraphs()
    assert list(result) == list(INVARIANTS)
    for name, text in result.items():
        assert re.search(r"\[(Naiad|book|posts|AMIR|ITP)\]", text), f"{name} has no source"


@pytest.mark.parametrize("invariant", INVARIANTS.values(), ids=list(INVARIANTS))
def test_every_invariant_has_the_moment_of_its_check_as_on_the_page(invariant: Invariant) -> None:
    if invariant.checked in INVARIANTS:
        assert INVARIANTS[invariant.checked].checked not in INVARIANTS
        expected = f"Checked by {invariant.checked}"
    else:
        expected = f"Checked {invariant.checked}"
    assert expected in paragraphs()[invariant.id].replace("\n", " ")


def objected_to() -> set[str]:
    """The ids that some negative test asks for."""
    tests = [*globals(), *vars(test_simulator_negative)]
    named = {match[1] for name in tests if (match := re.match(r"test_T9_(?:INV_)?([A-Z]+\d+)_", name))}
    for cases, place in (
        (FOLLOWS, 0),
        (FORGED, 1),
        (test_simulator_negative.DEEDS, 0),
    ):
        named |= {str(case[place]) for case in cases}
    for _, names in test_simulator_negative.NETWORKS:
        named |= names
    return named


def test_T9_for_every_invariant_that_is_checked_something_is_broken() -> None:
    checked = {name for name, invariant in INVARIANTS.items() if invariant.checked not in INVARIANTS}
    assert objected_to() & set(INVARIANTS) == checked


def graph() -> FlatDataflow:
    """An input, whose output is place 0, and an exchange with its input and output at places 1 and 2."""
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        scope.new_input()[1].exchange(lambda x: x)
    return FlatDataflow(scope.scopes)


@pytest.mark.parametrize(
    ("changes", "held", "upright", "justified"),
    [
        ({(0, 0): -1, (0, 5): 1}, {(0, 5): 1}, True, True),  # a downgrade
        ({(0, 5): 1}, {(0, 5): 1}, True, False),  # half of it: the capability is there, and came from nowhere
        ({(0, 5): 1}, {(0, 5): 2}, True, True),  # one more of what is held
        ({(0, 5): 1}, {(0, 4): 1, (0, 5): 1}, True, True),  # another one, from an earlier one
        ({(1, 5): 1}, {(0, 5): 1}, True, True),  # a message, by a capability that is kept
        ({(1, 5): 1, (0, 5): -1}, {}, True, True),  # a message, by a capability that is dropped
        ({(1, 5): 1}, {}, False, True),  # a message by nothing
        ({(1, 5): 1, (0, 6): -1}, {}, False, True),  # a message by a later capability
        ({(1, 5): 1, (2, 0): -1}, {}, False, True),  # a message by what does not lead there
        ({(1, 5): -1, (2, 5): 1}, {(2, 5): 1}, True, True),  # a capability from a message
        ({(1, 5): -1}, {}, True, True),  # a message that was read for nothing
    ],
)
def test_INV_X1_INV_X2_I3_upright_and_justified_counts(changes: Counts, held: Counts, upright: bool, justified: bool) -> None:
    checks = graph()
    assert (not list(checks.check_upright("X1", changes, held))) is upright
    assert (not list(checks.check_justified(changes, held))) is justified
    named = {invariant for invariant, _ in checks.check_ends({}, [changes], held)}
    assert named == ({"X2"} if not upright else set() if justified else {"I3"})
    named = {invariant for invariant, _ in checks.check_ends(changes, [], held)}
    assert named == ({"X1"} if not upright else set() if justified else {"I3"})


def test_INV_X2_every_end_is_looked_at() -> None:
    """What is sent and what it was sent with, in two batches: the latter alone would do no harm, the former would."""
    drop, send = {(0, 5): -1}, {(1, 5): 1}
    checks = graph()
    assert not list(checks.check_ends(drop, [send], {}))
    assert not list(checks.check_ends({}, [send, drop], {}))
    assert [invariant for invariant, _ in checks.check_ends({}, [drop, send], {})] == ["X2"]
    assert [invariant for invariant, _ in checks.check_ends(send, [drop], {})] == ["X1"]
