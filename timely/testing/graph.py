"""A graph of progress as data: nodes, summaries and edges, before any builder sees them.

The invariant: a ``GraphSpec`` says everything that a :class:`~timely.progress.GraphBuilder` is told, and nothing else, so
that the compiled engine and the brute-force oracles are given the same graph independently. A caller may compare, hash,
change (``attrs.evolve``) and print one: its ``repr`` makes it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from timely.progress import Antichain, GraphBuilder, Location, Source, Target, Tracker, time_domain
from timely.testing.code import Described


@attrs.frozen(repr=False)
class NodeSpec(Described):
    """A node: ``summaries[input, output]`` are the path summaries between its ports, ``observes`` the inputs that ask.

    >>> from timely.progress import Step
    >>> NodeSpec(1, 1, {(0, 0): (Step(1),)}, (0,))
    NodeSpec(1, 1, {(0, 0): (Step(1),)}, (0,))
    """

    inputs: int
    outputs: int
    summaries: Mapping[tuple[int, int], tuple[Any, ...]] = attrs.field(hash=False)
    observes: tuple[int, ...]


@attrs.frozen(repr=False)
class GraphSpec(Described):
    """A graph: ``time`` is the type of its times, ``edges`` are (source, target, whether both ends are counted in one place).

    Nodes are named by their numbers. The graph of Naiad section 2.3: locations are outputs and inputs.

    >>> from timely.progress import Step
    >>> loop = GraphSpec(int, (NodeSpec(1, 1, {(0, 0): (Step(1),)}, (0,)),), ((Source(0, 0), Target(0, 0), False),))
    >>> eval(repr(loop)) == loop
    True
    >>> tracker = loop.build()
    >>> tracker.update(Source(0, 0), 4, +1)
    >>> tracker.propagate()
    [(Target(0, 0), 4, 1)]
    """

    time: Any
    nodes: tuple[NodeSpec, ...]
    edges: tuple[tuple[Source, Target, bool], ...]

    def builder(self) -> GraphBuilder[Any]:
        """Return a builder that has been told of the graph.

        >>> GraphSpec(int, (), ()).builder().is_acyclic()
        True
        """
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
        """Return the engine's tracker for the graph; a :class:`~timely.errors.CycleError` if a cycle does not advance.

        >>> GraphSpec(int, (), ()).build().is_empty()
        True
        """
        return self.builder().build()

    def locations(self) -> list[Location]:
        """Return all inputs and outputs, node by node.

        >>> GraphSpec(int, (NodeSpec(1, 1, {}, ()),), ()).locations()
        [Target(0, 0), Source(0, 0)]
        """
        found: list[Location] = []
        for number, node in enumerate(self.nodes):
            found += [Target(number, port) for port in range(node.inputs)]
            found += [Source(number, port) for port in range(node.outputs)]
        return found

    def observed(self) -> list[Target]:
        """Return the inputs whose frontiers the tracker reports.

        >>> GraphSpec(int, (NodeSpec(2, 0, {}, (1,)),), ()).observed()
        [Target(0, 1)]
        """
        return [Target(number, port) for number, node in enumerate(self.nodes) for port in node.observes]

    def never_negative(self) -> set[Location]:
        """Return the locations whose counts are promised never to be negative: the ends of local edges.

        >>> node = NodeSpec(1, 1, {}, ())
        >>> GraphSpec(int, (node, node), ((Source(0, 0), Target(1, 0), True),)).never_negative() == {Source(0, 0), Target(1, 0)}
        True
        """
        return {end for source, target, local in self.edges if local for end in (source, target)}

    def steps(self) -> dict[Location, list[tuple[Location, Any]]]:
        """Return where one step leads from each location, and with which summary.

        >>> from timely.progress import Step
        >>> GraphSpec(int, (NodeSpec(1, 1, {(0, 0): (Step(1),)}, ()),), ()).steps()
        {Target(0, 0): [(Source(0, 0), Step(1))], Source(0, 0): []}
        """
        identity = time_domain(self.time).identity
        found: dict[Location, list[tuple[Location, Any]]] = {location: [] for location in self.locations()}
        for number, node in enumerate(self.nodes):
            for (i, o), summaries in node.summaries.items():
                found[Target(number, i)] += [(Source(number, o), summary) for summary in summaries]
        for source, target, _ in self.edges:
            found[source].append((target, identity))
        return found
