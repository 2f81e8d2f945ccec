"""A running count per key: a dataflow that stays up beside a stateful streaming query, in one session.

Both get the same micro-batches of 10,000 rows from the same kind of source, and both hand every epoch's changed counts to a
function that has Spark compute all rows and throw them away. What is compared is the time from the start of a micro-batch to
the moment when Spark takes it for done, as Spark itself measures it (``triggerExecution``): reading the source, computing,
handing over, and the notes that make it durable are in it on both sides. The query keeps its state in Spark's default state
store; it has all slots of the session to itself while it runs, where the dataflow's workers hold two of three. The counts of
both are checked to be the same.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import timely
from benchmarks.report import Row
from timely.dataflow import route
from timely.spark import local_session, stream

ROWS = 10_000
KEYS = 1_000
WARM_UPS = 10
EPOCHS = 20
"""Epochs of each side that count in each round, after so many that do not."""

Table = Mapping[int, int]


def run(rounds: int) -> list[Row]:
    """Return how long an epoch takes on either side, the ratio, and where the time goes on ours."""
    session = local_session(3)
    ours, theirs = Side(), Side()
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            run_dataflow(session, Path(folder) / "ours", ours)
            run_query(session, Path(folder) / "theirs", theirs)
        assert ours.counts == theirs.counts
    what = f"{ROWS:,} rows, {KEYS:,} keys"
    return [
        Row("streaming: an epoch of a stateful query over one of a dataflow", theirs.median / ours.median, aim=1.0, note=what),
        Row("streaming: an epoch of a dataflow, milliseconds", ours.median, note=what),
        Row("streaming: an epoch of a stateful query, milliseconds", theirs.median, note=what),
        Row("streaming: of an epoch of a dataflow, what is spent in the workers", ours.share, note="fraction"),
    ]


@attrs.define
class Side:
    """What was measured of one side: milliseconds of each epoch, and those in the workers; the last counts, to compare."""

    epochs: list[float] = attrs.field(factory=list)
    inside: list[float] = attrs.field(factory=list)
    counts: dict[int, int] = attrs.field(factory=dict)

    @property
    def median(self) -> float:
        """The median of the epochs."""
        return statistics.median(self.epochs)

    @property
    def share(self) -> float:
        """The part of an epoch that is spent in the workers, both as medians."""
        return statistics.median(self.inside) / self.median

    def take(self, query: Any) -> None:
        """Take in what Spark has measured of a query's micro-batches."""
        found = {report["batchId"]: report["durationMs"]["triggerExecution"] for report in query.recentProgress}
        self.epochs += [found[epoch] for epoch in range(WARM_UPS, WARM_UPS + EPOCHS)]


def source(session: SparkSession) -> DataFrame:
    """Micro-batches of as many rows each, one after the other: the same ones every time."""
    reader = session.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 2)
    return reader.load().select((F.col("value") * 7919 % KEYS).alias("key"))


def consume(side: Side, epoch: int, table: DataFrame) -> None:
    """Have Spark compute all rows; of the last epoch that counts, look at them."""
    if epoch == WARM_UPS + EPOCHS:
        side.counts.update((row.key, row.total) for row in table.collect())
    else:
        table.write.format("noop").mode("append").save()


def until_done(start: Callable[[Callable[[int], None]], Any]) -> Any:
    """Start something, and return it when it has said that the last epoch is done."""
    done = threading.Event()
    started = start(lambda epoch: done.set() if epoch > WARM_UPS + EPOCHS else None)
    done.wait()
    return started


def run_query(session: SparkSession, folder: Path, side: Side) -> None:
    """Run the stateful query of Structured Streaming."""
    counts = source(session).groupBy("key").agg(F.count("*").alias("total"))

    def start(tell: Callable[[int], None]) -> Any:
        def take(table: DataFrame, epoch: int) -> None:
            consume(side, epoch, table)
            tell(epoch)

        writer = counts.writeStream.outputMode("update").foreachBatch(take)
        return writer.option("checkpointLocation", str(folder)).start()

    query = until_done(start)
    query.stop()
    side.take(query)


def run_dataflow(session: SparkSession, folder: Path, side: Side) -> None:
    """Run the dataflow that stays up."""

    def start(tell: Callable[[int], None]) -> Any:
        def take(epoch: int, tables: Mapping[str, DataFrame]) -> None:
            consume(side, epoch, tables["counts"])
            tell(epoch)

        return stream(
            build,
            inputs={"rows": source(session)},
            outputs={"counts": "key long, total long"},
            workers=2,
            foreach_epoch=take,
            checkpoint=folder,
        )

    handle = until_done(start)
    handle.stop()
    side.take(handle.query)
    side.inside += [1000 * report.computing for report in handle.recent if WARM_UPS <= report.epoch < WARM_UPS + EPOCHS]


def build(scope: timely.ScopeBuilder[int], rows: timely.Stream[int, Any]) -> Mapping[str, timely.Stream[int, Any]]:
    """Count each batch by itself, bring the counts of a key together, and add them up over all epochs."""
    return {"counts": rows.map_batch(count).unary_frontier(timely.Exchange("key"), "totals", totals)}


def count(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return how many rows of a batch each key has."""
    found = pc.value_counts(batch["key"])
    return pa.record_batch({"key": found.field("values"), "n": found.field("counts")})


def totals(capability: Any, info: timely.OperatorInfo) -> Callable[[Any, Any], object]:
    """An operator that gives, at each time, the new totals of the keys that it has rows of."""
    sums: dict[int, int] = {}
    waiting: dict[int, tuple[Any, list[pa.RecordBatch]]] = {}
    # nothing waits between two epochs
    info.register_state(lambda: ((route(key), (key, n)) for key, n in sums.items()), sums.update)

    def logic(input: Any, output: Any) -> None:
        for cap, batch in input:
            if cap.time not in waiting:
                waiting[cap.time] = (cap.retain(), [])
            waiting[cap.time][1].append(batch)
        for epoch in sorted(waiting):
            if input.frontier.less_equal(epoch):
                break
            cap, batches = waiting.pop(epoch)
            new = pa.Table.from_batches(batches).group_by("key").aggregate([("n", "sum")]).combine_chunks()
            keys = new["key"].to_pylist()
            for key, n in zip(keys, new["n_sum"].to_pylist(), strict=True):
                sums[key] = sums.get(key, 0) + n
            output.session(cap).give_batch(pa.record_batch({"key": keys, "total": [sums[key] for key in keys]}))
            cap.drop()

    return logic
