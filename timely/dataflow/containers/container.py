"""Containers: what a message carries. A list of records, an Arrow record batch, a NumPy array, or a type of your own.

Partitioning keeps every record once and in order, since progress counts records. NumPy and Arrow are imported only where such a
container occurs.
"""

from __future__ import annotations

import datetime
import functools
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol, Self

from timely.dataflow.containers.keys import Key, Parts, route
from timely.errors import ContainerError, RoutingError, brief

_ROUTED: Final = frozenset({int, bool, float, str, bytes, type(None), datetime.date})
"""Types whose every value can be routed."""

_NOT_BY_RECORD: Final = {
    "builtins.str": "send() sends one record, send_batch() a list of them",
    "builtins.bytes": "send() sends one record, send_batch() a list of them",
    "builtins.dict": "send() sends one record, send_batch() a list of them, such as list(batch.items())",
    "pandas.DataFrame": "make an Arrow batch of it with pyarrow.RecordBatch.from_pandas(frame, preserve_index=False)",
    "pandas.core.frame.DataFrame": "make an Arrow batch of it with pyarrow.RecordBatch.from_pandas(frame, preserve_index=False)",
    "polars.dataframe.frame.DataFrame": "send the batches of its to_arrow().to_batches(), one by one",
    "pyarrow.lib.Table": "send the batches of its to_batches(), one by one",
}
"""Types whose iteration does not give records, and what to send instead."""


class Container(Protocol):
    """A container of your own: a length always, ``partition`` to be exchanged, iteration to be read by record.

    >>> class Word(str):
    ...     def partition(self, key, workers):
    ...         return [(key(self) % workers, self)]
    >>> partition(Word("abc"), len, 2)
    [(1, 'abc')]
    """

    def __len__(self) -> int:
        """How many records it has, which is what progress counts."""

    def __iter__(self) -> Iterator[Any]:
        """Its records, one by one."""

    def partition(self, key: Any, workers: int) -> Sequence[tuple[int, Self]]:
        """Return pairs ``(worker, part)``, with every record in one part.

        ``key`` is what was given to ``exchange``; workers count from 0. A list sends a record with key ``k`` to worker
        ``timely.dataflow.route(k) % workers``.
        """


def partition(batch: Any, key: Key, workers: int) -> Parts:
    """Return the parts of a container by worker: pairs ``(worker, part)``, in order of worker, no part empty.

    Records keep their order. ``RoutingError`` for a key that cannot be routed or a column that is missing.

    >>> partition([3, 4, 5, 6], lambda x: x, 2)
    [(0, [4, 6]), (1, [3, 5])]
    """
    kind = type(batch)
    by_type = _partition_list if kind is list else _partitioner(kind)  # type: ignore[arg-type]  # a type is hashable
    return by_type(batch, key, workers)


@functools.lru_cache
def _partitioner(kind: type) -> Callable[[Any, Key, int], Parts]:
    hook = next((base for base in kind.__mro__ if "partition" in vars(base)), None)
    if hook is not None and hook.__module__ not in ("builtins", "numpy"):  # str.partition and ndarray.partition do something else
        return _partition_own
    bases = _bases(kind)
    if "builtins.list" in bases:
        return _partition_list
    if "pyarrow.lib.RecordBatch" in bases:
        from timely.dataflow.containers.partition_batches import partition_batch

        return partition_batch
    if "numpy.ndarray" in bases:
        from timely.dataflow.containers.partition_arrays import partition_array

        return partition_array
    return _refuse


def prepare_to_partition() -> None:
    """Import the modules that partition columns where NumPy or Arrow is loaded: before a fork, so that no child has to."""
    if "pyarrow.compute" in sys.modules:
        import timely.dataflow.containers.partition_batches
    elif "numpy" in sys.modules:
        import timely.dataflow.containers.partition_arrays  # noqa: F401


def _bases(kind: type) -> set[str]:
    return {f"{base.__module__}.{base.__name__}" for base in kind.__mro__}


def _refuse(batch: Any, key: Key, workers: int) -> Parts:
    advice = "give its type a method partition(key, workers), or send lists, Arrow record batches or arrays"
    if type(batch).__module__ == "pyarrow.lib" and hasattr(batch, "to_batches"):
        advice = "send the batches of its to_batches(), one by one"
    raise RoutingError(f"a container of type {type(batch).__name__} cannot be exchanged: {advice}")


def _are_plain(keys: list[Any]) -> bool:
    """Return whether all keys are values that can be routed, or tuples of such, by their types: a tenth of the cost."""
    types = set(map(type, keys))
    if tuple not in types:
        return types <= _ROUTED
    parts = keys if len(types) == 1 else [key for key in keys if type(key) is tuple]
    return types - {tuple} <= _ROUTED and _are_plain(list(itertools.chain.from_iterable(parts)))


def _partition_list(batch: list[Any], key: Key, workers: int) -> Parts:
    if not callable(key):
        raise RoutingError(f"a list of records has no column {brief(key)}: give a function of the record as the key")
    if workers == 1:
        keys = [key(record) for record in batch]
        if not _are_plain(keys):
            for chosen in keys:
                route(chosen)
        return [(0, batch)]
    parts: list[list[Any]] = [[] for _ in range(workers)]
    for record in batch:
        number = key(record)
        parts[(number if type(number) is int else route(number)) % workers].append(record)
    return [(worker, part) for worker, part in enumerate(parts) if part]


def _partition_own(batch: Any, key: Key, workers: int) -> Parts:
    return checked_parts(batch.partition(key, workers), batch, workers, f"{type(batch).__name__}.partition(key, {workers})")


def checked_parts(pairs: Iterable[tuple[int, Any]], batch: Any, workers: int, who: str) -> Parts:
    """Return the parts that ``who`` made of a container, by worker.

    ``RoutingError`` for a worker that does not exist, and for lost or added records: progress would never end.
    """
    parts = [(worker, part) for worker, part in pairs if len(part)]
    for worker, _ in parts:
        if not isinstance(worker, int) or not 0 <= worker < workers:
            raise RoutingError(f"{who} sends to worker {brief(worker)}, and there are 0 to {workers - 1}")
    count = sum(len(part) for _, part in parts)
    if count != len(batch):
        raise RoutingError(f"{who} makes {count} records of {len(batch)}: it must neither lose nor add any")
    return sorted(parts, key=lambda pair: pair[0])


def records_of(batch: Any) -> list[Any]:
    """Return the records of a container as Python values: rows of an Arrow batch as tuples, elements of an array.

    ``ContainerError`` for a container without iteration, or whose iteration does not give records.

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
    if "pyarrow.lib.Array" in bases or "pyarrow.lib.ChunkedArray" in bases:
        return list(batch.to_pylist())
    for base, advice in _NOT_BY_RECORD.items():
        if base in bases:
            raise ContainerError(f"a container of type {type(batch).__name__} cannot be read by record: {advice}")
    if not hasattr(type(batch), "__iter__"):
        raise ContainerError(f"a container of type {type(batch).__name__} cannot be read by record: give its type __iter__")
    return list(batch)
