"""What tests force on the traces of this process, so that small runs do what large ones do; and how much traces keep."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal, TypeAlias

import attrs

from timely.differential.operators.reduce_inputs import Groups
from timely.differential.trace.trace import Trace
from timely.differential.trace.trace_limits import ChunkSizes, TraceLimits
from timely.memory import MemoryBudget
from timely.operators.keyed.merge_policy import EVERYTHING

Containers: TypeAlias = Literal["rows", "columns", "mixed", "arrow"]
"""How updates are sent and kept: as rows unless there are many, as columns where they are whole numbers, or as both in turn.

With ``arrow`` pairs of a whole number and a tuple are sent as Arrow rows.
"""


@contextmanager
def forced_compaction(force: bool = True) -> Iterator[None]:
    """Have every trace compact all of its keys at each step, so that what still needs its history is seen to fail.

    >>> from timely.testing.differential import run
    >>> with forced_compaction():
    ...     run(lambda c: c.count_by_key(), [(("a", 1), 0, 1), (("a", 2), 1, 1)])
    [(('a', 1), 0, 1), (('a', 1), 1, -1), (('a', 2), 1, 1)]
    """
    usual = TraceLimits.current()
    with attrs.evolve(usual, policy=EVERYTHING, patience=0) if force else usual:
        yield


@contextmanager
def small_columns(many: int = 3) -> Iterator[None]:
    """Have updates become columns from ``many`` on, and other limits be small as well: small runs then do what large ones do.

    >>> from timely.differential.trace.trace_limits import TraceLimits
    >>> with small_columns():
    ...     TraceLimits.current().columns
    3
    """
    limits = TraceLimits.current()
    sizes = ChunkSizes(5, limits.int_chunks.block, 9)
    patience = min(limits.patience, 3)
    with attrs.evolve(
        limits,
        columns=many,
        patience=patience,
        joined=20,
        group=4,
        folded=4,
        logged=4,
        saved=3,
        int_chunks=sizes,
        row_chunks=sizes,
    ):
        yield


@contextmanager
def tiny_memory() -> Iterator[MemoryBudget]:
    """Have traces move all that they can to disk after every update, in blocks of a few entries: what large state does.

    >>> from timely.testing.differential import run
    >>> with tiny_memory() as budget:
    ...     run(lambda c: c.count_by_key(), [(("a", 1), 0, 1), (("a", 2), 1, 1)], one_by_one=True), budget.written > 0
    ([(('a', 1), 0, 1), (('a', 1), 1, -1), (('a', 2), 1, 1)], True)
    """
    columns, objects = ChunkSizes(7, 3, 9), ChunkSizes(3, 2, 5)  # portions are more than a block
    limits = attrs.evolve(TraceLimits.current(), counted=1, delta=2, reduced=2)
    limits = attrs.evolve(limits, int_chunks=columns, row_chunks=columns, object_chunks=objects)
    with limits, MemoryBudget(1) as budget:
        yield budget


_MANY: Final[dict[str, int]] = {"columns": 1, "mixed": 3, "arrow": 1}


@contextmanager
def conditions(compact: bool, containers: Containers) -> Iterator[None]:
    """Have traces compact all where ``compact``, and make columns as early as ``containers`` need."""
    with forced_compaction(compact):
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
