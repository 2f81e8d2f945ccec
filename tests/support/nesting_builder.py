"""The nestings of ``tests.support.nesting`` as real dataflows, and as flat graphs with frontiers by definition.

A link between operators of different scopes leaves as many scopes and enters as many as it has to, on the shortest way. A caller
gives each operator a logic. The flat graph knows nothing of scopes but the coordinates of their times: leaving a loop cuts the
last coordinate off, entering one appends a zero, and where a scope has times of its own their type says how they are translated.
The invariant is that nobody can tell the two apart: after progress has settled every frontier is that of the flat graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeAlias

from tests.support.nesting import Link, Location, Nesting, OpSpec, ScopeSpec, Time, below, flat, nested
from timely import (
    Antichain,
    Capability,
    Exchange,
    InputPort,
    OperatorBuilder,
    OperatorInfo,
    Pipeline,
    ScopeBuilder,
    Stream,
    Worker,
)
from timely.progress import Source, Target, refinement

Make: TypeAlias = Callable[[int, list[InputPort[Any, Any]], list[Capability[Any]], OperatorInfo], Callable[..., object]]


def build_nesting(nesting: Nesting, worker: Worker, make: Make, *, sharing: bool = False) -> list[Target]:
    """Build the dataflow on a worker; return the targets of the exchanged links, in the order of their channels.

    ``make(op, inputs, capabilities, info)`` returns the logic of an operator. With ``sharing`` a stream enters and
    leaves each scope once, however many operators read it there.

    >>> alone = Nesting((ScopeSpec(0, False),), (OpSpec(0, 1, (), ()),), (), ((False, 0),))
    >>> build_nesting(alone, Worker(), lambda op, inputs, capabilities, info: lambda *ports: None)
    []
    """
    with ExitStack() as stack:
        builders: dict[int, ScopeBuilder[Any]] = {0: stack.enter_context(worker.dataflow(nesting.time, name="nesting"))}
        ops: dict[int, tuple[OperatorBuilder[Any], list[InputPort[Any, Any]], list[Stream[Any, Any]]]] = {}
        for is_scope, number in nesting.order:
            if is_scope:
                spec = nesting.scopes[number]
                parent = builders[spec.parent]
                builders[number] = stack.enter_context(_open(spec, parent))
            else:
                ops[number] = _build_op(number, nesting.ops[number], builders[nesting.ops[number].scope], make)
        passages: dict[tuple[int, int], Stream[Any, Any]] = {}
        for link in nesting.links:
            stream = ops[int(str(link.source.node))][2][link.source.port]
            builder, ports, _ = ops[int(str(link.target.node))]
            there = nesting.ops[int(str(link.target.node))].scope
            stream = _carry(nesting, builders, stream, there, nesting.crossed(link), passages if sharing else {})
            builder.connect(ports[link.target.port], stream, Exchange(_key) if link.exchanged else Pipeline)
    return [link.target for link in nesting.links if link.exchanged]


def _open(spec: ScopeSpec, parent: ScopeBuilder[Any]) -> AbstractContextManager[ScopeBuilder[Any]]:
    if spec.time is not None:
        return parent.scoped(spec.time)
    return parent.iterative() if spec.iterative else parent.region()


def _key(record: Sequence[int]) -> int:
    return record[0]


def _build_op(
    number: int, spec: OpSpec, scope: ScopeBuilder[Any], make: Make
) -> tuple[OperatorBuilder[Any], list[InputPort[Any, Any]], list[Stream[Any, Any]]]:
    builder = OperatorBuilder(scope, f"op{number}")
    ports = [builder.reserve_input({}, notify=notify) for notify in spec.observes]
    outputs = []
    for o in range(spec.outputs):
        rows = enumerate(row[o] for row in spec.summaries)
        outputs.append(builder.new_output({i: Antichain(shift.summary() for shift in shifts) for i, shifts in rows if shifts}))
    builder.build(lambda capabilities, info: make(number, ports, capabilities, info))
    return builder, ports, outputs


def _carry(
    nesting: Nesting,
    builders: dict[int, ScopeBuilder[Any]],
    stream: Stream[Any, Any],
    to: int,
    through: int,
    passages: dict[tuple[int, int], Stream[Any, Any]],
) -> Stream[Any, Any]:
    """Take a stream out to scope ``through`` and from there in to scope ``to``."""
    while stream.scope is not builders[through]:
        key = (id(stream), -1)
        if key not in passages:
            passages[key] = stream.leave()
        stream = passages[key]
    inward = nesting.ancestors(to)
    for scope in reversed(inward[: inward.index(through)]):
        key = (id(stream), scope)
        if key not in passages:
            passages[key] = stream.enter(builders[scope])
        stream = passages[key]
    return stream


class FlatGraph:
    """The whole nesting as one graph: from each location, where one step leads and what it makes of a time.

    >>> from tests.support.nesting import OpSpec, ScopeSpec, Shift
    >>> inner = OpSpec(1, 1, (((Shift((0, 1), (None, None)),),),), (True,))
    >>> scopes, link = (ScopeSpec(0, False), ScopeSpec(0, True)), Link(Source(0, 0), Target(0, 0))
    >>> loop = Nesting(scopes, (inner,), (link,), ((True, 1), (False, 0)))
    >>> FlatGraph(loop).frontiers([(Source(0, 0), (3, 1))])
    {Source(0, 0): {(3, 1)}, Target(0, 0): {(3, 1)}}
    """

    def __init__(self, nesting: Nesting) -> None:
        self.nesting = nesting
        self.steps: dict[Location, list[tuple[Location, Callable[[Time], Time | None]]]] = {}
        for number, op in enumerate(nesting.ops):
            for o in range(op.outputs):
                self.steps[Source(number, o)] = []
            for i, row in enumerate(op.summaries):
                ways = [(Source(number, o), shift.results_in) for o, shifts in enumerate(row) for shift in shifts]
                self.steps[Target(number, i)] = list(ways)
        for link in nesting.links:
            self.steps[link.source].append((link.target, self.crossing(link)))

    def crossing(self, link: Link) -> Callable[[Time], Time]:
        """Return what becomes of a time on its way along a link."""
        nesting, through = self.nesting, self.nesting.crossed(link)
        out = nesting.ancestors(nesting.ops[int(str(link.source.node))].scope)
        into = nesting.ancestors(nesting.ops[int(str(link.target.node))].scope)
        steps = [self._leave(scope) for scope in out[: out.index(through)]]
        steps += [self._enter(scope) for scope in reversed(into[: into.index(through)])]

        def cross(time: Time) -> Time:
            for step in steps:
                time = step(time)
            return time

        return cross

    def _leave(self, scope: int) -> Callable[[Time], Time]:
        """Return what becomes of a time that leaves a scope."""
        spec = self.nesting.scopes[scope]
        if spec.time is None:
            return (lambda time: time[:-1]) if spec.iterative else (lambda time: time)
        into = refinement(self.nesting.time_type(spec.parent), spec.time)
        return lambda time: flat(into.to_outer(nested(time)))

    def _enter(self, scope: int) -> Callable[[Time], Time]:
        """Return what becomes of a time that enters a scope."""
        spec = self.nesting.scopes[scope]
        if spec.time is None:
            return (lambda time: (*time, 0)) if spec.iterative else (lambda time: time)
        into = refinement(self.nesting.time_type(spec.parent), spec.time)
        return lambda time: flat(into.to_inner(nested(time)))

    def frontiers(self, stamps: Iterable[tuple[Location, Time]]) -> dict[Location, set[Time]]:
        """Return, for every location, the minimal times at which some pointstamp may still result in something there."""
        by_name: dict[Location, set[Time]] = {location: set() for location in self.steps}
        queue = list(stamps)
        while queue:
            location, time = queue.pop()
            known = by_name[location]
            if any(below(other, time) for other in known):
                continue
            by_name[location] = {other for other in known if not below(time, other)} | {time}
            for following, step in self.steps[location]:
                result = step(time)
                if result is not None:
                    queue.append((following, result))
        return by_name
