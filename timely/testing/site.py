"""A dataflow on one simulated worker: what it counts and what it has not said yet, as counts of the flat graph.

Every scope keeps its own account, under numbers of its own and in its own times. The invariant: what is read here changes
nothing, and means the same on every worker, since all of them build the same graph. A caller may read it at any time
between two turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from timely.dataflow import Inlet, InputPort, Operator
from timely.dataflow.custom_scope import CustomScope
from timely.progress import Location, ProgressExchange, Source, Target
from timely.scopes import EGRESS, INGRESS, Subgraph, output_port
from timely.testing.flattened import Flattened, Place, Stamp, Sums, add


class Site:
    """A dataflow on one worker: its scopes, its end of the exchange of progress, and what numbers stand for in them.

    ``operators`` are ``(scope, operator)`` for every operator of ours, ``inputs`` the place and the port of each of their inputs,
    ``shown`` those ports that are shown their frontier, by place; ``inlets`` the inputs of scopes of somebody's own.
    """

    def __init__(
        self,
        worker: int,
        scopes: Sequence[Subgraph[Any, Any]],
        exchange: ProgressExchange[tuple[int, int, Any]] | None,
        labels: Sequence[str],
    ) -> None:
        self.worker = worker
        self.scopes = scopes
        self.exchange = exchange
        self.flat = Flattened(scopes)
        self.locations = [_locations(subgraph) for subgraph in scopes]
        self.operators: list[tuple[int, Operator[Any]]] = [
            (subgraph.number, child.scope)
            for subgraph in scopes
            for child in subgraph.children
            if isinstance(child.scope, Operator)
        ]
        self.inputs: list[tuple[Place, InputPort[Any, Any]]] = [
            (self.flat.numbers[scope, Target(operator.index, port.index)], port)
            for scope, operator in self.operators
            for port in operator.input_ports
        ]
        self.shown: Mapping[Place, InputPort[Any, Any]] = {place: port for place, port in self.inputs if port.observed}
        self.inlets: list[tuple[Place, Inlet[Any]]] = [
            (self.flat.numbers[subgraph.number, Target(child.index, port)], inlet)
            for subgraph in scopes
            for child in subgraph.children
            if isinstance(child.scope, CustomScope)
            for port, inlet in enumerate(child.scope.inlets)
        ]
        self._labels = labels
        self._channels: list[Place] = []

    def channel(self, number: int) -> Place:
        """Return the place that a channel between workers leads to."""
        if not self._channels:
            named = {port.label: place for place, port in self.inputs}
            named |= {inlet.label: place for place, inlet in self.inlets}
            self._channels = [named[label] for label in self._labels]
        return self._channels[number]

    def stamps(self, scope: int, location: Location, time: Any) -> Iterator[Stamp]:
        """Yield what a count at a location of a scope stands for in the flat graph; what is derived from others: nothing."""
        if isinstance(location, Target):
            yield from self.flat.spread(scope, location, time)
        elif (scope, location) in self.flat.numbers:
            yield self.flat.numbers[scope, location], time

    def view(self) -> Sums:
        """Return what the worker counts, in all its scopes together, as counts of the flat graph.

        What a nested scope has heard of and its parent has not taken from it yet belongs to it.
        """
        found: Sums = {}
        for subgraph in self.scopes:
            scope = subgraph.number
            for (location, time), count in subgraph.trackers[0].counts().items():
                for stamp in self.stamps(scope, location, time):
                    add(found, stamp, count)
            for child in subgraph.children:
                if isinstance(child.scope, Subgraph):
                    self._add_unreported(found, scope, child.index, child.scope)
        return found

    def _add_unreported(self, found: Sums, scope: int, index: int, nested: Subgraph[Any, Any]) -> None:
        consumed, produced = nested.unreported
        read: list[tuple[Location, Any, int]]
        read = [(Target(index, port), time, -diff) for port, batch in enumerate(consumed) for time, diff in batch]
        sent = [(Source(index, port), time, diff) for port, batch in enumerate(produced) for time, diff in batch]
        for location, time, diff in (*read, *sent):
            for stamp in self.flat.spread(scope, location, time):
                add(found, stamp, diff)

    def said(self, updates: Sequence[tuple[tuple[int, int, Any], int]]) -> Sums:
        """Return the content of a batch as changes of counts of the flat graph."""
        found: Sums = {}
        for (scope, number, time), diff in updates:
            outputs = self.scopes[scope].outputs
            if number >= 0:
                for stamp in self.stamps(scope, self.locations[scope][number], time):
                    add(found, stamp, diff)
            elif output_port(number) < outputs:
                for stamp in self.flat.spread(scope, Target(EGRESS, output_port(number)), time):
                    add(found, stamp, diff)
            else:
                for stamp in self.flat.spread(scope, Source(INGRESS, output_port(number) - outputs), time):
                    add(found, stamp, -diff)
        return found

    def unsaid(self) -> Sums:
        """Return what the worker has not told its peers yet."""
        return {} if self.exchange is None else self.said(self.exchange.unsaid())


def _locations(subgraph: Subgraph[Any, Any]) -> dict[int, Location]:
    """Return which location each number of a scope's account stands for."""
    named: dict[int, Location] = {}
    for child in subgraph.children:
        named.update((number, Source(child.index, port)) for port, number in enumerate(child.sources))
        named.update((number, Target(child.index, port)) for port, number in enumerate(child.targets))
    return named
