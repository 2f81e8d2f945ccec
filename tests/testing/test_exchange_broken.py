"""One rule of the exchange of progress broken at a time (T9): which invariants object, and how they show it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Set
from typing import Any, ClassVar

import attrs
import pytest

from tests.support.exchange_checks import Configuration, StateChecks
from tests.support.exchange_rules import Deliver, Do, ExchangeRules, ExchangeState, Flush
from tests.support.exchange_simulation import ExchangeSimulation
from tests.support.model_checker import explore
from tests.testing.exchanges import CHAIN, LINE, LOOP
from timely.errors import InvariantViolation
from timely.progress import ProgressBatch, ProgressExchange, Source, Target
from timely.testing import GraphSpec

MESSAGE = Target(1, 0), 0

pytestmark = pytest.mark.usefixtures("collector_off")


class Splitting(ExchangeRules):
    """Splits batches, and sends losses before gains."""

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
    """May lose a batch, past the check that would miss it."""

    def deliverable(self, queue: tuple[Any, ...]) -> list[tuple[Any, Any]]:
        return [(queue[0], queue[1:])] + ([(queue[1], queue[2:])] if len(queue) > 1 else []) if queue else []

    def receive(self, exchange: ProgressExchange[Any], batch: ProgressBatch[Any]) -> Any:
        return batch.updates


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
        yield ((*MESSAGE, 1),)


class Overdrawing(ExchangeRules):
    """Lets workers drop a capability that they do not have."""

    def permit(self, state: ExchangeState, worker: int, statement: Any) -> None:
        """Everything is permitted."""

    def statements(self, state: ExchangeState, worker: int) -> Any:
        yield from super().statements(state, worker)
        yield ((Source(0, 0), 0, -1),)


class Inventing(ExchangeRules):
    """Reports a message that was not sent."""

    def pack(self, batch: ProgressBatch[Any]) -> tuple[ProgressBatch[Any], ...]:
        return (attrs.evolve(batch, updates=(*batch.updates, (MESSAGE, 1))),)


class Doubling(ExchangeRules):
    """Counts what comes in twice over."""

    def receive(self, exchange: ProgressExchange[Any], batch: ProgressBatch[Any]) -> Any:
        return [(pointstamp, 2 * diff) for pointstamp, diff in super().receive(exchange, batch)]


class WrongTracker:
    """The engine's tracker with a fault: a base of those below."""

    def __init__(self, tracker: Any) -> None:
        self.tracker = tracker

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tracker, name)


class Hasty(WrongTracker):
    """Counts what came as it should, and what went twice."""

    def update(self, location: Any, time: Any, diff: int) -> None:
        self.tracker.update(location, time, diff if diff > 0 else 2 * diff)


class Mute(WrongTracker):
    """Keeps the times that a frontier comes to to itself."""

    def propagate(self) -> list[Any]:
        return [change for change in self.tracker.propagate() if change[2] < 0]


class Repeating(WrongTracker):
    """Reports each change twice."""

    def propagate(self) -> list[Any]:
        return 2 * list(self.tracker.propagate())


def tracked_by(wrong: type[WrongTracker]) -> type[ExchangeRules]:
    return type(wrong.__name__, (ExchangeRules,), {"tracker": lambda self, believed: wrong(believed.build())})


class EnoughSeen(Exception):
    """Ends a search."""


class Collecting(StateChecks):
    """Goes on where something does not hold, until it has seen ``enough``, if that is any; keeps the ids of all that did not."""

    seen: ClassVar[set[str]]
    enough: ClassVar[Set[str]] = frozenset()

    def check(self, state: ExchangeState, before: ExchangeState | None = None) -> None:
        self.seen.update(invariant for invariant, _ in self.violations(state, before))
        if self.enough and self.enough <= self.seen:
            raise EnoughSeen


class OnlySafety(StateChecks):
    """Looks at safety alone, so that what is not safe is seen to be so, and not only to be wrong."""

    def check(self, state: ExchangeState, before: ExchangeState | None = None) -> None:
        for invariant, result in self.violations(state, before):
            if invariant == "S0":
                raise InvariantViolation(invariant, result)


def objections(configuration: Configuration, enough: Set[str] = frozenset()) -> set[str]:
    """The ids of all invariants that do not hold somewhere among the first 5,000 states of a configuration; or ``enough``."""
    seen: set[str] = set()
    collecting: Any = type("All", (Collecting,), {"seen": seen, "enough": enough})
    with contextlib.suppress(EnoughSeen):
        explore(attrs.evolve(configuration, checks=collecting), max_states=5_000)
    return seen


