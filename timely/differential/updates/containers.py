"""Rows or columns: large containers of updates of whole numbers become columns, where NumPy is installed."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import chain
from types import ModuleType
from typing import Any

from timely.differential.updates.updates import Container, consolidate


@functools.cache
def columns_module() -> ModuleType | None:
    """Return the module for columns, or ``None`` where NumPy is not installed."""
    try:
        from timely.differential.updates import int_columns as columns
    except ImportError:
        return None
    return columns


def is_columns(batch: Container) -> bool:
    """Return whether a container has its updates as columns.

    >>> is_columns([("a", 1)])
    False
    """
    return not isinstance(batch, list) and hasattr(batch, "diffs")


def is_keyed_rows(batch: Container) -> bool:
    """Return whether a container has pairs of a whole number and a row, the rows as columns.

    >>> is_keyed_rows([((1, ("a",)), 1)])
    False
    """
    return not isinstance(batch, list) and hasattr(batch, "table")


def as_columns(batches: Sequence[Any], pairs: bool, many: int) -> Any:
    """Return containers of updates as one of columns, where they have so ``many`` updates, all whole numbers, else ``None``.

    >>> as_columns([[("a", 1)]], pairs=False, many=1) is None
    True
    """
    if sum(map(len, batches)) < many:
        return None
    columns = columns_module()
    return None if columns is None else columns.as_columns(batches, pairs)


def consolidated(batches: Sequence[Container]) -> Container:
    """Return containers of updates as one with each record once: columns, where all are columns of one kind.

    >>> consolidated([[("a", 1), ("b", 1)], [("a", 2), ("b", -1)]])
    [('a', 3)]
    """
    columns = columns_module() if all(map(is_columns, batches)) else None
    if columns is None or len({batch.values is None for batch in batches}) != 1:
        return consolidate(chain.from_iterable(batches))
    updates = columns.joined(batches).consolidated()
    return list(updates) if columns.greatest_of(updates.counts()) >= columns.LARGE else updates
