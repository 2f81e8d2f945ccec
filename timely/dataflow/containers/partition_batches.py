"""Partitioning Arrow record batches by the columns of a key. Rows keep their order, and each part has the schema of the batch.

It imports Arrow, so it is imported only where there are batches.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timely.dataflow.containers.keys import Key, Parts, combined, route_column
from timely.dataflow.containers.partition_arrays import Array, checked_names, in_order, owners_of, rows_by_worker
from timely.errors import RoutingError

_TAKE: Final = pc.get_function("take")
_UNCHECKED: Final = pc.TakeOptions(boundscheck=False)
"""``pyarrow.compute.take`` looks the function and its options up for every batch, which costs as much as a small batch itself."""

_SMALL: Final = 2_000
"""Rows for each worker but two up to which sorting costs less than one call of Arrow's for each worker."""

_MOST: Final = 1 << 14
"""Rows up to which parts may be slices of one batch, which lives as long as any of them."""

_ROW_NUMBER: Final = pa.from_numpy_dtype(np.intp)


def partition_batch(batch: pa.RecordBatch, key: Key, workers: int) -> Parts:
    """Return the parts of an Arrow record batch by worker: ``timely.dataflow.containers.container.partition`` for Arrow."""
    if callable(key):
        raise RoutingError("an Arrow batch is exchanged by the name of a column, not by a function of the record")
    columns = [batch.column(place) for place in _places(key, batch.schema)]
    if workers == 1:
        for column in columns:
            try:
                _check_routable(column.type)
            except TypeError:  # an extension type need not be hashable
                route_column(column[:0])
        return [(0, batch)]
    numbers = route_column(columns[0]) if isinstance(key, str) else combined([route_column(column) for column in columns])
    if len(numbers) <= min(_SMALL * (workers - 2), _MOST):
        return _slices(batch, owners_of(numbers, workers))
    parts = rows_by_worker(numbers, workers)
    return [(worker, batch if len(rows) == len(batch) else _ordered(batch, rows)) for worker, rows in parts]


def _slices(batch: pa.RecordBatch, owners: Array) -> Parts:
    """Return the parts as slices of one batch, sorted by owner: each call of Arrow's costs as much as some thousand rows."""
    order, ends = in_order(owners)
    bounds = list(ends)
    ordered = _ordered(batch, order) if len(bounds) > 1 else batch
    return [(worker, ordered.slice(start, end - start)) for worker, start, end in bounds]


def _places(key: str | Sequence[str], schema: pa.Schema) -> list[int]:
    names = [key] if isinstance(key, str) else key
    places = [schema.get_field_index(name) for name in names]
    if not places or -1 in places:  # also for a name that occurs twice
        checked_names(key, schema.names, "batch")
    return places


@functools.lru_cache
def _check_routable(kind: pa.DataType) -> None:
    route_column(pa.nulls(0, kind))


def _ordered(batch: pa.RecordBatch, rows: Array) -> pa.RecordBatch:
    """Return these rows of a batch, in this order. Arrow cannot take rows of views, so they are cast to plain types and back."""
    places = pa.Array.from_buffers(_ROW_NUMBER, len(rows), [None, pa.py_buffer(rows)])  # ``pa.array`` would search for nulls
    try:
        return _TAKE.call([batch, places], _UNCHECKED)
    except pa.ArrowNotImplementedError:
        plain = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
        fields = [field.with_type(plain.get(field.type, field.type)) for field in batch.schema]
    try:
        return batch.cast(pa.schema(fields)).take(places).cast(batch.schema)
    except pa.ArrowNotImplementedError as error:
        raise RoutingError(f"Arrow takes no rows out of this batch, cast its columns before exchange: {error}") from error