BROKEN: dict[Any, tuple[Configuration, str, set[str]]] = {  # where it shows, which objects first, and which do before long
    rules.__name__: (Configuration(LINE, 2, statements, later, rules=rules), first, also)
    for rules, statements, later, first, also in [
        (Splitting, 2, (1,), "X2", {"X2", "X4", "I3", "I5", "I6", "S0"}),
        (Overtaking, 3, (), "X2", {"X2", "I3"}),
        (Twice, 2, (1,), "X3", {"X3", "X4", "I4", "I6", "S0"}),
        (Lossy, 2, (1,), "X3", {"X3"}),
        (OneForAll, 2, (1,), "X3", {"X3", "X4", "I4", "I5", "I6", "S0"}),
        (Forging, 3, (), "X1", {"X1", "X2", "X6", "I3"}),
        (Overdrawing, 3, (), "I1", {"I1", "X1", "X2", "X4", "X6", "I4", "I6", "S0"}),
        (Inventing, 2, (1,), "X3", {"X3"}),
        (Doubling, 2, (1,), "X3", {"X3", "X4", "I4", "I5", "S0"}),
        (tracked_by(Hasty), 2, (1,), "G9", {"G9", "G10", "I5", "S0"}),
        (tracked_by(Mute), 2, (1,), "G10", {"G10"}),
        (tracked_by(Repeating), 2, (1,), "G10", {"G10"}),
    ]
}
ALL = {"X1", "X2", "X3", "X4", "X6", "I1", "I3", "I4", "I5", "I6", "S0", "G9", "G10"}
broken = pytest.mark.parametrize(("configuration", "first", "also"), BROKEN.values(), ids=BROKEN)


@broken
def test_T9_the_checker_objects(configuration: Configuration, first: str, also: set[str]) -> None:
    for graph in [LINE, LOOP] if configuration.statements == 2 else [LINE]:
        with pytest.raises(InvariantViolation) as caught:
            explore(attrs.evolve(configuration, graph=graph))
        assert caught.value.invariant == first


@broken
def test_T9_what_else_does_not_hold(configuration: Configuration, first: str, also: set[str]) -> None:
    assert first in also
    assert objections(configuration, also) >= also


def test_T9_every_invariant_has_something_to_object_to() -> None:
    assert set().union(*(also for _, _, also in BROKEN.values())) == ALL
    assert objections(Configuration(LINE, 2, 3)) == set()


# -- what trackers receive -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("graph", [LINE, CHAIN, LOOP], ids=["line", "chain", "loop"])
def test_T9_a_dropped_summary(graph: GraphSpec) -> None:
    deaf = attrs.evolve(graph, nodes=tuple(attrs.evolve(node, summaries={}) for node in graph.nodes))
    if graph is LINE:
        deaf = attrs.evolve(graph, edges=())
    with pytest.raises(InvariantViolation, match="^G9: "):
        explore(Configuration(graph, 2, 2, believed=deaf))
    assert "S0" in objections(Configuration(graph, 2, 2, believed=deaf), {"S0"})


@pytest.mark.parametrize("graph", [LINE, LOOP], ids=["line", "loop"])
def test_T9_edges_that_must_not_be_contracted(graph: GraphSpec) -> None:
    contracted = attrs.evolve(graph, edges=tuple((source, target, True) for source, target, _ in graph.edges))
    with pytest.raises(InvariantViolation, match="^G9: "):
        explore(Configuration(graph, 2, 3, believed=contracted))
    unsafe = Configuration(graph, 2, 3, believed=contracted, checks=OnlySafety)
    with pytest.raises(InvariantViolation, match="^S0: "):
        explore(unsafe)


# -- each by itself ------------------------------------------------------------------------------------------------------


def walk(rules: type[ExchangeRules], decisions: list[Any], later: tuple[int, ...] = ()) -> Iterator[set[str]]:
    """Take decisions on a line, whatever does not hold; return the ids of what does not hold after each."""
    seen: set[str] = set()
    collecting: Any = type("All", (Collecting,), {"seen": seen})
    simulation = ExchangeSimulation(LINE, 2, later, rules=rules, checks=collecting)
    for decision in decisions:
        seen.clear()
        simulation.decide(decision)
        yield set(seen)


