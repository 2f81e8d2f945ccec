"""The records that each wire of a drawing has carried, from those that operators sent each other.

An event log sees records where an operator sends them. What enters or leaves a nested scope carries on the wires inside it and
behind it, which no operator of its own sends.
"""

from __future__ import annotations

from collections.abc import Mapping

from timely.inspect.snapshots import ENTRY, EXIT, Snapshot, Wire

Sent = Mapping[tuple[str, str, int], int]
"""Records by sender, receiver and the receiver's port; a scope receives what enters it, or leaves it."""


def edge_counts(shape: Snapshot, sent: Sent) -> dict[str, list[int]]:
    """Return the records of each wire of each scope, by the scope's path, in the order of its wires.

    >>> import timely
    >>> from timely.inspect import EventLog, Tally, snapshot
    >>> worker = timely.Worker()
    >>> tally = Tally.of(EventLog(worker))
    >>> with worker.dataflow(name="df") as scope:
    ...     numbers = scope.to_stream(range(5))
    ...     with scope.region(name="inner") as inner:
    ...         _ = numbers.enter(inner).filter(lambda x: x > 2).leave().probe()
    >>> worker.run()
    >>> edge_counts(snapshot(scope), tally.edges)
    {'/df': [5, 2], '/df/inner#1': [5, 2]}
    """
    return _Counting(sent).counts(shape)


class _Counting:
    def __init__(self, sent: Sent) -> None:
        self._sent = sent
        self._around: dict[str, Snapshot] = {}

    def counts(self, shape: Snapshot) -> dict[str, list[int]]:
        """Return the records of each wire of a scope, and of those nested in it."""
        carried = {shape.path: [self._carried(shape, wire) for wire in shape.wires]}
        for child in shape.children:
            if child.kind == "scope":
                self._around[child.path] = shape
                carried.update(self.counts(child))
        return carried

    def _carried(self, shape: Snapshot, wire: Wire) -> int:
        (node, port), (to, to_port) = wire.source, wire.target
        if node == ENTRY:
            around = self._around.get(shape.path)
            return 0 if around is None else self._at(around, (shape.index, port))
        child = shape.children[node]
        if child.kind == "scope":
            self._around[child.path] = shape
            return self._at(child, (EXIT, port))
        receiver = shape if to == EXIT else shape.children[to]
        return self._sent.get((child.path, receiver.path, to_port), 0)

    def _at(self, shape: Snapshot, end: tuple[int, int]) -> int:
        """Return the records of all wires of a scope that end there."""
        return sum(self._carried(shape, wire) for wire in shape.wires if wire.target == end)
