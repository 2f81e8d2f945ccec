"""Why a row of a random program is there, or not: an evaluator on dicts has it over rows that are named, and no fewer."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.collection_programs import FILTERS, KEYS, VALUES, CollectionProgram, programs
from timely.differential import Explainer, why
from timely.errors import ConfigurationError

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


def unfiltered(program: CollectionProgram) -> CollectionProgram:
    if program.op == "filter":
        return unfiltered(program.parts[0])
    return attrs.evolve(program, parts=tuple(map(unfiltered, program.parts)))


def planted(program: CollectionProgram, which: int) -> list[CollectionProgram]:
    """Return the programs with a filter behind one of the operators."""
    inner = [
        attrs.evolve(program, parts=(*program.parts[:place], wrong, *program.parts[place + 1 :]))
        for place, part in enumerate(program.parts)
        for wrong in planted(part, which)
    ]
    return [CollectionProgram("filter", (program,), which), *inner]


def named_filters(shapes: int) -> tuple[int, int]:
    """Return in how many of so many programs with one wrong filter it is named, and at first."""
    asked, named, at_first = 0, 0, 0

    @settings(max_examples=10 * shapes)
    @given(programs(), st.integers(0, 2), st.integers(0, 9), ROWS, ROWS)
    def ask(right: CollectionProgram, which: int, at: int, first: dict[Any, int], other: dict[Any, int]) -> None:
        nonlocal asked, named, at_first
        right = unfiltered(right)
        wrong = (wrongs := planted(right, which))[at % len(wrongs)]
        there = wrong.evaluate([first, other])
        missing = [row for row, count in right.evaluate([first, other]).items() if count > 0 >= there.get(row, 0)]
        if asked < shapes and missing:
            output = Explainer(lambda first, other: wrong.build(first, other), {"first": first, "other": other}).output
            drops = output.why_not(missing[0]).drops
            dropping = [drop.rows and not any(map(FILTERS[which], drop.rows)) for drop in drops if drop.operator == "filter"]
            asked += 1
            named += any(dropping)
            at_first += drops[0].operator == "filter" and bool(dropping[0])

    ask()
    assert asked == shapes
    return named, at_first


def test_a_wrong_filter_of_a_random_program_is_named() -> None:
    named, at_first = named_filters(8)
    assert named >= 7
    assert at_first >= 6


@pytest.mark.soak
def test_a_wrong_filter_of_two_hundred_random_programs_is_named() -> None:
    named, at_first = named_filters(200)
    assert named >= 170
    assert at_first >= 145


EDGES = [(1, 2), (2, 3), (4, 5), (5, 6)]


def reached(edges: Any, roots: Any) -> Any:
    def step(scope: Any, nodes: Any) -> Any:
        onwards = nodes.map(lambda node: (node, None)).join_map(edges.enter(scope), lambda node, _, to: to)
        return roots.enter(scope).concat(onwards).distinct()

    return roots.iterate(step)


@pytest.mark.parametrize(
    ("program", "row", "operator", "rows"),
    [
        (lambda edges, roots: edges.filter(lambda edge: edge[0] != 4), (4, 5), "filter", [(4, 5)]),
        (lambda edges, roots: edges.flat_map(lambda edge: edge[1:] if edge[0] > 1 else ()), 2, "flat_map", [(1, 2)]),
        (lambda edges, roots: edges.map(lambda edge: edge[0]).distinct(), 9, "edges", []),
        (lambda edges, roots: edges.map(lambda edge: (edge[0] % 2, edge[0])).min_by_key(), (0, 4), "min_by_key", [(0, 2)]),
        (lambda edges, roots: edges.map(lambda edge: (0, edge[0])).top_k(2), lambda row: row[1] < 3, "top_k", [(0, 5), (0, 4)]),
        (lambda edges, roots: edges.count(), ((1, 2), 3), "count", [((1, 2), 1)]),
        (lambda edges, roots: edges.semijoin(roots), lambda edge: edge[1] == 6, "semijoin", [(5, 6)]),
        (lambda edges, roots: edges.antijoin(roots), (1, 2), "concat", [(1, 2)]),
        (lambda edges, roots: edges.join(edges), (4, (5, 7)), "join", [(4, 5)]),
        (reached, 6, "join_map", [(4, 5)]),
    ],
)
def test_the_operator_that_drops_the_last_candidates_is_named(program: Any, row: Any, operator: str, rows: list[Any]) -> None:
    output = Explainer(program, {"edges": EDGES, "roots": [1]}).output
    first = output.why_not(row).drops[0]
    assert (first.operator, list(first.rows)) == (operator, rows), first
    assert operator == "edges" or "test_why_programs.py" in first.at


def test_outputs_that_cannot_run_again_and_rows_that_are_there_are_refused() -> None:
    explainer = Explainer(reached, {"edges": EDGES, "roots": [1]})
    explainer.update({"edges": [((1, 2), -1)]})
    assert explainer.output.why(3, time=0).inputs == {"edges": {(1, 2): 1, (2, 3): 1}, "roots": {1: 1}}
    for ask, reason in (
        (lambda: explainer.output.why(3), "has no row 3"),
        (lambda: explainer.output.why(3, time=1), "has no row 3"),
        (lambda: explainer.output.why(1, time=2), "times from 0 to 1, not 2"),
        (lambda: explainer.output.why_not(1), "has such a row"),
    ):
        with pytest.raises(ConfigurationError, match=reason):
            ask()
