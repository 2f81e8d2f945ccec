"""``aggregated``: the rows of an Arrow table added up by key, as ``group_by``, views of SQL and Pregel on columns need them.

It imports NumPy, so it is imported only where there are columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from timely.operators.keyed.column_numbers import canonical_keys, checked

Aggregate: TypeAlias = tuple[str, tuple[str, str] | None]
"""The name of a result, with its column and function; ``None`` where rows are counted."""


def aggregated(table: pa.Table, keys: Sequence[str], columns: Sequence[Aggregate], *, wrap: bool = False) -> pa.Table:
    """Return one row per key: the columns ``keys``, and the results. Without keys, one row of the whole table.

    Functions are Arrow's ``sum``, ``product``, ``min``, ``max``, ``any``, ``all`` and ``count``. ``ArrowInvalid`` for sums and
    products that are too large for 64 bits, or 38 digits, unless sums are to ``wrap``.

    >>> table = pa.table({"k": [7, 5, 7], "v": [1, 2, None]})
    >>> aggregated(table, ["k"], [("n", None), ("total", ("v", "sum"))]).to_pylist()
    [{'k': 7, 'n': 2, 'total': 1}, {'k': 5, 'n': 1, 'total': 2}]
    >>> aggregated(table, [], [("n", ("v", "count"))]).to_pylist()
    [{'n': 2}]
    """
    table = canonical_keys(table, keys)
    checks = {}
    for name, source in columns:
        check = None if source is None or wrap else checked(table.column(source[0]), source[1])
        if check is not None:
            checks[name] = check
    if len(keys) == 1 and not checks:
        by_runs = _sorted_groups(table, keys[0], columns)
        if by_runs is not None:
            return by_runs
    prefix = "hash_" if keys else ""
    wanted: list[Any] = []
    for name, source in columns:
        if source is None:
            wanted.append(([], f"{prefix}count_all", None, name))
        elif name not in checks:
            wanted.append(([source[0]], f"{prefix}{source[1]}", None, name))
        else:
            for part, (column, function) in zip(_parts(name), checks[name].columns, strict=False):
                table = table.append_column(part, column)
                wanted.append(([part], f"{prefix}{function}", None, part))
    plans = _plans()
    steps = [
        plans.Declaration("table_source", plans.TableSourceNodeOptions(table)),
        plans.Declaration("aggregate", plans.AggregateNodeOptions(wanted, keys=keys)),
    ]
    grouped: pa.Table = plans.Declaration.from_sequence(steps).to_table(use_threads=False)
    for name, check in checks.items():
        parts = [grouped.column(part) for part, _ in zip(_parts(name), check.columns, strict=False)]
        grouped = grouped.append_column(name, check.finish(*parts))
    return grouped.select([*keys, *(name for name, _ in columns)])


def _parts(name: str) -> tuple[str, str]:
    """Return names for what a checked result is made of, which no column has."""
    return f"\0{name}", f"\0\0{name}"


def _plans() -> Any:
    """Return the module of Arrow's execution plans; ``pyarrow.acero`` imports datasets and pandas first: 20 to 240 ms."""
    try:
        import pyarrow._acero as plans
    except ImportError:
        import pyarrow.acero as plans
    return plans


# -- rows that are sorted by their key, as windows of time mostly are ---------------------------------------------------

_REDUCED: Final = {"sum": np.add, "min": np.minimum, "max": np.maximum}


def _sorted_groups(table: pa.Table, key: str, columns: Sequence[Aggregate]) -> pa.Table | None:
    """Return the results in one pass without a hash table; ``None`` for other rows, missing values and other functions.

    A million groups take 14 ms, and by a hash table 100.
    """
    keys = table.column(key)
    if not len(table) or not _plain(keys, pa.types.is_integer, pa.types.is_timestamp):
        return None
    if not all(source is None or _reduces(table.column(source[0]), source[1]) for _, source in columns):
        return None
    keys = keys.combine_chunks()  # into Arrow's memory, which stays mapped: NumPy's faults in pages anew
    numbers = keys.to_numpy()
    first = np.ones(len(numbers), bool)
    np.greater(numbers[1:], numbers[:-1], out=first[1:])
    apart = bool(first.all())  # each row is a group, as in results of one worker that are brought together
    if not apart and (numbers[1:] < numbers[:-1]).any():
        return None
    starts = np.zeros(0, np.int64) if apart else np.flatnonzero(first)
    results: dict[str, Any] = {key: keys if apart else pa.array(numbers[starts], keys.type)}
    for name, source in columns:
        if source is None or source[1] == "count":
            results[name] = pa.repeat(1, len(numbers)) if apart else np.append(starts[1:], len(numbers)) - starts
            continue
        values = table.column(source[0]).combine_chunks().to_numpy()
        if source[1] == "sum":
            values = values.astype(f"{values.dtype.kind}8", copy=False)  # as Arrow: 64 bits
        with np.errstate(over="ignore", invalid="ignore"):  # a sum of floats may be infinite
            results[name] = values if apart else _REDUCED[source[1]].reduceat(values, starts)
    return pa.table(results)


def _plain(column: pa.ChunkedArray, *kinds: Any) -> bool:
    return not column.null_count and any(is_kind(column.type) for is_kind in kinds)


def _reduces(column: pa.ChunkedArray, function: str) -> bool:
    if function in ("min", "max"):  # of fractions Arrow has its own order, with NaN
        return _plain(column, pa.types.is_integer)
    return function in ("sum", "count") and _plain(column, pa.types.is_integer, pa.types.is_float32, pa.types.is_float64)
