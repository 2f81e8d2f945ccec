"""Everything that ``timely.testing`` exports says what it is, and shows it in an example that the tests run."""

from __future__ import annotations

import doctest
import inspect
from typing import Any

import pytest

import timely.testing

EXPORTED: dict[str, Any] = {name: getattr(timely.testing, name) for name in timely.testing.__all__}
CODE = {name: value for name, value in EXPORTED.items() if inspect.isclass(value) or inspect.isroutine(value)}


def public_members(owner: type) -> dict[str, Any]:
    """The functions that a class of ours, or one that it is derived from, offers to callers."""
    members: dict[str, Any] = {}
    for base in owner.__mro__:
        if base.__module__.startswith("timely."):
            for name, value in vars(base).items():
                function = getattr(value, "fget", None) or getattr(value, "__func__", value)
                if not name.startswith("_") and inspect.isfunction(function):
                    members.setdefault(name, function)
    return members


def asserts(example: doctest.Example) -> bool:
    """Whether an example shows what comes out."""
    return bool(example.want)


@pytest.mark.parametrize("name", CODE)
def test_what_is_exported_has_an_example_that_asserts(name: str) -> None:
    examples = doctest.DocTestParser().get_examples(inspect.getdoc(CODE[name]) or "")
    assert any(map(asserts, examples))


@pytest.mark.parametrize("name", [name for name, value in CODE.items() if inspect.isclass(value)])
def test_every_public_method_of_what_is_exported_is_documented(name: str) -> None:
    assert [method for method, function in public_members(EXPORTED[name]).items() if not inspect.getdoc(function)] == []


def test_what_is_no_code_is_a_table_or_a_type() -> None:
    assert EXPORTED.keys() - CODE.keys() == {"Change", "INVARIANTS", "Pointstamp"}


def test_names_are_sorted_and_found_in_their_modules() -> None:
    assert sorted(EXPORTED) == timely.testing.__all__
    assert all(value.__module__.startswith("timely.testing.") for value in CODE.values())


def test_T9_the_check_of_examples_objects_to_one_that_shows_nothing() -> None:
    parser = doctest.DocTestParser()
    assert not any(map(asserts, parser.get_examples(">>> x = 1\n>>> assert_nothing = x\n")))
    assert any(map(asserts, parser.get_examples(">>> 1 + 1\n2\n")))
