"""The operators as methods: their help is whole, and they are the functions of ``timely.operators``."""

from __future__ import annotations

import inspect

import pytest

import timely
from timely import operators


def public(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_") and inspect.isroutine(getattr(kind, name))]


METHODS = [(kind, name) for kind in (timely.Stream, timely.ScopeBuilder) for name in public(kind)]


@pytest.mark.parametrize(("kind", "name"), METHODS)
def test_the_help_of_a_method_is_whole(kind: type, name: str) -> None:
    text = inspect.getdoc(getattr(kind, name)) or ""
    assert ">>> " in text
    assert "See ``" not in text


def test_methods_are_the_operators() -> None:
    assert len(METHODS) > 55
    own = {"add_scope", "apply", "concatenate", "enter", "finish", "iterative", "leave", "picture", "region", "scoped"}
    others = [(kind, name) for kind, name in METHODS if name not in own]
    assert [name for kind, name in others if getattr(kind, name) is not getattr(operators, name)] == []
