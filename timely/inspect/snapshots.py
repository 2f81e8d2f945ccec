"""``Snapshot``: a dataflow at one moment, as plain data for pictures, pages and tables.

It holds no reference to anything that runs, and its times are text. It is the same on every worker, but for progress that has not
arrived yet, and for what operators describe of their own state.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence, Set
from typing import Any, Literal, TypeAlias

import attrs

from timely.dataflow import Operator, OperatorInfo, ScopeBuilder
from timely.dataflow.custom_scope import CustomScope
from timely.errors import brief
from timely.progress import Antichain, Location, Source, Target
from timely.scopes import EGRESS, INGRESS, Child, Subgraph

Kind: TypeAlias = Literal["operator", "source", "scope", "shut"]
"""A source is an operator without inputs; pictures have scopes that are shut, without what is in them."""

ENTRY = INGRESS
EXIT = EGRESS
"""The ends of wires at the boundary of a scope: their ports are the scope's inputs and outputs."""

OMITTED = "…"
"""Begins what stands for the last of too many times."""


@attrs.frozen
class Wire:
    """A stream between two ``(child, port)`` of a scope; ``exchanged`` if its records may go to other workers."""

    source: tuple[int, int]
    target: tuple[int, int]
    exchanged: bool


@attrs.frozen
class Snapshot:
    """An operator, or a scope with everything in it.

    ``frontiers`` are the frontiers at the inputs, ``None`` before the dataflow is built. ``held`` are the times of capabilities,
    ``waiting`` those of unread records, with their counts on all workers. ``described`` are its texts on this worker
    (``OperatorInfo.describe``). A scope that is shut has ``inside`` operators.
    """

    index: int
    name: str
    path: str
    kind: Kind
    inputs: int
    outputs: int
    built_at: str = ""
    frontiers: tuple[tuple[str, ...] | None, ...] = ()
    held: tuple[tuple[str, int], ...] = ()
    waiting: tuple[tuple[str, int], ...] = ()
    times: str = ""
    children: tuple[Snapshot, ...] = ()
    wires: tuple[Wire, ...] = ()
    described: tuple[str, ...] = ()
    inside: int = 0

    def operators(self) -> list[Snapshot]:
        """Return the operators in it, nested ones too; of an operator itself."""
        if self.kind != "scope":
            return [self]
        return [operator for child in self.children for operator in child.operators()]

    def shut(self) -> Snapshot:
        """Return a scope as one box; an operator as it is."""
        inside = sum(operator.inside or 1 for operator in self.operators())
        return attrs.evolve(self, kind="shut", inside=inside, children=(), wires=()) if self.kind == "scope" else self

    def within(self, most: int) -> Snapshot | None:
        """Return it with at most so many boxes in its scopes, inner ones shut; ``None`` if the outermost has more.

        >>> import timely
        >>> with timely.Worker().dataflow(name="df") as scope, scope.region(name="part") as part:
        ...     _ = part.to_stream([1]).map(str).probe()
        >>> shape = snapshot(scope)
        >>> inner = shape.within(3)
        >>> shape.within(4) == shape, inner and [(child.kind, child.inside) for child in inner.children], shape.within(0)
        (True, [('shut', 3)], None)
        """
        left, opened, scopes = most - len(self.children), {self.path}, deque(self.children)
        while scopes:
            scope = scopes.popleft()
            if scope.kind == "scope" and len(scope.children) <= left:
                left -= len(scope.children)
                opened.add(scope.path)
                scopes.extend(scope.children)
        return self._with_open(opened) if left >= 0 else None

    def _with_open(self, scopes: Set[str]) -> Snapshot:
        if self.path not in scopes:
            return self.shut()
        return attrs.evolve(self, children=tuple(child._with_open(scopes) for child in self.children))


