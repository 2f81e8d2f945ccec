"""Partitioning NumPy arrays, and finding the rows of each worker. Every row goes to one worker, and rows keep their order.

It imports NumPy, so it is imported only where there are columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from timely.dataflow.containers.keys import Key, Parts, combined, route_array
from timely.errors import RoutingError

Array: TypeAlias = np.ndarray[Any, Any]

_FEW: Final = 9
"""Workers up to which searching the rows of each is cheaper than sorting all rows."""


def partition_array(batch: Array, key: Key, workers: int) -> Parts:
    """Return the parts of an array by worker: ``timely.dataflow.containers.container.partition`` for NumPy."""
    columns = _key_columns(batch, key)
    if workers == 1:
        for column in columns:
            route_array(column if column.dtype == object else column[:0])  # raises for a type that cannot be routed
        return [(0, batch)]
    numbers = [route_array(column) for column in columns]
    routes = numbers[0] if callable(key) or isinstance(key, str) else combined(numbers)
    return [(worker, _rows(batch, rows)) for worker, rows in rows_by_worker(routes, workers)]


def _rows(batch: Array, rows: Array) -> Array:
    """Return these rows of an array, in their order: the array itself if they are all of it."""
    if len(rows) == len(batch):
        return batch
    if batch.ndim == 2 and batch.flags.f_contiguous:  # column-major arrays stay so
        return batch.T.take(rows, axis=1).T
    return batch.take(rows, axis=0)


def _key_columns(batch: Array, key: Key) -> list[Array]:
    """Return the columns that ``key`` names, or the one that it computes."""
    if not callable(key):
        if batch.dtype.names is None:
            raise RoutingError(f"an array of type {batch.dtype} has no column {key!r}: give a function of the array as the key")
        columns = [batch[name] for name in checked_names(key, batch.dtype.names, "array")]
    else:
        columns = [np.asarray(key(batch))]
    for column in columns:
        if column.shape != batch.shape[:1]:
            raise RoutingError(
                "the key of an array must give one number for each of its rows, or one string: the array has shape"
                f" {batch.shape}, and its key has shape {column.shape}"
            )
    return columns


def checked_names(key: str | Sequence[str], names: Sequence[str], what: str) -> list[str]:
    """Return the columns of a key as a list; ``RoutingError`` unless there are any, each once among ``names``."""
    wanted = [key] if isinstance(key, str) else list(key)
    if not wanted:
        raise RoutingError("a key needs at least one column")
    for name in wanted:
        if names.count(name) > 1:
            raise RoutingError(f"there are {names.count(name)} columns {name!r} in the {what}: give each a name of its own")
        if name not in names:
            raise RoutingError(f"there is no column {name!r}; the {what} has {', '.join(map(repr, names))}")
    return wanted


def rows_by_worker(numbers: Array, workers: int) -> Iterator[tuple[int, Array]]:
    """Yield ``(worker, rows)`` for each worker that gets any row, given the rows' routing numbers: row numbers, ascending.

    Lazily, so that the allocator reuses the memory of one worker's row numbers for the next.
    """
    owners = owners_of(numbers, workers)
    if workers > _FEW:
        order, ends = in_order(owners)
        yield from ((worker, order[start:end]) for worker, start, end in ends)
        return
    for worker in range(workers):
        rows = (owners == worker).nonzero()[0]
        if len(rows):
            yield worker, rows


def in_order(owners: Array) -> tuple[Array, Iterable[tuple[int, int, int]]]:
    """Return the row numbers in order of their owners, and the range of each owner in it: ``(owner, start, end)``."""
    counts = np.bincount(owners)
    there = counts.nonzero()[0]
    counts = counts[there]
    ends = counts.cumsum()
    order = owners.argsort(kind="stable")  # NumPy sorts short integers by counting
    return order, zip(there.tolist(), (ends - counts).tolist(), ends.tolist(), strict=True)


def owners_of(numbers: Array, workers: int) -> Array:
    """Return the remainders, in the shortest integer type."""
    if workers & (workers - 1):
        return (numbers % workers).astype(np.uint16 if workers <= 1 << 16 else np.int64)
    if workers <= 1 << 8:
        low = numbers & 0xFF if numbers.dtype == object else numbers
        return low.astype(np.uint8) & np.uint8(workers - 1)  # the bits cut off are a multiple of 256
    return (numbers & (workers - 1)).astype(np.int64)
