"""Nestings of scopes as data.

A ``Nesting`` is a tree of scopes (regions, loops' scopes, and scopes with times of their own), operators in them with summaries
of their own, and links between any two operators, wherever they are. A time is a tuple of its coordinates here, whatever it is in
the library. The invariant: a nesting says everything that there is to know of it, so that the real dataflow
(:func:`~timely.testing.build_nesting`) and the flat graph that it amounts to (:class:`~timely.testing.FlatGraph`) are made of it
independently. A caller may compare, hash, change (``attrs.evolve``) and print one: its ``repr`` makes it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias, get_args, get_origin

import attrs

from timely import (
    Product,
    ProductSummary,
    Source,
    Step,
    Target,
)
from timely.progress import PathSummary, time_domain
from timely.testing.random_dataflows import Described

Time: TypeAlias = tuple[Any, ...]
"""A time as a tuple of its coordinates, the outermost first: numbers, or times of other types."""

Location: TypeAlias = Source | Target


@attrs.frozen(repr=False)
class Shift(Described):
    """How an operator advances times: each coordinate by so much, and not beyond its limit (``None``: no limit).

    Where a coordinate is no number, a path summary stands in the place of so much, and has no limit.

    >>> Shift((0, 1), (None, 3)).results_in((5, 2)), Shift((0, 1), (None, 3)).results_in((5, 3))
    ((5, 3), None)
    >>> from timely import LoopSummary, LoopTime
    >>> Shift((LoopSummary.feedback(1), 2), (None, None)).results_in((LoopTime(0, (4,)), 0))
    (LoopTime(0, (5,)), 2)
    """

    by: Time
    limits: tuple[int | None, ...]

    def results_in(self, time: Time) -> Time | None:
        """Return the time that ``time`` becomes, or None if a coordinate does not get through."""
        result = tuple(t + n if type(n) is int else n.results_in(t) for t, n in zip(time, self.by, strict=True))
        passes = all(t is not None and (limit is None or t <= limit) for t, limit in zip(result, self.limits, strict=True))
        return result if passes else None

    def summary(self) -> PathSummary[Any]:
        """Return it as the library writes it.

        >>> Shift((0, 1), (None, 3)).summary()
        ProductSummary(Step(0), Step(1, limit=3))
        """
        steps = [Step(n, limit) if type(n) is int else n for n, limit in zip(self.by, self.limits, strict=True)]
        result: PathSummary[Any] = steps[0]
        for step in steps[1:]:
            result = ProductSummary(result, step)
        return result


@attrs.frozen(repr=False)
class ScopeSpec(Described):
    """A scope in another one (scope 0 is in itself): a loop's scope, with one more coordinate, or a region.

    ``time`` is for one with times of its own, which refine those around it.

    >>> ScopeSpec(0, True)
    ScopeSpec(0, True)
    """

    parent: int
    iterative: bool
    time: Any = None


@attrs.frozen(repr=False)
class OpSpec(Described):
    """An operator: ``summaries[input][output]`` are its shifts, ``observes[input]`` whether it asks for the frontier.

    >>> OpSpec(0, 1, (((Shift((1,), (None,)),),),), (True,))
    OpSpec(0, 1, (((Shift((1,), (None,)),),),), (True,))
    """

    scope: int
    outputs: int
    summaries: tuple[tuple[tuple[Shift, ...], ...], ...]
    observes: tuple[bool, ...]


@attrs.frozen(repr=False)
class Link(Described):
    """From an output to an input, wherever they are; records may be exchanged between workers on the way.

    >>> Link(Source(0, 0), Target(1, 0), exchanged=True)
    Link(Source(0, 0), Target(1, 0), True)
    """

    source: Source
    target: Target
    exchanged: bool = False


@attrs.frozen(repr=False)
class Nesting(Described):
    """Scope 0 is the dataflow itself, with times of type ``time``; ``order`` is the order in which scopes and operators are made:
    ``(is a scope, number)``.

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
    time: Any = int

    def ancestors(self, scope: int) -> list[int]:
        """Return the scope and those around it, from the inside out."""
        collected = [scope]
        while collected[-1]:
            collected.append(self.scopes[collected[-1]].parent)
        return collected

    def time_type(self, scope: int) -> Any:
        """Return the type of the times of a scope.

        >>> Nesting((ScopeSpec(0, False), ScopeSpec(0, True), ScopeSpec(1, False)), (), (), ()).time_type(2) == Product[int, int]
        True
        """
        spec = self.scopes[scope]
        if spec.time is not None:
            return spec.time
        around = self.time_type(spec.parent) if scope else self.time
        product: Any = Product
        return product[around, int] if spec.iterative else around

    def depth(self, scope: int) -> int:
        """Return how many coordinates the times of a scope have."""
        return len(_coordinates(self.time_type(scope)))

    def minimum(self, scope: int) -> Time:
        """Return the least time of a scope.

        >>> Nesting((ScopeSpec(0, False), ScopeSpec(0, True)), (), (), ()).minimum(1)
        (0, 0)
        """
        return flat(time_domain(self.time_type(scope)).minimum)

    def advances(self, scope: int, shift: Shift, around: int | None = None) -> bool:
        """Return whether a shift in a scope strictly advances every time, as seen from a scope ``around`` it.

        Of a scope with times of its own one cannot tell from outside; then the answer is no.

        >>> nesting = Nesting((ScopeSpec(0, False), ScopeSpec(0, True)), (), (), ())
        >>> nesting.advances(1, Shift((0, 1), (None, None))), nesting.advances(1, Shift((0, 1), (None, None)), around=0)
        (True, False)
        """
        parts = _coordinates(self.time_type(scope))
        if around is not None:
            ways = self.ancestors(scope)
            if any(self.scopes[inner].time is not None for inner in ways[: ways.index(around)]):
                return False
            parts = parts[: self.depth(around)]
        return any(_advances(part, n) for part, n in zip(parts, shift.by))

    def common(self, one: int, other: int) -> int:
        """Return the innermost scope that both are in."""
        around = self.ancestors(other)
        return next(scope for scope in self.ancestors(one) if scope in around)

    def crossed(self, link: Link) -> int:
        """Return the outermost scope that a link goes through."""
        return self.common(self.ops[int(str(link.source.node))].scope, self.ops[int(str(link.target.node))].scope)

    def stuck(self) -> list[Link]:
        """Return the links that are on a cycle on which time need not advance, as far as :meth:`advances` can tell.

        Such a cycle goes through one outermost scope. Of the coordinates of that scope none advances on it, whatever
        happens to those further in, which are lost and start anew; and one of its links goes through that scope itself.
        """
        return [link for link in self.links if self._closes(link, self.crossed(link))]

    def _closes(self, link: Link, scope: int) -> bool:
        reached = {link.target}
        queue: list[Target] = [link.target]
        while queue:
            target = queue.pop()
            op = int(str(target.node))
            sources = [
                Source(op, o)
                for o, shifts in enumerate(self.ops[op].summaries[target.port])
                if any(not self.advances(self.ops[op].scope, shift, scope) for shift in shifts)
            ]
            if link.source in sources:
                return True
            for onward in self.links:
                if onward.source in sources and scope in self.ancestors(self.crossed(onward)) and onward.target not in reached:
                    reached.add(onward.target)
                    queue.append(onward.target)
        return False

    def smaller(self) -> Iterator[Nesting]:
        """Return this nesting without one of its operators, its links, or its scopes with nothing in them, for each of these.

        >>> nesting = Nesting((ScopeSpec(0, False), ScopeSpec(0, True)), (OpSpec(0, 0, (), ()),), (), ((True, 1), (False, 0)))
        >>> for one in nesting.smaller():
        ...     print(one)
        Nesting((ScopeSpec(0, False), ScopeSpec(0, True)), (), (), ((True, 1),))
        Nesting((ScopeSpec(0, False),), (OpSpec(0, 0, (), ()),), (), ((False, 0),))
        """
        for op in range(len(self.ops)):
            yield self._without_op(op)
        used = {op.scope for op in self.ops} | {spec.parent for spec in self.scopes}
        for scope in range(1, len(self.scopes)):
            if scope not in used:
                yield self._without_scope(scope)
        for link in self.links:
            yield attrs.evolve(self, links=tuple(other for other in self.links if other is not link))

    def _without_op(self, op: int) -> Nesting:
        def close(place: Any) -> Any:
            return type(place)(int(str(place.node)) - (int(str(place.node)) > op), place.port)

        held = [link for link in self.links if op not in (link.source.node, link.target.node)]
        links = tuple(attrs.evolve(link, source=close(link.source), target=close(link.target)) for link in held)
        order = tuple((kind, n - (not kind and n > op)) for kind, n in self.order if (kind, n) != (False, op))
        return attrs.evolve(self, ops=self.ops[:op] + self.ops[op + 1 :], links=links, order=order)

    def _without_scope(self, scope: int) -> Nesting:
        specs = tuple(attrs.evolve(spec, parent=spec.parent - (spec.parent > scope)) for spec in self.scopes)
        ops = tuple(attrs.evolve(op, scope=op.scope - (op.scope > scope)) for op in self.ops)
        order = tuple((kind, n - (kind and n > scope)) for kind, n in self.order if (kind, n) != (True, scope))
        return attrs.evolve(self, scopes=specs[:scope] + specs[scope + 1 :], ops=ops, order=order)

    def repaired(self) -> Nesting:
        """Return the nesting without links that close a cycle on which time need not advance."""
        nesting = self
        while stuck := nesting.stuck():
            nesting = attrs.evolve(nesting, links=tuple(link for link in nesting.links if link is not stuck[-1]))
        return nesting


