"""Containers: what a message carries. A list of records, an Arrow record batch, a NumPy array, or a container of one's own.

A container knows how many records it has (``len``) and, where it is to be exchanged, how to be dealt to workers by key. The
invariant: what is dealt is what there was, every record once and in order, since progress counts records. Where a key goes
does not depend on the container (:mod:`timely.dataflow.keys`). A caller may assume that no Arrow batch or array becomes Python
objects on the way, and that NumPy and Arrow are imported only where such a container turns up.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol, Self, TypeAlias

from timely.dataflow.keys import Key, route
from timely.errors import ContainerError, RoutingError, brief

_ROUTED: Final = frozenset({int, bool, float, str, bytes, type(None)})
"""Types whose every value has a number: where all keys are of these there is nothing to refuse."""

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
        from timely.dataflow.partition_batches import partition_batch

        return partition_batch
    if "numpy.ndarray" in bases:
        from timely.dataflow.partition_arrays import partition_array

        return partition_array
    return _refuse


def prepare_to_partition() -> None:
    """Import what deals columns of NumPy and Arrow, where these are imported already: before a fork, so that no child has to.

    >>> prepare_to_partition()
    """
    if "pyarrow.compute" in sys.modules:
        import timely.dataflow.partition_batches
    elif "numpy" in sys.modules:
        import timely.dataflow.partition_arrays  # noqa: F401


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
        raise RoutingError(f"a list of records has no column {brief(key)}: give a function of the record as the key")
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
            raise RoutingError(f"{who} deals to worker {brief(worker)}, and there are 0 to {workers - 1}")
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
