"""How the programs of reference ids are run: as rows, columns or both, on one and on three workers, compacted, resumed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import count, product
from pathlib import Path
from typing import Any

import pytest

from timely.testing import differential

EVERY = [
    {"containers": containers, "workers": workers, "one_by_one": one_by_one, "compact": compact}
    for containers, workers, one_by_one, compact in product(("rows", "columns", "mixed"), (1, 3), (False, True), (False, True))
]
"""All conditions: the soak runs every id under each of them."""

SAMPLE = [0, 7, 9, 14, 18, 21]
"""The fewest in which every two choices meet."""

RESUMED = [
    {"containers": containers, "workers": workers, "compact": compact}
    for containers, workers, compact in (("rows", (1, 3), True), ("columns", (1, 1), False), ("mixed", (3, 2), False))
]
"""A checkpoint in the middle, for the modules with ``RESUMED = True``."""


def name_of(condition: dict[str, Any]) -> str:
    """Return how a condition is called in the name of a test."""
    return "-".join(str(value) if not isinstance(value, bool) else name * value for name, value in condition.items())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that takes ``run`` under a sample of the conditions."""
    if "run" in metafunc.fixturenames:
        conditions = [EVERY[number] for number in SAMPLE]
        conditions += RESUMED if getattr(metafunc.module, "RESUMED", False) else []
        metafunc.parametrize("run", conditions, indirect=True, ids=name_of)


@pytest.fixture
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    """Return ``run(build, *inputs)``, under one of the conditions."""
    return running(request.param, tmp_path)


def running(condition: dict[str, Any], directory: Path) -> Callable[..., Any]:
    """Return ``run(build, *inputs)``, under a condition."""
    if "one_by_one" in condition:
        return partial(differential.run, **condition)
    numbers = count()

    def resumed(build: Any, *inputs: Any, time: Any = int) -> Any:
        return differential.run_resumed(build, *inputs, directory=directory / str(next(numbers)), time=time, **condition)

    return resumed


@pytest.fixture(autouse=True)
def traces_of_other_tests_do_not_count(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a test that counts what traces keep count its own: others may not have been collected yet."""
    counts = hasattr(request.module, "updates_in_traces")
    if counts and ("test_joins" not in request.module.__name__ or "E9" in request.node.name):  # counting looks at every object
        updates = differential.updates_in_traces
        others = Counter(updates())
        monkeypatch.setattr(request.module, "updates_in_traces", lambda: list((Counter(updates()) - others).elements()) or [0])
