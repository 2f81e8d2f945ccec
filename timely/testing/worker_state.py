"""A dataflow on one simulated worker: what it counts and what it has not sent yet, as counts of the flat graph."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from timely.dataflow import Inlet, InputPort, Operator
from timely.dataflow.custom_scope import CustomScope
from timely.progress import Location, Source, Target
from timely.scopes import EGRESS, INGRESS, Subgraph, output_port
from timely.testing.flat_dataflow import Counts, FlatDataflow, Place, add
from timely.worker.dataflows import InstalledDataflow


class SimulatedWorkerState:
    """A dataflow on one worker. Reading changes nothing.

    ``operators`` are ``(scope, operator)``, ``inputs`` the place and port of each of their inputs, ``shown`` those ports with a
    frontier, by place; ``inlets`` are the inputs of custom scopes.
    """

    def __init__(self, worker: int, dataflow: InstalledDataflow) -> None:
        self.worker = worker
        self.scopes = dataflow.scopes
        self.exchange = dataflow.exchange
        self.flat = FlatDataflow(self.scopes)
        self.locations = [_locations(subgraph) for subgraph in self.scopes]
        self.operators: list[tuple[int, Operator[Any]]] = []
        self.inputs: list[tuple[Place, InputPort[Any, Any]]] = []
        self.inlets: list[tuple[Place, Inlet[Any]]] = []
        self._labels = dataflow.labels
        numbers = self.flat.numbers
        for subgraph in self.scopes:
            scope = subgraph.number
            for child in subgraph.children:
                if isinstance(child.scope, Operator):
                    self.operators.append((scope, child.scope))
                    self.inputs += [(numbers[scope, Target(child.index, port.index)], port) for port in child.scope.input_ports]
                elif isinstance(child.scope, CustomScope):
                    inlets = enumerate(child.scope.inlets)
                    self.inlets += [(numbers[scope, Target(child.index, port)], inlet) for port, inlet in inlets]
        self.shown = {place: port for place, port in self.inputs if port.observed}

    @cached_property
    def channels(self) -> list[Place]:
        """The places that the channels between workers lead to."""
        named = {port.label: place for place, port in self.inputs}
        named |= {inlet.label: place for place, inlet in self.inlets}
        return [named[label] for label in self._labels]

    def _count(self, counts: Counts, scope: int, location: Location, time: Any, count: int) -> None:
        """Add what a count stands for in the flat graph: nothing, at an output of a nested scope."""
        if isinstance(location, Target):
            self._spread(counts, scope, location, time, count)
        elif (scope, location) in self.flat.numbers:
            add(counts, (self.flat.numbers[scope, location], time), count)

    def _spread(self, counts: Counts, scope: int, location: Location, time: Any, count: int) -> None:
        for stamp in self.flat.stamps(scope, location, time):
            add(counts, stamp, count)

    def view(self) -> Counts:
        """Return what the worker counts in all its scopes, with what a nested scope has yet to report to its parent."""
        counts: Counts = {}
        for subgraph in self.scopes:
            scope = subgraph.number
            for (location, time), count in subgraph.trackers[0].counts().items():
                self._count(counts, scope, location, time, count)
            for child in subgraph.children:
                if isinstance(child.scope, Subgraph):
                    consumed, produced = child.scope.unreported
                    for port, batch in enumerate(consumed):
                        for time, diff in batch:
                            self._spread(counts, scope, Target(child.index, port), time, -diff)
                    for port, batch in enumerate(produced):
                        for time, diff in batch:
                            self._spread(counts, scope, Source(child.index, port), time, diff)
        return counts

    def changes(self, updates: Sequence[tuple[tuple[int, int, Any], int]]) -> Counts:
        """Return the content of a batch as changes of counts of the flat graph."""
        counts: Counts = {}
        for (scope, number, time), diff in updates:
            outputs = self.scopes[scope].outputs
            if number >= 0:
                self._count(counts, scope, self.locations[scope][number], time, diff)
            elif output_port(number) < outputs:
                self._spread(counts, scope, Target(EGRESS, output_port(number)), time, diff)
            else:
                self._spread(counts, scope, Source(INGRESS, output_port(number) - outputs), time, -diff)
        return counts

    def unsent(self) -> Counts:
        """Return what the worker has not sent to its peers yet."""
        return {} if self.exchange is None else self.changes(tuple(self.exchange.changes))


def _locations(subgraph: Subgraph[Any, Any]) -> dict[int, Location]:
    """Return the location that each number of a scope's count sink stands for."""
    named: dict[int, Location] = {}
    for child in subgraph.children:
        named.update((number, Source(child.index, port)) for port, number in enumerate(child.sources))
        named.update((number, Target(child.index, port)) for port, number in enumerate(child.targets))
    return named
