"""Collections for long: every id under every condition, random programs, a million changes, epochs by the 100,000."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.differential import (
    test_adding_up,
    test_groups,
    test_joins,
    test_linear,
    test_loops,
    test_operators,
    test_random_programs,
)
from tests.differential.conftest import EVERY, RESUMED, name_of, running
from timely import Product
from timely.testing.collection_programs import Program, programs
from timely.testing.differential import Case, cases, check_changes, few_times

pytestmark = pytest.mark.soak
Soak = Callable[..., None]
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
        modules += [test_adding_up, test_linear]
    for module in modules:
        for test in ids_of(module):
            test(running(condition, tmp_path / test.__name__))


LARGER = cases(2, few_times(int), size=20, containers=["columns", "mixed"])
LARGER_PAIRS = cases(2, few_times(PAIR), size=16, containers=["columns", "mixed"])


@given(programs(size=4), LARGER)
def check_at_epochs(program: Program, case: Case) -> None:
    test_random_programs.check(program, case, int)


@given(programs(size=4), LARGER_PAIRS)
def check_at_pairs(program: Program, case: Case) -> None:
    test_random_programs.check(program, case, PAIR)


@pytest.mark.parametrize("check", [check_at_epochs, check_at_pairs], ids=["epochs", "pairs"])
def test_random_programs_on_columns(soak: Soak, check: Any) -> None:
    soak(check)


@given(st.data(), st.sampled_from([int, PAIR]))
def check_operators(data: st.DataObject, time: Any) -> None:
    name = data.draw(st.sampled_from([*test_operators.ONE, *test_operators.TWO]))
    inputs = 1 if name in test_operators.ONE else 2
    build, oracle = (test_operators.ONE if inputs == 1 else test_operators.TWO)[name]
    case = data.draw(cases(inputs, few_times(time), size=20, containers=["columns", "mixed"]))
    check_changes(case.run(build, time), case.inputs, oracle, time)


def test_operators_on_columns(soak: Soak) -> None:
    soak(check_operators)


@given(programs(), cases(2, few_times(int), size=8), st.integers(0, 2), st.integers(1, 3))
def check_resumed(program: Program, case: Case, at: int, workers: int) -> None:
    import tempfile

    from timely.testing.differential import run_resumed

    if not any(case.inputs):
        return
    with tempfile.TemporaryDirectory() as directory:
        found = run_resumed(
            program.build, *case.inputs, directory=Path(directory), at=at, workers=(case.workers, workers),
            compact=case.compact, containers=case.containers,
        )
    check_changes(found, case.inputs, lambda *held: program.evaluate(held))


def test_random_programs_resumed(soak: Soak) -> None:
    soak(check_resumed)
