"""The model checker on configurations that are too large for every change: ``pytest -m soak --soak-seconds 600``.

Each search looks at one state after another, the nearest first, for as long as ``--soak-seconds`` says or until there are no
more; how many it has seen stands at the end of the run. A thousand states take some three megabytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.exchange_checks import Configuration
from tests.support.model_checker import explore
from tests.testing.exchanges import GRAPHS
from timely.testing import GraphSpec

pytestmark = pytest.mark.soak


@pytest.mark.parametrize(("workers", "statements"), [(2, 3), (3, 3)])
@pytest.mark.parametrize(("graph", "later"), GRAPHS.values(), ids=GRAPHS)
def test_T6_every_interleaving_of_larger_configurations(
    graph: GraphSpec, later: Any, workers: int, statements: int, soak_seconds: float, cover: Callable[[int, str], None]
) -> None:
    explored = explore(Configuration(graph, workers, statements, (later,)), max_seconds=soak_seconds)
    cover(explored.states, "states, which are all, of" if explored.complete else "states of")
    assert explored.states > 100
