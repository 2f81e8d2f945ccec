"""Operators have the names that pictures, errors and explanations show: the given one, or that of the user's function."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import pytest

import timely

UNNAMED = {
    "apply",
    "connect_loop",
    "enter",
    "leave",
    "picture",
    "finish",
    "iterative",
    "region",
    "scoped",
    "scoped_by",
    "add_scope",
}
"""Those that make no operator, or name a scope."""


def clean(x: int, add: int = 0) -> int:
    return x + add


class Cleaner:
    def clean(self, x: int) -> int:
        return x


def names(build: Any) -> list[str]:
    with timely.Worker().dataflow() as scope:
        build(scope)
    return [operator.name for operator in scope.picture().shape.operators()]


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (clean, "map · clean"),
        (partial(clean, add=2), "map · clean"),
        (Cleaner().clean, "map · clean"),
        (lambda x: x, "map"),
        (str, "map"),
        (str.upper, "map"),
        (timely.dataflow.route, "map"),
    ],
)
def test_an_operator_is_called_what_the_users_function_is(function: Any, name: str) -> None:
    assert names(lambda scope: scope.to_stream([1]).map(function)) == ["to_stream", name]


def test_a_branch_is_a_branch_and_a_concat_a_concat() -> None:
    def build(scope: timely.ScopeBuilder) -> None:
        small, large = scope.to_stream([1], name="numbers").branch(lambda x: x > 1)
        small.concat(large)
        scope.concatenate([small, large], name="both")

    assert names(build) == ["numbers", "branch", "concat", "both"]


@pytest.mark.parametrize("kind", [timely.Stream, timely.ScopeBuilder])
def test_every_operator_takes_a_name(kind: type) -> None:
    without = {
        name
        for name, method in vars(kind.__base__).items()
        if not name.startswith("_") and "name" not in inspect.signature(method).parameters
    }
    assert without <= UNNAMED | {"group_by"}  # whose keywords are columns


@pytest.mark.parametrize("name", ["", 3])
def test_a_name_is_a_string_with_something_in_it(name: Any) -> None:
    with pytest.raises(timely.GraphError, match="map: name= is what pictures and errors call the operator"):
        timely.example(lambda scope: scope.to_stream([1]).map(clean, name=name))


def test_an_error_has_the_name() -> None:
    with pytest.raises(timely.OperatorError, match=r"operator 'halves' \(/example/halves#1\)"):
        timely.example(lambda scope: scope.to_stream([1]).map(lambda x: x / 0, name="halves"))
    with pytest.raises(timely.OperatorError, match=r"operator 'map · clean' \(/example/map · clean#1\)"):
        timely.example(lambda scope: scope.to_stream([""]).map(clean))  # type: ignore[arg-type]


def test_the_picture_of_a_scope_has_its_times() -> None:
    with timely.Worker().dataflow(name="df") as scope:
        scope.empty()
    assert "df (time: int)" in scope.picture().svg()
