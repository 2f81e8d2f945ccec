"""Why a row of a random program is there: an evaluator on dicts has it over the rows that are named, and over no fewer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.collection_programs import KEYS, VALUES, CollectionProgram, programs
from timely.differential import why

ROWS = st.dictionaries(st.tuples(st.integers(0, KEYS - 1), st.integers(0, VALUES - 1)), st.integers(1, 2), max_size=6)


def check(program: CollectionProgram, first: dict[Any, int], other: dict[Any, int]) -> None:
    def evaluated(inputs: dict[str, dict[Any, int]]) -> dict[Any, int]:
        return program.evaluate([inputs.get("first", {}), inputs.get("other", {})])

    held = {"first": first, "other": other}
    for row in [row for row, count in evaluated(held).items() if count > 0][:2]:
        answer = why(lambda first, other: program.build(first, other), held, row)
        assert all(rows.items() <= held[name].items() for name, rows in answer.inputs.items())
        assert evaluated(answer.inputs).get(row, 0) > 0
        for name, rows in answer.inputs.items():
            for gone in rows:
                fewer = {each: count for each, count in rows.items() if each != gone}
                assert evaluated({**answer.inputs, name: fewer}).get(row, 0) <= 0
        assert answer.steps.record == row


@settings(max_examples=25)
@given(programs(), ROWS, ROWS)
def test_rows_of_random_programs_follow_from_few_rows(
    program: CollectionProgram, first: dict[Any, int], other: dict[Any, int]
) -> None:
    check(program, first, other)


@pytest.mark.soak
@pytest.mark.parametrize("group", range(15))
@settings(max_examples=200, derandomize=False)
@given(program=programs(), first=ROWS, other=ROWS)
def test_rows_of_three_thousand_random_programs_follow_from_few_rows(
    group: int, program: CollectionProgram, first: dict[Any, int], other: dict[Any, int]
) -> None:
    check(program, first, other)
