"""One Spark session for all tests, on three slots."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from timely.spark import local_session
from timely.spark.session import concurrent_tasks

SLOTS = 3


@pytest.fixture(scope="session")
def session() -> Iterator[SparkSession]:
    """A session with :data:`SLOTS` slots, in place of a smaller one that may be up."""
    active = SparkSession.getActiveSession()
    if active is not None and concurrent_tasks(active.sparkContext) != SLOTS:
        active.stop()
    session = local_session(SLOTS)
    yield session
    session.stop()
