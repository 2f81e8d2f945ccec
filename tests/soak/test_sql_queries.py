"""SQL over tables: the whole corpus on workers and after recovery, and random queries, compared with DuckDB at every epoch."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.differential.sql_epochs import (
    QUERIES,
    check_random_query,
    expected_by_epoch,
    stream,
    views_after_recovery,
    views_by_epoch,
    views_on_workers,
)

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_gives_the_same_on_workers_and_after_recovery(query: str, tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        assert views_by_epoch(stream(seed), query) == expected_by_epoch(seed, query)
    assert views_on_workers(stream(3), query, 3) == expected_by_epoch(3, query)
    assert views_after_recovery(query, tmp_path) == expected_by_epoch(1, query)[3:]


def test_random_queries_give_what_duckdb_gives(soak_seconds: float, cover: Callable[[int, str], None]) -> None:
    end, first, count = time.monotonic() + soak_seconds, random.randrange(10**9), 0
    while time.monotonic() < end:
        check_random_query(first + count)
        count += 1
    cover(count, "queries")