def gone(worker: int) -> list[Any]:
    """A worker drops both of its capabilities and sends that, and the other receives it."""
    return [
        Do(worker, ((Source(0, 0), 0, -1), (Source(1, 0), 0, -1))),
        Flush(worker),
        Deliver(worker, 1 - worker),
    ]


SENT, TAKEN = Do(0, ((*MESSAGE, 1),)), Do(1, ((*MESSAGE, -1),))
LAST = Do(0, ((Source(0, 0), 0, -1),))
DONE = [*gone(0), *gone(1)]
FORGED = [*DONE, SENT, Flush(0), Deliver(0, 1)]

ALONE: dict[str, tuple[type[ExchangeRules], list[Any], set[str]]] = {  # all that does not hold after the last decision
    "X1, while it is not said": (Forging, [*gone(0), SENT], {"X1", "I3"}),
    "X2, once it was said": (Forging, [*gone(0), SENT, Flush(0)], {"X2", "I3"}),
    "X2, half of a batch": (Splitting, [Do(0, (*SENT.statement, *LAST.statement)), Flush(0)], {"X2", "I3"}),
    "X2, out of order": (Overtaking, [SENT, Flush(0), LAST, Flush(0), Deliver(0, 1, 1)], {"X2", "I3"}),
    "X3, lost": (Lossy, [SENT, Flush(0), LAST, Flush(0), Deliver(0, 1, 1)], {"X3"}),
    "X3, twice": (Twice, [SENT, Flush(0), Deliver(0, 1, 1)], {"X3"}),
    "X3, never sent": (Inventing, [LAST, Flush(0)], {"X3"}),
    "X4, I6 and S0, half of the last batch": (
        Splitting,
        [*gone(1), Do(0, (*SENT.statement, *LAST.statement, (Source(1, 0), 0, -1))), Flush(0), Deliver(0, 1), Deliver(0, 1)],
        {"X2", "I3", "X4", "I6", "S0"},
    ),
    "I5, when it is received": (Forging, FORGED, {"I5"}),
    "X6, of the truth": (Forging, [*DONE, SENT], {"X1", "I3", "X4", "X6", "S0"}),
    "I1, let go of twice": (Overdrawing, [*gone(0), LAST], {"I1"}),
    "I4, taken and never sent": (
        Lossy,
        [*gone(1), SENT, Flush(0), Do(0, ((*MESSAGE, -1), *LAST.statement)), Flush(0), Deliver(0, 1, 1)],
        {"X3", "I4"},
    ),
    "G9 and S0, of a tracker": (tracked_by(Hasty), gone(1), {"G9", "S0"}),
    "G10, reported twice": (tracked_by(Repeating), [*gone(1), LAST, Flush(0)], {"G10"}),
}


@pytest.mark.parametrize(("rules", "decisions", "expected"), ALONE.values(), ids=ALONE)
def test_T9_what_does_not_hold_after_a_few_steps(rules: type[ExchangeRules], decisions: list[Any], expected: set[str]) -> None:
    *_, last = walk(rules, decisions)
    assert last == expected


# -- what is shown -------------------------------------------------------------------------------------------------------


class Unchecked(StateChecks):
    """Looks at nothing."""

    def check(self, state: ExchangeState, before: ExchangeState | None = None) -> None:
        """All is well."""


@pytest.mark.parametrize("rules", [Overtaking, Twice, Splitting, Lossy])
def test_T9_the_real_protocol_refuses_what_the_rules_let_through(rules: type[ExchangeRules]) -> None:
    refused: type[ExchangeRules] = type(f"Checked{rules.__name__}", (rules,), {"receive": ExchangeRules.receive})
    with pytest.raises(InvariantViolation, match=r"^protocol: worker \d expected progress batch"):
        explore(Configuration(LINE, 2, 3, rules=refused, checks=Unchecked))


def test_T9_a_violation_comes_with_the_fewest_decisions_that_lead_to_it() -> None:
    with pytest.raises(InvariantViolation, match="^S0: worker 1 has passed ") as caught:
        explore(Configuration(LINE, 2, 3, rules=Overtaking, checks=OnlySafety))
    *before, last = [decision for decision in caught.value.decisions if isinstance(decision, Do | Flush | Deliver)]
    simulation = ExchangeSimulation(LINE, 2, rules=Overtaking, checks=OnlySafety)
    for decision in before:
        simulation.decide(decision)
    with pytest.raises(InvariantViolation, match="^S0: worker 1 has passed "):
        simulation.decide(last)
    assert str(caught.value).endswith(f"  {last}")
