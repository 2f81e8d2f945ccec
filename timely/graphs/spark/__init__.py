"""The graph algorithms from DataFrame to DataFrame, without a scope in sight.

Each function is ``timely.spark.run`` around the dataflow of the same name in ``timely.graphs``. ``src`` and ``dst`` name the
columns of ``edges`` that hold the ends, both of one type, which is that of the result's nodes too. ``vertices`` has a column
``node`` of that type, for nodes without edges. Nothing runs before an action asks for the result; columns and parameters are
checked at the call: ``SchemaError`` for a missing column or a wrong type, ``ConfigurationError`` for a parameter that cannot be.
See ``docs/graphs_on_spark.md``.
"""

from timely.graphs.graphframes.edge_aggregates import AggregateMessages, AggregateNeighbors
from timely.graphs.graphframes.graph_frame import GraphFrame
from timely.graphs.graphframes.pregel_builder import Pregel
from timely.graphs.spark.algorithms import (
    breadth_first_search,
    connected_components,
    label_propagation,
    pagerank,
    shortest_paths,
    strongly_connected_components,
    triangle_count,
)
from timely.graphs.spark.result import GraphResult
from timely.graphs.spark.vertex_programs import pregel

__all__ = [
    "AggregateMessages",
    "AggregateNeighbors",
    "GraphFrame",
    "GraphResult",
    "Pregel",
    "breadth_first_search",
    "connected_components",
    "label_propagation",
    "pagerank",
    "pregel",
    "shortest_paths",
    "strongly_connected_components",
    "triangle_count",
]