def _coordinates(spec: Any) -> list[Any]:
    """Return the types of the coordinates of a product that is nested in its outer coordinate; of others, the type itself."""
    if get_origin(spec) is not Product:
        return [spec]
    outer, inner = get_args(spec)
    return [*_coordinates(outer), inner]


def _advances(spec: Any, by: Any) -> bool:
    """Return whether a coordinate strictly advances, whatever it was: also one that it has brought about itself."""
    if type(by) is int:
        return by > 0
    identity: Any = time_domain(spec).identity
    return bool(identity <= by and by != identity and by.followed_by(by) != by)


# -- times as tuples ------------------------------------------------------------------------------------------------------


def below(one: Time, other: Time) -> bool:
    """Return whether ``one <= other``, coordinate by coordinate.

    >>> below((0, 1), (2, 1)), below((0, 1), (2, 0))
    (True, False)
    """
    return all(a <= b for a, b in zip(one, other, strict=True))


def flat(time: Any) -> Time:
    """Return a time of the library as a tuple of its coordinates.

    >>> flat(Product(Product(0, 1), 2))
    (0, 1, 2)
    """
    return (*flat(time.outer), time.inner) if isinstance(time, Product) else (time,)


def nested(time: Time) -> Any:
    """Return a tuple of coordinates as a time of the library.

    >>> nested((0, 1, 2)).inner
    2
    """
    result: Any = time[0]
    for coordinate in time[1:]:
        result = Product(result, coordinate)
    return result
