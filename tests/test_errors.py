"""The table of errors has every error, and says of each what causes it and what to do."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import timely
from timely import errors

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "errors.md").read_text(encoding="utf-8")
CLASSES = sorted(name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, Exception))


@pytest.mark.parametrize("name", CLASSES)
def test_every_error_is_public_and_in_the_table(name: str) -> None:
    assert issubclass(getattr(timely, name), timely.TimelyError)
    if name != "TimelyError":
        rows = re.findall(rf"^\| `{name}` \| (.+?) \| (.*?) ?\|$", PAGE, re.MULTILINE)
        assert len(rows) == 1
        assert all(rows[0]) or name == "RecoveryError"


def test_the_table_has_no_error_that_is_not_there() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) <= set(CLASSES)


def test_errors_have_the_names_by_which_they_could_be_imported_before() -> None:
    places, batch = import_module("timely.inspect.explanation"), import_module("timely.spark.batch")
    assert places.PlaceError is errors.PlaceError is timely.PlaceError
    assert batch.OutputError is errors.OutputError is timely.OutputError
    assert str(errors.OutputError("no output 'a'")) == "no output 'a'"
    assert issubclass(errors.OutputError, KeyError) and issubclass(errors.PlaceError, TypeError)
