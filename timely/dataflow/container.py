"""Containers: what a message carries. A list of records, an Arrow record batch, a NumPy array, or a container of one's own.

A container knows how many records it has (``len``) and, where it is to be exchanged, how to be dealt to workers by key. The
invariant: what is dealt is what there was, every record once and in order, since progress counts records. Where a key goes
does not depend on the container (:mod:`timely.dataflow.keys`). A caller may assume that no Arrow batch or array becomes Python
objects on the way, and that NumPy and Arrow are imported only where such a container turns up.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeAlias

from timely.dataflow.keys import Key, combined, route, route_array, route_column
from timely.errors import ContainerError, RoutingError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

_ROUTED: Final = frozenset({int, bool, str, bytes, type(None)})
"""Types whose every value has a number: where all keys are of these there is nothing to refuse."""

_FEW: Final = 16
"""Up to so many workers it is cheaper to look for each one's rows than to sort them."""

_NOT_BY_RECORD: Final = {
    "builtins.str": "send() sends one record, send_batch() a list of them",
    "builtins.bytes": "send() sends one record, send_batch() a list of them",
    "builtins.dict": "send() sends one record, send_batch() a list of them, such as list(batch.items())",
    "pandas.DataFrame": "make an Arrow batch of it with pyarrow.RecordBatch.from_pandas(frame)",
    "pandas.core.frame.DataFrame": "make an Arrow batch of it with pyarrow.RecordBatch.from_pandas(frame)",
    "pyarrow.lib.Table": "send the batches of its to_batches(), one by one",
}
"""What has a length and can be iterated over, but hardly by what its sender means by a record; and what to send instead."""

Parts: TypeAlias = list[tuple[int, Any]]
"""Pairs ``(worker, part)``, in order of worker, no part empty."""


class Container(Protocol):
    """What a container of one's own offers: a length always, ``deal`` to be exchanged, iteration to be read by record.

    >>> import timely
    >>> class Span:
    ...     '''The whole numbers from ``start`` to ``stop``, which are never written out.'''
    ...     def __init__(self, start, stop):
    ...         self.start, self.stop = start, stop
    ...     def __len__(self):
    ...         return self.stop - self.start
    ...     def __iter__(self):
    ...         return iter(range(self.start, self.stop))
    ...     def deal(self, key, workers):
    ...         middle = (self.start + self.stop) // 2
    ...         return [(0, Span(self.start, middle)), (workers - 1, Span(middle, self.stop))]
    >>> def program(worker):
    ...     with worker.dataflow() as scope:
    ...         handle, stream = scope.new_input()
    ...         seen = stream.exchange("halves").capture()
    ...     if worker.index == 0:
    ...         handle.send_batch(Span(0, 6))
    ...     handle.close()
    ...     worker.run()
    ...     return seen.extract()
    >>> timely.execute(program, workers=2)
    [[(0, [0, 1, 2])], [(0, [3, 4, 5])]]
    """

    def __len__(self) -> int:
        """How many records it has, which is what progress counts."""

    def __iter__(self) -> Iterator[Any]:
        """Its records, one by one."""

    def deal(self, key: Any, workers: int) -> Sequence[tuple[int, Self]]:
        """Return pairs ``(worker, part)``: every record in one part, on the worker from 0 to ``workers - 1`` that ``key`` says.

        ``key`` is what was given to ``exchange``. To go where a list would take them, send a record with key ``k`` to
        ``timely.dataflow.route(k) % workers``.
        """


def partition(batch: Any, key: Key, workers: int) -> Parts:
    """Deal a container to ``workers`` by ``key``: pairs ``(worker, part)``, in order of worker, no part empty.

    Records keep their order within a part. ``RoutingError`` for a key that cannot be routed or a column that is missing.

    >>> partition([3, 4, 5, 6], lambda x: x, 2)
    [(0, [4, 6]), (1, [3, 5])]
    """
    kind = type(batch)
    deal = _partition_list if kind is list else _dealer(kind)  # type: ignore[arg-type]  # a type is hashable
    return deal(batch, key, workers)


@functools.lru_cache
def _dealer(kind: type) -> Callable[[Any, Key, int], Parts]:
    """Return what deals containers of a type."""
    if hasattr(kind, "deal"):
        return _partition_own
    bases = _bases(kind)
    if "builtins.list" in bases:
        return _partition_list
    if "pyarrow.lib.RecordBatch" in bases:
        return _partition_arrow
    if "numpy.ndarray" in bases:
        return _partition_numpy
    return _refuse


