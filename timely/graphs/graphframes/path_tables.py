"""The shortest paths between two sets of vertices, as a table with a column for each vertex and edge."""

from __future__ import annotations

from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from timely.graphs.graphframes.graph_tables import DISTANCES, ID, GraphTables, first_row
from timely.graphs.graphframes.pregel.landmarks import landmark_distances
from timely.graphs.graphframes.structs import condition, field, nested
from timely.graphs.spark.result import RunOptions


def shortest_paths_between(
    tables: GraphTables, start: str | Column, end: str | Column, longest: int, parameters: str, options: RunOptions
) -> DataFrame:
    """Return the shortest paths of up to ``longest`` edges; where there is none, no row, with the columns of the vertices.

    ``parameters`` are those of ``GraphTables.run``.
    """
    ends = condition(end)
    vertices = tables.node_column(F.when(condition(start), 0).alias("landmark"))
    apply = partial(landmark_distances, landmarks=1, limit=longest)
    distances = tables.run("bfs", apply, DISTANCES, options, vertices=vertices, parameters=parameters)
    # not persist(): the table ends with the result, after which it could not be unpersisted
    levels = distances.select("node", F.explode(F.col("distances.distance")).alias("level")).localCheckpoint()
    reached = tables.vertices.filter(ends).join(levels, F.col(ID) == F.col("node"))
    (length,) = first_row(reached.select(F.min("level")))
    if length is None:
        return tables.vertices.sparkSession.createDataFrame([], tables.vertices.schema)
    return _shortest_path_table(tables.vertices, tables.edges, levels, ends, length)


def _shortest_path_table(vertices: DataFrame, edges: DataFrame, levels: DataFrame, ends: Column, length: int) -> DataFrame:
    """Return ``(from, e0, v1, e1, ..., to)``: all paths of ``length`` edges to the vertices for which ``ends`` holds.

    ``levels`` has ``(node, level)``: how many edges from a start each vertex is. Paths grow from their ends, along edges from one
    level to that before. So each of them reaches a start, and none is dropped on the way.
    """
    paths = nested(vertices.filter(ends), "to")
    paths = paths.join(_level(levels, length), field("to", "id") == F.col("node"), "left_semi")
    following = "to"
    for step in reversed(range(length)):
        edge, vertex = f"e{step}", f"v{step}" if step else "from"
        along = nested(edges, edge)
        along = along.join(_level(levels, step), field(edge, "src") == F.col("node"), "left_semi")
        paths = paths.join(along, field(edge, "dst") == field(following, "id"))
        paths = paths.join(nested(vertices, vertex), field(vertex, "id") == field(edge, "src"))
        following = vertex
    if not length:
        return paths.select(F.col("to").alias("from"), "to")
    middle = [name for step in range(1, length) for name in (f"v{step}", f"e{step}")]
    return paths.select("from", "e0", *middle, "to")


def _level(levels: DataFrame, level: int) -> DataFrame:
    return levels.filter(F.col("level") == level).select("node")
