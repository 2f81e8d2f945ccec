"""The help of the methods of streams and scopes is whole."""

from __future__ import annotations

import inspect

import pytest

import timely


def public(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_") and inspect.isroutine(getattr(kind, name))]


METHODS = [(kind, name) for kind in (timely.Stream, timely.ScopeBuilder) for name in public(kind)]


@pytest.mark.parametrize(("kind", "name"), METHODS)
def test_the_help_of_a_method_is_whole(kind: type, name: str) -> None:
    text = inspect.getdoc(getattr(kind, name)) or ""
    assert ">>> " in text
    assert "See ``" not in text


def test_no_method_is_missing() -> None:
    assert len(METHODS) > 55
