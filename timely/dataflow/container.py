"""Containers: what a message carries. A list of records, an Arrow record batch, a NumPy array.

A container knows how many records it has (``len``) and how to be dealt to workers by key. The invariant of routing: a key
goes to the same worker whatever the container, the process or the machine, so it never uses Python's seeded ``hash``.
Whole numbers go to the worker ``key % workers``; strings and bytes by a checksum; tuples by combining those of their parts.
Arrow and NumPy are imported only where such a container turns up.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from timely.errors import RoutingError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

Key: TypeAlias = Callable[[Any], Any] | str
"""What says where a record goes: a function of the record, or for Arrow batches the name of a column."""


def route(key: object) -> int:
    """Return the number that ``key`` is routed by: the record goes to that number modulo the number of workers.

    ``None``, which is how a missing value comes, goes where 0 goes. ``RoutingError`` for a key that is neither a whole number,
    nor a string, nor bytes, nor a tuple of such.

    >>> route(7), route(None), route("abc") == route(b"abc"), route((1, "a")) == route((1, "a"))
    (7, 0, True, True)
    """
    if isinstance(key, int):
        return int(key)
    if isinstance(key, str):
        return zlib.crc32(key.encode("utf-8", "surrogatepass"))
    if isinstance(key, bytes):
        return zlib.crc32(key)
    if isinstance(key, tuple):
        number = 17
        for part in key:
            number = (number * 1_000_003 + route(part)) & 0xFFFFFFFF
        return number
    if key is None:
        return 0
    index = getattr(type(key), "__index__", None)
    if index is not None:
        return int(index(key))
    raise RoutingError(
        f"a key must be a whole number, a string, bytes, or a tuple of such, and {key!r} is of type {type(key).__name__}"
    )


def partition(batch: Any, key: Key, workers: int) -> list[tuple[int, Any]]:
    """Deal a container to ``workers`` by ``key``: pairs ``(worker, part)``, in order of worker, no part empty.

    Records keep their order within a part. ``RoutingError`` for a key that cannot be routed or a column that is missing.

    >>> partition([3, 4, 5, 6], lambda x: x, 2)
    [(0, [4, 6]), (1, [3, 5])]
    """
    if isinstance(batch, list):
        return _partition_list(batch, key, workers)
    module = type(batch).__module__.partition(".")[0]
    if module == "pyarrow":
        return _partition_arrow(batch, key, workers)
    if module == "numpy":
        return _partition_numpy(batch, key, workers)
    raise RoutingError(f"a container of type {type(batch).__name__} cannot be exchanged: send lists, Arrow batches or arrays")


def _partition_list(batch: list[Any], key: Key, workers: int) -> list[tuple[int, Any]]:
    if isinstance(key, str):
        raise RoutingError(f"a list of records has no column {key!r}: give a function of the record as the key")
    if workers == 1:
        for record in batch:
            route(key(record))
        return [(0, batch)]
    parts: list[list[Any]] = [[] for _ in range(workers)]
    for record in batch:
        number = key(record)
        parts[(number if type(number) is int else route(number)) % workers].append(record)
    return [(worker, part) for worker, part in enumerate(parts) if part]


def _partition_arrow(batch: pa.RecordBatch, key: Key, workers: int) -> list[tuple[int, Any]]:
    if not isinstance(key, str):
        raise RoutingError("an Arrow batch is exchanged by the name of a column, not by a function of the record")
    if key not in batch.schema.names:
        raise RoutingError(f"there is no column {key!r}; the batch has {', '.join(map(repr, batch.schema.names))}")
    numbers = route_column(batch.column(key))
    if workers == 1:
        return [(0, batch)]
    return [(worker, batch.take(rows)) for worker, rows in _deal(numbers, workers)]


def _partition_numpy(batch: np.ndarray[Any, Any], key: Key, workers: int) -> list[tuple[int, Any]]:
    import numpy as np

    if isinstance(key, str):
        numbers = np.asarray(batch[key])
    else:
        numbers = np.asarray(key(batch))
    if numbers.shape != batch.shape[:1] or not np.issubdtype(numbers.dtype, np.integer):
        raise RoutingError("the key of an array must give one whole number for each of its rows")
    if workers == 1:
        return [(0, batch)]
    return [(worker, batch[rows]) for worker, rows in _deal(numbers, workers)]


def _deal(numbers: np.ndarray[Any, Any], workers: int) -> list[tuple[int, np.ndarray[Any, Any]]]:
    """Return ``(worker, rows)`` for each worker that gets any row, rows in order."""
    import numpy as np

    owners = numbers % workers
    if workers == 2:
        odd = owners != 0
        dealt: Sequence[Any] = (np.flatnonzero(~odd), np.flatnonzero(odd))
    else:
        order = np.argsort(owners, kind="stable")
        dealt = np.split(order, np.searchsorted(owners[order], np.arange(1, workers)))
    return [(worker, rows) for worker, rows in enumerate(dealt) if len(rows)]


def route_column(column: pa.Array) -> np.ndarray[Any, Any]:
    """Return the routing number of every value of an Arrow column: the same as ``route`` of the single values.

    They are int64, or uint64 for a column of that type. ``RoutingError`` for a type that cannot be routed.

    >>> import pyarrow as pa
    >>> route_column(pa.array([7, None, -1])).tolist()
    [7, 0, -1]
    >>> route_column(pa.array(["a", "b"])).tolist() == [route("a"), route("b")]
    True
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        whole = column if pa.types.is_uint64(kind) else column.cast(pa.int64())
        plain: np.ndarray[Any, Any] = (pc.fill_null(whole, 0) if column.null_count else whole).to_numpy(zero_copy_only=False)
        return plain
    if pa.types.is_dictionary(kind):
        encoded = column
    else:
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if not (text or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
            raise RoutingError(f"a column of type {kind} cannot be a key: use whole numbers, strings or bytes")
        encoded = column.dictionary_encode()
    routes = np.array([route(value) for value in encoded.dictionary.to_pylist()] or [0], dtype=np.int64)
    indices = encoded.indices
    numbers: np.ndarray[Any, Any] = routes[pc.fill_null(indices, 0).to_numpy(zero_copy_only=False)]
    if indices.null_count:
        numbers[pc.is_null(indices).to_numpy(zero_copy_only=False)] = 0
    return numbers
