"""Pacts: how the records on an edge are dealt to the workers.

``Pipeline`` leaves every record on the worker where it is; ``Exchange(key)`` takes it to the worker that its key belongs to;
``Distribute(deal)`` takes it wherever a function of one's own says. ``Spill(pact)`` goes by another pact, and has what waits
wait on disk. The invariant: a pact moves records and never makes or loses one. What is produced at a time is consumed at that
time, somewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import attrs

from timely.dataflow.container import Parts, checked_parts, partition
from timely.dataflow.keys import Key
from timely.dataflow.spill import Threshold
from timely.errors import GraphError


@attrs.frozen
class PipelinePact:
    """Every record stays on its worker. Use the instance ``Pipeline``."""


@attrs.frozen
class Exchange:
    """Every record goes to the worker that ``key`` of it belongs to: ``route(key(record)) % workers``.

    For Arrow batches ``key`` is the name of a column, or the names of several. Where a key goes is in
    :mod:`timely.dataflow.keys`.

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

    def parts(self, time: object, batch: Any, workers: int) -> Parts:
        """Return ``(worker, part)`` for each worker that gets some of a container."""
        return partition(batch, self.key, workers)


@attrs.frozen
class Distribute:
    """Every container is dealt by ``deal(time, batch, workers)``, which returns pairs ``(worker, part)``: for what a key cannot
    say, since it depends on the time, on what else is in the container, or on what went where before.

    Every record is in one part, and no other is; a worker may get several parts, or none. ``RoutingError`` for a worker that is
    not between 0 and ``workers - 1``, and where there are more or fewer records in the parts than in the container: whoever wants
    records in several places makes them first, with ``broadcast`` or ``flat_map``.

    >>> import timely
    >>> def pass_on(capability, info):
    ...     def logic(input, output):
    ...         for capability, batch in input:
    ...             output.session(capability).give_batch(batch)
    ...     return logic
    >>> def by_epoch(time, batch, workers):
    ...     return [(time % workers, batch)]
    >>> def program(worker):
    ...     with worker.dataflow(int) as scope:
    ...         handle, stream = scope.new_input()
    ...         seen = stream.unary(timely.Distribute(by_epoch), "pass on", pass_on).capture()
    ...     for epoch in range(3):
    ...         handle.advance_to(epoch)
    ...         handle.send(f"from {worker.index}")
    ...     handle.close()
    ...     worker.run()
    ...     return seen.extract()
    >>> timely.execute(program, workers=2)
    [[(0, ['from 0', 'from 1']), (2, ['from 0', 'from 1'])], [(1, ['from 0', 'from 1'])]]
    """

    deal: Callable[[Any, Any, int], Iterable[tuple[int, Any]]]

    def parts(self, time: object, batch: Any, workers: int) -> Parts:
        """Return ``(worker, part)`` for each part of a container, as far as there is something in it."""
        return checked_parts(self.deal(time, batch, workers), batch, workers, "deal(time, batch, workers)")


Pipeline: Final = PipelinePact()


@attrs.frozen
class Spill:
    """Records go where ``pact`` says, and what waits at the input there beyond about ``threshold`` bytes waits on disk.

    When there is more, the oldest ``reserve`` bytes stay in memory, since they are read next, and so does the newest message;
    what is between them is written to an unnamed temporary file, which is gone when it was read, or when the dataflow is dropped.
    Order and progress are as without. How the bytes are counted: :func:`timely.dataflow.spill.size_of`.

    ``ConfigurationError`` unless ``0 <= reserve <= threshold``; ``GraphError`` for a pact that spills already. While it runs, a
    ``SpillError`` for a full disk, or for records that cannot be pickled.

    >>> import timely
    >>> def pass_on(capability, info):
    ...     def logic(input, output):
    ...         for capability, batch in input:
    ...             output.session(capability).give_batch(batch)
    ...     return logic
    >>> def build(scope):
    ...     texts = scope.to_stream(["a" * 400, "b" * 300, "c" * 200]).delay(lambda text, time: len(text))  # three messages
    ...     return texts.unary(timely.Spill(timely.Exchange(len), threshold=500, reserve=0), "pass on", pass_on).map(len)
    >>> timely.example(build)
    [(200, [200]), (300, [300]), (400, [400])]
    """

    pact: PipelinePact | Exchange | Distribute = Pipeline
    threshold: int = 1 << 28
    reserve: int = 1 << 26

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.pact, PipelinePact | Exchange | Distribute):
            raise GraphError(f"Spill takes timely.Pipeline or timely.Exchange(key) or timely.Distribute(deal), not {self.pact!r}")
        self.policy()

    def policy(self) -> Threshold:
        """Return when a queue spills."""
        return Threshold(total=self.threshold, head=self.reserve)


Pact: TypeAlias = PipelinePact | Exchange | Distribute | Spill
