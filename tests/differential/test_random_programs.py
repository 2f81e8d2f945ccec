"""Random programs with loops up to three levels deep, against a recursive evaluator on dicts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from timely import Product
from timely.testing.collection_programs import Program, programs
from timely.testing.differential import Case, cases, check_changes, few_times

PAIR: Any = Product[int, int]


def check(program: Program, case: Case, time: Any) -> None:
    check_changes(case.run(program.build, time), case.inputs, lambda *held: program.evaluate(held), time)


@settings(max_examples=150)
@given(programs(), cases(2, few_times(int), size=6))
def test_programs_at_epochs(program: Program, case: Case) -> None:
    check(program, case, int)


@settings(max_examples=150)
@given(programs(), cases(2, few_times(PAIR), size=5))
def test_programs_at_partially_ordered_times(program: Program, case: Case) -> None:
    check(program, case, PAIR)


VARIABLE = Program("variable")
INPUT, OTHER = Program("input"), Program("input", (), 1)


@pytest.mark.parametrize("group", range(7))
@settings(max_examples=15)
@given(cases(2, few_times(int), size=6))
def test_groups_three_loops_deep(group: int, case: Case) -> None:
    innermost = Program("group", (Program("join", (VARIABLE, Program("variable", (), 2)), 1),), group)
    middle = Program("rounds", (Program("map", (VARIABLE,), 1), Program("concat", (innermost, OTHER))), 1)
    deepest = Program("rounds", (VARIABLE, Program("concat", (middle, Program("negate", (INPUT,))))), 1)
    check(Program("rounds", (INPUT, deepest), 1), case, int)
