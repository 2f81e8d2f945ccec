"""Mutants of the corpus of queries beside DuckDB: right at every epoch, or refused when the view is built."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.differential.mutated_queries import Mutants, agreement, subjects


@pytest.mark.parametrize(("number", "count"), [(0, 150), (1, 100), (2, 15)], ids=["corpus", "expressions", "tpch"])
def test_a_mutant_of_a_query_is_right_or_refused(number: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timely.differential.tables.expressions.column_stages.FEW", 1)  # a few rows go by columns too
    subject = subjects()[number]
    mutants = Mutants(subject.queries, subject.snippets, number)
    outcomes: Counter[str] = Counter()
    for _ in range(count):
        query = mutants.query()
        outcome, detail = subject.outcome(query)
        assert outcome not in ("wrong", "crash"), (query, detail)
        outcomes[outcome] += 1
    assert {"equal", "both refuse"} <= outcomes.keys()


def rows(*values: Any) -> Counter[Any]:
    return Counter([tuple((type(value).__name__, value) for value in row) for row in values])


AGREEMENTS: dict[str, tuple[str | None, Counter[Any], list[Counter[Any]]]] = {
    "equal": ("equal", rows((1, "a"), (1, "a")), [rows((1, "a"), (1, "a"))] * 2),
    "another count": (None, rows((1, "a")), [rows((1, "a"), (1, "a"))] * 2),
    "another type": (None, rows((1.0,)), [rows((1,))] * 2),
    "a text in another order": ("open", rows(("bca",)), [rows(("abc",)), rows(("cab",))]),
    "another text": (None, rows(("bcd",)), [rows(("abc",)), rows(("cab",))]),
    "the other of two that tie": ("open", rows((1, 8)), [rows((1, 7)), rows((1, 9))]),
    "a wrong column beside it": (None, rows((2, 8)), [rows((1, 7)), rows((1, 9))]),
    "a row too many": (None, rows((1, 8), (1, 9)), [rows((1, 7)), rows((1, 9))]),
}


@pytest.mark.parametrize(("expected", "mine", "theirs"), AGREEMENTS.values(), ids=AGREEMENTS.keys())
def test_rows_agree_as_far_as_duckdb_determines_them(expected: str | None, mine: Any, theirs: Any) -> None:
    assert agreement(mine, theirs) == expected
