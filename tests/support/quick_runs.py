"""A plugin for pytest that spares processor time in tests and doctests: of the garbage collector, of searches for doctests."""

from __future__ import annotations

import gc
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from _pytest.doctest import DoctestModule


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while tests are collected, which all stay: that takes a quarter less."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[Any], list[Any]]:
    """Look for doctests only where there may be some: half of the modules have none."""
    found = yield
    if found and file_path.suffix == ".py" and b">>>" not in file_path.read_bytes():
        return [collector for collector in found if not isinstance(collector, DoctestModule)]
    return found


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Freeze what is left: the process would visit it several times as it ends, for 2 s."""
    gc.collect()  # for what finalizers of the last tests' garbage have to say
    gc.freeze()
