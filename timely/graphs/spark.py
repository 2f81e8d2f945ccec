"""The graph algorithms from DataFrame to DataFrame, for those who never want to see a scope.

Each function is ``timely.spark.run`` around the same ``build`` that runs without Spark. A caller may assume that
nothing runs before an action asks for the result, and that columns are checked before that, here on the driver.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from timely.errors import SchemaError
from timely.graphs.strong import components_build
from timely.spark import run


def strongly_connected_components(edges: DataFrame, src: str = "src", dst: str = "dst", workers: int = 2) -> DataFrame:
    """Return a DataFrame ``(node, component)`` with one row for each node of the graph.

    ``src`` and ``dst`` name the columns of ``edges`` that hold the ends, both of one type, which is the type of the
    result's columns too. Two nodes have the same ``component`` if each reaches the other; it is the smallest node among
    them. The job runs in ``workers`` tasks of one barrier stage. ``SchemaError`` at once for a missing column or
    different types, from the action for nulls; see ``timely.spark.run`` for the rest. Source: as
    ``timely.graphs.strongly_connected_components``.

    >>> from timely.spark import local_session
    >>> session = local_session(2)
    >>> edges = session.createDataFrame([("b", "a"), ("a", "b"), ("b", "c")], "src string, dst string")
    >>> sorted(tuple(row) for row in strongly_connected_components(edges).collect())
    [('a', 'a'), ('b', 'a'), ('c', 'c')]
    """
    node = _node_type(edges, src, dst)
    ends = edges.select(_exactly(src).alias("src"), _exactly(dst).alias("dst"))
    schema = StructType([StructField("node", node), StructField("component", node)])
    return run(components_build(), {"edges": ends}, {"components": schema}, workers=workers)["components"]


def _node_type(edges: DataFrame, src: str, dst: str) -> DataType:
    """Return the type of both columns; ``SchemaError`` where one is missing or they differ."""
    for name in (src, dst):
        if name not in edges.columns:
            raise SchemaError(f"the edges have no column {name!r}; they have {', '.join(map(repr, edges.columns))}")
    source, target = edges.schema[src].dataType, edges.schema[dst].dataType
    if source != target:
        raise SchemaError(
            f"column {src!r} is {source.simpleString()} and column {dst!r} is {target.simpleString()};"
            " both ends of an edge must be of one type: cast one of them"
        )
    return source


def _exactly(name: str) -> Column:
    """Return the column of exactly that name, dots and all."""
    return F.col("`" + name.replace("`", "``") + "`")
