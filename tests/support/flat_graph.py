"""The flat graph that a nesting of scopes amounts to, and frontiers in it by definition.

The flat graph knows nothing of scopes but the coordinates of their times: leaving a loop cuts the last coordinate off, entering
one appends a zero, and where a scope has times of its own their type says how they are translated. The invariant of nesting is
that nobody can tell the two apart: after progress has settled every frontier is that of the flat graph, which answers by
following every path. A caller may rely on the answers being right, and slow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.support.nesting import Link, Location, Nesting, Time, below, flat, nested
from timely.progress import Source, Target, refinement


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
