"""Runs with ``checkpoint=``: when workers meet and save, which rows they take in, what is refused, and how a run goes on.

White box: when workers meet depends on the clock in a run; here the pace and the readers are driven by hand.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import timely
from tests.spark.faults import outcome
from timely import spark as ts
from timely.errors import ChangedDataflowError, ConfigurationError, OperatorError, SchemaError, StateError
from timely.recovery import Recovery
from timely.spark.packing import InputTable
from timely.spark.registration import Registration
from timely.spark.rendezvous import Rendezvous, RunEntry
from timely.spark.resume import LARGE, EpochReader, IngestStatus, OutputQueue, Pace, Stretch, collect, interval
from timely.spark.stage_messages import Silent

Streams = dict[str, timely.Stream[int, Any]]
TABLE = (InputTable("rows", "epoch"),)


# -- when: pure ------------------------------------------------------------------------------------------------------------


def travel(pace: Pace, epochs: list[list[int]], seconds: float = 1.0) -> list[Stretch]:
    """Return what is agreed on until no worker has more: of each, the epochs that it has rows of, each of which takes so long."""
    left = [sorted(set(mine)) for mine in epochs]
    done = [0] * len(left)
    agreed: list[Stretch] = []
    while True:
        words = [
            IngestStatus(mine[0] if mine else None, count, max(done) * seconds, 0) for mine, count in zip(left, done, strict=True)
        ]
        stretch = pace.meet(words)
        if stretch is None:
            return agreed
        agreed.append(stretch)
        if stretch.save:
            done = [0] * len(left)
        for worker, mine in enumerate(left):
            taken = [epoch for epoch in mine if epoch < stretch.limit]
            done[worker] += len(taken)
            left[worker] = mine[len(taken) :]


many_epochs = st.lists(st.lists(st.integers(0, 2**40), max_size=30), min_size=1, max_size=3)


@given(many_epochs, st.integers(1, 10))
def test_workers_that_meet_get_to_the_end(epochs: list[list[int]], every: int) -> None:
    agreed = travel(Pace(every, timed=False), epochs)
    limits = [stretch.limit for stretch in agreed]
    assert limits == sorted(set(limits))
    assert max((epoch for mine in epochs for epoch in mine), default=-1) < max(limits, default=0)
    assert len(limits) <= len({epoch for mine in epochs for epoch in mine})


@pytest.mark.parametrize("every", [1, 2, 7])
def test_epochs_that_follow_each_other_are_saved_by_the_number_asked_for(every: int) -> None:
    agreed = travel(Pace(every, timed=False), [list(range(100)), list(range(0, 100, 2))])
    assert agreed == [Stretch(number > 0, every * (number + 1)) for number in range(-(-100 // every))]


@pytest.mark.parametrize("gap", [86_400, 10**9])
def test_meetings_are_few_where_epochs_are_far_apart(gap: int) -> None:
    agreed = travel(Pace(10, timed=False), [[gap * day for day in range(1000)]] * 2)
    saved = sum(stretch.save for stretch in agreed)
    assert 40 <= saved <= 100  # a hundred would be every ten epochs
    assert len(agreed) < 3 * saved + 50


def test_meetings_are_few_where_epochs_are_short() -> None:
    agreed = travel(Pace(10.0, timed=True), [list(range(10_000))], seconds=0.01)
    assert sum(stretch.save for stretch in agreed) >= 5
    assert len(agreed) < 100


def test_what_is_held_for_a_checkpoint_is_bounded() -> None:
    pace = Pace(1000, timed=False)
    assert pace.meet([IngestStatus(0, 0, 0.0, 0), IngestStatus(0, 0, 0.0, 0)]) == Stretch(False, 1000)
    assert pace.meet([IngestStatus(1000, 3, 0.0, 0), IngestStatus(1000, 3, 0.0, LARGE)]) == Stretch(True, 1500)


@pytest.mark.parametrize("every", [0, -1, True, 1.5, "3", None, timedelta(0)])
def test_an_interval_that_is_none(every: object) -> None:
    with pytest.raises(ConfigurationError, match="checkpoint_every must be a number of epochs"):
        interval(every)


# -- which rows: pure ------------------------------------------------------------------------------------------------------


def in_batches(epochs: list[int], sizes: list[int]) -> Iterator[pa.RecordBatch]:
    """Yield rows of these epochs, numbered, in batches of these sizes, and the rest in one."""
    start = 0
    for size in [*sizes, len(epochs)]:
        part = range(start, min(start + size, len(epochs)))
        yield pa.RecordBatch.from_pydict(
            {"epoch": pa.array([epochs[row] for row in part], pa.int32()), "row": pa.array(part, pa.int64())}
        )
        start += size


@given(st.lists(st.integers(0, 20)), st.lists(st.integers(0, 4)), st.integers(0, 20), st.lists(st.integers(1, 5)))
def test_a_feed_gives_each_row_once_and_none_too_early(
    epochs: list[int], sizes: list[int], start: int, strides: list[int]
) -> None:
    epochs = sorted(epochs)
    feed = EpochReader(in_batches(epochs, sizes), TABLE, start)
    seen: list[int] = []
    for stride in [*strides, 100]:
        if feed.epoch is None:
            break
        limit = feed.epoch + stride
        collected = [row for batch in feed.before(limit) for row in batch["row"].to_pylist()]
        assert collected == [row for row, epoch in enumerate(epochs) if epoch < limit and epoch >= start and row not in seen]
        seen += collected
    assert feed.epoch is None
    assert seen == [row for row, epoch in enumerate(epochs) if epoch >= start]
    assert feed.epochs == len({epoch for epoch in epochs if epoch >= start})


@pytest.mark.parametrize("first", [None, -1])
@pytest.mark.parametrize("start", [0, 2])
def test_an_epoch_that_is_none_is_refused(first: int | None, start: int) -> None:
    batch = pa.RecordBatch.from_pydict({"epoch": pa.array([first, 3], pa.int64())})
    with pytest.raises(SchemaError, match="epochs are integers of 0 or more"):
        EpochReader(iter([batch]), TABLE, start)


# -- whose place: without Spark --------------------------------------------------------------------------------------------


def test_one_stage_at_a_time_is_let_in_where_checkpoints_are() -> None:
    server = Rendezvous("127.0.0.1", "127.0.0.1")
    here = ("127.0.0.1", 9)

    def join(run: RunEntry, stage: int, generation: int) -> Registration:
        return Registration(server.invitation(run), index=0, generation=generation, stage=stage)

    try:
        run, rival, other = (server.open_run(1, place=place) for place in ("here", "here", "there"))
        with join(run, 1, 1) as worker:
            assert worker.peers(here)
            for taken, stage in ((rival, 2), (run, 3)):
                with join(taken, stage, 10) as refused, pytest.raises(ConfigurationError, match="keeps its checkpoints at here"):
                    refused.peers(here)
            with join(other, 4, 20) as elsewhere:
                assert elsewhere.peers(here)
            with join(run, 1, 30) as again:  # a new attempt of the stage is no rival
                assert again.peers(here)
                again.done()
        with join(rival, 2, 40) as late:
            assert late.peers(here)
    finally:
        server.close()


def test_a_worker_that_has_been_declared_gone_is_reported() -> None:
    server = Rendezvous("127.0.0.1", "127.0.0.1")
    received: list[tuple[int, int, str]] = []
    try:
        run = server.open_run(1, patience=0.2)
        run.listen(Silent, lambda worker, generation, message: received.append((worker, generation, message.why)))
        with Registration(attrs.evolve(server.invitation(run), patience=3600.0), index=0, generation=7, stage=1) as worker:
            worker.peers(("127.0.0.1", 9))  # it gives a sign of life once a second
            assert worker.stopped(600) is not None
    finally:
        server.close()
    assert [(worker, generation) for worker, generation, _ in received] == [(0, 7)]
    assert "has been silent for 0.2 s" in received[0][2]


# -- runs ------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def numbers(session: SparkSession) -> DataFrame:
    return session.range(120).select(F.col("id").alias("n"), (F.col("id") % 12).cast("int").alias("day"))


def running_sum(stop: Callable[[int], object] = lambda n: None) -> Callable[..., Streams]:
    """A build whose output says of each day the sum of all numbers up to it; ``stop`` may raise for a number."""

    def build(scope: timely.ScopeBuilder[int], numbers: timely.Stream[int, Any]) -> Streams:
        def look(batch: pa.RecordBatch) -> list[int]:
            result: list[int] = batch["n"].to_pylist()
            for n in result:
                stop(n)
            return result

        daily = (
            numbers.map_batch(look)
            .map(lambda n: (0, n))
            .aggregate(lambda key, n, total: (total or 0) + n, lambda key, total: (key, total))
        )
        total = daily.state_machine(lambda key, n, before: ((before or 0) + n, [(before or 0) + n]))
        return {"sums": total.map_batch(lambda sums: pa.RecordBatch.from_pydict({"total": sums}))}

    return build


def sums(session: SparkSession) -> Counter[tuple[Any, ...]]:
    """What the running sum gives."""
    daily = [sum(n for n in range(120) if n % 12 == day) for day in range(12)]
    return Counter((sum(daily[: day + 1]),) for day in range(12))


class Failing:
    """Raises for a number as long as a file is there."""

    def __init__(self, file: Path, number: int) -> None:
        self.file = file
        self.number = number
        file.touch()

    def __call__(self, n: int) -> None:
        if n == self.number and self.file.exists():
            raise RuntimeError("not today")


def totals(
    build: Callable[..., Streams], numbers: DataFrame, place: Path, schema: str = "total long", workers: int = 2, **options: Any
) -> ts.Result:
    return ts.run(build, {"numbers": numbers}, {"sums": schema}, workers=workers, epoch="day", checkpoint=place, **options)


def saved_files(place: Path) -> list[str]:
    """The checkpoints in a directory."""
    return [path.name for path in place.iterdir() if path.suffix == ".manifest"] if place.exists() else []


@pytest.mark.spark
@pytest.mark.parametrize("every", [1, pytest.param(timedelta(hours=1), marks=pytest.mark.soak)])
def test_checkpoints_make_no_difference_to_the_outputs(
    session: SparkSession, numbers: DataFrame, tmp_path: Path, every: int | timedelta
) -> None:
    place = tmp_path / "place"
    result = totals(running_sum(), numbers, place, checkpoint_every=every)
    for _ in range(2):  # a run that has ended has left nothing for the next one to go on from
        assert outcome(result["sums"]) == sums(session)
        assert saved_files(place) == []
        written = [worker.checkpoints for worker in result.metrics]
        assert written == ([11] * 2 if every == 1 else [0] * 2)  # one between every two of the twelve days
    assert result.resumed == []


@pytest.mark.spark
@pytest.mark.parametrize(("first", "second"), [pytest.param(1, 3, marks=pytest.mark.soak), (3, 2)])
def test_a_run_that_failed_is_gone_on_with(
    session: SparkSession, numbers: DataFrame, tmp_path: Path, first: int, second: int
) -> None:
    place = tmp_path / "place"
    failing = Failing(tmp_path / "fail", 7)

    def run(workers: int) -> ts.Result:
        return totals(running_sum(failing), numbers, place, workers=workers, checkpoint_every=2)

    failed = run(first)
    with pytest.raises(Exception, match="not today"):
        failed["sums"].collect()
    assert isinstance(failed.failure, OperatorError)
    assert saved_files(place)
    failing.file.unlink()
    again = run(second)
    assert outcome(again["sums"]) == sums(session)
    assert again.resumed == [6]
    assert saved_files(place) == []


@pytest.mark.spark
def test_several_inputs_and_outputs_are_gone_on_with(numbers: DataFrame, tmp_path: Path) -> None:
    """One input has epochs, the other comes at the first."""
    failing = Failing(tmp_path / "fail", 7)

    def build(scope: timely.ScopeBuilder[int], numbers: timely.Stream[int, Any], names: timely.Stream[int, Any]) -> Streams:
        def look(batch: pa.RecordBatch) -> pa.RecordBatch:
            for n in batch["n"].to_pylist():
                failing(n)
            return batch

        left = numbers.map_batch(look).map_batch(lambda batch: [(n % 3, n) for n in batch["n"].to_pylist()])
        right = names.map_batch(lambda batch: list(zip(batch["id"].to_pylist(), batch["name"].to_pylist(), strict=True)))
        named = left.join(right).map(lambda pair: dict(zip(("n", "name"), pair[1], strict=True)))
        return {"named": named.map_batch(pa.RecordBatch.from_pylist), "numbers": numbers}

    names = numbers.sparkSession.createDataFrame([(0, "nil"), (1, "one"), (2, "two")], "id long, name string")

    def run() -> ts.Result:
        schemas = {"named": "n long, name string", "numbers": "n long, day int"}
        return ts.run(
            build, {"numbers": numbers, "names": names}, schemas, workers=2, epoch={"numbers": "day"},
            checkpoint=tmp_path / "place", checkpoint_every=1,
        )  # fmt: skip

    with pytest.raises(Exception, match="not today"):
        run()["named"].collect()
    failing.file.unlink()
    again = run()
    assert outcome(again["named"]) == Counter((n, ["nil", "one", "two"][n % 3]) for n in range(120))
    assert outcome(again["numbers"]) == Counter((n, n % 12) for n in range(120))
    assert again.resumed == [7]
    again.unpersist()


@pytest.mark.spark
def test_another_dataflow_does_not_go_on_with_it(numbers: DataFrame, tmp_path: Path) -> None:
    failing = Failing(tmp_path / "fail", 7)

    def run(build: Callable[..., Streams], schema: str) -> ts.Result:
        return totals(build, numbers, tmp_path / "place", schema, workers=1, checkpoint_every=1)

    with pytest.raises(Exception, match="not today"):
        run(running_sum(failing), "total long")["sums"].collect()

    def other(scope: timely.ScopeBuilder[int], numbers: timely.Stream[int, Any]) -> Streams:
        return {"sums": numbers.map_batch(lambda batch: batch.select(["n"]).rename_columns(["total"]))}

    for build, schema in ((other, "total long"), (running_sum(), "total double")):
        result = run(build, schema)
        with pytest.raises(Exception, match="another directory to start anew"):
            result["sums"].collect()
        assert isinstance(result.failure, ChangedDataflowError)


@pytest.mark.spark
def test_an_operator_without_a_declared_state_is_refused(numbers: DataFrame, tmp_path: Path) -> None:
    def build(scope: timely.ScopeBuilder[int], numbers: timely.Stream[int, Any]) -> Streams:
        def constructor(capability: Any, info: timely.OperatorInfo) -> Callable[[Any, Any], object]:
            return lambda input, output: None

        return {"numbers": numbers.unary(timely.Pipeline, "forgetful", constructor)}

    result = ts.run(build, {"numbers": numbers}, {"numbers": "n long, day int"}, workers=1, epoch="day", checkpoint=tmp_path)
    with pytest.raises(Exception, match="forgetful"):
        result["numbers"].collect()
    assert isinstance(result.failure, StateError)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epoch": None, "checkpoint_every": 3}, "counts epochs, and without epoch= all rows are of one"),
        ({"checkpoint": 3}, "checkpoint must be a path or a URI that every worker can reach, not 3"),
        ({"checkpoint": ""}, "checkpoint must be a path or a URI"),
        ({"checkpoint": "nowhere://x"}, "nowhere"),
        ({"checkpoint": "/dev/null/x"}, "no checkpoint can be written to /dev/null/x: .* the driver and all executors may write"),
        ({"checkpoint_every": 0}, "checkpoint_every must be a number of epochs"),
    ],
)
def test_options_that_cannot_be(numbers: DataFrame, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    arguments = {"epoch": "day", "checkpoint": tmp_path, **options}
    with pytest.raises(ConfigurationError, match=message):
        ts.run(running_sum(), {"numbers": numbers}, {"sums": "total long"}, workers=1, **arguments)


@pytest.mark.spark
def test_a_place_that_cannot_be_written_any_more_ends_the_run_at_once(numbers: DataFrame, tmp_path: Path) -> None:
    place = tmp_path / "place"
    result = totals(running_sum(), numbers, place)
    place.rmdir()
    place.touch()
    with pytest.raises(Exception, match="no checkpoint can be written to"):
        result["sums"].collect()
    assert isinstance(result.failure, ConfigurationError)


# -- the outputs of one worker, without Spark ------------------------------------------------------------------------------


@settings(max_examples=15)
@given(st.lists(st.lists(st.integers(), max_size=3), max_size=6), st.integers(1, 3), st.integers(1, 3))
def test_outputs_come_back_once_on_any_number_of_workers(given_by: list[list[int]], first: int, second: int) -> None:
    def program(worker: timely.Worker, batches: list[list[int]]) -> list[Any]:
        outbox = OutputQueue()
        with Recovery(worker, directory) as recovery:
            with worker.dataflow(int) as scope:
                handle, stream = scope.new_input()
                collect(stream, 0, outbox)
            start = recovery.time or 0
            for epoch, batch in enumerate(batches, start):
                handle.advance_to(epoch)
                if epoch % worker.peers == worker.index:
                    handle.send_batch(batch)
                handle.advance_to(epoch + 1)
                recovery.checkpoint(epoch + 1)
            handle.close()
            worker.run()
            return list(outbox.drain())

    with tempfile.TemporaryDirectory() as directory:
        timely.execute(lambda worker: program(worker, given_by), workers=first)
        parts = timely.execute(lambda worker: program(worker, [[-1]]), workers=second)
    got = Counter(n for part in parts for position, batch in part for n in batch)
    assert got == Counter(n for batch in [*given_by, [-1]] for n in batch)
