"""GraphX, the graph library that comes with Spark, called from Python: its classes are in the jars that pip installs.

Only what can be said without a function of one's own is called, since there is no handing one over: connected components
and PageRank for a fixed number of rounds. The edges are read from a DataFrame through Spark's encoders, and the result is a
DataFrame again, so that no row passes through Python. Nodes have to be whole numbers.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

NO_END = 1 << 30
"""More rounds than any graph needs."""


def components(edges: DataFrame, rounds: int = NO_END) -> DataFrame:
    """Return ``(node, component)``: GraphX's components after so many rounds at most, each node with the smallest it knows."""
    java, graph = _graph(edges)
    kind = _class_tag(java, "java.lang.Integer")
    found = java.org.apache.spark.graphx.lib.ConnectedComponents.run(graph, rounds, kind, kind)
    return _frame(edges, found, "LONG", "component")


def ranks(edges: DataFrame, rounds: int) -> DataFrame:
    """Return ``(node, rank)``: GraphX's PageRank after so many rounds, scaled so that the ranks add up to 1.

    Rank that comes to a node without edges is lost in each round, and all ranks are scaled up for it in the end: where there
    are such nodes, the ranks are about, not exactly, those of which nothing is lost.
    """
    java, graph = _graph(edges)
    kind = _class_tag(java, "java.lang.Integer")
    found = java.org.apache.spark.graphx.lib.PageRank.run(graph, rounds, 0.15, kind, kind)
    nodes = graph.vertices().count()
    return _frame(edges, found, "DOUBLE", "rank").selectExpr("node", f"rank / {nodes} rank")


def _graph(edges: DataFrame) -> tuple[Any, Any]:
    """Return the classes of Java, and the graph of the edges, each of which has the value 1."""
    java: Any = edges.sparkSession._jvm
    pairs = getattr(edges.select("src", "dst")._jdf, "as")(_pair(java, "LONG")).rdd()
    level = java.org.apache.spark.storage.StorageLevel.MEMORY_AND_DISK()
    nothing = java.scala.Option.apply(None)
    kind = _class_tag(java, "java.lang.Integer")
    return java, java.org.apache.spark.graphx.Graph.fromEdgeTuples(pairs, 1, nothing, level, level, kind)


def _frame(edges: DataFrame, graph: Any, kind: str, name: str) -> DataFrame:
    java, session = edges.sparkSession._jvm, edges.sparkSession
    made = session._jsparkSession.createDataset(graph.vertices(), _pair(java, kind))
    return DataFrame(made, session).toDF("node", name)


def _pair(java: Any, second: str) -> Any:
    encoders = java.org.apache.spark.sql.Encoders
    return encoders.tuple(encoders.LONG(), getattr(encoders, second)())


def _class_tag(java: Any, name: str) -> Any:
    return java.scala.reflect.ClassTag.apply(java.java.lang.Class.forName(name))
