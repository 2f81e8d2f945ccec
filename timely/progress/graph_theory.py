"""Graph theory for the compiler: strongly connected components, orders, feedback sets.

Vertices are numbered from 0, and ``successors[v]`` lists where the edges of ``v`` lead. Nothing recurses, so chains of any length
work. Everything but a feedback set takes linear time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def strongly_connected(successors: Sequence[Iterable[int]]) -> list[list[int]]:
    """Return the strongly connected components in topological order (Tarjan 1972, iterative).

    >>> strongly_connected([[1], [2], [1, 3], []])
    [[0], [2, 1], [3]]
    """
    count = len(successors)
    discovered = [-1] * count
    low = [0] * count
    on_stack = bytearray(count)
    stack: list[int] = []
    components: list[list[int]] = []
    clock = 0
    for root in range(count):
        if discovered[root] >= 0:
            continue
        discovered[root] = low[root] = clock
        clock += 1
        stack.append(root)
        on_stack[root] = 1
        trail = [(root, iter(successors[root]))]
        while trail:
            vertex, rest = trail[-1]
            for successor in rest:
                if discovered[successor] < 0:
                    discovered[successor] = low[successor] = clock
                    clock += 1
                    stack.append(successor)
                    on_stack[successor] = 1
                    trail.append((successor, iter(successors[successor])))
                    break
                if on_stack[successor] and discovered[successor] < low[vertex]:
                    low[vertex] = discovered[successor]
            else:
                trail.pop()
                if trail and low[vertex] < low[trail[-1][0]]:
                    low[trail[-1][0]] = low[vertex]
                if low[vertex] == discovered[vertex]:
                    component = []
                    while on_stack[vertex]:
                        component.append(stack.pop())
                        on_stack[component[-1]] = 0
                    components.append(component)
    components.reverse()
    return components


def reverse_postorder(successors: Sequence[Iterable[int]]) -> list[int]:
    """Return all vertices in reverse postorder: topological, as far as cycles allow."""
    seen = bytearray(len(successors))
    order: list[int] = []
    for root in range(len(successors)):
        if seen[root]:
            continue
        seen[root] = 1
        trail = [(root, iter(successors[root]))]
        while trail:
            vertex, rest = trail[-1]
            for successor in rest:
                if not seen[successor]:
                    seen[successor] = 1
                    trail.append((successor, iter(successors[successor])))
                    break
            else:
                trail.pop()
                order.append(vertex)
    order.reverse()
    return order


def ranks(order: Sequence[int]) -> list[int]:
    """Return the place of each vertex in ``order``."""
    places = [0] * len(order)
    for place, vertex in enumerate(order):
        places[vertex] = place
    return places


def reachable(successors: Sequence[Iterable[int]], starts: Iterable[int]) -> bytearray:
    """Return a byte for each vertex: 1 if a path, maybe empty, leads there from one of ``starts``."""
    seen = bytearray(len(successors))
    stack = list(starts)
    for start in stack:
        seen[start] = 1
    while stack:
        for successor in successors[stack.pop()]:
            if not seen[successor]:
                seen[successor] = 1
                stack.append(successor)
    return seen


def feedback_set(members: Sequence[int], successors: Sequence[Iterable[int]]) -> list[int]:
    """Return a small set of ``members`` on every cycle among them, not counting loops from a vertex to itself.

    The reductions of Levy and Low (1988) keep a smallest set smallest. Where none applies, the vertex with the most ways through
    it is taken.
    """
    inside = set(members)
    after = {v: {w for w in successors[v] if w in inside and w != v} for v in members}
    before: dict[int, set[int]] = {v: set() for v in members}
    for vertex, following in after.items():
        for successor in following:
            before[successor].add(vertex)
    taken: list[int] = []
    work = list(members)
    while after:
        while work:
            vertex = work.pop()
            if vertex in after:
                _reduce(vertex, before, after, taken, work)
        if after:
            chosen = max(after, key=lambda v: len(before[v]) * len(after[v]))
            taken.append(chosen)
            work.extend(_remove(chosen, before, after))
    return sorted(taken)


def _reduce(vertex: int, before: dict[int, set[int]], after: dict[int, set[int]], taken: list[int], work: list[int]) -> None:
    """Apply the reduction that fits a vertex, and put those that another may fit now on ``work``."""
    preceding, following = before[vertex], after[vertex]
    if vertex in following:
        taken.append(vertex)
        work.extend(_remove(vertex, before, after))
    elif not preceding or not following:
        work.extend(_remove(vertex, before, after))
    elif len(preceding) == 1 or len(following) == 1:
        neighbours = _remove(vertex, before, after)
        for start in preceding:
            for end in following:
                after[start].add(end)
                before[end].add(start)
        work.extend(neighbours)


def _remove(vertex: int, before: dict[int, set[int]], after: dict[int, set[int]]) -> set[int]:
    preceding, following = before.pop(vertex), after.pop(vertex)
    for start in preceding:
        if start != vertex:
            after[start].discard(vertex)
    for end in following:
        if end != vertex:
            before[end].discard(vertex)
    return (preceding | following) - {vertex}
