"""Settings ``spark.timely.*`` stand in for arguments, and give each named run a place for its checkpoints.

White box: where a run keeps its checkpoints is asked of what decides it, since a run that has ended leaves next to nothing there.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import timely
from tests.spark.conftest import SLOTS
from timely import spark as ts
from timely.differential.spark import maintain
from timely.errors import ConfigurationError, SparkError
from timely.graphs.spark import connected_components
from timely.memory import MemoryBudget
from timely.spark.defaults import SETTINGS, RunDefaults

DOCS = Path(__file__).resolve().parents[2] / "docs"
Streams = dict[str, timely.Stream[int, Any]]
Set = Callable[[str, object], None]


def through(scope: timely.ScopeBuilder[int], x: timely.Stream[int, Any]) -> Streams:
    return {"x": x}


def others(scope: timely.ScopeBuilder[int], x: timely.Stream[int, Any]) -> Streams:
    return {"x": x}


# -- where checkpoints are ---------------------------------------------------------------------------------------------

BELOW = RunDefaults(checkpoint_dir="/c", application="nightly")


def test_a_restarted_program_finds_its_place_again() -> None:
    again = RunDefaults(checkpoint_dir="/c", application="nightly")
    assert BELOW.place("roads", "run", through) == again.place("roads", "run", through) == "/c/nightly/run-through/roads"


def test_no_two_runs_share_a_place() -> None:
    applications = ["nightly", "Nightly!", "Nightly?", "nightly/run-through"]
    names = ["roads", "roads 2", "roads_2", "röads", "roads-00000000", "de", "de/roads", "de/../roads"]
    asked = itertools.product(applications, ["run", "stream"], [through, others], names)
    places = [RunDefaults(checkpoint_dir="/c", application=a).place(name, kind, build) for a, kind, build, name in asked]
    assert len(set(places)) == len(places) == 4 * 2 * 2 * 8
    assert all(set(place) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./") for place in places)
    assert not any(one != other and one.startswith(f"{other}/") for one in places for other in places)


@pytest.mark.parametrize("place", ["/mnt/c", "s3://bucket/c", "./c", "../c", "~/c", "", None, 5, Path("/mnt/c")])
def test_a_given_place_is_used(place: object) -> None:
    assert BELOW.place(place, "run", through) is place


def test_without_a_directory_every_path_is_one() -> None:
    assert RunDefaults(application="nightly").place("roads", "run", through) == "roads"


@pytest.mark.parametrize("application", ["", "pyspark-shell", "Databricks Shell", "0fd8f4a2-5f2c-4d5e-8a0e-2f6c1f6f1f10"])
def test_an_application_needs_a_name_of_its_own(application: str) -> None:
    with pytest.raises(ConfigurationError, match=r"set spark\.app\.name, always the same"):
        RunDefaults(checkpoint_dir="/c", application=application).place("roads", "run", through)


# -- in a session ------------------------------------------------------------------------------------------------------


@pytest.fixture
def put(session: SparkSession) -> Iterator[Set]:
    """A function that changes a setting of the session for the test."""
    changed: list[str] = []

    def put(name: str, value: object) -> None:
        changed.append(name)
        session.conf.set(name, str(value))

    yield put
    for name in changed:
        session.conf.unset(name)


@pytest.mark.spark
def test_every_setting_is_read_and_in_the_guide(session: SparkSession, put: Set) -> None:
    values = {"workers": 2, "memory": "1.5g", "patience": "1.5m", "checkpoint.dir": "s3://b/c/"}
    for name, value in values.items():
        put(f"spark.timely.{name}", value)
    assert RunDefaults.of(session) == RunDefaults(2, 3 << 29, 90.0, "s3://b/c", "timely")
    text = (DOCS / "spark_operations.md").read_text(encoding="utf-8")
    assert [name for name in SETTINGS if f"| `{name}` |" not in text] == []


def test_the_documents_name_no_other_setting() -> None:
    named = {
        name for page in DOCS.glob("*.md") for name in re.findall(r"spark\.timely(?:\.\w+)+", page.read_text(encoding="utf-8"))
    }
    assert "spark.timely.workers" in named
    assert named <= set(SETTINGS)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("spark.timely.worker", 2, r"no setting spark\.timely\.worker; the nearest is spark\.timely\.workers"),
        ("spark.timely.checkpointDir", "/c", r"the nearest is spark\.timely\.checkpoint\.dir"),
        ("spark.timely.workers", "two", r"spark\.timely\.workers must be an integer of 1 or more, not 'two'"),
        ("spark.timely.workers", "0", "must be an integer of 1 or more"),
        ("spark.timely.memory", "0", "must be bytes above 0, or a size"),
        ("spark.timely.patience", "0s", "must be a length of time"),
        ("spark.timely.patience", "3 moons", "must be a length of time"),
        ("spark.timely.checkpoint.dir", "here", "must be an absolute path or a URI"),
        ("spark.timely.progress", "off", "must be true or false"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(session: SparkSession, put: Set, name: str, value: object, message: str) -> None:
    put(name, value)
    numbers = session.range(3)
    edges = numbers.selectExpr("id AS src", "id AS dst")
    rows = session.readStream.format("rate").load()
    refused: list[Callable[[], object]] = [
        lambda: ts.check(session, 1),
        lambda: ts.run(through, {"x": numbers}, {"x": "id long"}),
        lambda: connected_components(edges),
        lambda: ts.stream(through, {"x": rows}, {"x": "value long"}, foreach_epoch=lambda *_: None, checkpoint="c"),
        lambda: maintain("select value from x", {"x": rows}, lambda *_: None, checkpoint="c"),
    ]
    for ask in refused:
        with pytest.raises(ConfigurationError, match=message):
            ask()


@pytest.mark.spark
def test_an_argument_wins_over_a_setting(session: SparkSession, put: Set) -> None:
    numbers = session.range(6)

    def look(scope: timely.ScopeBuilder[int], x: timely.Stream[int, Any]) -> Streams:
        limits = x.map_batch(lambda batch: pa.record_batch({"limit": [MemoryBudget.current().limit] * len(batch)}))
        return {"limits": limits}

    def workers_and_terabytes(**arguments: Any) -> tuple[int, set[int]]:
        result = ts.run(look, {"x": numbers}, {"limits": "limit long"}, **arguments)["limits"]
        return result.rdd.getNumPartitions(), {round(row.limit / (1 << 40)) for row in result.collect()}

    put("spark.timely.workers", 1)
    put("spark.timely.memory", "40TB")  # half of what the process does not have yet
    assert workers_and_terabytes() == (1, {20})
    assert workers_and_terabytes(workers=2, memory="80TB") == (2, {40})


@pytest.mark.spark
def test_an_error_names_the_setting_that_asks_for_too_many_workers(session: SparkSession, put: Set) -> None:
    put("spark.timely.workers", SLOTS + 1)
    with pytest.raises(SparkError, match=r"The setting spark\.timely\.workers asks for 4 workers"):
        ts.run(through, {"x": session.range(3)}, {"x": "id long"})
    with pytest.raises(SparkError, match=r"5 workers need 5 task slots[^.]*(?!.*spark\.timely)"):
        ts.run(through, {"x": session.range(3)}, {"x": "id long"}, workers=SLOTS + 2)


@pytest.mark.spark
def test_a_stream_that_is_named_goes_on_where_it_was(session: SparkSession, put: Set, tmp_path: Path) -> None:
    put("spark.timely.checkpoint.dir", tmp_path / "kept")
    put("spark.timely.workers", 1)
    collected: list[tuple[int, list[int]]] = []

    def take(epoch: int, tables: Mapping[str, DataFrame]) -> None:
        collected.append((epoch, sorted(row.id for row in tables["x"].collect())))

    session.range(2).coalesce(1).write.parquet(str(tmp_path / "in"))
    frame = session.readStream.schema("id long").parquet(str(tmp_path / "in"))
    for _ in range(2):  # the second time there is no epoch
        ts.stream(
            through, {"x": frame}, {"x": "id long"}, foreach_epoch=take, checkpoint="roads", trigger={"availableNow": True}
        ).await_termination()
    assert collected == [(0, [0, 1])]
    assert (tmp_path / "kept" / "timely" / "stream-through" / "roads" / "query").is_dir()


@pytest.mark.spark
def test_runs_that_are_named_keep_their_checkpoints_apart(session: SparkSession, put: Set, tmp_path: Path) -> None:
    put("spark.timely.checkpoint.dir", tmp_path)
    days = session.range(6).selectExpr("id", "cast(id % 3 as int) AS day")
    for build in (through, others):
        result = ts.run(
            build, {"x": days}, {"x": "id long, day int"}, workers=1, epoch="day", checkpoint="nightly", checkpoint_every=1
        )
        assert result["x"].count() == 6
    assert sorted(path.name for path in (tmp_path / "timely").iterdir()) == ["run-others", "run-through"]
