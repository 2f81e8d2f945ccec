"""Every id of docs/conformance.md has a test whose name begins with it, or says why it has none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| ([A-Z]+\d+) \| .* \| (.*) \|$", PAGE, re.MULTILINE))
SOURCES = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
TESTED = {name for source in SOURCES for name in re.findall(r"^def test_([A-Z]+\d+)_", source, re.MULTILINE)}


@pytest.mark.parametrize("name", ROWS)
def test_an_id_has_a_test_or_a_reason(name: str) -> None:
    assert (name in TESTED) != ROWS[name].startswith("no test: ")


def test_the_page_has_all_ids() -> None:
    assert len(ROWS) == len(re.findall(r"^\| [A-Z]+\d+ ", PAGE, re.MULTILINE)) == 113
