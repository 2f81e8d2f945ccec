"""The sequential reference: what a dataflow computes, without workers, frontiers or batches.

It takes each operator in turn and all the records of each time together, goes through a loop round by round, and round a cycle
time by time. Its answers are right for every type of times that obeys the laws.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from timely.order import linear_extension
from timely.progress import refinement
from timely.testing.random_dataflows.operator_specs import (
    MODULUS,
    Advance,
    Concat,
    Cycle,
    Distinct,
    Input,
    Loop,
    Operator,
    Repeat,
    Scoped,
    Shuffle,
    Simple,
    Total,
    record_wise,
)

Contents: TypeAlias = dict[Any, Counter[int]]
"""What a stream carries: for each time, how often each record."""

LONGEST_CYCLE = MODULUS.bit_length()
"""How often what is halved on a cycle goes round at most."""


def interpret(operators: Sequence[Operator], time: Any, entered: Sequence[Contents], sent: dict[int, Contents]) -> list[Contents]:
    """Return what each stream carries in a scope with times of type ``time``, first those that were there before.

    >>> interpret((Input(), Total(0)), int, [], {0: {3: Counter([1, 2, 2])}})[1]
    {3: Counter({5: 1})}
    """
    streams = list(entered)
    for operator in operators:
        if isinstance(operator, Input):
            streams.append(sent.get(len(streams), {}))
        elif isinstance(operator, Concat):
            streams.append(_together(streams[source] for source in operator.sources))
        else:
            streams.append(_derived(operator, time, streams[operator.source]))
    return streams


def _derived(operator: Simple | Advance | Cycle | Loop | Scoped, time: Any, entering: Contents) -> Contents:
    """Return what an operator makes of one stream."""
    if isinstance(operator, Advance):
        return _moved(entering, operator.summary.results_in)
    if isinstance(operator, Cycle):
        return _halved(operator, entering)
    if isinstance(operator, Loop):
        return _rounds(operator, time, entering)
    if isinstance(operator, Scoped):
        into = refinement(time, operator.time)
        inside = interpret(operator.body, operator.time, [_moved(entering, into.to_inner)], {})
        return _moved(inside[-1], into.to_outer)
    return {time: _made(operator, records) for time, records in entering.items()}


def _together(streams: Iterable[Contents]) -> Contents:
    union: Contents = {}
    for stream in streams:
        for time, records in stream.items():
            union.setdefault(time, Counter()).update(records)
    return union


def _moved(contents: Contents, move: Callable[[Any], Any]) -> Contents:
    """Return the contents at the times that ``move`` makes of theirs; what it makes None of is gone."""
    arrivals = [(move(time), records) for time, records in contents.items()]
    return _together({time: records} for time, records in arrivals if time is not None)


def _halved(cycle: Cycle, entering: Contents) -> Contents:
    """Go round a cycle: a minimal time of those that are left is complete, as whatever comes round comes later."""
    waiting, halved = _together([entering]), Contents()
    while waiting:
        time = linear_extension(waiting)[0]
        totals = _made(Total(0), waiting.pop(time))
        halved[time] = totals
        later = cycle.summary.results_in(time)
        if later is not None:
            waiting = _together([waiting, {later: Counter(total // 2 for total in totals if total > 1)}])
            waiting = {time: records for time, records in waiting.items() if records}
    return halved


def _rounds(loop: Loop, time: Any, entering: Contents) -> Contents:
    rounds: list[Contents] = []
    for _ in range(loop.rounds + 1):
        entering = interpret(loop.body, time, [entering], {})[-1]
        rounds.append(entering)
    return _together(rounds)


def _made(operator: Simple, records: Counter[int]) -> Counter[int]:
    """Return what an operator makes of all the records of a time."""
    if isinstance(operator, Shuffle):
        return records
    if isinstance(operator, Distinct):
        return Counter(dict.fromkeys(+records, 1))
    if isinstance(operator, Total):
        present = list(records.elements())
        return Counter([sum(present) % MODULUS] if present else [])
    return Counter(made for record in records.elements() for made in record_wise(operator, record))


def at_most(operators: Sequence[Operator], entering: Sequence[int], sent: Sequence[int]) -> tuple[list[int], int]:
    """Return how many records each stream can have, given those that enter, and how many all of them are, loops unrolled.

    >>> at_most((Input(), Loop(0, (Repeat(0, 2),), 1)), [], [3, 0])
    ([3, 18], 39)
    """
    sizes, work = list(entering), 0
    for place, operator in enumerate(operators):
        cost = 0
        if isinstance(operator, Input):
            made = sent[place]
        elif isinstance(operator, Concat):
            made = sum(sizes[source] for source in operator.sources)
        elif isinstance(operator, Loop):
            made, going = 0, sizes[operator.source]
            for _ in range(operator.rounds + 1):
                inside, once = at_most(operator.body, [going], [])
                going = inside[-1]
                made += going
                cost += once
        elif isinstance(operator, Scoped):
            inside, cost = at_most(operator.body, [sizes[operator.source]], [])
            made = inside[-1]
        else:
            made = sizes[operator.source] * _factor(operator)
        sizes.append(made)
        work += made + cost
    return sizes, work


def _factor(operator: Simple | Advance | Cycle) -> int:
    if isinstance(operator, Cycle):
        return LONGEST_CYCLE
    return operator.count if isinstance(operator, Repeat) else 1
