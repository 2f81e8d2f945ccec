"""Graph algorithms on streams of edges, as dataflows whose loops end when nothing circulates any more.

Edges come as Arrow batches with a column for either end, results go as Arrow batches with a row for each node, and in
between everything is columns of numbers (but for ``pregel``, which works on records). ``encode`` gives every node a
number, ``propagate`` carries values along edges to a fixpoint, ``attach`` and ``without`` look values up, ``gather``
collects what comes at a time, ``name_components`` and ``name_values`` go back to the nodes as they came: functions of
streams that further algorithms can be made of. A caller may assume that results do not depend on the number of workers.
For ``strongly_connected_components``, ``pagerank`` and ``label_propagation`` each time of the input (each epoch) is a
graph of its own; the others build upon earlier times, and give at each time the rows that have changed.
``timely.graphs.spark`` has the same algorithms from DataFrame to DataFrame.
"""

from __future__ import annotations

from timely.errors import ConfigurationError

try:
    from timely.graphs.accumulate import accumulated
    from timely.graphs.components import connected_components
    from timely.graphs.decode import name_components, name_values
    from timely.graphs.distances import breadth_first_search, shortest_paths
    from timely.graphs.encode import encode
    from timely.graphs.gather import gather
    from timely.graphs.labels import label_propagation
    from timely.graphs.lookup import attach, without
    from timely.graphs.pregel import PregelVertex, pregel
    from timely.graphs.propagate import propagate
    from timely.graphs.rank import pagerank
    from timely.graphs.strong import components_build, strongly_connected_components
    from timely.graphs.triangles import triangle_count
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("numpy", "pyarrow"):
        raise
    raise ConfigurationError(
        f"timely.graphs needs the package {error.name}: pip install '.[arrow]' in a checkout of timely"
    ) from error

__all__ = [
    "PregelVertex",
    "accumulated",
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