def _bases(kind: type) -> set[str]:
    """Return the full names of a type and of what it is derived from: they are asked for without importing anything."""
    return {f"{base.__module__}.{base.__name__}" for base in kind.__mro__}


def _refuse(batch: Any, key: Key, workers: int) -> Parts:
    advice = "give its type a method deal(key, workers), or send lists, Arrow record batches or arrays"
    if type(batch).__module__ == "pyarrow.lib" and hasattr(batch, "to_batches"):
        advice = "send the batches of its to_batches(), one by one"
    raise RoutingError(f"a container of type {type(batch).__name__} cannot be exchanged: {advice}")


def _partition_list(batch: list[Any], key: Key, workers: int) -> Parts:
    if not callable(key):
        raise RoutingError(f"a list of records has no column {key!r}: give a function of the record as the key")
    if workers == 1:
        keys = [key(record) for record in batch]
        if not _ROUTED.issuperset(map(type, keys)):
            for chosen in keys:
                route(chosen)
        return [(0, batch)]
    parts: list[list[Any]] = [[] for _ in range(workers)]
    for record in batch:
        number = key(record)
        parts[(number if type(number) is int else route(number)) % workers].append(record)
    return [(worker, part) for worker, part in enumerate(parts) if part]


def _partition_arrow(batch: pa.RecordBatch, key: Key, workers: int) -> Parts:
    if callable(key):
        raise RoutingError("an Arrow batch is exchanged by the name of a column, not by a function of the record")
    columns = [batch.column(place) for place in _places(key, batch.schema)]
    if workers == 1:
        for column in columns:
            try:
                _check_routable(column.type)
            except TypeError:  # a type of somebody's own need not be hashable
                route_column(column[:0])
        return [(0, batch)]
    numbers = route_column(columns[0]) if isinstance(key, str) else combined([route_column(column) for column in columns])
    return [(worker, _taken(batch, rows)) for worker, rows in _deal(numbers, workers)]


def _places(key: str | Sequence[str], schema: pa.Schema) -> list[int]:
    """Return where the columns of a key are."""
    names = [key] if isinstance(key, str) else key
    places = [schema.get_field_index(name) for name in names]
    if not places or -1 in places:  # Arrow says so of a column that there is twice, too
        _columns(key, schema.names, "batch")
    return places


@functools.lru_cache
def _check_routable(kind: pa.DataType) -> None:
    """Raise ``RoutingError`` for the type of a column that cannot be a key: whether one can depends on nothing else."""
    import pyarrow as pa

    route_column(pa.nulls(0, kind))


def _taken(batch: pa.RecordBatch, rows: np.ndarray[Any, Any]) -> pa.RecordBatch:
    """Return these rows of a batch. Arrow takes none out of a view, so that one goes by way of the plain type."""
    import pyarrow as pa

    kernel, unchecked = _take_kernel()
    try:
        return kernel.call([batch, pa.array(rows)], unchecked)
    except pa.ArrowNotImplementedError:
        plain = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
        fields = [field.with_type(plain.get(field.type, field.type)) for field in batch.schema]
    try:
        return batch.cast(pa.schema(fields)).take(rows).cast(batch.schema)
    except pa.ArrowNotImplementedError as error:
        raise RoutingError(f"a batch that Arrow takes no rows out of cannot be dealt, cast its columns: {error}") from error


@functools.cache
def _take_kernel() -> tuple[pc.Function, pc.FunctionOptions]:
    """Return what takes rows out of a batch, and how: rows that were found in the batch need not be looked for in it.

    ``pyarrow.compute.take`` looks both up for every batch, which costs as much as small batches themselves.
    """
    import pyarrow.compute as pc

    return pc.get_function("take"), pc.TakeOptions(boundscheck=False)


def _columns(key: str | Sequence[str], names: Sequence[str], what: str) -> list[str]:
    """Return the names of the columns of a key, each of which there must be once."""
    wanted = [key] if isinstance(key, str) else list(key)
    if not wanted:
        raise RoutingError("a key needs at least one column")
    for name in wanted:
        if names.count(name) > 1:
            raise RoutingError(f"there are {names.count(name)} columns {name!r} in the {what}: give each a name of its own")
        if name not in names:
            raise RoutingError(f"there is no column {name!r}; the {what} has {', '.join(map(repr, names))}")
    return wanted


def _partition_numpy(batch: np.ndarray[Any, Any], key: Key, workers: int) -> Parts:
    columns = _key_columns(batch, key)
    if workers == 1:
        for column in columns:
            route_array(column if column.dtype == object else column[:0])  # is its type one that can be routed?
        return [(0, batch)]
    numbers = [route_array(column) for column in columns]
    dealt = _deal(numbers[0] if callable(key) or isinstance(key, str) else combined(numbers), workers)
    if batch.ndim == 2 and batch.flags.f_contiguous:  # columns that lie one after the other stay so
        return [(worker, batch.T.take(rows, axis=1).T) for worker, rows in dealt]
    return [(worker, batch.take(rows, axis=0)) for worker, rows in dealt]


