"""One task of the barrier stage: it is a worker, with rows from Spark coming in and rows for Spark going out.

A :class:`Task` is made on the driver and pickled to the executors; Spark calls :meth:`Task.run` once in every task. The
invariant: a worker that fails reports why to the driver before it closes its connections, and every other one raises that same
reason. So Spark shows the failure that matters, no task waits for a peer that is gone, and no attempt mixes with another.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs
import pyarrow as pa
from pyspark import BarrierTaskContext, cloudpickle

from timely.dataflow import ScopeBuilder, Stream
from timely.dataflow.output_schema import OutputSchema
from timely.errors import ConfigurationError, PeerLostError, TimelyError, WorkerError, error_text
from timely.execution.run_monitor import watched
from timely.memory import MemoryBudget
from timely.monitor.local_workers import LocalWorkers
from timely.monitor.watch_settings import WatchSettings, is_switched_off
from timely.operators import InputHandle
from timely.progress import ProgressGroups, ProgressMode
from timely.spark.gathered_rendezvous import FinalFailure, GatheredRendezvous, mark, text_of
from timely.spark.ingest_pace import Ingest
from timely.spark.logs import LogPlan, worker_log
from timely.spark.packing import FAILED, InputTable, cut, pack, pack_report, packed_schema
from timely.spark.registration import Registration
from timely.spark.reporting import Look, TaskMeter, page_reports
from timely.spark.resume import Checkpoints, OutputQueue, collect
from timely.spark.stage_messages import Invitation, trace_of
from timely.spark.versions import attempt_of, batches_from_java
from timely.worker import LocalTransport, SocketTransport, Worker
from timely.worker.internals import abort, sync_activator
from timely.worker.mesh import connect_mesh, open_listener

Build = Callable[..., Mapping[str, Stream[int, Any]]]
"""Builds the dataflow in every worker: ``build(scope, **streams)`` returns the streams of the outputs by name."""

_dumps: Callable[[object], bytes] = cloudpickle.dumps

_PATIENCE = 0.2
"""Seconds that a worker waits for something to happen before it looks whether waiting is in vain."""

_log = logging.getLogger(__name__)

_REASON_WITHIN = 3.0
"""Seconds that a worker whose peer is gone waits for the reason."""


@attrs.frozen
class Task:
    """Everything that a worker needs to know, made on the driver."""

    build: Build
    inputs: tuple[InputTable, ...]
    outputs: tuple[OutputSchema, ...]
    rendezvous: Invitation | GatheredRendezvous
    rows: int = 0
    """The most rows of a batch that Spark is handed; 0 for any number."""
    log: LogPlan = attrs.field(factory=LogPlan)
    checkpoints: Checkpoints | None = None
    """Where the run keeps checkpoints, if it does."""
    progress: ProgressMode = "direct"
    """The mode of progress aggregation."""
    look: Look | None = attrs.field(default=None, kw_only=True)
    """How a live page looks on, if there is one."""
    watch: WatchSettings = attrs.field(default=WatchSettings(line=False, inputs=False), kw_only=True)
    """When a worker says in its log what it is stuck at; late rows from Spark are no reason."""

    memory: int | str | MemoryBudget | None = attrs.field(default=None, kw_only=True)
    """What the worker's process may take; ``None`` for its part of what the system allows."""

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Be one worker: read the batches of this partition, yield this worker's part of the outputs."""
        context, batches = BarrierTaskContext.get(), batches_from_java(batches)
        if isinstance(self.rendezvous, Invitation):
            yield from self._take_part(context, self.rendezvous, batches)
            return
        try:
            with self.rendezvous.attempt(context) as attempt:
                yield from self._take_part(context, attempt.invitation, batches)
                if (report := attempt.report()) is not None:
                    yield pack_report(report, self.packed)
        except FinalFailure as final:
            mark(final.error, context.partitionId())
            yield pack_report(text_of(final.error), self.packed, FAILED)
        except TimelyError as error:
            mark(error, context.partitionId())
            raise

    def _take_part(
        self, context: BarrierTaskContext, invitation: Invitation, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Be a worker of one attempt."""
        index = context.partitionId()
        generation = attempt_of(context)
        stage = context.stageId()
        with (
            MemoryBudget.given(self.memory, min(invitation.workers, os.cpu_count() or 1)),
            Registration(
                invitation, index=index, generation=generation, stage=stage, task=context.taskAttemptId()
            ) as registration,
            worker_log(registration, self.log, run=invitation.run, worker=index, attempt=generation),
        ):
            worker: Worker | None = None
            try:
                _log.info("begins, in stage %d, on %s", stage, registration.host)
                meter = TaskMeter(registration, index, generation, stage, self.inputs, self.outputs)
                worker = self._join(invitation, registration, index, generation)
                _log.info("has met the other %d workers", worker.peers - 1)
                local_workers = LocalWorkers()
                watch = watched(local_workers, None if is_switched_off() else self.watch)
                with local_workers, watch, page_reports(self.look, worker, registration):
                    local_workers.add(worker)
                    returned = self._work(worker, registration, meter, batches)
                    yield from _granted(registration, returned) if invitation.by_worker else returned
                meter.finish()
                _log.info("has finished")
                registration.done()
            except GeneratorExit:
                if worker is not None:
                    abort(worker, WorkerError("Spark asked for no more rows"))
                raise
            except (Exception, SystemExit) as error:  # sys.exit in a task ends the run, as an exception does
                reason = _reason(registration, index, error)
                if worker is not None:
                    abort(worker, reason)
                if registration.ends(_REASON_WITHIN if invitation.by_worker else 0.0):
                    raise FinalFailure(reason) from error
                if reason is error:
                    raise
                raise reason from error
            finally:
                if worker is not None:
                    worker.close()

    def _join(self, invitation: Invitation, registration: Registration, index: int, generation: int) -> Worker:
        """Return the worker, connected to the others of this attempt."""
        if invitation.workers == 1:
            registration.peers((registration.host, 0))
            return Worker(LocalTransport())
        with open_listener(registration.host) as listener:
            host, port = listener.getsockname()[:2]
            peers = registration.peers((host, port))
            identity, run = invitation.identity, invitation.run
            sockets = connect_mesh(index, listener, peers, identity, run=run, generation=generation)
        routes = ProgressGroups.named(self.progress, invitation.workers)
        return Worker(SocketTransport(index, sockets, invitation.largest), groups=routes)

    def _work(
        self, worker: Worker, registration: Registration, meter: TaskMeter, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Run the dataflow to its end, yielding output batches as they come."""
        queue = OutputQueue()
        _listen(worker, registration)
        with contextlib.ExitStack() as stack:
            resuming = None if self.checkpoints is None else stack.enter_context(self.checkpoints.open(worker, registration))
            with worker.dataflow(int) as scope:
                handles, outputs = self.build_in(scope)
                for position, stream in enumerate(outputs):
                    collect(stream, position, queue)
                ingest = Ingest(worker, handles, self.inputs, meter)
            meter.watch(scope)
            for batch in batches if resuming is None else resuming.rows(batches, ingest, queue, meter):
                ingest.send(batch)
                del batch
                yield from self._drain(queue, meter)
                while ingest.crowded():
                    ingest.wait(_PATIENCE)
                    yield from self._drain(queue, meter)
            ingest.close()
            for _ in _to_the_end(worker) if resuming is None else resuming.steps(_PATIENCE, meter):
                yield from self._drain(queue, meter)
            yield from self._drain(queue, meter)
            if resuming is not None:
                resuming.finish()

    def build_in(self, scope: ScopeBuilder[int]) -> tuple[list[InputHandle[int, Any]], list[Stream[int, Any]]]:
        """Build the dataflow; return its input handles and output streams. ``ConfigurationError`` for other outputs."""
        handles, streams = [], {}
        for table in self.inputs:
            handle, streams[table.name] = scope.new_input()
            handles.append(handle)
        return handles, _checked(self.build(scope, **streams), [output.name for output in self.outputs])

    @property
    def packed(self) -> pa.Schema | None:
        """The table that the outputs are packed into; ``None`` where there is one alone, and no report."""
        reported = isinstance(self.rendezvous, GatheredRendezvous)
        return packed_schema(self.outputs, reported=reported) if reported or len(self.outputs) > 1 else None

    def _drain(self, queue: OutputQueue, meter: TaskMeter) -> Iterator[pa.RecordBatch]:
        """Yield what waits in ``queue``: checked against the schemas, cut to Spark's batch size, packed if there are several
        outputs.
        """
        meter.tick()
        packed = self.packed
        for position, output in queue.drain():
            for part in cut(self.outputs[position].conform(output), self.rows):
                meter.count_out(position, part.num_rows)
                yield part if packed is None else pack(position, part, packed)


def check_outputs(build: Build, inputs: Iterable[str], outputs: Iterable[str]) -> None:
    """Raise ``ConfigurationError`` where a dataflow has other outputs: a copy is built once here, as in workers, and never run.

    What ``build`` raises is for the workers to raise: it may need what executors have.
    """
    with contextlib.suppress(_Built), Worker().dataflow(int) as scope:
        streams = {name: scope.new_input()[1] for name in inputs}
        try:
            built = pickle.loads(_dumps(build))(scope, **streams)
        except (Exception, SystemExit):
            raise _Built from None
        _checked(built, list(outputs))
        raise _Built


class _Built(Exception):
    """Ends a dataflow that is not to be run."""


def _checked(built: object, outputs: list[str]) -> list[Stream[int, Any]]:
    """Return the streams that ``build`` returned, in the order of the outputs."""
    if not isinstance(built, Mapping) or set(built) != set(outputs):
        returned = sorted(built, key=str) if isinstance(built, Mapping) else type(built).__name__
        raise ConfigurationError(f"build must return a dictionary with the streams {sorted(outputs)}; it returned {returned}")
    for name in outputs:
        if not isinstance(built[name], Stream):
            raise ConfigurationError(
                f"output {name!r}: build must return a stream of Arrow batches for it, such as an operator returns, not"
                f" {built[name]!r}"
            )
    return [built[name] for name in outputs]


def _granted(registration: Registration, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches, the first one when this worker may: a failure is final only before any worker has returned a row."""
    for first in batches:
        registration.ask_to_return()
        yield first
        yield from batches


def _to_the_end(worker: Worker) -> Iterator[None]:
    while worker.run_step(_PATIENCE):
        yield


def _listen(worker: Worker, registration: Registration) -> None:
    """Raise the run's error in the worker, whatever it does or waits for."""

    def look() -> None:
        if (stopped := registration.stopped()) is not None:
            raise stopped

    activator = sync_activator(worker, look)
    registration.alert(activator.activate)
    activator.activate()  # for what came before


def _reason(registration: Registration, index: int, error: BaseException) -> TimelyError:
    """Return the first error of the run: the driver's where ``error`` only follows from it, else ``error``, which is reported."""
    first = registration.stopped(_REASON_WITHIN if isinstance(error, PeerLostError) else 0.0)
    if first is not None and (first is error or isinstance(error, PeerLostError)):
        _log.info("stops, since the run has failed: %s", first)
        return first
    reason = error
    if not isinstance(reason, TimelyError):
        reason = WorkerError(f"worker {index} raised {error_text(error)}")
        reason.__cause__ = error
    registration.report(reason)
    _log.warning("stops, and so do the others: %s", reason)
    if trace := trace_of(reason):
        reason.add_note(trace)  # Spark shows the error that was raised, and its notes, but no causes
    return reason
