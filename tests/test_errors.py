"""The table of errors has every error, and says what causes it and what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import timely
from timely import errors

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "errors.md").read_text(encoding="utf-8")
NAMES = {name: value for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, errors.TimelyError)}
CLASSES = sorted(NAMES)


@pytest.mark.parametrize("name", CLASSES)
def test_every_error_is_public_and_in_the_table(name: str) -> None:
    assert getattr(timely, name) is NAMES[name]
    if name != "TimelyError":
        rows = re.findall(rf"^\| `{name}` \| (.+?) \| (.*?) ?\|$", PAGE, re.MULTILINE)
        assert len(rows) == 1
        assert all(rows[0]) or name == "RecoveryError"


def test_the_tables_have_no_error_that_does_not_exist() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == set(CLASSES) - {"TimelyError"}


def test_a_missing_output_is_a_key_error_with_a_plain_message() -> None:
    assert issubclass(errors.OutputError, KeyError)
    assert str(errors.OutputError("no output 'a'")) == "no output 'a'"
