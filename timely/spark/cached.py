"""Tables in Spark's cache that lie there as a run would deal them, so that they need no shuffle.

A shuffle in front of the workers costs about as much as everything else in a short job. It is there to give each worker one
partition of about equal size, and a table in the cache may have these already. The invariant: what is read in place has exactly
as many partitions as asked for, about even, whatever becomes of the cache later. The partitions are bound when the DataFrame is
made, so that a table that is taken out of the cache afterwards is computed again in the same ones. A caller may assume that
nothing runs here, and that whatever cannot be found out is a reason to return ``None``.

Each partition is read by the one task that needs it. An attempt of the stage that follows another reads it anew from its
beginning, which leaves out no row and repeats none, also where the table had to be computed again with other rows.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from timely.spark.session import context_of, is_local

LITTLE = 1 << 20
"""Bytes by which the largest partition may exceed the average in any case."""


def in_place(session: SparkSession, frame: DataFrame, partitions: int) -> DataFrame | None:
    """Return a DataFrame with the rows of ``frame`` in exactly so many partitions, those in which Spark's cache has them.

    ``None`` where it has not: where ``frame`` is more than columns of a table in the cache, where that table is not there in
    full, has another number of partitions or uneven ones, or was put together of others in a way that Spark does not take for
    the input of a barrier stage. And where the tasks run on other machines than the driver, since Spark would make the workers
    wait for slots near to their partitions.
    """
    context = context_of(session)
    if not is_local(context):
        return None
    java: Any = session._jsparkSession
    try:
        execution: Any = frame._jdf.queryExecution()
        relation = _relation_of(execution.optimizedPlan())
        if relation is None or not relation.cacheBuilder().isCachedColumnBuffersLoaded():
            return None
        kept, rows = relation.cacheBuilder().cachedColumnBuffers(), relation.stats().rowCount()
        if rows.isEmpty() or not _fits(kept, partitions):
            return None
        if not _are_even(_sizes(java.sparkContext(), kept.id()), partitions, int(rows.get())):
            return None
        bound = java.internalCreateDataFrame(execution.toRdd(), frame._jdf.schema(), False)
    except Py4JError:  # another Spark than this was written for
        return None
    return DataFrame(bound, session)


def _relation_of(plan: Any) -> Any | None:
    """Return the table in the cache that a plan takes some columns from; ``None`` of a plan that does anything else."""
    if _name(plan) == "Project":
        columns = plan.projectList()
        if not all(_is_column(columns.apply(at)) for at in range(columns.size())):
            return None
        plan = plan.child()
    return plan if _name(plan) == "InMemoryRelation" else None


def _is_column(expression: Any) -> bool:
    """Return whether an expression is a column, under its own name or another, or a cast of one."""
    while (name := _name(expression)) in ("Alias", "Cast"):
        expression = expression.child()
    return name == "AttributeReference"


def _fits(kept: Any, partitions: int) -> bool:
    """Return whether a barrier stage may read this: all that it is made of without a shuffle has as many partitions."""
    if kept.getNumPartitions() != partitions or kept.isBarrier():
        return False
    before = kept.getNarrowAncestors().iterator()
    while before.hasNext():
        if before.next().getNumPartitions() != partitions:
            return False
    return True


def _sizes(context: Any, number: int) -> list[int]:
    """Return how many bytes each partition of a table has in the cache, as far as Spark has noted it."""
    noted = context.statusStore().rdd(number).partitions()
    return [] if noted.isEmpty() else [_size(noted.get().apply(at)) for at in range(noted.get().size())]


def _are_even(sizes: list[int], partitions: int, rows: int) -> bool:
    """Return whether so many partitions are in the cache, the largest not much larger than the average.

    Spark compresses what it keeps, equal values that follow each other to next to nothing. So where there is less than a byte for
    each row, sizes say nothing of how many rows are in which partition.
    """
    if len(sizes) != partitions or sum(sizes) < rows:
        return False
    average = sum(sizes) / partitions
    return max(sizes) <= max(1.25 * average, average + LITTLE)


def _size(partition: Any) -> int:
    return int(partition.memoryUsed()) + int(partition.diskUsed())


def _name(thing: Any) -> str:
    return str(thing.getClass().getSimpleName())
