"""The check that time strictly advances on every cycle of a graph, without which progress on a cycle is undecidable.

Where no summary goes back, one advancing summary makes a cycle advance, so the others alone must be acyclic: linear time. Custom
summaries that go back, or that advance some times only, are decided by composing the cycles through a feedback set.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Generic, TypeVar

from timely.errors import brief
from timely.order import PartialOrder
from timely.progress.domain import TimeDomain
from timely.progress.graph_theory import feedback_set, ranks, reverse_postorder, strongly_connected
from timely.progress.timestamp import PathSummary
from timely.progress.topology import Label, PathSearch, Topology, Ways

T = TypeVar("T", bound=PartialOrder)


def find_stuck_cycle(topology: Topology[T]) -> list[int] | None:
    """Return the locations, in order, of a cycle on which time does not strictly advance, or None."""
    return _CycleCheck(topology).find()


class _CycleCheck(Generic[T]):
    def __init__(self, topology: Topology[T]) -> None:
        self._topology = topology
        self._identity = identity = topology.domain.identity
        # both are asked of the same few summaries, over and over
        self._holds = cache(lambda summary: bool(identity <= summary))
        self._advances = cache(lambda summary: strictly_advances(summary, topology.domain))

    def find(self) -> list[int] | None:
        forward = self._topology.forward
        for component in strongly_connected([[end for end, _ in ways] for ways in forward]):
            if len(component) > 1:
                cycle = self._find_within(component)
                if cycle is not None:
                    return cycle
        return None

    def _find_within(self, component: Sequence[int]) -> list[int] | None:
        """Check the summaries that do not advance, if none goes back, and otherwise all."""
        ways = self._restrict(component, slow_only=False)
        if not all(self._holds(summary) for part in ways for _, summaries in part for summary in summaries):
            return self._compose(component, ways)
        ways = self._restrict(component, slow_only=True)
        for knot in strongly_connected([[end for end, _ in part] for part in ways]):
            if len(knot) > 1:
                members = [component[i] for i in knot]
                cycle = self._compose(members, self._restrict(members, slow_only=True))
                if cycle is not None:
                    return cycle
        return None

    def _restrict(self, members: Sequence[int], *, slow_only: bool) -> list[Ways[T]]:
        """Return the ways among ``members``, numbered by place there; ``slow_only``: without what advances."""
        place = {location: i for i, location in enumerate(members)}
        restricted: list[Ways[T]] = []
        for location in members:
            ways: Ways[T] = []
            for end, summaries in self._topology.forward[location]:
                if end in place:
                    part = tuple(s for s in summaries if not (slow_only and self._advances(s)))
                    if part:
                        ways.append((place[end], part))
            restricted.append(ways)
        return restricted

    def _compose(self, members: Sequence[int], ways: list[Ways[T]]) -> list[int] | None:
        """Compose the summaries of the cycles through each vertex of a feedback set.

        The vertex is split in two; its cycles arrive at the second half.
        """
        end = len(members)
        for start in feedback_set(range(end), [[w for w, _ in part] for part in ways]):
            split: list[Ways[T]] = [[(end if w == start else w, s) for w, s in part] for part in ways]
            split.append([])
            search = PathSearch(split, ranks(reverse_postorder([[w for w, _ in part] for part in split])), backward=False)
            if not search.run(start, self._identity, passes=end + 2):
                walks = (label for labels in search.labels.values() for label in labels if label.fresh)
                return [members[i] for i in _first_round(next(walks))]
            for label in search.labels.get(end, ()):
                if not self._advances(label.summary):
                    return [members[i] for i in reversed(label.locations()[1:])]
        return None


def out_of_order(topology: Topology[T], cycle: Sequence[int]) -> str | None:
    """Return what is wrong with the order of the summaries, if the least time does advance on a stuck cycle.

    An example is an order that compares summaries for equality only.
    """
    domain, ends = topology.domain, [*cycle[1:], cycle[0]]
    whole, start = domain.identity, domain.minimum
    time = start
    try:
        for place, end in zip(cycle, ends):
            step = next(summaries[0] for to, summaries in topology.forward[place] if to == end)
            arrival, composed = step.results_in(time), whole.followed_by(step)
            if arrival is None or composed is None:
                return None
            time, whole = arrival, composed
        if time == start or not start <= time or domain.identity <= whole:
            return None
    except Exception:  # custom types may raise, and this is about another error
        return None
    return (
        f"its summary {brief(whole)} turns {brief(start)} into {brief(time)}, but {brief(domain.identity)} <= {brief(whole)}"
        " is False; give the summaries an order in which what advances every time is beyond the identity (docs/timestamps.md)"
    )


def _first_round(label: Label[T]) -> list[int]:
    """Return, in order, the vertices of a cycle of a walk with more steps than there are vertices."""
    walk = label.locations()
    last: dict[int, int] = {}
    for i, vertex in enumerate(walk):
        if vertex in last:
            return walk[last[vertex] + 1 : i + 1][::-1]
        last[vertex] = i
    raise AssertionError("a walk with more steps than vertices meets one of them twice")


def strictly_advances(summary: PathSummary[T], domain: TimeDomain[T]) -> bool:
    """Return whether ``summary`` is beyond the identity, and lets no time through unchanged.

    Tries the least time and its result. This tells summaries that always advance from those with a limit or a floor.
    """
    if not domain.identity <= summary or summary == domain.identity:
        return False
    time = domain.minimum
    for _ in range(2):
        arrival = summary.results_in(time)
        if arrival is None or arrival == time:
            return arrival is None
        time = arrival
    return True
