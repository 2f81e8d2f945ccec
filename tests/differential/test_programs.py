"""The programs of ``examples/differential``: changes by epoch, on one worker and three, one by one and all in flight."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import timely
from examples.differential import (
    as_of,
    interactive_queries,
    late_sessions,
    points_to,
    revenue,
    shared_text,
    sql_recursion,
    stable_matching,
    strongly_connected,
    ten_queries,
    top_scores,
    two_core,
)
from tests.differential.epochs import accumulated, held
from timely import differential as dd
from timely.testing.differential import Containers, run, run_resumed
from timely.testing.differential import accumulated as held_at

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "differential"
PROGRAMS = {
    "DD_J1": strongly_connected,
    "DD_J2": stable_matching,
    "DD_J3": points_to,
    "DD_J4": revenue,
    "DD_J5": two_core,
    "DD_J6": interactive_queries,
    "DD_J7": top_scores,
    "DD_J8": late_sessions,
    "DD_J9": ten_queries,
    "DD_J10": as_of,
    "DD_J11": sql_recursion,
    "DD_J12": shared_text,
}


def test_every_example_is_a_program() -> None:
    assert sorted(path.stem for path in EXAMPLES.glob("*.py")) == sorted(
        program.__name__.rpartition(".")[2] for program in PROGRAMS.values()
    )


@pytest.mark.parametrize("number", PROGRAMS)
def test_example(number: str) -> None:
    PROGRAMS[number].main()


def epochs_of(program: ModuleType) -> tuple[list[Any], list[dict[Any, int]]]:
    """The changes of each collection by epoch, and what the result holds then."""
    epochs: list[Any]
    if program is ten_queries:
        by_epoch, expected = ten_queries.changes()
        epochs = [*by_epoch]
    else:
        epochs, expected = program.EPOCHS, accumulated(program.EXPECTED)
    return [changes if isinstance(changes, tuple) else (changes,) for changes in epochs], expected


@pytest.mark.parametrize(("workers", "at_once"), [(1, True), (3, False)])
@pytest.mark.parametrize("number", PROGRAMS)
def test_program(number: str, workers: int, at_once: bool) -> None:
    program = PROGRAMS[number]
    epochs, expected = epochs_of(program)
    build: Callable[..., dd.Collection[int, Any]] = program.build
    assert held(build, epochs, workers, at_once) == expected


@pytest.mark.parametrize(
    ("number", "containers", "workers", "compact"),
    [
        pytest.param(number, *conditions, marks=[pytest.mark.soak] if number == "DD_J9" and conditions[0] != "rows" else [])
        for number in PROGRAMS  # J9 in columns of one row each takes a minute
        for conditions in [("rows", (1, 3), True), ("columns", (1, 1), False), ("mixed", (3, 2), False)]
    ],
)
def test_program_resumed_after_epoch_1(
    tmp_path: Path, number: str, containers: Containers, workers: tuple[int, int], compact: bool
) -> None:
    program = PROGRAMS[number]
    epochs, expected = epochs_of(program)
    changes = [
        [(record, epoch, diff) for epoch, sides in enumerate(epochs) for record, diff in sides[which]]
        for which in range(len(epochs[0]))
    ]
    conditions: Any = {"workers": workers, "compact": compact, "containers": containers}
    result = run_resumed(program.build, *changes, directory=tmp_path, at=2, **conditions)
    assert [held_at(result, epoch) for epoch in range(len(epochs))] == expected
    if number == "DD_J9" or containers != "mixed":
        return  # J9 is large, and the joins of others are run in all these ways
    for conditions in ({"containers": containers, "one_by_one": True}, {"containers": containers, "seed": 3}):
        assert run(program.build, *changes, workers=workers[0], **conditions) == result


@pytest.mark.parametrize("chance", range(5))
def test_DD_J2_random_preferences(chance: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pick = random.Random(chance)
    proposers, choosers = list("abcdefgh"), list("stuvwxyz")
    choices = {chooser: pick.sample(proposers, 6) for chooser in choosers}
    monkeypatch.setattr(stable_matching, "CHOICES", choices)
    wishes = {one: pick.sample(choosers, 6) for one in proposers}
    epochs: list[Any] = [([((one, (rank, name)), 1) for one, names in wishes.items() for rank, name in enumerate(names)],)]
    expected = [matched(wishes, choices)]
    for _ in range(10):
        one = pick.choice(proposers)
        new = pick.sample(choosers, 5)
        gone = [((one, (rank, name)), -1) for rank, name in enumerate(wishes[one])]
        epochs.append(([*gone, *[((one, (rank, name)), 1) for rank, name in enumerate(new)]],))
        wishes[one] = new
        expected.append(matched(wishes, choices))
    assert held(stable_matching.build, epochs) == expected
    assert held(stable_matching.build, epochs, at_once=True) == expected


def matched(wishes: dict[str, list[str]], choices: dict[str, list[str]]) -> dict[tuple[str, str], int]:
    """The stable matching that is best for proposers, by Gale and Shapley."""
    left = {one: [name for name in names if one in choices[name]] for one, names in wishes.items()}
    engaged: dict[str, str] = {}
    free = sorted(left)
    while free:
        one = free.pop()
        if not left[one]:
            continue
        name = left[one].pop(0)
        other = engaged.get(name)
        if other is None or choices[name].index(one) < choices[name].index(other):
            engaged[name], one = one, other or ""
        if one:
            free.append(one)
    return {(one, name): 1 for name, one in engaged.items()}


def test_DD_J7_a_large_group_changes_at_once() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            session, scores = dd.new_collection(scope)
            probe = top_scores.build(scores).probe()
        began = time.thread_time()
        for points in range(100_000):
            session.insert(("g", (str(points), points)))
        session.advance_to(1)
        worker.step_while(lambda: probe.less_than(1))
        all_of_them, took = time.thread_time() - began, []
        for epoch in range(1, 101):
            began = time.thread_time()
            session.remove(("g", (str(100_000 - epoch), 100_000 - epoch)))
            session.advance_to(epoch + 1)
            worker.step_while(lambda: probe.less_than(epoch + 1))  # noqa: B023  # called at once
            took.append(time.thread_time() - began)
        assert sorted(took)[50] < all_of_them / 500
