"""Random nestings of scopes as data, the dataflow that one describes, and the flat graph that it must be equal to.

A ``Nesting`` is a tree of scopes (regions and loops' scopes), operators in them with summaries of their own, and links
between any two operators: :func:`build_nesting` takes a link out of as many scopes and into as many as it has to. The flat graph
knows nothing of scopes but how many coordinates their times have: a time is a tuple of numbers, leaving a scope cuts
coordinates off, and entering one appends zeros. The invariant of nesting is that nobody can tell the two apart: after
progress has settled every frontier is that of the flat graph, which answers by following every path. A caller gives each
operator a logic of its own, and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, TypeAlias

import attrs

from timely import (
    Antichain,
    Capability,
    Exchange,
    InputPort,
    OperatorBuilder,
    OperatorInfo,
    Pipeline,
    Product,
    ProductSummary,
    ScopeBuilder,
    Source,
    Step,
    Stream,
    Target,
    Worker,
)
from timely.progress import PathSummary
from timely.testing.code import Described

Time: TypeAlias = tuple[int, ...]
Location: TypeAlias = Source | Target
Make: TypeAlias = Callable[[int, list[InputPort[Any, Any]], list[Capability[Any]], OperatorInfo], Callable[..., object]]


@attrs.frozen(repr=False)
class Shift(Described):
    """How an operator advances times: each coordinate by so much, and not beyond its limit (``None``: no limit).

    >>> Shift((0, 1), (None, 3)).results_in((5, 2)), Shift((0, 1), (None, 3)).results_in((5, 3))
    ((5, 3), None)
    """

    by: Time
    limits: tuple[int | None, ...]

    def results_in(self, time: Time) -> Time | None:
        result = tuple(t + n for t, n in zip(time, self.by, strict=True))
        passes = all(limit is None or t <= limit for t, limit in zip(result, self.limits, strict=True))
        return result if passes else None

    def summary(self) -> PathSummary[Any]:
        """Return it as the library writes it."""
        found: PathSummary[Any] = Step(self.by[0], self.limits[0])
        for n, limit in zip(self.by[1:], self.limits[1:], strict=True):
            found = ProductSummary(found, Step(n, limit))
        return found


@attrs.frozen(repr=False)
class ScopeSpec(Described):
    """A scope in another one (scope 0 is in itself): a loop's scope, with one more coordinate, or a region."""

    parent: int
    iterative: bool


@attrs.frozen(repr=False)
class OpSpec(Described):
    """An operator: ``summaries[input][output]`` are its shifts, ``observes[input]`` whether it asks for the frontier."""

    scope: int
    outputs: int
    summaries: tuple[tuple[tuple[Shift, ...], ...], ...]
    observes: tuple[bool, ...]


@attrs.frozen(repr=False)
class Link(Described):
    """From an output to an input, wherever they are; records may be exchanged between workers on the way."""

    source: Source
    target: Target
    exchanged: bool = False


@attrs.frozen(repr=False)
class Nesting(Described):
    """Scope 0 is the dataflow itself. ``order`` says in which order scopes and operators are made: ``(is a scope, number)``.

    >>> inner = OpSpec(1, 1, (((Shift((0, 1), (None, None)),),),), (True,))
    >>> scopes, link = (ScopeSpec(0, False), ScopeSpec(0, True)), Link(Source(0, 0), Target(0, 0))
    >>> loop = Nesting(scopes, (inner,), (link,), ((True, 1), (False, 0)))
    >>> loop.depth(1), loop.stuck(), eval(repr(loop)) == loop
    (2, [], True)
    """

    scopes: tuple[ScopeSpec, ...]
    ops: tuple[OpSpec, ...]
    links: tuple[Link, ...]
    order: tuple[tuple[bool, int], ...]

    def ancestors(self, scope: int) -> list[int]:
        """Return the scope and those around it, from the inside out."""
        found = [scope]
        while found[-1]:
            found.append(self.scopes[found[-1]].parent)
        return found

    def depth(self, scope: int) -> int:
        """Return how many coordinates the times of a scope have."""
        return 1 + sum(self.scopes[s].iterative for s in self.ancestors(scope))

    def common(self, one: int, other: int) -> int:
        """Return the innermost scope that both are in."""
        around = self.ancestors(other)
        return next(scope for scope in self.ancestors(one) if scope in around)

    def crossed(self, link: Link) -> int:
        """Return the outermost scope that a link goes through."""
        return self.common(self.ops[int(str(link.source.node))].scope, self.ops[int(str(link.target.node))].scope)

    def stuck(self) -> list[Link]:
        """Return the links that are on a cycle on which time need not advance.

        Such a cycle goes through one outermost scope. Of the coordinates of that scope none advances on it, whatever
        happens to those further in, which are lost and start anew; and one of its links goes through that scope itself.
        """
        return [link for link in self.links if self._closes(link, self.crossed(link))]

    def _closes(self, link: Link, scope: int) -> bool:
        coordinates = self.depth(scope)
        reached = {link.target}
        queue: list[Target] = [link.target]
        while queue:
            target = queue.pop()
            op = int(str(target.node))
            sources = [
                Source(op, o)
                for o, shifts in enumerate(self.ops[op].summaries[target.port])
                if any(not any(shift.by[:coordinates]) for shift in shifts)
            ]
            if link.source in sources:
                return True
            for onward in self.links:
                if onward.source in sources and scope in self.ancestors(self.crossed(onward)) and onward.target not in reached:
                    reached.add(onward.target)
                    queue.append(onward.target)
        return False

    def repaired(self) -> Nesting:
        """Return the nesting without links that close a cycle on which time need not advance."""
        nesting = self
        while stuck := nesting.stuck():
            nesting = attrs.evolve(nesting, links=tuple(link for link in nesting.links if link is not stuck[-1]))
        return nesting


