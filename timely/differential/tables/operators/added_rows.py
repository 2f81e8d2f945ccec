"""First rows of groups to which rows are only added: no other rows are held, since none of them can come up again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

from timely.dataflow import Capability, InputPort, OperatorInfo, OutputPort, Pipeline
from timely.differential.collections import Collection
from timely.differential.operators.aggregates import Top
from timely.differential.updates.rings import INTEGERS
from timely.differential.updates.updates import Counts, Update, consolidate
from timely.errors import SchemaError, brief
from timely.memory import MemoryBudget
from timely.operators.generic import unary
from timely.operators.state_registration import ChangeLog, key_route

Counted = list[tuple[Any, int]]
"""Values with their counts."""


def first_of_groups(pairs: Collection[Any, Any], top: Top, name: str, *, grows: bool) -> Collection[Any, Any]:
    """Return the first values of each key of pairs, as ``top`` has them; if the pairs are only added, nothing else is held."""
    general = not grows or pairs.ring is not INTEGERS or MemoryBudget.current().limit is not None
    if general or not pairs.scope.subgraph.domain.total:
        return pairs._reduced(top, name, None)
    name = f"{name} of added rows"

    def constructor(capability: Capability[Any], info: OperatorInfo) -> Callable[..., object]:
        capability.drop()
        info.declare_collection()
        first: dict[Any, Counted] = {}
        route = key_route(None)
        log: ChangeLog[tuple[Any, Counted]] = ChangeLog(info, first.items, first.update, lambda item: route(item[0]))

        def changed(updates: Iterable[Update]) -> list[Update]:
            changes: list[Update] = []
            for key, counts in _by_key(updates, name).items():
                before = first.get(key, [])
                if sum(count for _, count in before) == top.k > 1:
                    last = top.key(before[-1][0])
                    counts = {value: count for value, count in counts.items() if top.key(value) < last}
                    if not counts:
                        continue
                for value, count in before:
                    counts[value] = counts.get(value, 0) + count
                after = list(top.of_counts(counts))
                if after != before:
                    first[key] = after
                    changes += consolidate(
                        [*(((key, value), count) for value, count in after), *(((key, value), -count) for value, count in before)]
                    )
                    if log.enabled:
                        log.replace(key, (key, after))
            return changes

        def logic(input: InputPort[Any, Update], output: OutputPort[Any]) -> None:
            input.forward(output, changed)

        return logic

    at_once = pairs.consolidate(name=name, key=itemgetter(0))  # the updates of a time, which come in the order of times
    return Collection(unary(at_once.stream, Pipeline, name, constructor))


def _by_key(updates: Iterable[Update], name: str) -> dict[Any, Counts]:
    by_key: dict[Any, Counts] = {}
    for (key, value), diff in updates:
        if diff < 0:
            raise SchemaError(f"{name}: {brief(value)} of {brief(key)} is taken away from rows that are append-only")
        counts = by_key.setdefault(key, {})
        counts[value] = counts.get(value, 0) + diff
    return by_key
