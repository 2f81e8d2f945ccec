"""Operators have the names that pictures, errors and explanations show: the given one, or that of the user's function."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import timely
from timely import ScopeBuilder, Stream, operators

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


OF_STREAMS = (
    "map filter flat_map map_batch map_async inspect inspect_time inspect_batch inspect_progress exchange broadcast partition"
    " branch branch_when ok_err delay delay_batch count value_counts group_by accumulate aggregate reduce_by_key state_machine"
    " distinct join connect_loop probe capture unary unary_frontier unary_notify binary binary_frontier"
    " binary_notify sink"
)
OF_SCOPES = "new_input input_from new_unordered_input to_stream source from_async iterator_source empty feedback replay"


def functions() -> list[tuple[str, Callable[..., Any]]]:
    """Every public function of the operators, those of the convenience modules included."""
    public = {name: value for name, value in vars(operators).items() if inspect.isfunction(value)}
    for module in (operators.results, operators.windows):
        own = [(name, value) for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        public |= {f"{module.__name__}.{name}": value for name, value in own if inspect.isfunction(value)}
    return [(name, value) for name, value in sorted(public.items()) if not value.__name__.startswith("_")]


@pytest.mark.parametrize(("owner", "names"), [(Stream, OF_STREAMS), (ScopeBuilder, OF_SCOPES)])
def test_each_operator_is_a_method_too(owner: type, names: str) -> None:
    for name in names.split():
        assert getattr(owner, name) is getattr(operators, name)


@pytest.mark.parametrize(("name", "function"), functions())
def test_every_operator_has_an_example(name: str, function: Callable[..., Any]) -> None:
    examples = doctest.DocTestFinder(recurse=False).find(function, name)
    assert any(test.examples for test in examples), f"{name} shows no example"
