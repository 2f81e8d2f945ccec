"""Files that start Spark's Java share a process where the tests run in several, and other files do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.work_units import work_unit

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("unit", "files"),
    [
        (
            "Spark",
            ["tests/spark/test_run.py::test_one", "tests/graphs/test_spark.py::test_two[a::b]", "timely/spark/batch.py::run"],
        ),
        ("streams on Spark", ["tests/spark/test_stream.py::test_one", "timely/spark/streaming/query.py::Query"]),
        ("programs with a Spark session", ["tests/test_docs.py::test_one", "tests/test_readme.py::test_two"]),
        ("tests/graphs/test_strong.py", ["tests/graphs/test_strong.py::test_one", "tests/graphs/test_strong.py::test_two"]),
        ("tests/soak/test_stream.py", ["tests/soak/test_stream.py::test_one"]),
    ],
)
def test_files_that_share_what_is_slow_to_start_run_in_one_process(unit: str, files: list[str]) -> None:
    assert {work_unit(ROOT, file) for file in files} == {unit}
