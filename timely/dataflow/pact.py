"""Pacts: how the records on an edge are partitioned among the workers.

A pact moves records and never makes or loses one: what is produced at a time is consumed at that time, on some worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import attrs

from timely.dataflow.containers.container import checked_parts, partition
from timely.dataflow.containers.keys import Key, Parts
from timely.errors import ConfigurationError, GraphError


@attrs.frozen
class PipelinePact:
    """Every record stays on its worker. Use the instance ``Pipeline``."""


@attrs.frozen
class Exchange:
    """Every record goes to worker ``route(key(record)) % workers``.

    For Arrow batches ``key`` is the name of a column, or the names of several. See :mod:`timely.dataflow.containers.keys`.

    >>> Exchange(lambda x: x).parts(0, [0, 1, 2, 3], 2)
    [(0, [0, 2]), (1, [1, 3])]
    """

    key: Key

    def parts(self, time: object, batch: Any, workers: int) -> Parts:
        """Return ``(worker, part)`` for each worker that gets some of a container."""
        return partition(batch, self.key, workers)


@attrs.frozen
class Distribute:
    """Every container is partitioned by ``partition(time, batch, workers)``, which returns pairs ``(worker, part)``.

    For what no key expresses: where records go depends on the time, on other records, or on what was sent before. Every record
    is in one part; a worker may get several parts, or none. ``RoutingError`` for a worker outside ``0`` to ``workers - 1``, and
    for lost or added records. To have records in several places, make them first, with ``broadcast`` or ``flat_map``.

    >>> Distribute(lambda time, batch, workers: [(time % workers, batch)]).parts(3, ["a", "b"], 2)
    [(1, ['a', 'b'])]
    """

    partition: Callable[[Any, Any, int], Iterable[tuple[int, Any]]]

    def parts(self, time: object, batch: Any, workers: int) -> Parts:
        """Return ``(worker, part)`` for each part of a container that is not empty."""
        return checked_parts(self.partition(time, batch, workers), batch, workers, "partition(time, batch, workers)")


Pipeline: Final = PipelinePact()


@attrs.frozen
class Spill:
    """Records go where ``pact`` sends them; beyond about ``threshold`` bytes, what waits at the input waits on disk.

    The oldest ``reserve`` bytes stay in memory, since they are read next, and so does the newest message. The messages between
    them go to an unnamed temporary file. Order and progress do not change. Bytes are counted by
    :func:`timely.dataflow.spill.size_of`.

    ``ConfigurationError`` unless ``0 <= reserve <= threshold``; ``GraphError`` for a pact that spills already. At run time
    ``SpillError`` for a full disk, or for records that cannot be pickled.

    >>> import timely
    >>> def constructor(capability, info):
    ...     return lambda input, output: input.forward(output, sorted)
    >>> timely.example(lambda scope: scope.to_stream([2, 1]).unary(timely.Spill(threshold=0, reserve=0), "sort", constructor))
    [(0, [1, 2])]
    """

    pact: PipelinePact | Exchange | Distribute = Pipeline
    threshold: int = 1 << 28
    reserve: int = 1 << 26

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.pact, PipelinePact | Exchange | Distribute):
            raise GraphError(
                f"Spill takes timely.Pipeline, timely.Exchange(key) or timely.Distribute(partition), not {self.pact!r}"
            )
        if not isinstance(self.threshold, int) or not isinstance(self.reserve, int) or not 0 <= self.reserve <= self.threshold:
            raise ConfigurationError(
                "a queue spills beyond a threshold of bytes, of which a reserve stays in memory: whole numbers with"
                f" 0 <= reserve <= threshold, not threshold={self.threshold!r} and reserve={self.reserve!r}"
            )


Pact: TypeAlias = PipelinePact | Exchange | Distribute | Spill
