"""The operators that random dataflows are made of, as data.

Each reads streams that were made before it, named by their places, and says in one sentence what it makes of the records of a
time. The invariant: that depends on these records alone, in whatever order and batches they come, so that every schedule must
give the same. Records are whole numbers below ``MODULUS``.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import attrs

from timely.testing.random_dataflows.described import Described

MODULUS = 101
"""Records are numbers below it."""


@attrs.frozen(repr=False)
class Input(Described):
    """A stream of what is sent from outside.

    >>> from timely.testing.random_dataflows import Dataflow, Sending
    >>> Dataflow((Input(),), (Sending(0, 0, 3, (7, 5)),)).run()
    [{3: [5, 7]}]
    """


@attrs.frozen(repr=False)
class Map(Described):
    """``x`` becomes ``factor * x + shift``, modulo ``MODULUS``.

    >>> from timely.testing.random_dataflows import Dataflow, Sending
    >>> Dataflow((Input(), Map(0, 2, 1)), (Sending(0, 0, 0, (3, 50)),)).run()[1]
    {0: [0, 7]}
    """

    source: int
    factor: int = 1
    shift: int = 0


@attrs.frozen(repr=False)
class Filter(Described):
    """Only what ``divisor`` does not divide goes through.

    >>> from timely.testing.random_dataflows import Dataflow, Sending
    >>> Dataflow((Input(), Filter(0, 3)), (Sending(0, 0, 0, (2, 3, 4)),)).run()[1]
    {0: [2, 4]}
    """

    source: int
    divisor: int = 2


@attrs.frozen(repr=False)
class Repeat(Described):
    """Each record goes through as it is, and ``count - 1`` successors of it as well (a ``flat_map``).

    >>> from timely.testing.random_dataflows import Dataflow, Sending
    >>> Dataflow((Input(), Repeat(0, 3)), (Sending(0, 0, 0, (7,)),)).run()[1]
    {0: [7, 8, 9]}
    """

    source: int
    count: int = 2


@attrs.frozen(repr=False)
class Shuffle(Described):
    """Each record goes to a worker that depends on it (an ``exchange``).

    >>> from timely.testing.random_dataflows import Dataflow, Sending
    >>> Dataflow((Input(), Shuffle(0)), (Sending(0, 0, 0, (7, 8)),)).run(workers=2)[1]
    {0: [7, 8]}
    """

    source: int
    factor: int = 1


@attrs.frozen(repr=False)
class Concat(Described):
    """All that several streams carry.

    >>> from timely.testing.random_dataflows import Dataflow, Sending
    >>> Dataflow((Input(), Concat((0, 0))), (Sending(0, 0, 0, (7,)),)).run()[1]
    {0: [7, 7]}
    """

    sources: tuple[int, ...]


@attrs.frozen(repr=False)
class Distinct(Described):
    """Each record once for each time, as soon as it comes: an operator with state that is kept by time.

    >>> from timely.testing.random_dataflows import Dataflow, Sending
    >>> Dataflow((Input(), Distinct(0)), (Sending(0, 0, 0, (7, 7)), Sending(0, 1, 1, (7,)))).run(workers=2)[1]
    {0: [7], 1: [7]}
    """

    source: int


@attrs.frozen(repr=False)
class Total(Described):
    """The sum of each time's records, modulo ``MODULUS``, as soon as the time is complete: an operator that is notified.

    >>> from timely.testing.random_dataflows import Dataflow, Sending
    >>> Dataflow((Input(), Total(0)), (Sending(0, 0, 0, (1, 2)), Sending(0, 1, 0, (3,)))).run(workers=2)[1]
    {0: [6]}
    """

    source: int


@attrs.frozen(repr=False)
class Advance(Described):
    """All that comes moves along a path: from its time to what ``summary`` makes of that, and nowhere if that is None.

    >>> from timely import Step
    >>> from timely.testing.random_dataflows import Dataflow, Sending
    >>> Dataflow((Input(), Advance(0, Step(2, limit=6))), (Sending(0, 0, 3, (7,)), Sending(0, 0, 5, (8,)))).run()[1]
    {5: [7]}
    """

    source: int
    summary: Any


@attrs.frozen(repr=False)
class Cycle(Described):
    """The sum of each time's records; and half of it goes round, at a time that is later by ``summary``, as long as there is any.

    A cycle in the scope's own times, with an operator on it that is notified: it gives a sum too early if a frontier passes too
    early, and none if one never passes.

    >>> from timely import Step
    >>> from timely.testing.random_dataflows import Dataflow, Sending
    >>> Dataflow((Input(), Cycle(0, Step(1))), (Sending(0, 0, 0, (4, 4)), Sending(0, 1, 1, (1,)))).run(workers=2)[1]
    {0: [8], 1: [5], 2: [2], 3: [1]}
    """

    source: int
    summary: Any


@attrs.frozen(repr=False)
class Loop(Described):
    """A loop: stream 0 in ``body`` is ``source`` and what comes round; its last stream goes round ``rounds`` times, and out.

    >>> from timely.testing.random_dataflows import Dataflow, Sending
    >>> Dataflow((Input(), Loop(0, (Map(0, 2),), 2)), (Sending(0, 0, 0, (3,)),)).run()[1]
    {0: [6, 12, 24]}
    """

    source: int
    body: tuple[Operator, ...]
    rounds: int = 1


@attrs.frozen(repr=False)
class Scoped(Described):
    """A scope whose times, of type ``time``, refine those around: stream 0 in ``body`` is what enters, the last one leaves.

    Not for the body of a :class:`Loop`, whose times are pairs.

    >>> from timely import Product, ProductSummary, Step
    >>> from timely.testing.random_dataflows import Dataflow, Sending
    >>> inside = Scoped(0, Product[int, int], (Cycle(0, ProductSummary(Step(0), Step(1))),))
    >>> Dataflow((Input(), inside), (Sending(0, 0, 5, (3,)),)).run()[1]
    {5: [1, 3]}
    """

    source: int
    time: Any
    body: tuple[Operator, ...]


Simple: TypeAlias = Map | Filter | Repeat | Shuffle | Distinct | Total
"""What makes something of all the records of a time, at that time."""

Operator: TypeAlias = Input | Simple | Concat | Advance | Cycle | Loop | Scoped


def record_wise(operator: Map | Filter | Repeat, record: int) -> list[int]:
    """Return what an operator makes of one record.

    >>> record_wise(Repeat(0, 2), 100)
    [100, 0]
    """
    if isinstance(operator, Map):
        return [(operator.factor * record + operator.shift) % MODULUS]
    if isinstance(operator, Filter):
        return [record] if record % operator.divisor else []
    return [(record + n) % MODULUS for n in range(operator.count)]
