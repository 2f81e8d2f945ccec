"""SQL over tables: the whole corpus on workers and after recovery, and random queries, compared with DuckDB at every epoch."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.differential.beside_duckdb import RESTART
from tests.differential.mutated_queries import Mutants, subjects
from tests.differential.sql_epochs import (
    QUERIES,
    check_random_query,
    stream,
)

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_gives_the_same_on_workers_and_after_recovery(query: str, tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        assert stream(seed).views(query) == stream(seed).expected(query)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("timely.differential.tables.expressions.column_stages.FEW", 1)  # a few rows go by columns too
        assert stream(2).views(query, lambda time: time % 3 != 1) == stream(2).expected(query)
    assert stream(3).views_on_workers(query) == stream(3).expected(query)
    assert stream(1).views_after_restart(query, tmp_path) == stream(1).expected(query)[RESTART:]


def test_random_queries_give_what_duckdb_gives(soak_seconds: float, cover: Callable[[int, str], None]) -> None:
    end, first, count = time.monotonic() + soak_seconds, random.randrange(10**9), 0
    while time.monotonic() < end:
        check_random_query(first + count)
        count += 1
    cover(count, "queries")


@pytest.mark.parametrize("number", [0, 1, 2], ids=["corpus", "expressions", "tpch"])
def test_mutants_of_queries_are_right_or_refused(
    number: int, soak_seconds: float, cover: Callable[[int, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timely.differential.tables.expressions.column_stages.FEW", 1)  # a few rows go by columns too
    end, subject, seed = time.monotonic() + soak_seconds, subjects()[number], random.randrange(10**9)
    mutants, outcomes = Mutants(subject.queries, subject.snippets, seed), Counter[str]()
    while time.monotonic() < end:
        query = mutants.query()
        outcome, detail = subject.outcome(query)
        assert outcome not in ("wrong", "crash"), (seed, query, detail)
        if outcome == "equal":
            mutants.learn(query)
        outcomes[outcome] += 1
    for outcome, count in sorted(outcomes.items()):
        cover(count, f"mutants: {outcome},")
