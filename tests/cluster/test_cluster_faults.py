"""What a cluster is made of is killed in the middle of a run: a process, the daemon that forked it, the Java of an executor."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.faults import SCHEMA, Row, Saboteur, building, outcome, requirements
from timely import spark as ts

pytestmark = pytest.mark.cluster
ROWS = 1500


@pytest.fixture(scope="module")
def edges(session: SparkSession) -> DataFrame:
    return requirements(session, ROWS)


@pytest.fixture(scope="module")
def expected(edges: DataFrame) -> Counter[Row]:
    """What a run without faults and without checkpoints gives, on another number of workers."""
    plain = ts.run(building(), {"requirements": edges}, {"all": SCHEMA}, workers=1, epoch="epoch")
    return outcome(plain["all"])


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("deed", ["SIGKILL", "daemon", "executor"])
def test_a_run_goes_on_from_its_last_checkpoint(
    session: SparkSession, edges: DataFrame, expected: Counter[Row], tmp_path: Path, deed: str, victim: int
) -> None:
    if deed == "executor" and str(session.sparkContext.master).startswith("local["):
        pytest.skip("the executor is the driver's own Java")
    saboteur = Saboteur(tmp_path, deed, "loop", 80, victim)
    result = ts.run(
        building(saboteur), {"requirements": edges}, {"all": SCHEMA}, workers=2, epoch="epoch", checkpoint=tmp_path / "kept",
        checkpoint_every=2,
    )  # fmt: skip
    assert outcome(result["all"]) == expected
    assert saboteur.acted
    assert all(0 < epoch < 24 for epoch in result.resumed)
    assert result.resumed or deed == "daemon"  # whose children may live on, so that nothing has to begin again
