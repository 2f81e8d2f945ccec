"""The idiomatic DataFrame loops: joins and groupings, one round after another, driven by the program that holds the session.

Written as well as such a loop can be: what does not change is cached before the first round, each round's result is cut from
its plan by ``localCheckpoint``, which is one job, and whether to go on is asked of what is cached already. A loop can be
stopped after so many ``rounds``, for graphs on which going to the end would take minutes; it says how many it did.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from pyspark.sql import Column, DataFrame
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
    tied, before, done = _downward(edges), None, 0
    while True:
        done += 1
        tied = _small_star(_large_star(tied)).localCheckpoint()
        now = _digest(tied)
        if now == before or done == rounds:
            break
        before = now
    return Looped(_named(edges, tied), done)


def two_phase(edges: DataFrame, rounds: int = NO_END) -> Looped:
    """Components: large stars until they change nothing, then one small star, and again (the two phases of the same paper)."""
    tied, before, done = _downward(edges), None, 0
    while True:
        while True:
            done += 1
            tied = _large_star(tied).localCheckpoint()
            now = _digest(tied)
            if now == before or done >= rounds:
                break
            before = now
        tied = _small_star(tied).localCheckpoint()
        small = _digest(tied)
        if small == now or done >= rounds:
            break
        before = small
    return Looped(_named(edges, tied), done)


def _downward(edges: DataFrame) -> DataFrame:
    """Return each edge once, from its greater end to its smaller one."""
    high, low = F.greatest("src", "dst").alias("src"), F.least("src", "dst").alias("dst")
    return edges.where("src != dst").select(high, low).distinct().localCheckpoint()


def _large_star(tied: DataFrame) -> DataFrame:
    ways = tied.union(tied.select("dst", "src"))
    least = ways.groupBy("src").agg(F.min("dst").alias("low"))
    large = ways.join(least.select("src", F.least("src", "low").alias("low")), "src").where("dst > src")
    return large.select(F.col("dst").alias("src"), F.col("low").alias("dst")).distinct()


def _small_star(tied: DataFrame) -> DataFrame:
    least = tied.groupBy("src").agg(F.min("dst").alias("low"))
    small = tied.join(least, "src").select(F.col("dst").alias("src"), F.col("low").alias("dst")).where("src != dst")
    return small.union(least.select("src", F.col("low").alias("dst"))).distinct()


def _digest(tied: DataFrame) -> Any:
    return tied.agg(F.count("src"), F.sum(F.col("src").cast("decimal(20)")), F.sum(F.col("dst").cast("decimal(20)"))).first()


def _named(edges: DataFrame, tied: DataFrame) -> DataFrame:
    """Return ``(node, component)`` from stars: also of nodes that have but a loop."""
    nodes = edges.select(F.col("src").alias("node")).union(edges.select("dst")).distinct()
    return nodes.join(tied, nodes.node == tied.src, "left").select("node", F.coalesce("dst", "node").alias("component"))


def randomized_contraction(edges: DataFrame, rounds: int = NO_END) -> Looped:
    """Components: contract each node into the neighbour that comes first in a random order (Bögeholz and others 2020).

    A bijection of whole numbers makes the order, anew in each round, and what it makes of the first neighbour is the name of the
    contracted node, so that no round has to ask which neighbour that was. Rounds end when no edge is left; then the names are put
    together, from the last round to the first. A component has a number that is nobody's node.
    """
    left = edges.select("src", "dst").union(edges.select("dst", "src")).distinct().localCheckpoint()
    contracted: list[DataFrame] = []
    while True:
        seed = len(contracted)
        first = left.groupBy("src").agg(F.min(_mixed("dst", seed)).alias("first"))
        names = first.select(F.col("src").alias("node"), F.least(_mixed("src", seed), "first").alias("name")).localCheckpoint()
        contracted.append(names)
        one = names.select(F.col("node").alias("src"), F.col("name").alias("one"))
        other = names.select(F.col("node").alias("dst"), F.col("name").alias("other"))
        further = left.join(one, "src").join(other, "dst").where("one != other")
        left = further.select(F.col("one").alias("src"), F.col("other").alias("dst")).distinct().localCheckpoint()
        if left.isEmpty() or len(contracted) == rounds:
            break
    found = contracted[-1]
    for seed in range(len(contracted) - 1, 0, -1):
        later = found.select(F.col("node").alias("at"), F.col("name").alias("last"))
        earlier = contracted[seed - 1]
        name = F.coalesce("last", _mixed("name", seed))  # who had no edge left is renamed all the same, since names may not meet
        found = earlier.join(later, earlier.name == later["at"], "left").select("node", name.alias("name"))
    return Looped(found.select("node", F.col("name").alias("component")), len(contracted))


def by_smallest(found: DataFrame) -> DataFrame:
    """Return ``(node, component)`` with each component named by its smallest node."""
    least = found.groupBy("component").agg(F.min("node").alias("least"))
    return found.join(least, "component").select("node", F.col("least").alias("component"))


def _mixed(column: str, seed: int) -> Column:
    """Return a bijection of 64-bit numbers: each step that xxHash takes over one number can be undone."""
    return F.xxhash64(F.col(column).cast("long"), F.lit(seed))


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
