"""Numbers of Arrow columns as ``timely.operators.keyed.numbers`` has them: equal ones are one, NaN is the greatest, no sum wraps.

It imports NumPy, so it is imported only where there are columns. A mistake that Arrow's functions would make in silence is an
``ArrowInvalid``. ``aggregated`` adds up rows by key, for ``group_by``, views of SQL and Pregel on columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timely.operators.keyed.numbers import row_value


def canonical_column(column: Any) -> Any:
    """Return a column with one NaN and one zero; others than floats as they are."""
    kind = column.type
    if pa.types.is_float16(kind):
        return canonical_column(column.cast(pa.float32())).cast(kind)
    if not pa.types.is_floating(kind):
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(math.nan, kind), pc.add(column, pa.scalar(0.0, kind)))


def has_nan(column: Any) -> bool:
    """Return whether a column of floats has NaN. Their sum tells most often, in a third of the time."""
    if not pa.types.is_float16(column.type):
        total = pc.sum(column).as_py()
        if total is None or total == total:
            return False
    return bool(pc.any(pc.is_nan(column)).as_py())


def row_values(column: Any) -> list[Any]:
    """Return the values of a column as rows have them: NaN is one, lists and structs are tuples.

    >>> row_values(pa.array([[1, None], None]))
    [(1, None), None]
    """
    values: list[Any] = column.to_pylist()
    return list(map(row_value, values)) if pa.types.is_nested(column.type) or pa.types.is_floating(column.type) else values


def canonical_keys(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return a table in which equal keys are one."""
    for place, field in enumerate(table.schema):
        if field.name in keys and pa.types.is_floating(field.type):
            table = table.set_column(place, field, canonical_column(table.column(place)))
    return table


class Checked(NamedTuple):
    """Columns and functions in place of a column and its function, and what makes the result of theirs."""

    columns: list[tuple[Any, str]]
    finish: Callable[..., Any]


def checked(column: Any, function: str) -> Checked | None:
    """Return how to aggregate a column, or ``None`` where Arrow's function is right."""
    kind = column.type
    if function == "max" and pa.types.is_floating(kind) and has_nan(column):  # Arrow leaves NaN out
        nan = pa.scalar(math.nan, kind)
        return Checked([(column, "max"), (pc.is_nan(column), "any")], lambda most, has_nan: pc.if_else(has_nan, nan, most))
    if not (pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
        return None
    if function == "product":
        most = _most(kind) if pa.types.is_decimal(kind) else math.inf

        def fitting(products: Any, rounded: Any) -> Any:
            numbers, floats = products.cast(pa.float64(), safe=False).to_numpy(), rounded.to_numpy()
            with np.errstate(invalid="ignore"):
                wrapped = np.abs(numbers - floats) > np.abs(floats) / 4  # by 64 bits or more
            if (wrapped | (np.abs(floats) >= most)).any():
                raise pa.ArrowInvalid(f"a product is too large for {products.type}")
            return products

        return Checked([(column, "product"), (column.cast(pa.float64(), safe=False), "product")], fitting)
    if function != "sum" or _sums_fit(column):
        return None
    if pa.types.is_decimal(kind):
        wide, narrow = pa.decimal256(76, kind.scale), pa.decimal128(38, kind.scale)
        if pa.types.is_decimal256(kind):
            raise pa.ArrowInvalid(f"a sum may be too large for {wide}")
    else:
        wide, narrow = pa.decimal128(38, 0), pa.int64() if pa.types.is_signed_integer(kind) else pa.uint64()
    return Checked([(column.cast(wide), "sum")], lambda sums: sums.cast(narrow))


def _most(kind: pa.DataType) -> float:
    """Return a bound of the sums and products of a column."""
    if pa.types.is_decimal(kind):
        return float(10.0 ** ((76 if pa.types.is_decimal256(kind) else 38) - kind.scale))
    return 2.0 ** (63 if pa.types.is_signed_integer(kind) else 64)


def _sums_fit(column: Any) -> bool:
    """Return whether no sum of some of the numbers can be too large."""
    ends = [end for end in pc.min_max(column).as_py().values() if end is not None]
    return not ends or float(max(map(abs, ends))) * len(column) < _most(column.type) * (1 - 2**-40)  # rounded


Aggregate: TypeAlias = tuple[str, tuple[str, str] | None]
"""The name of a result, with its column and function; ``None`` where rows are counted."""


def aggregated(table: pa.Table, keys: Sequence[str], columns: Sequence[Aggregate], *, wrap: bool = False) -> pa.Table:
    """Return one row per key: the columns ``keys``, and the results. Without keys, one row of the whole table.

    Functions are Arrow's ``sum``, ``product``, ``min``, ``max``, ``any``, ``all`` and ``count``. ``ArrowInvalid`` for sums and
    products that are too large for 64 bits, or 38 digits, unless sums are to ``wrap``.
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
