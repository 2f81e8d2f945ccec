"""Graph algorithms on streams of edges, as dataflows of nested loops that end when nothing circulates any more.

Edges come as Arrow batches with a column for either end, results go as Arrow batches, and in between everything is
columns of whole numbers: ``encode`` gives every node a number, ``propagate`` carries values along edges to a fixpoint,
``attach`` and ``without`` look values up, ``name_components`` goes back to the nodes as they came. Each is a function
of streams that further algorithms can be made of. A caller may assume that results do not depend on the number of
workers, and that each time of the input (each epoch) is a graph of its own. ``timely.graphs.spark`` has the same
algorithms from DataFrame to DataFrame.
"""

from __future__ import annotations

from timely.errors import ConfigurationError

try:
    from timely.graphs.decode import name_components
    from timely.graphs.encode import encode
    from timely.graphs.gather import gather
    from timely.graphs.lookup import attach, without
    from timely.graphs.propagate import propagate
    from timely.graphs.strong import components_build, strongly_connected_components
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("numpy", "pyarrow"):
        raise
    raise ConfigurationError(
        f"timely.graphs needs the package {error.name}: pip install '.[arrow]' in a checkout of timely"
    ) from error

__all__ = [
    "attach",
    "components_build",
    "encode",
    "gather",
    "name_components",
    "propagate",
    "strongly_connected_components",
    "without",
]
