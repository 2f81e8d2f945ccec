"""Strongly connected components: nested loops that peel components off what is left of a graph.

The outer loop carries the edges that are left. In each round every node with outgoing edges draws a priority. A first inner loop
propagates them forward: each node gets the colour that is the greatest to reach it. A node of its own colour is a root, and its
component is whatever of its colour reaches it: a second inner loop propagates backward from all roots at once, inside the
colours. Components found leave the loop, and so do edges from them or between colours. The invariant: an edge inside a component
that is not found yet never leaves.

Priorities are random in each round. So each node that reaches a given one is equally likely to be its root, a round leaves half
of them on average, and the outer rounds grow as the logarithm of the nodes. Nodes on no cycle may leave without a root:
``name_components`` makes each a component of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from timely.dataflow import ScopeBuilder, Stream
from timely.graphs.propagation import propagate
from timely.graphs.stages.component_names import name_components
from timely.graphs.stages.edge_encoding import encode
from timely.graphs.stages.node_joins import attach, without
from timely.graphs.stages.priorities import node_of, priority
from timely.graphs.structures.arrays import Column, Rows
from timely.operators.type_variables import T
from timely.order import Product

Build: TypeAlias = Callable[..., dict[str, Stream[Any, Any]]]


def strongly_connected_components(
    edges: Stream[T, Any], src: str = "src", dst: str = "dst", *, vertices: Stream[T, Any] | None = None
) -> Stream[T, Any]:
    """Return Arrow batches ``(node, component)``: one row for each node of the graph, over all workers together.

    ``edges`` are Arrow batches with the columns ``src`` and ``dst``, both of one type that Arrow can sort; ``vertices`` are
    batches with a column ``node``, for nodes without edges. Two nodes have the same ``component``, the smallest node among
    them, if each reaches the other. Each time is a graph of its own. ``SchemaError``, as the cause of an ``OperatorError``, for
    a column that is missing or has nulls and for types that differ. Source: colouring with many pivots, as nested loops of
    Naiad (section 2.1).

    >>> import pyarrow as pa
    >>> import timely
    >>> def build(scope):
    ...     edges = pa.record_batch({"src": ["b", "a", "b"], "dst": ["a", "b", "c"]})
    ...     return strongly_connected_components(scope.to_stream([edges]).map_batch(lambda batches: batches[0]))
    >>> timely.example(build)
    [(0, [('a', 'a'), ('b', 'a'), ('c', 'c')])]
    """
    numbers, names = encode(edges, src, dst, vertices=vertices)
    return name_components(names, strong_members(numbers.map_batch(_without_self_loops)))


def components_build(src: str = "src", dst: str = "dst") -> Build:
    """Return ``build(scope, edges)``, which returns ``{"components": ...}``, for runs with or without Spark.

    >>> import pyarrow as pa
    >>> import timely
    >>> build = components_build("from", "to")
    >>> edges = pa.record_batch({"from": [1, 2], "to": [2, 1]})
    >>> timely.example(lambda scope: build(scope, scope.to_stream([0]).map_batch(lambda _: edges))["components"])
    [(0, [(1, 1), (2, 1)])]
    """

    def build(scope: ScopeBuilder[Any], edges: Stream[Any, Any]) -> dict[str, Stream[Any, Any]]:
        return {"components": strongly_connected_components(edges, src, dst)}

    return build


def strong_members(edges: Stream[T, Any]) -> Stream[T, Any]:
    """Return ``(node, root)`` for the nodes of each component, from edges as ``encode`` returns them.

    Nodes on no cycle may be missing.
    """
    with edges.scope.iterative("peel") as loop:
        handle, again = loop.feedback()
        left = edges.enter(loop).concat(again)
        colours = propagate(left, _draw, "forward")
        coloured = attach(attach(left, colours, 0), colours, 1).map_batch(_of_one_colour)
        reached = propagate(coloured.map_batch(_reversed), colours.map_batch(_roots), "backward")
        without(coloured, reached, 0).connect_loop(handle)
        return reached.leave()


def _draw(nodes: Column, time: Product[Any, int]) -> Column:
    return priority(nodes, time.inner)


def _without_self_loops(edges: Rows) -> Rows:
    between: Rows = edges[edges[:, 0] != edges[:, 1]]
    return between


def _of_one_colour(rows: Rows) -> Rows:
    """Return the edges inside a colour, from ``(source, target, colour of the source, colour of the target)``."""
    inside: Rows = rows[rows[:, 2] == rows[:, 3], :2]
    return inside


def _reversed(edges: Rows) -> Rows:
    return edges[:, ::-1]


def _roots(colours: Rows) -> Rows:
    """Return ``(root, root)`` for the nodes of their own colour."""
    roots = colours[node_of(colours[:, 1]) == colours[:, 0], 0]
    return np.column_stack((roots, roots))
