"""``Routes``: which workers tell each other of their progress, so that everybody hears of everybody in exactly one way.

The members of a *group* tell each other. A worker in several groups passes on: to each of its groups it tells, as one sum, what
it did itself and what it heard in the others (:mod:`timely.progress.relay`). The invariant: groups hang together as a tree, so
that there is one way from each worker to each other one; nothing gets lost, and nothing is heard twice. With one group of all
workers everybody tells everybody, and nobody passes anything on. A caller gives all workers of a run the same routes. The idea is
that of Naiad's local and global accumulators (section 3.3 of the paper, and the modes of its figure 6c), which are workers here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias, get_args

import attrs

from timely.errors import ConfigurationError

Mode: TypeAlias = Literal["direct", "process", "central", "tree"]
"""A shape of routes by name."""

MODES: Final[tuple[Mode, ...]] = get_args(Mode)
FAN_OUT: Final = 16
"""How many workers tell each other in a group of a ``tree``."""


@attrs.frozen
class Routes:
    """The groups of a run of so many workers, each in ascending order.

    ``ConfigurationError`` for groups between whose workers there is no way, or more than one.

    >>> Routes(3, [[0, 1], [1, 2]]).way(0, 2)
    [0, 1, 2]
    """

    workers: int
    groups: Sequence[Sequence[int]]
    _places: Sequence[Sequence[int]] = attrs.field(init=False, repr=False, eq=False)

    @_places.default
    def _find_places(self) -> Sequence[Sequence[int]]:
        places: list[list[int]] = [[] for _ in range(self.workers)]
        for number, group in enumerate(self.groups):
            for worker in group:
                if not 0 <= worker < self.workers:
                    raise ConfigurationError(f"there is no worker {worker} among {self.workers}: give 0 to {self.workers - 1}")
                places[worker].append(number)
        return places

    def __attrs_post_init__(self) -> None:
        reached = len(self._before(0))
        ties = sum(len(group) - 1 for group in self.groups)
        if reached < self.workers or ties != self.workers - 1:
            what = "there is more than one way between some" if reached == self.workers else "there is no way to some"
            raise ConfigurationError(f"of {self.workers} workers {what}: groups of workers must hang together as a tree")

    # -- shapes --------------------------------------------------------------------------------------------------------

    @classmethod
    def named(cls, mode: Mode, workers: int, each: int = 1) -> Routes:
        """Return the routes of a mode where ``each`` workers are in a process: ``ConfigurationError`` if there is no such mode.

        >>> Routes.named("process", 6, 3) == Routes.process(6, 3), Routes.named("tree", 100) == Routes.tree(100, FAN_OUT)
        (True, True)
        """
        if mode == "direct":
            return cls.direct(workers)
        if mode == "process":
            return cls.process(workers, each)
        if mode == "central":
            return cls.central(workers, each)
        if mode == "tree":
            return cls.tree(workers, FAN_OUT, each)
        raise ConfigurationError(f"progress={mode!r}: there is no such mode; it is one of {', '.join(MODES)}")

    @classmethod
    def direct(cls, workers: int) -> Routes:
        """Everybody tells everybody.

        >>> Routes.direct(3).groups
        [range(0, 3)]
        """
        return cls(workers, [range(workers)])

    @classmethod
    def process(cls, workers: int, each: int) -> Routes:
        """The ``each`` workers of a process tell each other, and the first of each process tells those of the others.

        >>> Routes.process(6, 3).groups
        [range(0, 3), range(3, 6), range(0, 6, 3)]
        """
        return cls(workers, [*_processes(workers, each), *_group(range(0, workers, each))])

    @classmethod
    def central(cls, workers: int, each: int = 1) -> Routes:
        """As ``process``, but the first of each process tells worker 0 alone, which passes on what the processes did.

        >>> Routes.central(4).groups, Routes.central(4, 2).groups
        ([[0, 1], [0, 2], [0, 3]], [range(0, 2), range(2, 4), [0, 2]])
        """
        return cls(workers, [*_processes(workers, each), *([0, leader] for leader in range(each, workers, each))])

    @classmethod
    def tree(cls, workers: int, fan_out: int, each: int = 1) -> Routes:
        """As ``process``, but the first workers form groups of ``fan_out``, the first of these groups form groups, and so on.

        >>> Routes.tree(8, 2).groups
        [range(0, 2), range(2, 4), range(4, 6), range(6, 8), range(0, 4, 2), range(4, 8, 2), range(0, 8, 4)]
        """
        if fan_out < 2:
            raise ConfigurationError(f"fan_out={fan_out!r}: a group has at least two workers")
        groups, step = _processes(workers, each), each
        while step < workers:
            above = step * fan_out
            for first in range(0, workers, above):
                groups += _group(range(first, min(first + above, workers), step))
            step = above
        return cls(workers, groups)

    # -- what follows from them ----------------------------------------------------------------------------------------

    @property
    def direct_only(self) -> bool:
        """Whether nobody passes anything on.

        >>> Routes.direct(3).direct_only, Routes.process(3, 3).direct_only, Routes.central(3).direct_only
        (True, True, False)
        """
        return len(self.groups) <= 1

    def around(self, worker: int) -> list[list[int]]:
        """Return, for each group that a worker is in, the others in it.

        >>> Routes.process(6, 3).around(3)
        [[4, 5], [0]]
        """
        return [[other for other in self.groups[number] if other != worker] for number in self._places[worker]]

    def way(self, source: int, target: int) -> list[int]:
        """Return which workers have it in turn when one of them tells something that another is to hear, both included.

        >>> Routes.process(6, 3).way(1, 5), Routes.direct(6).way(1, 5)
        ([1, 0, 3, 5], [1, 5])
        """
        before, way = self._before(source), [target]
        while way[-1] != source:
            way.append(before[way[-1]])
        return way[::-1]

    @property
    def hops(self) -> int:
        """How many messages in a row it takes at most for one worker to hear of another. Takes time in the number of workers.

        >>> Routes.direct(64).hops, Routes.process(64, 8).hops, Routes.central(64).hops, Routes.tree(64, 4).hops
        (1, 3, 2, 5)
        """
        first = self._distances(0)
        farthest = max(first, key=lambda worker: first[worker])
        return max(self._distances(farthest).values())  # in a tree that is as far as one can get

    def _distances(self, start: int) -> dict[int, int]:
        distances: dict[int, int] = {}
        for worker, previous in self._before(start).items():
            distances[worker] = 0 if worker == start else distances[previous] + 1
        return distances

    def _before(self, start: int) -> dict[int, int]:
        """Return, of each worker that there is a way to, the one before it on that way; the nearest first."""
        before, waiting, seen = {start: start}, deque([start]), set[int]()
        while waiting:
            worker = waiting.popleft()
            for number in self._places[worker]:
                if number not in seen:
                    seen.add(number)
                    for other in self.groups[number]:
                        if other not in before:
                            before[other] = worker
                            waiting.append(other)
        return before


def _processes(workers: int, each: int) -> list[Sequence[int]]:
    """Return the groups of those who are in a process, where these are several."""
    if each < 1 or workers % each:
        raise ConfigurationError(f"{workers} workers cannot be {each} in each process: give a divisor of {workers}")
    return [group for first in range(0, workers, each) for group in _group(range(first, first + each))]


def _group(members: range) -> list[Sequence[int]]:
    """Return a group of these, unless there is but one."""
    return [members] if len(members) > 1 else []
