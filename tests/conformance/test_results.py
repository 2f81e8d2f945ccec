"""Operators on ``Ok`` and ``Err``, by the id of the conformance list (2.7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.test_operators import arrivals
from timely import OperatorError
from timely.operators.results import Err, Ok, and_then, err, map_err, map_ok, ok, unwrap_or_else


def run(records: list[Any], operator: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What ``operator`` makes of the records, in order of arrival."""
    return arrivals(lambda scope: operator(scope.to_stream(records), *arguments))


@pytest.mark.parametrize(
    ("operator", "arguments", "expected"),
    [
        (ok, (), [0]),
        (err, (), [()]),
        (map_ok, (lambda _: 10,), [Ok(10), Err(())]),
        (map_err, (lambda _: 10,), [Ok(0), Err(10)]),
        (and_then, (lambda _: Ok(1),), [Ok(1), Err(())]),
        (and_then, (lambda x: Err(x),), [Err(0), Err(())]),
        (unwrap_or_else, (lambda _: 10,), [0, 10]),
    ],
)
def test_P18_result_operators(operator: Callable[..., Any], arguments: tuple[Any, ...], expected: list[Any]) -> None:
    assert run([Ok(0), Err(())], operator, *arguments) == expected


results = st.builds(Ok, st.integers()) | st.builds(Err, st.text())


@given(st.lists(results))
def test_P18_a_function_for_one_kind_never_sees_the_other(records: list[Any]) -> None:
    values = [record.value for record in records if isinstance(record, Ok)]
    errors = [record.error for record in records if isinstance(record, Err)]
    seen: list[Any] = []
    assert run(records, ok) == values
    assert run(records, err) == errors
    run(records, map_ok, seen.append)
    run(records, map_err, seen.append)

    def note(value: int) -> Ok[int]:
        seen.append(value)
        return Ok(value)

    run(records, and_then, note)
    run(records, unwrap_or_else, seen.append)
    assert seen == values + errors + values + errors


def test_P18_a_record_of_neither_kind_is_an_error() -> None:
    operators: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [(ok, ()), (err, ()), (map_ok, (str,)), (map_err, (str,))]
    operators += [(and_then, (Ok,)), (unwrap_or_else, (str,))]
    for operator, arguments in operators:
        with pytest.raises(OperatorError, match="expected an Ok or an Err, and got 5"):
            run([Ok(1), 5], operator, *arguments)


def test_P18_results_are_values() -> None:
    assert {Ok(1), Ok(1), Err(1)} == {Err(1), Ok(1)}
    assert len({Ok(1), Err(1)}) == 2
    assert sorted([Ok(2), Ok(1)]) == [Ok(1), Ok(2)]
