"""Power iteration clustering, as Spark's MLlib does it, on a graph with ids of any type."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import IntegralType

from timely.graphs.graphframes.graph_tables import DST, ID, SRC, GraphTables
from timely.graphs.spark.graph_columns import column_type, quoted


def clusters(tables: GraphTables, k: int, rounds: int, weight: str | None) -> DataFrame:
    """Return ``(id, cluster)``; ``weight`` is a column of the edges."""
    from pyspark.ml.clustering import PowerIterationClustering  # takes a second to import

    weights = F.lit(1.0) if weight is None else F.col(quoted(weight)).cast("double")
    if weight is not None:
        column_type(tables.edges, weight, "edges")
    edges = tables.inner_edges(weights.alias("weight"))
    if isinstance(column_type(edges, SRC, "edges"), IntegralType):
        names = None
    else:
        names = tables.vertices.select(ID).distinct().sort(ID)
        names = names.withColumn("number", F.row_number().over(Window.orderBy(ID)).cast("long")).localCheckpoint()
        for end in (SRC, DST):
            numbered = names.select(F.col(ID).alias(end), F.col("number").alias(f"{end}_number"))
            edges = edges.join(numbered, end)
        edges = edges.select(F.col("src_number").alias(SRC), F.col("dst_number").alias(DST), "weight")
    clustering = PowerIterationClustering(k=k, maxIter=rounds, weightCol="weight")
    assigned = clustering.assignClusters(edges)
    if names is None:
        return assigned
    assigned = assigned.select(F.col("id").alias("number"), "cluster")
    return names.join(assigned, "number").select(ID, "cluster")
