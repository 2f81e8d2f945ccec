"""A dataflow on one simulated worker: what it counts and what it has not sent yet, as counts of the flat graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from timely.dataflow import Inlet, InputPort, Operator
from timely.dataflow.custom_scope import CustomScope
from timely.progress import Location, ProgressExchange, Source, Target
from timely.scopes import EGRESS, INGRESS, Subgraph, output_port
from timely.testing.flat_dataflow import Counts, FlatDataflow, Place, Stamp, add


class SimulatedWorkerState:
    """A dataflow on one worker. Reading changes nothing.

    ``operators`` are ``(scope, operator)``, ``inputs`` the place and port of each of their inputs, ``shown`` those ports with a
    frontier, by place; ``inlets`` are the inputs of custom scopes.
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
        self.flat = FlatDataflow(scopes)
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

    def _stamps(self, scope: int, location: Location, time: Any) -> Iterator[Stamp]:
        """Yield what a count stands for in the flat graph: nothing, at an output of a nested scope."""
        if isinstance(location, Target):
            yield from self.flat.stamps(scope, location, time)
        elif (scope, location) in self.flat.numbers:
            yield self.flat.numbers[scope, location], time

    def view(self) -> Counts:
        """Return what the worker counts in all its scopes, with what a nested scope has yet to report to its parent."""
        found: Counts = {}
        for subgraph in self.scopes:
            scope = subgraph.number
            for (location, time), count in subgraph.trackers[0].counts().items():
                for stamp in self._stamps(scope, location, time):
                    add(found, stamp, count)
            for child in subgraph.children:
                if isinstance(child.scope, Subgraph):
                    consumed, produced = child.scope.unreported
                    for port, batch in enumerate(consumed):
                        self._spread(found, scope, Target(child.index, port), [(time, -diff) for time, diff in batch])
                    for port, batch in enumerate(produced):
                        self._spread(found, scope, Source(child.index, port), batch)
        return found

    def _spread(self, found: Counts, scope: int, location: Location, changes: Any) -> None:
        for time, diff in changes:
            for stamp in self.flat.stamps(scope, location, time):
                add(found, stamp, diff)

    def changes(self, updates: Sequence[tuple[tuple[int, int, Any], int]]) -> Counts:
        """Return the content of a batch as changes of counts of the flat graph."""
        found: Counts = {}
        for (scope, number, time), diff in updates:
            outputs = self.scopes[scope].outputs
            if number >= 0:
                for stamp in self._stamps(scope, self.locations[scope][number], time):
                    add(found, stamp, diff)
            elif output_port(number) < outputs:
                self._spread(found, scope, Target(EGRESS, output_port(number)), [(time, diff)])
            else:
                self._spread(found, scope, Source(INGRESS, output_port(number) - outputs), [(time, -diff)])
        return found

    def unsent(self) -> Counts:
        """Return what the worker has not sent to its peers yet."""
        return {} if self.exchange is None else self.changes(tuple(self.exchange.changes))


def _locations(subgraph: Subgraph[Any, Any]) -> dict[int, Location]:
    """Return the location that each number of a scope's account stands for."""
    named: dict[int, Location] = {}
    for child in subgraph.children:
        named.update((number, Source(child.index, port)) for port, number in enumerate(child.sources))
        named.update((number, Target(child.index, port)) for port, number in enumerate(child.targets))
    return named