# -- the flat graph ------------------------------------------------------------------------------------------------------


def below(one: Time, other: Time) -> bool:
    """Return whether ``one <= other``, coordinate by coordinate.

    >>> below((0, 1), (2, 1)), below((0, 1), (2, 0))
    (True, False)
    """
    return all(a <= b for a, b in zip(one, other, strict=True))


def flat(time: Any) -> Time:
    """Return a time of the library as a tuple of numbers.

    >>> flat(Product(Product(0, 1), 2))
    (0, 1, 2)
    """
    return (*flat(time.outer), time.inner) if isinstance(time, Product) else (time,)


def nested(time: Time) -> Any:
    """Return a tuple of numbers as a time of the library.

    >>> nested((0, 1, 2)).inner
    2
    """
    found: Any = time[0]
    for coordinate in time[1:]:
        found = Product(found, coordinate)
    return found


class FlatGraph:
    """The whole nesting as one graph: from each location, where one step leads and what it makes of a time.

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
        kept = self.nesting.depth(self.nesting.crossed(link))
        added = self.nesting.depth(self.nesting.ops[int(str(link.target.node))].scope) - kept
        return lambda time: time[:kept] + (0,) * added

    def frontiers(self, stamps: Iterable[tuple[Location, Time]]) -> dict[Location, set[Time]]:
        """Return, for every location, the minimal times at which some pointstamp may still result in something there."""
        found: dict[Location, set[Time]] = {location: set() for location in self.steps}
        queue = list(stamps)
        while queue:
            location, time = queue.pop()
            known = found[location]
            if any(below(other, time) for other in known):
                continue
            found[location] = {other for other in known if not below(time, other)} | {time}
            for following, step in self.steps[location]:
                result = step(time)
                if result is not None:
                    queue.append((following, result))
        return found


# -- the dataflow --------------------------------------------------------------------------------------------------------


def build_nesting(nesting: Nesting, worker: Worker, make: Make, *, sharing: bool = False) -> list[Target]:
    """Build the dataflow on a worker; return the targets of the exchanged links, in the order of their channels.

    ``make(op, inputs, capabilities, info)`` returns the logic of an operator. With ``sharing`` a stream enters and
    leaves each scope once, however many operators read it there.

    >>> alone = Nesting((ScopeSpec(0, False),), (OpSpec(0, 1, (), ()),), (), ((False, 0),))
    >>> build_nesting(alone, Worker(), lambda op, inputs, capabilities, info: lambda *ports: None)
    []
    """
    with ExitStack() as stack:
        builders: dict[int, ScopeBuilder[Any]] = {0: stack.enter_context(worker.dataflow(int, name="nesting"))}
        ops: dict[int, tuple[OperatorBuilder[Any], list[InputPort[Any, Any]], list[Stream[Any, Any]]]] = {}
        for is_scope, number in nesting.order:
            if is_scope:
                spec = nesting.scopes[number]
                parent = builders[spec.parent]
                builders[number] = stack.enter_context(parent.iterative() if spec.iterative else parent.region())
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
