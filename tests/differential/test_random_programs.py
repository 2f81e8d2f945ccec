"""Random programs with loops up to three levels deep, against a recursive evaluator on dicts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from tests.support.collection_programs import CollectionProgram as P
from tests.support.collection_programs import programs
from timely import Product
from timely.testing.differential import Case, cases, check_changes, few_times

PAIR: Any = Product[int, int]


def check(program: P, case: Case, time: Any) -> None:
    check_changes(case.run(program.build, time), case.inputs, lambda *held: program.evaluate(held), time)


@settings(max_examples=2 * settings().max_examples)
@given(programs(), cases(2, few_times(int), size=6))
def test_programs_at_epochs(program: P, case: Case) -> None:
    check(program, case, int)


@settings(max_examples=2 * settings().max_examples)
@given(programs(), cases(2, few_times(PAIR), size=5))
def test_programs_at_partially_ordered_times(program: P, case: Case) -> None:
    check(program, case, PAIR)


VARIABLE = P("variable")
INPUT, OTHER = P("input"), P("input", (), 1)


@pytest.mark.parametrize("group", range(7))
@settings(max_examples=5)
@given(cases(2, few_times(int), size=4))
def test_groups_three_loops_deep(group: int, case: Case) -> None:
    innermost = P("group", (P("join", (VARIABLE, P("variable", (), 2)), 1),), group)
    middle = P("rounds", (P("map", (VARIABLE,), 1), P("concat", (innermost, OTHER))), 1)
    deepest = P("rounds", (VARIABLE, P("concat", (middle, P("negate", (INPUT,))))), 1)
    check(P("rounds", (INPUT, deepest), 1), case, int)
