"""Numbers of Arrow columns as ``timely.operators.keyed.numbers`` has them: equal ones are one, NaN is the greatest, no sum wraps.

It imports NumPy, so it is imported only where there are columns. A mistake that Arrow's functions would make in silence is an
``ArrowInvalid``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def canonical_column(column: Any) -> Any:
    """Return a column with one NaN and one zero; others than floats as they are.

    >>> canonical_column(pa.array([-0.0, 1.5])).to_pylist()
    [0.0, 1.5]
    """
    kind = column.type
    if pa.types.is_float16(kind):
        return canonical_column(column.cast(pa.float32())).cast(kind)
    if not pa.types.is_floating(kind):
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(math.nan, kind), pc.add(column, pa.scalar(0.0, kind)))


def has_nan(column: Any) -> bool:
    """Return whether a column of floats has NaN. Their sum tells most often, in a third of the time.

    >>> has_nan(pa.array([1.0, math.inf])), has_nan(pa.array([math.inf, -math.inf])), has_nan(pa.array([math.nan, None]))
    (False, False, True)
    """
    if not pa.types.is_float16(column.type):
        total = pc.sum(column).as_py()
        if total is None or total == total:
            return False
    return bool(pc.any(pc.is_nan(column)).as_py())


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
