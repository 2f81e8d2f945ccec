"""A progress graph as data. The engine and the brute-force oracles are given the same graph independently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from timely.progress import Antichain, GraphBuilder, Location, Source, Target, Tracker, time_domain


def _type_name(spec: Any) -> str:
    return spec.__name__ if isinstance(spec, type) else str(spec)


@attrs.frozen
class NodeSpec:
    """A node: ``summaries[input, output]`` are the path summaries between its ports; ``observes`` the inputs with a frontier.

    >>> from timely.progress import Step
    >>> NodeSpec(1, 1, {(0, 0): (Step(1),)}).observes
    ()
    """

    inputs: int
    outputs: int
    summaries: Mapping[tuple[int, int], tuple[Any, ...]] = attrs.field(hash=False)
    observes: tuple[int, ...] = ()


@attrs.frozen
class GraphSpec:
    """A graph over times of type ``time``; ``edges`` are ``(source, target, local)``. Nodes are named by their numbers.

    >>> from timely.progress import Step
    >>> loop = GraphSpec(int, (NodeSpec(1, 1, {(0, 0): (Step(1),)}, (0,)),), ((Source(0, 0), Target(0, 0), False),))
    >>> tracker = loop.build()
    >>> tracker.update(Source(0, 0), 4, +1)
    >>> tracker.propagate()
    [(Target(0, 0), 4, 1)]
    """

    time: Any = attrs.field(repr=_type_name)
    nodes: tuple[NodeSpec, ...]
    edges: tuple[tuple[Source, Target, bool], ...]

    def builder(self) -> GraphBuilder[Any]:
        """Return a builder with all nodes and edges of the graph."""
        builder: GraphBuilder[Any] = GraphBuilder(self.time)
        for number, node in enumerate(self.nodes):
            rows: dict[int, dict[int, Antichain[Any]]] = {}
            for (i, o), summaries in node.summaries.items():
                rows.setdefault(i, {})[o] = Antichain(summaries)
            builder.add_node(number, node.inputs, node.outputs, rows, observes=node.observes)
        for source, target, local in self.edges:
            builder.add_edge(source, target, local=local)
        return builder

    def build(self) -> Tracker[Any]:
        """Return the engine's tracker; a :class:`~timely.errors.CycleError` if a cycle does not advance."""
        return self.builder().build()

    def locations(self) -> list[Location]:
        """Return all inputs and outputs, node by node."""
        found: list[Location] = []
        for number, node in enumerate(self.nodes):
            found += [Target(number, port) for port in range(node.inputs)]
            found += [Source(number, port) for port in range(node.outputs)]
        return found

    def observed(self) -> list[Target]:
        """Return the inputs whose frontiers the tracker reports."""
        return [Target(number, port) for number, node in enumerate(self.nodes) for port in node.observes]

    def never_negative(self) -> set[Location]:
        """Return the ends of local edges, whose counts are promised never to be negative."""
        return {end for source, target, local in self.edges if local for end in (source, target)}

    def steps(self) -> dict[Location, list[tuple[Location, Any]]]:
        """Return for each location where one step leads, with the summary of that step."""
        identity = time_domain(self.time).identity
        found: dict[Location, list[tuple[Location, Any]]] = {location: [] for location in self.locations()}
        for number, node in enumerate(self.nodes):
            for (i, o), summaries in node.summaries.items():
                found[Target(number, i)] += [(Source(number, o), summary) for summary in summaries]
        for source, target, _ in self.edges:
            found[source].append((target, identity))
        return found
