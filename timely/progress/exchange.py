"""The exchange of progress between workers: the protocol, without a transport.

Each worker has a *view*: the counts of the pointstamps of all workers. It begins with a capability at the minimum for each output
and worker. A batch is made of whole *statements*: what one activation of an operator consumed, produced and holds. It is atomic,
since work would be uncounted between a consumption and its productions. Batches of one sender arrive in order. Those of different
senders interleave freely, so counts may be negative in transit. The invariant: if no positive count of a view could lead to a
time at a place, no message of that time will arrive there (Naiad section 3.3; Abadi, McSherry, Murray, Rodeheffer).

The members of a *group* send each other progress. A worker in several groups forwards: each group gets one sum of what the worker
did itself and what it received in its other groups. The groups form a tree, so every batch reaches every other worker once. A sum
of whole batches is as safe as those batches one by one: see docs/decisions/engine.md. Source: Naiad section 3.3, figure 6c.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar, get_args

import attrs

from timely.errors import ConfigurationError, ProgressError
from timely.progress.change_batch import ChangeBatch

K = TypeVar("K", bound=Hashable)

Updates: TypeAlias = tuple[tuple[K, int], ...]

ProgressMode: TypeAlias = Literal["direct", "process", "central", "tree"]
"""Groups by name: the ``progress`` of ``timely.execute``."""

PROGRESS_MODES: Final[tuple[ProgressMode, ...]] = get_args(ProgressMode)
FAN_OUT: Final = 16
"""The size of a group of a ``tree``."""


@attrs.frozen
class ProgressBatch(Generic[K]):
    """An atomic batch: the changes of worker ``sender``, as its ``sequence``-th batch, from 0 on.

    It may be the sum of ``count`` batches in a row; ``sequence`` is that of the first.
    """

    sender: int
    sequence: int
    updates: tuple[tuple[K, int], ...]
    count: int = attrs.field(default=1, repr=False)

    def merged(self, later: Iterable[ProgressBatch[K]]) -> ProgressBatch[K]:
        """Return one atomic batch for this one and its successors, to be sent in place of the last.

        To send later and at once is always safe. ``ProgressError`` for batches that do not follow each other.

        >>> first = ProgressBatch(0, 3, (("a", 1), ("b", -1)))
        >>> both = first.merged([ProgressBatch(0, 4, (("b", 1), ("c", 1)))])
        >>> both.sequence, both.count, both.updates
        (3, 2, (('a', 1), ('c', 1)))
        """
        changes: ChangeBatch[K] = ChangeBatch(self.updates)
        end = self.sequence + self.count
        for batch in later:
            if batch.sender != self.sender or batch.sequence != end:
                raise ProgressError(
                    f"batch {batch.sequence} of worker {batch.sender} does not come after batch {end - 1} of worker "
                    f"{self.sender}: merge batches of one sender only, in the order in which they were flushed"
                )
            changes.extend(batch.updates)
            end += batch.count
        return ProgressBatch(self.sender, self.sequence, tuple(changes.drain()), end - self.sequence)


class ProgressExchange(Generic[K]):
    """One worker's end of the protocol (Naiad section 3.3): collects its changes, batches them, and checks the batches of others.

    ``index`` is this worker's number among ``peers``; pointstamps are hashable, such as ``(scope, location, time)``. ``changes``
    are those of this worker since the last ``flush``; all of a statement are added before the next one.

    >>> here, there = ProgressExchange(0, 2), ProgressExchange(1, 2)
    >>> here.changes.extend([(("input", 0), -1), (("input", 5), 1)])  # a capability is downgraded ...
    >>> here.changes.extend([(("input", 5), -1), (("input", 9), 1)])  # ... twice
    >>> there.receive(here.flush())
    ((('input', 0), -1), (('input', 9), 1))
    >>> here.flush() is None
    True
    """

    __slots__ = ("_expected", "_sequence", "changes", "index")

    def __init__(self, index: int, peers: int) -> None:
        if not 0 <= index < peers:
            raise ConfigurationError(f"there is no worker {index} among {peers}: give an index of 0 to peers - 1")
        self.index = index
        self._sequence = 0
        self._expected = [0] * peers
        self.changes: ChangeBatch[K] = ChangeBatch()

    @property
    def peers(self) -> int:
        """The number of workers, this one included."""
        return len(self._expected)

    def flush(self) -> ProgressBatch[K] | None:
        """Return the changes since the last flush as one batch for every other worker, or None if they cancel."""
        if not self.changes.counts:
            return None
        batch = ProgressBatch(self.index, self._sequence, tuple(self.changes.drain()))
        self._sequence += 1
        return batch

    def receive(self, batch: ProgressBatch[K]) -> tuple[tuple[K, int], ...]:
        """Return the updates of another worker's batch, to be counted all at once.

        ``ProgressError`` if it is not the next batch of another worker of this run; the right one may still come.
        """
        sender = batch.sender
        if not 0 <= sender < len(self._expected):
            raise ProgressError(
                f"worker {self.index} got a progress batch of worker {sender}, but the run's workers are 0 to "
                f"{len(self._expected) - 1}: start all workers with the same number of peers"
            )
        if sender == self.index:
            raise ProgressError(
                f"worker {sender} got its own progress batch {batch.sequence}: a worker counts its own statements "
                f"itself; deliver batches to the other workers only"
            )
        expected = self._expected[sender]
        if batch.sequence != expected:
            fault = "it was delivered before" if batch.sequence < expected else "batches were lost or overtaken"
            raise ProgressError(
                f"worker {self.index} expected progress batch {expected} of worker {sender} but got "
                f"{batch.sequence}: {fault}; deliver those of each sender in the order in which they were flushed"
            )
        self._expected[sender] = expected + batch.count
        return batch.updates


@attrs.frozen
class ProgressGroups:
    """The groups of a run, each in ascending order; all workers of a run use the same.

    ``ConfigurationError`` unless the groups form a tree over all workers.

    >>> ProgressGroups(3, [[0, 1], [1, 2]]).path(0, 2)
    [0, 1, 2]
    """

    workers: int
    groups: Sequence[Sequence[int]]
    _memberships: Sequence[Sequence[int]] = attrs.field(init=False, repr=False, eq=False)

    @_memberships.default
    def _find_memberships(self) -> Sequence[Sequence[int]]:
        memberships: list[list[int]] = [[] for _ in range(self.workers)]
        for number, group in enumerate(self.groups):
            for worker in group:
                if not 0 <= worker < self.workers:
                    raise ConfigurationError(f"there is no worker {worker} among {self.workers}: give 0 to {self.workers - 1}")
                memberships[worker].append(number)
        return memberships

    def __attrs_post_init__(self) -> None:
        connected = len(self._predecessors(0)) == self.workers
        edges = sum(len(group) - 1 for group in self.groups)
        if not connected or edges != self.workers - 1:
            what = "more than one path between some" if connected else "no path to some"
            raise ConfigurationError(f"there is {what} of {self.workers} workers: groups of workers must form a tree")

    @classmethod
    def named(cls, mode: ProgressMode, workers: int, each: int = 1) -> ProgressGroups:
        """Return the groups of a mode for processes of ``each`` workers. ``ConfigurationError`` for an unknown mode."""
        if mode == "direct":
            return cls.direct(workers)
        if mode == "process":
            return cls.process(workers, each)
        if mode == "central":
            return cls.central(workers, each)
        if mode == "tree":
            return cls.tree(workers, FAN_OUT, each)
        raise ConfigurationError(f"progress={mode!r}: there is no such mode; it is one of {', '.join(PROGRESS_MODES)}")

    @classmethod
    def direct(cls, workers: int) -> ProgressGroups:
        """Return one group of all workers."""
        return cls(workers, [range(workers)])

    @classmethod
    def process(cls, workers: int, each: int) -> ProgressGroups:
        """Return a group for each process, and one of the first worker of each."""
        return cls.tree(workers, max(workers, 2), each)

    @classmethod
    def central(cls, workers: int, each: int = 1) -> ProgressGroups:
        """Return a group for each process, and for each first worker a group with worker 0.

        >>> ProgressGroups.central(4).groups, ProgressGroups.central(4, 2).groups
        ([[0, 1], [0, 2], [0, 3]], [range(0, 2), range(2, 4), [0, 2]])
        """
        return cls(workers, [*_processes(workers, each), *([0, leader] for leader in range(each, workers, each))])

    @classmethod
    def tree(cls, workers: int, fan_out: int, each: int = 1) -> ProgressGroups:
        """Return a group for each process, groups of ``fan_out`` first workers, groups of the first workers of these, and so on.

        >>> ProgressGroups.tree(8, 2).groups
        [range(0, 2), range(2, 4), range(4, 6), range(6, 8), range(0, 4, 2), range(4, 8, 2), range(0, 8, 4)]
        >>> ProgressGroups.process(6, 3).groups
        [range(0, 3), range(3, 6), range(0, 6, 3)]
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

    @property
    def direct_only(self) -> bool:
        """Whether no worker forwards anything."""
        return len(self.groups) <= 1

    def neighbours(self, worker: int) -> list[list[int]]:
        """Return, for each group of a worker, the others in it."""
        return [[other for other in self.groups[number] if other != worker] for number in self._memberships[worker]]

    def path(self, source: int, target: int) -> list[int]:
        """Return the workers that progress passes from ``source`` to ``target``, both included.

        >>> ProgressGroups.process(6, 3).path(1, 5), ProgressGroups.process(6, 3).neighbours(3)
        ([1, 0, 3, 5], [[4, 5], [0]])
        """
        before, path = self._predecessors(source), [target]
        while path[-1] != source:
            path.append(before[path[-1]])
        return path[::-1]

    def _predecessors(self, start: int) -> dict[int, int]:
        """Return, for each worker that ``start`` reaches, the one before it on its path, nearest first."""
        before, waiting, seen = {start: start}, deque([start]), set[int]()
        while waiting:
            worker = waiting.popleft()
            for number in self._memberships[worker]:
                if number not in seen:
                    seen.add(number)
                    for other in self.groups[number]:
                        if other not in before:
                            before[other] = worker
                            waiting.append(other)
        return before


