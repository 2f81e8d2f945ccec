"""Sessions on clusters of real processes: ``pytest -m cluster``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.cluster.clusters import SLOTS, local_cluster, standalone
from timely.spark import local_session

MODES = ("local", "local-cluster", "standalone")


@pytest.fixture(scope="module", params=MODES)
def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with :data:`~tests.cluster.clusters.SLOTS` slots, on each kind of master that one machine can have.

    What tasks may send to the driver is bounded, by little more than what they say of themselves.
    """
    bounded = {"spark.driver.maxResultSize": "1m"}
    if request.param == "local-cluster":
        with local_cluster(**bounded) as session:
            yield session
    elif request.param == "standalone":
        with standalone(tmp_path_factory.mktemp("standalone"), **bounded) as session:
            yield session
    else:
        active = SparkSession.getActiveSession()
        if active is not None:
            active.stop()
        session = local_session(SLOTS)
        yield session
        session.stop()
