"""Every operator is a method of its stream or scope, and has an example."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from timely import ScopeBuilder, Stream, operators

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