def _processes(workers: int, each: int) -> list[Sequence[int]]:
    if each < 1 or workers % each:
        raise ConfigurationError(f"{workers} workers cannot be {each} in each process: give a divisor of {workers}")
    return [group for first in range(0, workers, each) for group in _group(range(first, first + each))]


def _group(members: range) -> list[Sequence[int]]:
    return [members] if len(members) > 1 else []


class GroupBatch(NamedTuple):
    """A batch of a dataflow for the members of a group."""

    members: Sequence[int]
    dataflow: int
    batch: ProgressBatch[Any]


class GroupMark(NamedTuple):
    """The mark of a round for the members of a group: all progress from before the round is on its way ahead of it."""

    members: Sequence[int]
    round: int


class ProgressAggregator:
    """What one worker sends of the progress of all dataflows, in every mode.

    A worker hands in each batch once and sends what comes out, in order, before it waits. A *round* has a mark follow the
    progress through all groups: who has the marks of its neighbours has all progress that any worker sent before the round.
    ``pending`` says whether there may be something to send, ``rounds`` are those that are open: an idle step costs no call.

    >>> middle = ProgressAggregator(1, ProgressGroups(3, [[0, 1], [1, 2]]))
    >>> middle.receive(0, 7, ProgressBatch(0, 0, (("a", 1),)))
    >>> middle.flush()
    [GroupBatch(members=[2], dataflow=7, batch=ProgressBatch(sender=1, sequence=0, updates=(('a', 1),)))]
    """

    __slots__ = ("_changed", "_direct", "_forwards", "_index", "_neighbours", "_ready", "_senders", "_sums", "pending", "rounds")

    def __init__(self, index: int, groups: ProgressGroups) -> None:
        self.pending = False
        self._index = index
        self._neighbours = groups.neighbours(index)
        self._senders = {member: place for place, members in enumerate(self._neighbours) for member in members}
        self._direct = groups.direct_only
        self._forwards = len(self._neighbours) > 1
        self._ready: list[GroupBatch] = []
        self._sums: dict[int, _GroupSums[Any]] = {}
        self._changed: dict[int, _GroupSums[Any]] = {}
        self.rounds: dict[int, _Round] = {}

    @property
    def forwarding(self) -> bool:
        """Whether others may still need this worker to forward something."""
        return bool(self._sums)

    def add(self, dataflow: int, batch: ProgressBatch[Any]) -> None:
        """Add a batch of this worker."""
        self.pending = True
        if self._forwards:
            self._sums_of(dataflow).add(batch.updates)
        elif self._neighbours:
            self._ready.append(GroupBatch(self._neighbours[0], dataflow, batch))

    def receive(self, sender: int, dataflow: int, batch: ProgressBatch[Any]) -> None:
        """Receive a batch of a neighbour. ``ProgressError`` if ``sender`` is not one."""
        if self._forwards or sender not in self._senders:
            place = self._place(sender)
            self._sums_of(dataflow).receive(place, batch.updates)
            self.pending = True

    def complete(self, dataflow: int) -> None:
        """Forget a dataflow after the next flush: no worker sends more of it."""
        self._sums.pop(dataflow, None)

    def flush(self) -> list[GroupBatch]:
        """Return the batches to send now."""
        self.pending = False
        ready, self._ready = self._ready, []
        if self._changed:
            for dataflow, sums in self._changed.items():
                ready += [GroupBatch(members, dataflow, batch) for members, batch in sums.flush()]
            self._changed.clear()
        return ready

    def _place(self, sender: int) -> int:
        place = self._senders.get(sender)
        if place is None:
            raise ProgressError(
                f"worker {sender} sends worker {self._index} progress, which receives it from {sorted(self._senders)}: give all"
                " workers of a run the same progress groups"
            )
        return place

    def _sums_of(self, dataflow: int) -> _GroupSums[Any]:
        sums = self._sums.get(dataflow)
        if sums is None:
            sums = self._sums[dataflow] = _GroupSums(self._index, self._neighbours)
        self._changed[dataflow] = sums
        return sums

    # -- rounds --------------------------------------------------------------------------------------------------------

    def begin_round(self, round: int) -> None:
        """Begin a round at this worker. In the direct mode any message marks it: progress comes straight from its worker."""
        if not self._direct:
            self._round(round).begun = self.pending = True

    def receive_mark(self, sender: int, round: int) -> None:
        """Receive the mark of a round of a neighbour. ``ProgressError`` if ``sender`` is not one."""
        self._round(round).receive(self._place(sender))
        self.pending = True

    def in_round(self, round: int) -> bool:
        """Return whether progress from before a round that has begun here may still be on its way to this worker."""
        state = self.rounds.get(round)
        return state is not None and state.begun and state.missing > 0

    def end_round(self, round: int) -> None:
        """Forget a round."""
        self.rounds.pop(round, None)

    def marks(self) -> list[GroupMark]:
        """Return the marks to send now, after the batches of a flush."""
        return [GroupMark(self._neighbours[place], round) for round, state in self.rounds.items() for place in state.due()]

    def _round(self, round: int) -> _Round:
        state = self.rounds.get(round)
        if state is None:
            state = self.rounds[round] = _Round([len(members) for members in self._neighbours])
        return state


