"""Workers that tell each other of progress, at one moment: who holds what, what is under way, what each of them believes.

An :class:`ExchangeState` is a value, equal to others by what is in it, so that a search can tell where it has been. The
invariant: it holds all of a run's past that matters to what may happen next and to what must hold, the conclusions that workers
have ever drawn included. A caller goes from state to state by decisions (:class:`Do`, :class:`Flush`, :class:`Deliver`) and
:class:`timely.testing.ExchangeRules`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import attrs

from timely.progress import ProgressBatch, ProgressExchange
from timely.testing.code import Described
from timely.testing.oracles import Change, Pointstamp

Statement: TypeAlias = tuple[Change, ...]
"""What one activation did, atomically: ``(place, time, by how much its count changed)``."""

Bag: TypeAlias = frozenset[tuple[Pointstamp, int]]
"""Counts that are not zero."""

Ground: TypeAlias = frozenset[Pointstamp]
"""The minimal pointstamps of a bag: only what one of them could result in can still happen, as far as the bag knows."""

Batch: TypeAlias = ProgressBatch[Pointstamp]
Queue: TypeAlias = tuple[Batch, ...]

EMPTY: Bag = frozenset()


def plus(bag: Bag, updates: Iterable[tuple[Pointstamp, int]]) -> Bag:
    """Return the counts of a bag after some changes.

    >>> from timely.progress import Source
    >>> dict(plus(EMPTY, [((Source(0, 0), 3), +2), ((Source(0, 0), 3), -1)]))
    {(Source(0, 0), 3): 1}
    """
    counts = dict(bag)
    for pointstamp, diff in updates:
        counts[pointstamp] = counts.get(pointstamp, 0) + diff
    return frozenset(item for item in counts.items() if item[1])


def minus(bag: Bag, other: Bag) -> Bag:
    """Return by how much the counts of one bag are above those of another.

    >>> from timely.progress import Source
    >>> minus(EMPTY, frozenset({((Source(0, 0), 3), 1)}))
    frozenset({((Source(0, 0), 3), -1)})
    """
    return plus(bag, ((pointstamp, -count) for pointstamp, count in other))


def replaced(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    """Return ``values`` with another one at a place.

    >>> replaced(("a", "b"), 1, "c")
    ('a', 'c')
    """
    return (*values[:place], value, *values[place + 1 :])


@attrs.frozen(repr=False)
class Do(Described):
    """The decision that a worker does something: one atomic statement.

    >>> from timely.progress import Source
    >>> Do(0, ((Source(0, 0), 3, -1),)).worker
    0
    """

    worker: int
    statement: Statement


@attrs.frozen(repr=False)
class Flush(Described):
    """The decision that a worker tells the others what it has done since it last did.

    >>> Flush(1)
    Flush(1)
    """

    worker: int


@attrs.frozen(repr=False)
class Deliver(Described):
    """The decision that a worker hears a batch of another one; ``which`` of those that the rules allow (FIFO: the oldest).

    >>> Deliver(0, 1)
    Deliver(0, 1)
    """

    sender: int
    receiver: int
    which: int = 0


Decision: TypeAlias = Do | Flush | Deliver


@attrs.frozen(cache_hash=True)
class ExchangeState:
    """All there is at one moment: an immutable value, equal to others by what is in it.

    ``held[w]`` are the capabilities (and the messages of local edges) of worker ``w``, ``messages`` those in flight,
    ``unsaid[w]`` what it did since its last batch, ``queues[s * workers + r]`` the batches on their way from ``s`` to ``r``,
    ``views[w]`` what it counts, and ``exchanges[w]`` its end of the protocol, which is a function of the rest and of how many
    batches it ``sent``. ``concluded[w]`` says what it ever took for all that could still happen, by the grounds of its views;
    grounds that follow from others are left out, so that where no frontier goes back there is but the latest.

    >>> from timely.progress import Source
    >>> from timely.testing import ExchangeRules, GraphSpec, NodeSpec
    >>> state = ExchangeRules(GraphSpec(int, (NodeSpec(0, 1, {}, ()),), ()), workers=2).initial()
    >>> dict(state.truth()), state.concluded[1]
    ({(Source(0, 0), 0): 2}, frozenset({frozenset({(Source(0, 0), 0)})}))
    """

    held: tuple[Bag, ...]
    messages: Bag
    unsaid: tuple[Bag, ...]
    queues: tuple[Queue, ...]
    views: tuple[Bag, ...]
    sent: tuple[int, ...]
    concluded: tuple[frozenset[Ground], ...]
    exchanges: tuple[ProgressExchange[Pointstamp], ...] = attrs.field(eq=False, repr=False)

    def truth(self) -> Bag:
        """Return the true counts of all pointstamps.

        >>> from timely.testing import ExchangeRules, GraphSpec
        >>> ExchangeRules(GraphSpec(int, (), ()), workers=2).initial().truth()
        frozenset()
        """
        found = self.messages
        for held in self.held:
            found = plus(found, held)
        return found

    def coming(self, sender: int, receiver: int, workers: int) -> list[Bag]:
        """Return what ``receiver`` has still to hear from ``sender``: what was not said yet, and with ever older batches.

        >>> from timely.testing import ExchangeRules, GraphSpec
        >>> ExchangeRules(GraphSpec(int, (), ()), workers=2).initial().coming(0, 1, 2)
        [frozenset()]
        """
        found = [self.unsaid[sender]]
        for batch in reversed(self.queues[sender * workers + receiver]):
            found.append(plus(found[-1], batch.updates))
        return found
