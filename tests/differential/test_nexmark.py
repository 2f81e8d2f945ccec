"""Nexmark through SQL: each query holds what DuckDB computes, at every epoch, also while rows leave."""

from __future__ import annotations

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")

from benchmarks.nexmark import QUERIES, Recomputed, View, epochs
from benchmarks.views import check_equal


@pytest.mark.parametrize("query", QUERIES.values(), ids=list(QUERIES))
def test_a_query_holds_what_duckdb_computes_at_every_epoch(query: str) -> None:
    view, recomputed = View(query), Recomputed(query)
    for rows in epochs(3, 1_500):
        view.add(rows)
        recomputed.add(rows)
        check_equal(query, view.rows(), recomputed.rows())
    some = {name: table.slice(0, len(table) // 3) for name, table in next(epochs(1, 1_500)).items()}
    view.add(some, -1)
    for name in some:
        recomputed.remove(name, len(some[name]))
    check_equal(query, view.rows(), recomputed.rows())
    view.close()
