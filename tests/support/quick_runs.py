"""A plugin for pytest that spares processor time in tests and doctests: of the garbage collector, of searches for doctests."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator
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
    """Look for doctests only where there may be some: half of the modules have none.

    A package is always looked at, and so imported before its modules: pytest would make a module twice that its package imports.
    """
    result = yield
    if result and file_path.suffix == ".py" and file_path.stem != "__init__" and b">>>" not in file_path.read_bytes():
        return [collector for collector in result if not isinstance(collector, DoctestModule)]
    return result


@pytest.fixture(scope="module", autouse=True)
def frozen_heap() -> Iterator[None]:
    """Freeze what was there before a file of tests or doctests: a collection would visit all objects of pytest and of libraries.

    With all tests collected, each ``gc.collect()`` took 0.4 s of processor time. Some files call it in a loop, and a run that
    stalls calls it. A type checker that ran in this process has left its own thresholds.
    """
    gc.freeze()
    limits = gc.get_threshold()
    yield
    gc.set_threshold(*limits)
    gc.unfreeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Freeze what is left: the process would visit it several times as it ends, for 2 s."""
    gc.collect()  # for what finalizers of the last tests' garbage have to say
    gc.freeze()
