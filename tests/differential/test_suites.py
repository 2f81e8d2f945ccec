"""The tool that runs suites of queries: what is right, what is refused, and that a difference is found; and TPC-DS with it."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests import suites

TEXT = """
# numbers and names
statement ok
CREATE TABLE t(a INTEGER, b VARCHAR)

statement ok
INSERT INTO t VALUES (1, 'x'), (2, 'y'), (3, 'x'), (NULL, NULL)

query TI rowsort
SELECT b, sum(a)
  FROM t GROUP BY b
----
x 4
y 2

onlyif mysql # for others
query I
SELECT nothing FROM nowhere

query I
SELECT missing FROM t

query R
SELECT random() FROM t

halt

query I
SELECT 1
"""


def test_queries_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "some.test").write_text(TEXT)
    assert suites.main([str(tmp_path)]) == 0
    refused, counts = capsys.readouterr().out.splitlines()
    assert refused.startswith("refused 1: its value changes while the data does not")
    assert counts == f"{tmp_path}: 1 right, 1 refused, 0 wrong, 1 not for DuckDB"


def test_a_folder_of_tables_and_queries_is_a_suite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "queries").mkdir()
    parquet.write_table(pa.table({"a": range(20)}), tmp_path / "t.parquet")
    (tmp_path / "queries" / "01.sql").write_text("select a % 4, count(*) from t group by 1 order by 1;\n")
    (tmp_path / "queries" / "02.sql").write_text("select sum(a) from t limit 100")
    assert suites.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path}: 2 right, 0 refused, 0 wrong\n"


def test_a_view_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suites, "views", lambda sql, tables: [Counter(), Counter(), Counter()])
    outcome = suites.Outcome()
    suites.run(TEXT, outcome, queries=1, seed=2)
    suites.run(TEXT, outcome)
    assert outcome.right == 0
    assert any("sum(a)" in difference for difference in outcome.wrong)


@pytest.mark.soak
@pytest.mark.skipif("TIMELY_TPCDS" not in os.environ, reason="TIMELY_TPCDS is no folder of python -m tests.suites --export tpcds")
def test_all_queries_of_tpcds_hold_what_duckdb_says() -> None:
    outcome = suites.Outcome()
    suites.run_suite(Path(os.environ["TIMELY_TPCDS"]), outcome)
    assert str(outcome) == "99 right, 0 refused, 0 wrong"
