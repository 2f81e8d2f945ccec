"""The real dataflow that a nesting describes, with operators of the caller's own.

The invariant: what is built is what the data says. A link between operators of different scopes leaves as many scopes and enters
as many as it has to, on the shortest way. A caller gives each operator a logic, and may compare what it is shown with
:class:`~timely.testing.FlatGraph`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeAlias

from tests.support.nesting import Nesting, OpSpec, ScopeSpec
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
    Target,
    Worker,
)

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