def snapshot(scope: ScopeBuilder[Any]) -> Snapshot:
    """Return a snapshot of a scope, which may still be under construction.

    >>> import timely
    >>> worker = timely.Worker()
    >>> with worker.dataflow(name="df") as scope:
    ...     numbers, stream = scope.new_input()
    ...     _ = stream.map(str).probe()
    >>> seen = snapshot(scope)
    >>> [(child.name, child.kind, child.frontiers) for child in seen.children]
    [('input', 'source', ()), ('map', 'operator', (('0',),)), ('probe', 'operator', (('0',),))]
    >>> seen.children[0].held, [(wire.source, wire.target) for wire in seen.wires]
    ((('0', 1),), [((0, 0), (1, 0)), ((1, 0), (2, 0))])
    """
    return _scope(scope.index, scope.subgraph, scope.subgraph.is_built, _around(scope))


def _around(scope: ScopeBuilder[Any]) -> Sequence[Antichain[Any]]:
    """Return the frontiers at the inputs of a scope, in the times of its parent."""
    if scope.parent is None or not scope.subgraph.is_built:
        return ()
    outer = scope.parent
    stamps = {**outer.subgraph.trackers[0].counts(), **_coming(outer.subgraph, _around(outer))}
    frontiers = outer.subgraph.trackers[0].frontiers(stamps)
    return [frontiers[Target(scope.index, port)] for port in range(scope.subgraph.inputs)]


def _scope(index: int, subgraph: Subgraph[Any, Any], live: bool, around: Sequence[Antichain[Any]]) -> Snapshot:
    counts: dict[Any, dict[Any, int]] = {}
    frontiers: dict[Location, Antichain[Any]] | None = None
    if live:
        stamps = {**subgraph.trackers[0].counts(), **_coming(subgraph, around)}
        frontiers = subgraph.trackers[0].frontiers(stamps)
        for (location, time), count in stamps.items():
            if count > 0:
                counts.setdefault(location, {})[time] = count
    return Snapshot(
        index,
        subgraph.name,
        subgraph.path,
        "scope",
        subgraph.inputs,
        subgraph.outputs,
        times=subgraph.domain.name,
        children=tuple(_child(subgraph, child, counts, frontiers) for child in subgraph.children),
        wires=tuple(
            Wire((edge.source.node, edge.source.port), (edge.target.node, edge.target.port), not edge.local)
            for edge in subgraph.edges
        ),
    )


def _coming(subgraph: Subgraph[Any, Any], around: Sequence[Antichain[Any]]) -> dict[tuple[Location, Any], int]:
    """Return what may come into a nested scope, as capabilities at its inputs: the scope itself may not have received it yet."""
    to_inner = subgraph.refinement.to_inner
    return {(Source(INGRESS, port), to_inner(time)): 1 for port, frontier in enumerate(around) for time in frontier}


def _child(
    around: Subgraph[Any, Any],
    child: Child,
    counts: dict[Any, dict[Any, int]],
    known: dict[Location, Antichain[Any]] | None,
) -> Snapshot:
    scope = child.scope
    targets = [Target(child.index, port) for port in range(scope.inputs)]
    sources = [Source(child.index, port) for port in range(scope.outputs)]
    frontiers = tuple(None if known is None else tuple(map(brief, known[target])) for target in targets)
    if isinstance(scope, Subgraph):
        coming = () if known is None else [known[target] for target in targets]
        return attrs.evolve(_scope(child.index, scope, known is not None, coming), frontiers=frontiers)
    info = scope.info if isinstance(scope, Operator | CustomScope) else None
    origin = None if info is None else info.origin
    return Snapshot(
        child.index,
        child.name,
        f"{around.path}/{child.name}#{child.index}",
        "operator" if scope.inputs else "source",
        scope.inputs,
        scope.outputs,
        "" if origin is None else str(origin),
        frontiers,
        _summed([counts.get(source, {}) for source in sources]),
        _summed([counts.get(target, {}) for target in targets]),
        described=() if info is None else _texts(info),
    )


def _texts(info: OperatorInfo) -> tuple[str, ...]:
    at = f" on worker {info.worker}" if info.peers > 1 else ""
    return tuple(text + at for text in info.described(records=False))


def _summed(counts: list[dict[Any, int]]) -> tuple[tuple[str, int], ...]:
    sums: Counter[Any] = Counter()
    for port in counts:
        sums.update(port)
    return tuple((brief(time), count) for time, count in sums.items())
