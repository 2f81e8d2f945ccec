"""What tests force on the traces of this process, so that small runs do what large ones do; and how much traces keep."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal, TypeAlias

from timely.differential.operators import aggregates, handles, imports, reductions, trace_joins
from timely.differential.operators.aggregates import Groups
from timely.differential.trace import (
    compaction_frontier,
    cursors,
    row_lists,
    spine,
    state_memory,
    trace,
    trace_state,
)
from timely.differential.trace.object_chunk import ObjectLayout
from timely.differential.trace.spine import current_policy, merging_by
from timely.differential.trace.trace import Trace
from timely.differential.updates import containers
from timely.differential.updates.containers import columns_module
from timely.memory import MemoryBudget
from timely.operators.keyed.merge_policy import EVERYTHING, GEOMETRIC

Containers: TypeAlias = Literal["rows", "columns", "mixed"]
"""How updates are sent and kept: as rows unless there are many, as columns where they are whole numbers, or as both in turn."""


@contextmanager
def forced_compaction(force: bool = True) -> Iterator[None]:
    """Have every trace compact all of its keys at each step, so that what still needs its history is seen to fail.

    >>> from timely.testing.differential import run
    >>> with forced_compaction():
    ...     run(lambda c: c.count_by_key(), [(("a", 1), 0, 1), (("a", 2), 1, 1)])
    [(('a', 1), 0, 1), (('a', 1), 1, -1), (('a', 2), 1, 1)]
    """
    with merging_by(EVERYTHING if force else GEOMETRIC):
        yield


@contextmanager
def small_columns(many: int = 3) -> Iterator[None]:
    """Have updates become columns from ``many`` on, and other limits be small as well: small runs then do what large ones do.

    >>> from timely.differential.updates import containers
    >>> with small_columns():
    ...     containers.MANY
    3
    """
    limits: list[tuple[Any, str, int]] = [
        *((module, "MANY", many) for module in (containers, cursors, handles, imports, reductions)),
        (trace_joins, "LIMIT", 20),
        (aggregates, "SMALL", 4),
        (trace, "_LEAST_FOLD", 4),
        *((module, "EVERY", 3) for module in (compaction_frontier, row_lists)),
        (trace_state, "LEAST", 4),
        *((module, "SAVED", 3) for module in (spine, trace_state)),
    ]
    if columns_module() is not None:
        from timely.differential.trace.chunk import ColumnLayout

        limits.append((ColumnLayout, "portion", 5))
    with _limits(limits):
        yield


@contextmanager
def tiny_memory() -> Iterator[MemoryBudget]:
    """Have traces move all that they can to disk after every update, in blocks of a few entries: what large state does.

    >>> from timely.testing.differential import run
    >>> with tiny_memory() as budget:
    ...     run(lambda c: c.count_by_key(), [(("a", 1), 0, 1), (("a", 2), 1, 1)], one_by_one=True), budget.written > 0
    ([(('a', 1), 0, 1), (('a', 1), 1, -1), (('a', 2), 1, 1)], True)
    """
    limits: list[tuple[Any, str, int]] = [
        *((state_memory, "EVERY", 1), (ObjectLayout, "block_entries", 2), (ObjectLayout, "portion", 3)),
        *((reductions, "EARLY", 2), (reductions, "PORTION", 2), (trace, "_LARGEST", 3)),
    ]
    if columns_module() is not None:
        from timely.differential.trace.chunk import ColumnLayout

        limits += [(ColumnLayout, "block_entries", 3), (ColumnLayout, "portion", 7)]  # more than a block
    with _limits(limits), MemoryBudget(1) as budget:
        yield budget


@contextmanager
def _limits(limits: Sequence[tuple[Any, str, int]]) -> Iterator[None]:
    before = [(module, name, getattr(module, name)) for module, name, _ in limits]
    for module, name, limit in limits:
        setattr(module, name, limit)
    try:
        yield
    finally:
        for module, name, limit in before:
            setattr(module, name, limit)


_MANY: Final[dict[str, int]] = {"columns": 1, "mixed": 3}


@contextmanager
def conditions(compact: bool, containers: Containers) -> Iterator[None]:
    """Have traces compact all where ``compact``, and make columns as early as ``containers`` need."""
    with forced_compaction(compact or current_policy() is EVERYTHING):
        if containers == "rows":
            yield
        else:
            with small_columns(_MANY[containers]):
                yield


def updates_in_traces() -> list[int]:
    """Return how many updates each trace that is alive keeps, groups of aggregates included."""
    gc.collect()
    sizes = []
    for each in gc.get_objects():
        if isinstance(each, Trace):
            sizes.append(each.entries())
        elif isinstance(each, Groups):
            sizes.append(sum(len(bag.counts) for bags in each.bags() for bag in bags))
    return sizes
