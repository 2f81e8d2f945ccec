"""The tool that runs files of sqllogictest: what agrees, what is refused, and that a difference is found."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests import sqllogictest

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
    file = tmp_path / "some.test"
    file.write_text(TEXT)
    assert sqllogictest.main([str(file)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 equal, 1 refused, 0 different, 1 not for DuckDB"


def test_a_view_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqllogictest, "view", lambda sql, tables: [Counter(), Counter()])
    outcome = sqllogictest.Outcome()
    sqllogictest.run(TEXT, outcome, queries=1, seed=2)
    sqllogictest.run(TEXT, outcome)
    assert outcome.equal == 0
    assert any("sum(a)" in difference for difference in outcome.different)
