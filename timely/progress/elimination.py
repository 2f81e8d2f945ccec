"""How the members of a feedback set tell each other what they know, without a cycle and without a dense closure.

Whatever leads from one member to another is first composed into direct ways between them; then the members are
eliminated one by one. Eliminating a member joins each way into it with each way out of it, so that the ways among those
that are left stand for all paths through those that are not: Gaussian elimination in the algebra of path summaries, in
which "plus" is the antichain of both and "times" is one after the other. The invariant: going through the members in
the order of their elimination and telling each what the earlier ones know, and then back, telling each what the later
ones know, tells everyone everything. A caller may rely on the ways from a member back to itself being left out, which
strictly advance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Generic, TypeAlias, TypeVar

from timely.order import PartialOrder
from timely.progress.antichain import Antichain
from timely.progress.timestamp import PathSummary

T = TypeVar("T", bound=PartialOrder)

SummariesTo: TypeAlias = dict[int, Antichain[PathSummary[T]]]
"""Where ways lead (or come from), with the minimal summaries of each."""


class Eliminated(Generic[T]):
    """A member with the ways between it and those eliminated after it: ``onwards`` to these, ``back`` from them."""

    __slots__ = ("back", "member", "onwards")

    def __init__(self, member: int, onwards: SummariesTo[T], back: SummariesTo[T]) -> None:
        self.member = member
        self.onwards = onwards
        self.back = back


def eliminate(ways: Mapping[int, SummariesTo[T]]) -> list[Eliminated[T]]:
    """Return the members in the order of their elimination, always one that joins the fewest ways next.

    >>> from timely.progress.timestamp import Step
    >>> one, two, three = (Antichain([Step(n)]) for n in (1, 2, 3))
    >>> first, second, third = eliminate({0: {1: one}, 1: {0: one, 2: two}, 2: {1: three}})
    >>> first.member, first.onwards, first.back
    (0, {1: Antichain([Step(1)])}, {1: Antichain([Step(1)])})
    >>> second.member, third.member, third.onwards, third.back
    (1, 2, {}, {})
    """
    onwards: dict[int, SummariesTo[T]] = {member: dict(there) for member, there in ways.items()}
    back: dict[int, SummariesTo[T]] = {member: {} for member in ways}
    for start, there in onwards.items():
        for end, summaries in there.items():
            back[end][start] = summaries
    order: list[Eliminated[T]] = []
    while onwards:
        member = min(onwards, key=lambda m: len(onwards[m]) * len(back[m]))
        step = Eliminated(member, onwards.pop(member), back.pop(member))
        order.append(step)
        for end in step.onwards:
            del back[end][member]
        for start, first in step.back.items():
            del onwards[start][member]
            for end, second in step.onwards.items():
                if end != start:
                    joined = onwards[start].get(end, Antichain()).copy()
                    compose(joined, first, second)
                    if joined:
                        onwards[start][end] = back[end][start] = joined
    return order


def direct_ways(
    members: Sequence[int], rest: Sequence[int], ways: Sequence[Mapping[int, Antichain[PathSummary[T]]]]
) -> dict[int, SummariesTo[T]]:
    """Return the minimal summaries of the paths from each of ``members`` to each other one, through ``rest`` alone.

    ``rest`` has no cycles and is in topological order.
    """
    rank = {place: number for number, place in enumerate(rest)}
    others = set(members)
    return {start: _spread(start, others, rank, ways) for start in members}


def _spread(
    start: int, members: set[int], rank: Mapping[int, int], ways: Sequence[Mapping[int, Antichain[PathSummary[T]]]]
) -> SummariesTo[T]:
    """Return the ways of one member to the others, by following what it reaches in topological order."""
    found: SummariesTo[T] = {end: summaries.copy() for end, summaries in ways[start].items()}
    waiting: list[tuple[int, int]] = sorted((rank[place], place) for place in found if place in rank)
    while waiting:
        _, place = heappop(waiting)
        for end, summaries in ways[place].items():
            if end in rank or end in members:
                if end not in found:
                    found[end] = Antichain()
                    if end in rank:
                        heappush(waiting, (rank[end], end))
                compose(found[end], found[place], summaries)
    return {end: summaries for end, summaries in found.items() if end in members and end != start and summaries}


def compose(into: Antichain[PathSummary[T]], first: Iterable[PathSummary[T]], second: Iterable[PathSummary[T]]) -> None:
    """Insert into an antichain every composition of a first and a second summary through which anything gets.

    >>> from timely.progress.timestamp import Step
    >>> both = Antichain([Step(9)])
    >>> compose(both, [Step(1), Step(2)], [Step(4), Step(5, limit=7)])
    >>> both
    Antichain([Step(5)])
    """
    for one in first:
        for other in second:
            composed = one.followed_by(other)
            if composed is not None:
                into.insert(composed)