def _key_columns(batch: np.ndarray[Any, Any], key: Key) -> list[np.ndarray[Any, Any]]:
    """Return what the rows of an array are routed by: the columns that ``key`` names, or the one that it returns."""
    import numpy as np

    if not callable(key):
        if batch.dtype.names is None:
            raise RoutingError(f"an array of type {batch.dtype} has no column {key!r}: give a function of the array as the key")
        columns = [batch[name] for name in _columns(key, batch.dtype.names, "array")]
    else:
        columns = [np.asarray(key(batch))]
    for column in columns:
        if column.shape != batch.shape[:1]:
            raise RoutingError(
                "the key of an array must give one whole number for each of its rows, or one string: the array has shape"
                f" {batch.shape}, and its key has shape {column.shape}"
            )
    return columns


def _deal(numbers: np.ndarray[Any, Any], workers: int) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
    """Yield ``(worker, rows)`` for each worker that gets any row, rows in order.

    One after the other: what was taken out by then makes room for the next, or a large batch has memory given back to the
    system and asked for again each time, which takes longer than the dealing.
    """
    import numpy as np

    owners = _owners(numbers, workers)
    if workers <= _FEW:
        dealt: Iterable[Any] = ((owners == worker).nonzero()[0] for worker in range(workers))
    else:
        order = np.argsort(owners, kind="stable")  # short numbers are sorted by counting
        dealt = np.split(order, np.searchsorted(owners[order], np.arange(1, workers)))
    for worker, rows in enumerate(dealt):
        if len(rows):
            yield worker, rows


def _owners(numbers: np.ndarray[Any, Any], workers: int) -> np.ndarray[Any, Any]:
    """Return the remainders, as numbers that are no longer than they need to be."""
    import numpy as np

    if workers & (workers - 1):
        return (numbers % workers).astype(np.uint16 if workers <= 1 << 16 else np.int64)
    if workers <= 1 << 8 and numbers.dtype != object:
        return numbers.astype(np.uint8) & np.uint8(workers - 1)  # what is cut off is a multiple of 256
    return (numbers & (workers - 1)).astype(np.int64)


def _partition_own(batch: Any, key: Key, workers: int) -> Parts:
    """Deal a container of a user's own."""
    return checked_parts(batch.deal(key, workers), batch, workers, f"{type(batch).__name__}.deal(key, {workers})")


def checked_parts(given: Iterable[tuple[int, Any]], batch: Any, workers: int, who: str) -> Parts:
    """Return what ``who`` has made of a container, by worker, after a look at whether it loses or adds anything: progress would
    never notice, and never end. ``RoutingError`` where it does, or for a worker that does not exist.

    >>> checked_parts([(1, "c"), (0, "ab"), (2, "")], "abc", 3, "mine")
    [(0, 'ab'), (1, 'c')]
    """
    parts = [(worker, part) for worker, part in given if len(part)]
    for worker, _ in parts:
        if not isinstance(worker, int) or not 0 <= worker < workers:
            raise RoutingError(f"{who} deals to worker {worker!r}, and there are 0 to {workers - 1}")
    dealt = sum(len(part) for _, part in parts)
    if dealt != len(batch):
        raise RoutingError(f"{who} makes {dealt} records of {len(batch)}: it must neither lose nor add any")
    return sorted(parts, key=lambda pair: pair[0])


def records_of(batch: Any) -> list[Any]:
    """Return the records of a container as Python values: rows of an Arrow batch as tuples, elements of an array as they are.

    ``ContainerError`` for a container that has no records to iterate over.

    >>> records_of([1, 2])
    [1, 2]
    """
    if isinstance(batch, list):
        return batch
    bases = _bases(type(batch))
    if "pyarrow.lib.RecordBatch" in bases:
        return list(zip(*(column.to_pylist() for column in batch.columns), strict=True)) or [()] * len(batch)
    if "numpy.ndarray" in bases:
        return list(batch.tolist())
    for base, advice in _NOT_BY_RECORD.items():
        if base in bases:
            raise ContainerError(f"a container of type {type(batch).__name__} cannot be read by record: {advice}")
    if not hasattr(type(batch), "__iter__"):
        raise ContainerError(f"a container of type {type(batch).__name__} cannot be read by record: give its type __iter__")
    return list(batch)
