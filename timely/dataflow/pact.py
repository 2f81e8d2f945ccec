"""Pacts: how the records on an edge are dealt to the workers.

``Pipeline`` leaves every record on the worker where it is; ``Exchange(key)`` takes it to the worker that its key belongs to.
A pact moves records and never makes or loses one: what is produced at a time is consumed at that time, somewhere.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import attrs

from timely.dataflow.container import Key


@attrs.frozen
class PipelinePact:
    """Every record stays on its worker. Use the instance ``Pipeline``."""


@attrs.frozen
class Exchange:
    """Every record goes to the worker that ``key`` of it belongs to: ``route(key(record)) % workers``.

    For Arrow batches ``key`` is the name of a column.

    >>> import timely
    >>> def program(worker):
    ...     with worker.dataflow() as scope:
    ...         records = scope.to_stream(range(4) if worker.index == 0 else [])
    ...         seen = records.exchange(lambda x: x).capture()
    ...     worker.run()
    ...     return seen.extract()
    >>> timely.execute(program, workers=2)
    [[(0, [0, 2])], [(0, [1, 3])]]
    """

    key: Key


Pipeline: Final = PipelinePact()
Pact: TypeAlias = PipelinePact | Exchange
