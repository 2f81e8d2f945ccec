"""Joining: small columnar containers of one time become one, before they are dealt to workers.

To deal a container by a column costs some tens of microseconds, however few rows are in it, and so does each part on its way; a
row costs nanoseconds. And a container that is dealt to many is small on each, so that without this they would be smaller after
every exchange. The invariant: rows keep their order and their type, and what is joined was alike, so that nothing but the number
of containers can be seen to change. Only Arrow batches and arrays are joined here: a list is dealt record by record in any case,
and those parts are joined that leave (:mod:`timely.worker.batching`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

SMALL: Final = 2048
"""Containers of fewer records than this are joined."""

ENOUGH: Final = 8192
"""Records that are joined at most."""

BYTES: Final = 1 << 20
"""Bytes that are joined at most: what is copied should not take longer than what it saves, nor much memory wait for it."""

Compatible: TypeAlias = Callable[[Any, Any], bool]
"""Whether two containers can be joined."""


def alike(first: Any, second: Any) -> bool:
    """Return whether two containers are columnar, of the same type, and have the same columns, so that they can be joined.

    >>> import numpy as np, pyarrow as pa
    >>> alike(np.arange(3), np.arange(2)), alike(np.arange(3), np.zeros(2)), alike([1], [2])
    (True, False, False)
    >>> alike(pa.record_batch({"x": [1]}), pa.record_batch({"x": [2]})), alike(pa.record_batch({"x": [1]}), np.arange(1))
    (True, False)
    """
    kind = type(first)
    return type(second) is kind and _likeness(kind)(first, second)  # type: ignore[arg-type]  # a type is hashable


def narrow(container: Any) -> bool:
    """Return whether as many records like these as are joined at most have no more than ``BYTES``, whatever is in them.

    Then nobody need ask how many bytes there are, which Arrow takes some microseconds to say of each batch.

    >>> import numpy as np, pyarrow as pa
    >>> narrow(np.zeros(3)), narrow(pa.record_batch({"x": [1], "y": [0.5]})), narrow(pa.record_batch({"x": ["of any length"]}))
    (True, True, False)
    """
    if hasattr(container, "schema"):
        return _narrow_batch(container)
    return bool(container.dtype.itemsize * ENOUGH <= BYTES)


def _narrow_batch(batch: pa.RecordBatch) -> bool:
    import pyarrow as pa

    kinds = batch.schema.types
    if any(map(pa.types.is_dictionary, kinds)):
        return False  # it is the dictionary that may be large
    try:
        bits = sum(kind.bit_width + 1 for kind in kinds)  # one says whether the value is there
    except ValueError:  # values of one type have different widths
        return False
    return bool(bits * ENOUGH <= 8 * BYTES)


def joined(containers: Sequence[Any]) -> Sequence[Any]:
    """Return the one container that these make, which are alike, or else them, as Arrow cannot make one dictionary of any two.

    >>> import numpy as np, pyarrow as pa
    >>> [array.tolist() for array in joined([np.arange(2), np.arange(3)])]
    [[0, 1, 0, 1, 2]]
    >>> [batch.to_pydict() for batch in joined([pa.record_batch({"x": [1]}), pa.record_batch({"x": [2, 3]})])]
    [{'x': [1, 2, 3]}]
    """
    if len(containers) < 2:
        return containers
    return _joined_batches(containers) if hasattr(containers[0], "schema") else [_joined_arrays(containers)]


def _joined_batches(batches: Sequence[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
    import pyarrow as pa

    if any("ordered=1" in str(kind) for kind in batches[0].schema.types):  # so it is written, however deep it is
        return batches  # an order that is more than each of theirs could only be made up
    try:
        return list(pa.Table.from_batches(batches).combine_chunks().to_batches())
    except pa.ArrowException:
        return batches


def _joined_arrays(arrays: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    import numpy as np

    whole = np.empty(sum(map(len, arrays)), arrays[0].dtype)  # left to itself, NumPy takes this machine's order of bytes
    return np.concatenate(arrays, out=whole)


@lru_cache
def _likeness(kind: type) -> Compatible:
    name = f"{kind.__module__}.{kind.__name__}"
    return {"pyarrow.lib.RecordBatch": _alike_batches, "numpy.ndarray": _alike_arrays}.get(name, _never)


def _alike_batches(first: pa.RecordBatch, second: pa.RecordBatch) -> bool:
    return bool(first.num_columns and (first is second or first.schema.equals(second.schema, check_metadata=True)))


def _alike_arrays(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> bool:
    return first.dtype == second.dtype and first.ndim == second.ndim == 1


def _never(first: Any, second: Any) -> bool:
    return False
