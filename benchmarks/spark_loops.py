"""The idiomatic DataFrame loops: joins and groupings, one round after another, driven by the program that holds the session.

Written as well as such a loop can be: what does not change is cached before the first round, each round's result is cut from
its plan by ``localCheckpoint``, which is one job, and whether to go on is asked of what is cached already. A loop can be
stopped after so many ``rounds``, for graphs on which going to the end would take minutes; it says how many it did.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

NO_END = 1 << 30


@attrs.frozen
class Looped:
    """What a loop has found after so many rounds."""

    found: DataFrame
    rounds: int


Loop = Callable[[DataFrame, int], Looped]


def label_propagation(edges: DataFrame, rounds: int = NO_END) -> Looped:
    """Components: every node takes the smallest node that it has heard of, until none hears of a smaller one."""
    ways = edges.select("src", "dst").union(edges.select("dst", "src")).where("src != dst").distinct().persist()
    nodes = edges.select(F.col("src").alias("node")).union(edges.select("dst")).distinct()
    labels = nodes.select("node", F.col("node").alias("component")).localCheckpoint()
    for done in range(1, rounds + 1):
        heard = ways.join(labels, ways.src == labels.node).groupBy("dst").agg(F.min("component").alias("heard"))
        known = labels.join(heard, labels.node == heard.dst, "left")
        least = F.least("component", "heard")
        labels = known.select("node", least.alias("component"), (least < F.col("component")).alias("new")).localCheckpoint()
        if done == rounds or labels.where("new").isEmpty():
            break
        labels = labels.select("node", "component")
    ways.unpersist()
    return Looped(labels.select("node", "component"), done)


def stars(edges: DataFrame, rounds: int = NO_END) -> Looped:
    """Components: large stars and small stars in turn (Kiveris and others 2014), which takes few rounds on any graph.

    Each edge points from a node to a smaller one. In a large star the greater neighbours of a node are tied to the smallest
    one, in a small star the smaller neighbours and the node itself are, until nothing changes: then all is stars.
    """
    high, low = F.greatest("src", "dst").alias("src"), F.least("src", "dst").alias("dst")
    tied = edges.where("src != dst").select(high, low).distinct().localCheckpoint()
    nodes = edges.select(F.col("src").alias("node")).union(edges.select("dst")).distinct().persist()
    before, done = None, 0
    while True:
        done += 1
        ways = tied.union(tied.select("dst", "src"))
        least = ways.groupBy("src").agg(F.min("dst").alias("low"))
        large = ways.join(least.select("src", F.least("src", "low").alias("low")), "src").where("dst > src")
        tied = large.select(F.col("dst").alias("src"), F.col("low").alias("dst")).distinct()
        least = tied.groupBy("src").agg(F.min("dst").alias("low"))
        small = tied.join(least, "src").select(F.col("dst").alias("src"), F.col("low").alias("dst")).where("src != dst")
        tied = small.union(least.select("src", F.col("low").alias("dst"))).distinct().localCheckpoint()
        now = tied.agg(F.count("src"), F.sum(F.col("src").cast("decimal(20)")), F.sum(F.col("dst").cast("decimal(20)"))).first()
        if now == before or done == rounds:
            break
        before = now
    named = nodes.join(tied, nodes.node == tied.src, "left").select("node", F.coalesce("dst", "node").alias("component"))
    return Looped(named, done)


def ranks(edges: DataFrame, rounds: int) -> Looped:
    """PageRank for so many rounds; what comes to nodes without edges is dealt to all."""
    degrees = edges.groupBy("src").agg(F.count("dst").alias("degree"))
    weighed = edges.join(degrees, "src").select("src", "dst", (1 / F.col("degree")).alias("part")).persist()
    nodes = edges.select(F.col("src").alias("node")).union(edges.select("dst")).distinct()
    ends = degrees.select(F.col("src").alias("node"), F.lit(False).alias("loose"))
    nodes = nodes.join(ends, "node", "left").select("node", F.coalesce("loose", F.lit(True)).alias("loose")).persist()
    total = nodes.count()
    found = nodes.select("node", "loose", F.lit(1 / total).alias("rank"))
    for _ in range(rounds):
        (kept,) = found.where("loose").agg(F.coalesce(F.sum("rank"), F.lit(0.0))).first() or (0.0,)
        given = weighed.join(found, weighed.src == found.node).groupBy("dst").agg(F.sum(F.expr("rank * part")).alias("given"))
        rank = (0.15 + 0.85 * kept) / total + 0.85 * F.coalesce("given", F.lit(0.0))
        found = nodes.join(given, nodes.node == given.dst, "left").select("node", "loose", rank.alias("rank")).localCheckpoint()
    weighed.unpersist()
    nodes.unpersist()
    return Looped(found.select("node", "rank"), rounds)


def distances(edges: DataFrame, rounds: int = NO_END) -> Looped:
    """Breadth-first search from node 0, level by level."""
    session = edges.sparkSession
    front = session.createDataFrame([(0, 0)], "node long, distance long").localCheckpoint()
    reached = front
    for done in range(1, rounds + 1):
        next_to = edges.join(front, edges.src == front.node).select(F.col("dst").alias("node")).distinct()
        front = next_to.join(reached, "node", "left_anti").withColumn("distance", F.lit(done).cast("long")).localCheckpoint()
        if front.isEmpty():
            break
        reached = reached.union(front)
        if done % 10 == 0:  # the plan of a union grows with each round
            reached = reached.coalesce(2).localCheckpoint()
    return Looped(reached, done)
