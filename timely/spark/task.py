"""What one task of the barrier stage does: it is a worker, with rows from Spark coming in and rows for Spark going
out.

A :class:`Task` is made on the driver, travels to the executors by pickle, and its :meth:`Task.run` is the function of
Arrow batches that Spark calls there, once in every task. The invariant: a worker that fails reports why to the driver
before it lets go of its peers, and every one of them then raises that same reason, so that whichever failure Spark
picks to show is the one that matters. A caller may assume that no task waits for a peer that is gone, and that no
attempt of the stage mixes with another.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import pyarrow as pa
from pyspark import BarrierTaskContext

from timely.dataflow import ScopeBuilder, Stream
from timely.errors import ConfigurationError, PeerLostError, TimelyError, WorkerError
from timely.operators import InputHandle
from timely.spark.packing import Input, Output, pack, packed_schema, unpack
from timely.spark.rendezvous import Invitation, Registration, trace_of
from timely.worker import LocalTransport, SocketTransport, Worker
from timely.worker.mesh import connect_mesh, open_listener

Build = Callable[..., Mapping[str, Stream[int, Any]]]
"""Builds the dataflow in every worker: ``build(scope, **streams)`` returns the streams of the outputs by name."""

_LISTEN_EVERY = 0.2
"""Seconds between two looks at what the driver says."""

_REASON_WITHIN = 3.0
"""Seconds that a worker whose peer is gone waits to be told why."""


@attrs.frozen
class Task:
    """Everything that a worker needs to know, made on the driver."""

    build: Build
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    invitation: Invitation

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Be one worker: take in the batches of this partition, yield this worker's share of the outputs."""
        context = BarrierTaskContext.get()
        index = context.partitionId()
        # Spark numbers the tasks of a barrier stage's attempt in one go, by partition. So all of an attempt, and no
        # others, give the same number here, which is that of its first task; a later attempt gives a greater one.
        generation = context.taskAttemptId() - index
        with Registration(self.invitation, index=index, generation=generation, stage=context.stageId()) as registration:
            worker: Worker | None = None
            try:
                worker = self._join(registration, index, generation)
                yield from self._work(worker, registration, batches)
                registration.done()
            except GeneratorExit:
                if worker is not None:
                    worker.abort(WorkerError("Spark asked for no more rows"))
                raise
            except Exception as error:
                reason = _reason(registration, index, error)
                if worker is not None:
                    worker.abort(reason)
                if reason is error:
                    raise
                raise reason from error
            finally:
                if worker is not None:
                    worker.close()

    def _join(self, registration: Registration, index: int, generation: int) -> Worker:
        """Meet the other workers of this attempt; return the worker that is connected to them."""
        if self.invitation.workers == 1:
            registration.peers((registration.host, 0))
            return Worker(LocalTransport())
        with open_listener(registration.host) as listener:
            host, port = listener.getsockname()[:2]
            peers = registration.peers((host, port))
            secret, run = self.invitation.secret, self.invitation.run
            sockets = connect_mesh(index, listener, peers, secret, run=run, generation=generation)
        return Worker(SocketTransport(index, sockets))

    def _work(
        self, worker: Worker, registration: Registration, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Run the dataflow to its end, yielding output batches as they come."""
        outbox: deque[tuple[int, object]] = deque()
        with worker.dataflow(int) as scope:
            handles = self._build(scope, outbox)
        for batch in batches:
            for epoch, position, rows in unpack(batch, self.inputs):
                if epoch > handles[0].time:
                    for handle in handles:
                        handle.advance_to(epoch)
                handles[position].send_batch(rows)
            worker.step()
            yield from self._drain(outbox)
        for handle in handles:
            handle.close()
        listened = time.monotonic()
        while worker.run_step(_LISTEN_EVERY):
            yield from self._drain(outbox)
            if time.monotonic() - listened > _LISTEN_EVERY:
                if (stopped := registration.stopped()) is not None:
                    raise stopped
                listened = time.monotonic()
        yield from self._drain(outbox)

    def _build(self, scope: ScopeBuilder[int], outbox: deque[tuple[int, object]]) -> list[InputHandle[int, Any]]:
        """Build the dataflow; what its outputs give goes to ``outbox``, under the position of the output."""
        handles, streams = [], {}
        for table in self.inputs:
            handle, streams[table.name] = scope.new_input()
            handles.append(handle)
        built = self.build(scope, **streams)
        declared = [output.name for output in self.outputs]
        if not isinstance(built, Mapping) or set(built) != set(declared):
            got = sorted(built) if isinstance(built, Mapping) else type(built).__name__
            raise ConfigurationError(
                f"build must return a dictionary with the streams {sorted(declared)}; it returned {got}"
            )
        for position, name in enumerate(declared):
            built[name].inspect_batch(_Collector(position, outbox))
        return handles

    def _drain(self, outbox: deque[tuple[int, object]]) -> Iterator[pa.RecordBatch]:
        """Yield what waits in ``outbox``, checked against the schemas, and packed where there are several outputs."""
        packed = None if len(self.outputs) == 1 else packed_schema(self.outputs)
        while outbox:
            position, given = outbox.popleft()
            batch = self.outputs[position].conform(given)
            yield batch if packed is None else pack(position, batch, packed)


class _Collector:
    """Puts the batches of one output into the outbox of its worker."""

    __slots__ = ("_outbox", "_position")

    def __init__(self, position: int, outbox: deque[tuple[int, object]]) -> None:
        self._position = position
        self._outbox = outbox

    def __call__(self, time: int, batch: object) -> None:
        self._outbox.append((self._position, batch))


def _reason(registration: Registration, index: int, error: Exception) -> TimelyError:
    """Return the first error of the whole run: what the driver says where ``error`` is but its echo, else ``error``,
    which it is told.
    """
    if isinstance(error, PeerLostError):
        first = registration.stopped(_REASON_WITHIN)
        if first is not None:
            return first
    reason = error
    if not isinstance(reason, TimelyError):
        reason = WorkerError(f"worker {index} raised {type(error).__name__}: {error}")
        reason.__cause__ = error
    registration.report(reason)
    if trace := trace_of(reason):
        reason.add_note(trace)  # Spark shows the error that was raised, and its notes, but no causes
    return reason
