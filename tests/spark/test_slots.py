"""How many workers there are where the program does not say.

White box: executors that come late, or never, are played, with a clock of the test's own.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, cast

import attrs
import pytest
from pyspark.sql import SparkSession

import timely
from tests.spark.conftest import SLOTS
from tests.spark.streams import COUNTS, Folder, Streams, Taker, count_words, expected
from tests.spark.test_settings import Cluster
from timely import spark as ts
from timely.errors import SparkError
from timely.graphs import connected_components
from timely.graphs import spark as graphs
from timely.spark import settings, slots
from timely.spark.slots import reserve, settle


@attrs.define
class Clock:
    """A clock that goes on when somebody sleeps: it is noon when a test begins."""

    now: float = 43_200.0

    def time(self) -> float:
        return self.now

    monotonic = time

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (slots, settings):
        monkeypatch.setattr(module, "time", clock)
    return clock


def settled(cluster: Cluster, workers: int | None = None, *, stays: bool = False) -> int:
    return settle(cast(SparkSession, cluster), workers, stays=stays)


def coming(*arrivals: tuple[int, int]) -> list[int]:
    """How many slots there are each time that somebody looks, five times a second: so many seconds after noon, so many."""
    return [max((n for after, n in arrivals if look >= 5 * after), default=0) for look in range(5 * 62)]


CONF = {"spark_executor_instances": "4", "spark_executor_cores": "4", "spark_task_cpus": "2"}


@pytest.mark.parametrize(
    ("master", "conf", "arrivals", "workers", "seconds"),
    [
        ("yarn", CONF, [(0, 0), (2, 2), (20, 6), (31, 8)], 8, 31),
        ("yarn", CONF, [(2, 2), (20, 6)], 6, 60),
        ("yarn", {}, [(10, 1), (30, 2)], 2, 30),
        ("k8s://https://there", CONF, [(0, 8)], 8, 0),
        ("local-cluster[3,2,1024]", {}, [(1, 2), (40, 6)], 6, 40),
        ("spark://there:7077", {}, [(1, 2), (4, 6), (8, 8)], 8, 13),
        ("spark://there:7077", {"spark_cores_max": "6"}, [(1, 2), (4, 6)], 6, 4),
        ("spark://there:7077", {"spark_cores_max": "100"}, [(1, 2), (4, 6)], 6, 9),
        ("mesos://there", {}, [(20, 1), (22, 3)], 3, 27),
    ],
)
def test_a_cluster_that_is_coming_up_is_waited_for(
    clock: Clock, master: str, conf: dict[str, str], arrivals: list[tuple[int, int]], workers: int, seconds: int
) -> None:
    begun = clock.now
    options: dict[str, Any] = {"master": master, "started": begun, **conf}
    cluster = Cluster(*coming(*arrivals), **options)
    assert settled(cluster) == workers
    assert clock.now - begun == pytest.approx(seconds, abs=0.5)


def test_a_cluster_that_has_been_up_for_a_minute_is_used_as_it_is(clock: Clock) -> None:
    begun = clock.now
    assert settled(Cluster(3, master="yarn", started=begun - 60, spark_executor_instances="4")) == 3
    assert settled(Cluster(3, started=begun - 60)) == 3
    assert clock.now == begun


def test_less_than_was_promised_is_logged(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    assert settled(Cluster(3, master="yarn", spark_executor_instances="8")) == 3
    assert [record.getMessage() for record in caplog.records] == ["the settings of the session promise 8 slots, and there are 3"]


def test_executors_that_never_come_are_an_error(clock: Clock) -> None:
    with pytest.raises(SparkError, match="1 workers need 1 task slots at the same time; spark://somewhere:7077 offers 0"):
        settled(Cluster(0))
    with pytest.raises(SparkError, match=r"1 workers need 2 task slots at the same time \(1 of them .*offers 1\."):
        settled(Cluster(1), stays=True)


def test_executors_that_come_and_go_are_not_waited_for(clock: Clock) -> None:
    begun = clock.now
    with pytest.raises(SparkError, match="Spark runs no barrier stage under dynamic allocation"):
        settled(Cluster(1, started=begun, spark_dynamicAllocation_enabled="true"))
    assert clock.now == begun


def test_what_streams_hold_is_left_to_them(clock: Clock) -> None:
    cluster = Cluster(6)
    with reserve(cast(Any, cluster), 2):
        assert settled(cluster) == 4
        assert settled(cluster, stays=True) == 3
        with reserve(cast(Any, cluster), 3), pytest.raises(SparkError, match="Streams of this session hold 5 of them"):
            settled(cluster, 1, stays=True)
        assert settled(cluster, 5) == 5  # a run may wait for a stream to end
    assert settled(cluster) == 6


# -- in a session ------------------------------------------------------------------------------------------------------


def labelled(scope: timely.ScopeBuilder[int], edges: timely.Stream[int, Any]) -> Streams:
    return {"components": connected_components(edges)}


@pytest.mark.spark
def test_a_run_has_as_many_workers_as_there_are_slots(session: SparkSession) -> None:
    edges = session.createDataFrame([(1, 2), (2, 3), (5, 4)], "src long, dst long")
    result = ts.run(labelled, inputs={"edges": edges}, outputs={"components": "node long, component long"})
    assert sorted(map(tuple, result["components"].collect())) == [(1, 1), (2, 1), (3, 1), (4, 4), (5, 4)]
    assert len(result.metrics) == SLOTS
    assert graphs.pagerank(edges).rdd.getNumPartitions() == SLOTS


@pytest.mark.spark
def test_what_runs_beside_a_stream_takes_the_slots_that_are_left(session: SparkSession, tmp_path: Path) -> None:
    """In ``foreach_epoch``, where to wait for the slots of the stream would be to wait for ever."""
    words = Folder(tmp_path / "words")
    words.put([("a", 1), ("b", 2)])
    beside: list[Any] = []
    refused: list[Any] = []
    options: list[dict[str, Any]] = [{"workers": 1}, {}]

    def look(epoch: int) -> None:
        result = ts.run(lambda scope, rows: {"rows": rows}, {"rows": session.range(5)}, {"rows": "id long"})
        beside.append((result["rows"].count(), len(result.metrics)))
        with tempfile.TemporaryDirectory() as folder:
            for values in options:
                with pytest.raises(SparkError, match=r"offers 3.*Streams of this session hold 2 of them") as error:
                    ts.stream(count_words, inputs, {"counts": COUNTS}, foreach_epoch=print, checkpoint=folder, **values)
                refused.append(error)

    take = Taker(on_epoch=look)
    inputs = {"words": words.read(session)}
    handle = ts.stream(
        count_words, inputs, {"counts": COUNTS}, foreach_epoch=take, checkpoint=tmp_path / "ck", trigger={"availableNow": True}
    )
    handle.await_termination()
    assert take.of("counts") == expected([[("a", 1), ("b", 2)]])
    assert (beside, len(refused)) == ([(5, 1)], 2)
    assert settle(session, None) == SLOTS
