"""Concatenates small columnar containers of one time before they are partitioned among workers.

Partitioning a container by a column costs some tens of microseconds, however few rows it has; a row costs nanoseconds. Rows keep
their order and type. Small parts of lists are batched when they leave (:mod:`timely.worker.batching`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

SMALL: Final = 2048
"""Containers of fewer records than this are concatenated."""

ENOUGH: Final = 8192
"""The most records in a concatenation."""

BYTES: Final = 1 << 20
"""The most bytes in a concatenation: beyond, copying costs more than it saves."""


def compatible(first: Any, second: Any) -> bool:
    """Return whether two containers are columnar, of one type, and with the same columns."""
    kind = type(first)
    return type(second) is kind and _test_for(kind)(first, second)  # type: ignore[arg-type]  # a type is hashable


def narrow(container: Any) -> bool:
    """Return whether ``ENOUGH`` records like these fit into ``BYTES``, whatever their values.

    Then the bytes of each batch need not be counted, which takes Arrow some microseconds.
    """
    if hasattr(container, "schema"):
        return _narrow_batch(container)
    return bool(container.dtype.itemsize * ENOUGH <= BYTES)


def _narrow_batch(batch: pa.RecordBatch) -> bool:
    import pyarrow as pa

    kinds = batch.schema.types
    if any(map(pa.types.is_dictionary, kinds)):
        return False  # the dictionary may be large
    try:
        bits = sum(kind.bit_width + 1 for kind in kinds)  # one bit says whether the value is there
    except ValueError:  # a type of variable width
        return False
    return bool(bits * ENOUGH <= 8 * BYTES)


def concatenated(containers: Sequence[Any]) -> Sequence[Any]:
    """Return compatible containers as one, or as they are where Arrow cannot unify their dictionaries."""
    if len(containers) < 2:
        return containers
    return _concatenated_batches(containers) if hasattr(containers[0], "schema") else [_concatenated_arrays(containers)]


def _concatenated_batches(batches: Sequence[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
    import pyarrow as pa

    if any("ordered=1" in str(kind) for kind in batches[0].schema.types):  # the text shows it at any depth
        return batches  # no order of all values follows from the orders of the dictionaries
    try:
        return list(pa.Table.from_batches(batches).combine_chunks().to_batches())
    except pa.ArrowException:
        return batches


def _concatenated_arrays(arrays: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    import numpy as np

    whole = np.empty(sum(map(len, arrays)), arrays[0].dtype)  # without it, NumPy would change the byte order
    return np.concatenate(arrays, out=whole)


@lru_cache
def _test_for(kind: type) -> Callable[[Any, Any], bool]:
    name = f"{kind.__module__}.{kind.__name__}"
    return {"pyarrow.lib.RecordBatch": _compatible_batches, "numpy.ndarray": _compatible_arrays}.get(name, _never)


def _compatible_batches(first: pa.RecordBatch, second: pa.RecordBatch) -> bool:
    return bool(first.num_columns and (first is second or first.schema.equals(second.schema, check_metadata=True)))


def _compatible_arrays(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> bool:
    return first.dtype == second.dtype and first.ndim == second.ndim == 1


def _never(first: Any, second: Any) -> bool:
    return False
