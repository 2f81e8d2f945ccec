"""Who adds up what workers tell each other of their progress: shapes to send it in, other than from each to each.

Every worker tells every other one what it did (:mod:`timely.progress.exchange`). A :class:`Forest` says who adds up for whom
instead: each worker, or accumulator, tells its *parent*, which hands on the sum of what it was told; a *root* tells the other
roots and, through its children, everybody. Where every worker is a root this is what the library does. The invariant: between
two workers there is exactly one way. The source of the shapes are Naiad's local and global accumulators (section 3.3 of the
paper, and its figure 6c).
"""

from __future__ import annotations

import attrs

from timely.errors import ConfigurationError


@attrs.frozen
class Forest:
    """Who adds up for whom: the parent of each node, ``None`` for a root. Nodes below ``workers`` are the workers.

    ``local`` are the nodes that are in the same process as their parent. A parent comes after its children.

    >>> Forest.broadcast(3).hops, Forest.processes(4, 2).hops, Forest.central(4, 2).hops, Forest.tree(64, 4, 1).hops
    (1, 1, 2, 6)
    """

    workers: int
    parents: tuple[int | None, ...]
    local: frozenset[int] = frozenset()
    children: tuple[tuple[int, ...], ...] = attrs.field(init=False, repr=False)
    roots: tuple[int, ...] = attrs.field(init=False, repr=False)

    @children.default
    def _children(self) -> tuple[tuple[int, ...], ...]:
        found: list[list[int]] = [[] for _ in self.parents]
        for node, parent in enumerate(self.parents):
            if parent is not None:
                found[parent].append(node)
        return tuple(map(tuple, found))

    @roots.default
    def _roots(self) -> tuple[int, ...]:
        return tuple(node for node, parent in enumerate(self.parents) if parent is None)

    @classmethod
    def broadcast(cls, workers: int) -> Forest:
        """Every worker tells every other one: what the library does.

        >>> Forest.broadcast(3).parents
        (None, None, None)
        """
        return cls(workers, (None,) * workers)

    @classmethod
    def processes(cls, workers: int, each: int) -> Forest:
        """The workers of a process, ``each`` of them, add up what they did, and every process tells every other one.

        >>> Forest.processes(4, 2).parents
        (4, 4, 5, 5, None, None)
        """
        _check(workers, each)
        if each == 1:
            return cls.broadcast(workers)
        parents = [workers + worker // each for worker in range(workers)]
        return cls(workers, (*parents, *(None,) * (workers // each)), frozenset(range(workers)))

    @classmethod
    def tree(cls, workers: int, fan_out: int, each: int = 1) -> Forest:
        """Processes add up within, then ``fan_out`` at a time in nodes of their own, up to one root, and back down the same way.

        >>> Forest.tree(4, 2).parents
        (4, 4, 5, 5, 6, 6, None)
        """
        if fan_out < 2:
            raise ConfigurationError(f"fan_out={fan_out!r}: a node that adds up for fewer than two others is of no use")
        base = cls.processes(workers, each)
        parents, level = list(base.parents), list(base.roots)
        while len(level) > 1:
            above = [len(parents) + place for place in range(-(-len(level) // fan_out))]
            for place, node in enumerate(level):
                parents[node] = above[place // fan_out]
            parents.extend([None] * len(above))
            level = above
        return cls(workers, tuple(parents), base.local)

    @classmethod
    def central(cls, workers: int, each: int = 1) -> Forest:
        """All processes tell one accumulator, which tells all of them the sum: a tree of one level.

        >>> Forest.central(3).parents
        (3, 3, 3, None)
        """
        return cls.tree(workers, max(workers // each, 2), each)

    @property
    def hops(self) -> int:
        """How many connections in a row news goes over to get from one worker to the farthest other one."""
        up = max(sum(node not in self.local for node in self.above(worker)[:-1]) for worker in range(self.workers))
        return 2 * up + (len(self.roots) > 1)

    @property
    def busiest(self) -> int:
        """How many messages the node that has most to do sends and receives when everybody has told everybody of one batch.

        >>> Forest.broadcast(64).busiest, Forest.processes(64, 8).busiest, Forest.central(64).busiest, Forest.tree(64, 4).busiest
        (126, 14, 128, 10)
        """
        others = len(self.roots) - 1
        links = [
            sum(child not in self.local for child in children) + (others if parent is None else node not in self.local)
            for node, (parent, children) in enumerate(zip(self.parents, self.children, strict=True))
        ]
        return 2 * max(links)

    def above(self, node: int) -> list[int]:
        """Return the way from a node to its root, both included.

        >>> Forest.tree(4, 2).above(3)
        [3, 5, 6]
        """
        way = [node]
        while (parent := self.parents[way[-1]]) is not None:
            way.append(parent)
        return way

    def way(self, source: int, target: int) -> list[int]:
        """Return the way from one worker to another: up to the root of the one, and down from the root of the other.

        >>> Forest.tree(4, 2).way(0, 1), Forest.processes(4, 2).way(0, 3)
        ([0, 4, 6, 4, 1], [0, 4, 5, 3])
        """
        up, down = self.above(source), self.above(target)[::-1]
        return up + (down[1:] if up[-1] == down[0] else down)

    def is_local(self, node: int, other: int) -> bool:
        """Return whether two nodes of which one tells the other are in one process.

        >>> forest = Forest.processes(4, 2)
        >>> forest.is_local(0, 4), forest.is_local(4, 5)
        (True, False)
        """
        return (node in self.local and self.parents[node] == other) or (other in self.local and self.parents[other] == node)


def _check(workers: int, each: int) -> None:
    if each < 1 or workers % each:
        raise ConfigurationError(f"{workers} workers cannot be {each} in each process: give a divisor of {workers}")
