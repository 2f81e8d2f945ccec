"""Graph algorithms on streams of edges, as dataflows whose loops end when nothing is under way any more.

Edges come as Arrow batches with a column for each end, results as Arrow batches with a row for each node, and results do not
depend on the number of workers. For ``strongly_connected_components``, ``pagerank`` and ``label_propagation`` each time is a
graph of its own; the others refine their answers as edges are added. ``timely.graphs.spark`` has the same algorithms on
DataFrames, ``timely.differential.graphs`` has them for edges that come and go.
"""

from __future__ import annotations

from timely.errors import ConfigurationError

try:
    from timely.graphs.connected import connected_components
    from timely.graphs.distances import breadth_first_search, shortest_paths
    from timely.graphs.labels import label_propagation
    from timely.graphs.propagation import propagate
    from timely.graphs.rank import pagerank
    from timely.graphs.stages.component_names import name_components
    from timely.graphs.stages.edge_encoding import encode
    from timely.graphs.stages.gathering import gather
    from timely.graphs.stages.node_joins import attach, name_values, without
    from timely.graphs.strong import components_build, strongly_connected_components
    from timely.graphs.supersteps import PregelVertex, pregel
    from timely.graphs.triangles import triangle_count
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("numpy", "pyarrow"):
        raise
    raise ConfigurationError(f'timely.graphs needs the package {error.name}: pip install "timely-dataflow[arrow]"') from error

__all__ = [
    "PregelVertex",
    "attach",
    "breadth_first_search",
    "components_build",
    "connected_components",
    "encode",
    "gather",
    "label_propagation",
    "name_components",
    "name_values",
    "pagerank",
    "pregel",
    "propagate",
    "shortest_paths",
    "strongly_connected_components",
    "triangle_count",
    "without",
]
