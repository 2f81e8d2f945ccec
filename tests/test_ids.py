"""Ids in the names of tests: each stands in one list (``tests/ids.md``), and each row of a list has a test."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONFORMANCE = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| ([A-Z]+\d+) \| .* \| (.*) \|$", CONFORMANCE, re.MULTILINE))
INVARIANTS = re.findall(r"^### ([A-Z]+\d+)$", (ROOT / "docs" / "invariants.md").read_text(encoding="utf-8"), re.MULTILINE)
LISTED = re.findall(r"^\| ([A-Za-z_]+-?\d+) \|", (ROOT / "tests" / "ids.md").read_text(encoding="utf-8"), re.MULTILINE)
PLACES = Counter([*ROWS, *LISTED, *(f"INV_{name}" if re.fullmatch(r"X\d+|L\d+", name) else name for name in INVARIANTS)])
SOURCES = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)]
NAMES = [name for source in SOURCES for name in re.findall(r"def (test_\w+)", source)]
ID = re.compile(
    r"(?<=_)(?:(?:[A-Z]+_)?[A-Z]{1,2}\d+|(?:number|history|clock|sql|file|server|stream|law|graph|loop|text)_\d+)(?=_|$)"
)
IN_NAMES = {name: [row.replace("_", "-") if row.islower() else row for row in ID.findall(name)] for name in NAMES}
PARAMETERS = {row.replace("_", "-") for source in SOURCES for row in re.findall(r"\"([a-z]+[-_]\d+)\b", source)}
TESTED = PARAMETERS.union(*IN_NAMES.values(), *(re.findall(r"\bDD_J\d+", source) for source in SOURCES))


def test_each_id_stands_in_one_list() -> None:
    assert [row for row, count in PLACES.items() if count > 1] == []


def test_an_id_in_a_name_is_listed() -> None:
    assert {name: rows for name, rows in IN_NAMES.items() if not set(rows) <= set(PLACES)} == {}


def test_a_row_of_conformance_has_a_test_or_a_reason() -> None:
    without = {row for row in ROWS if not any(name.startswith(f"test_{row}_") for name in NAMES)}
    assert without == {row for row, result in ROWS.items() if result.startswith("no test: ")}


def test_a_row_of_the_list_has_a_test() -> None:
    assert set(LISTED) - TESTED == set()


def test_the_lists_are_read_whole() -> None:
    assert len(ROWS) == len(re.findall(r"^\| [A-Z]+\d+ ", CONFORMANCE, re.MULTILINE)) == 113
