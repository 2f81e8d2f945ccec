"""All tests of Spark on each version of PySpark: ``pytest -m cluster``."""

from __future__ import annotations

import pytest

from tests import spark_versions

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("version", spark_versions.VERSIONS)
def test_all_tests_of_spark_pass(version: str) -> None:
    assert spark_versions.main(["--all", version]) == 0