class _GroupSums(Generic[K]):
    """The changes of one dataflow that a worker has to send to each of its groups."""

    __slots__ = ("_groups", "_index", "_received", "_sequences", "_total")

    def __init__(self, index: int, groups: Sequence[Sequence[int]]) -> None:
        self._index = index
        self._groups = groups
        self._sequences = [0] * len(groups)
        self._total: ChangeBatch[K] = ChangeBatch()
        self._received: dict[int, ChangeBatch[K]] = {}

    def add(self, updates: Iterable[tuple[K, int]]) -> None:
        self._total.extend(updates)

    def receive(self, place: int, updates: Updates[K]) -> None:
        self._total.extend(updates)
        received = self._received.get(place)
        if received is None:
            self._received[place] = ChangeBatch(updates)
        else:
            received.extend(updates)

    def flush(self) -> list[tuple[Sequence[int], ProgressBatch[K]]]:
        """Return the batch of each group that has one. Groups with equal batches share one, so that it is pickled once."""
        batches: list[tuple[Sequence[int], ProgressBatch[K]]] = []
        total = tuple(self._total.drain())
        made: dict[tuple[int, Updates[K]], ProgressBatch[K]] = {}
        for place, members in enumerate(self._groups):
            received = self._received.get(place)
            key = self._sequences[place], () if received is None else tuple(received)
            batch = made.get(key)
            if batch is None:
                batch = made[key] = ProgressBatch(self._index, key[0], _without(total, key[1]))
            if batch.updates:
                self._sequences[place] += 1
                batches.append((members, batch))
        self._received.clear()
        return batches


def _without(total: Updates[K], part: Updates[K]) -> Updates[K]:
    if not part:
        return total
    changes = ChangeBatch(total)
    changes.extend((key, -diff) for key, diff in part)
    return tuple(changes)


class _Round:
    """The marks of one round: a group gets one when this worker has begun and all other groups have sent theirs."""

    __slots__ = ("_left", "_sent", "begun", "missing")

    def __init__(self, sizes: list[int]) -> None:
        self.begun = False
        self.missing = sum(sizes)
        self._left = sizes
        self._sent = [False] * len(sizes)

    def receive(self, place: int) -> None:
        self._left[place] -= 1
        self.missing -= 1

    def due(self) -> list[int]:
        if not self.begun:
            return []
        due = [place for place, left in enumerate(self._left) if self.missing == left and not self._sent[place]]
        for place in due:
            self._sent[place] = True
        return due
