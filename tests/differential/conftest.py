"""How the programs of reference ids are run: on one and on three workers, at once and one by one, with compaction forced."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from timely.testing import differential

CONDITIONS = [
    pytest.param(
        {"workers": workers, "one_by_one": one_by_one, "compact": compact},
        id=f"{workers}-{'one by one' if one_by_one else 'at once'}{'-compacted' if compact else ''}",
    )
    for workers in (1, 3)
    for one_by_one in (False, True)
    for compact in (False, True)
]


@pytest.fixture(params=CONDITIONS)
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return ``run(build, *inputs)``, under one of the conditions."""
    return partial(differential.run, **request.param)
