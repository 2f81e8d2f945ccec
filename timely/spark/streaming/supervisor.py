"""The workers of a stream, as the driver has them: started, given orders, and started again when they are lost.

A thread runs one barrier job after another, each an *attempt* with a run, an id and workers of its own. The invariant: only
messages of the newest attempt count, and one that begins at an older checkpoint computes all epochs since before a new one.
Waiting for an epoch ends: in its outputs, or in the error that the supervisor gave up for.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from timely.errors import (
    ChangedDataflowError,
    ConfigurationError,
    FeedError,
    GraphError,
    PeerLostError,
    SchemaError,
    SparkError,
    StateError,
    TimelyError,
)
from timely.spark.gathered_rendezvous import failure_of
from timely.spark.rendezvous import Rendezvous, RunEntry
from timely.spark.shipping import carried
from timely.spark.stage_messages import Checkpointed, Computed, Order, Ready
from timely.spark.streaming.epoch_log import EpochLog, File, Outputs
from timely.spark.streaming.jobs import StreamJobs
from timely.spark.streaming.worker_task import WorkerTask

LOSSES = 4
"""Attempts in a row that may lose a worker without an epoch in between."""

ERRORS = 2
"""Attempts in a row in which the program may raise without an epoch in between: once could be an accident."""

_FINAL = (ChangedDataflowError, ConfigurationError, FeedError, GraphError, SchemaError, StateError)
"""What a worker raises about its dataflow or a row of its inputs; the next one would raise the same."""

_LOOK_EVERY = 1.0

_log = logging.getLogger(__name__)


@attrs.define(eq=False)
class _Attempt:
    """One barrier job: its run, and what its workers have been sent and have sent."""

    run: RunEntry
    id: str
    boundaries: dict[int, int] = attrs.field(factory=dict)
    pids: dict[int, int] = attrs.field(factory=dict)
    computed: dict[int, dict[int, Any]] = attrs.field(factory=dict)
    checkpointed: dict[int, set[int]] = attrs.field(factory=dict)
    next: int | None = None
    """The epoch that is to be ordered next; ``None`` until all workers are ready."""

    def order(self, action: str, epoch: int) -> None:
        self.run.broadcast(Order(action, epoch))

    def outputs(self, epoch: int, names: Sequence[str]) -> dict[str, list[File]] | None:
        """Return the files of an epoch once all workers have sent theirs."""
        files = self.computed.get(epoch, {})
        if len(files) < self.run.workers:
            return None
        parts = [files[worker] for worker in range(self.run.workers)]
        return {name: [File(*part[name]) for part in parts if name in part] for name in names}


@attrs.define(eq=False)
class Supervisor:
    """The workers of one stream. :meth:`begin` is first, :meth:`end` last; from one thread at a time."""

    _jobs: StreamJobs
    _server: Rendezvous
    workers: int
    _epoch_log: EpochLog
    _outputs: Sequence[str]
    _patience: float
    _make_task: Callable[[RunEntry, str], WorkerTask]
    name: str = "stream"
    attempts: int = attrs.field(default=0, init=False)
    """How many times the workers have been started."""
    failure: TimelyError | None = attrs.field(default=None, init=False)
    on_failure: Callable[[], object] = attrs.field(default=lambda: None, init=False)
    _changed: threading.Condition = attrs.field(factory=threading.Condition, init=False)
    _attempt: _Attempt | None = attrs.field(default=None, init=False)
    _losses: int = attrs.field(default=0, init=False)
    _errors: int = attrs.field(default=0, init=False)
    _new_checkpoint: int | None = attrs.field(default=None, init=False)
    _over: bool = attrs.field(default=False, init=False)
    _ending: bool = attrs.field(default=False, init=False)
    _thread: threading.Thread = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._thread = threading.Thread(target=self._supervise, name="timely-supervisor", daemon=True)

    @property
    def pids(self) -> dict[int, int]:
        """The process of each worker that is up, by its index."""
        with self._changed:
            return dict(self._attempt.pids) if self._attempt is not None else {}

    def begin(self) -> None:
        """Start the workers; return when they are ready. Raises why they cannot be."""
        self._thread.start()
        with self._changed:
            while self._ready() is None:
                self._changed.wait(_LOOK_EVERY)

    def compute(self, epoch: int) -> Outputs:
        """Compute the outputs of an ingested epoch and return their files. Raises what the supervisor gave up for."""
        with self._changed:
            while True:
                attempt = self._ready()
                if attempt is not None:
                    self._feed(attempt, epoch)
                    outputs = attempt.outputs(epoch, self._outputs)
                    if outputs is not None:
                        attempt.computed.clear()
                        self._losses = self._errors = 0
                        return outputs
                self._changed.wait(_LOOK_EVERY)

    def checkpoint(self, boundary: int) -> None:
        """Write a checkpoint of all epochs before ``boundary``, if the workers are up and have computed these."""
        with self._changed:
            attempt = self._attempt
            if self.failure is None and attempt is not None and attempt.next == boundary:
                attempt.order("checkpoint", boundary)

    def new_checkpoint(self) -> int | None:
        """Return the boundary of the newest checkpoint completed since the last call, if any."""
        with self._changed:
            boundary, self._new_checkpoint = self._new_checkpoint, None
            return boundary

    def end(self) -> None:
        """End the workers after their earlier orders, and wait for them."""
        with self._changed:
            self._ending = True
            attempt = self._attempt
            up = attempt is not None and attempt.next is not None
            if attempt is not None and up:
                attempt.order("end", -1)
        while self._thread.is_alive():
            if not up:  # the workers are not up yet, and the job may not be either
                self._jobs.cancel_workers()
            self._thread.join(None if up else _LOOK_EVERY)

    # -- messages of the workers --------------------------------------------------------------------------------------------

    def _receive(self, attempt: _Attempt, worker: int, _: int, message: Ready | Computed | Checkpointed) -> None:
        """Note a message, unless it is of an older attempt. Called on the server's thread."""
        with self._changed:
            if attempt is not self._attempt:
                return
            epoch = message.epoch
            if isinstance(message, Ready):
                attempt.boundaries[worker] = epoch
                attempt.pids[worker] = message.pid
            elif isinstance(message, Computed):
                attempt.computed.setdefault(epoch, {})[worker] = message.files
            else:
                attempt.checkpointed.setdefault(epoch, set()).add(worker)
                if len(attempt.checkpointed[epoch]) == self.workers:
                    self._new_checkpoint = epoch
                    del attempt.checkpointed[epoch]
            self._changed.notify_all()

    def _ready(self) -> _Attempt | None:
        """Return the attempt all of whose workers are ready, if there is one; raise what the supervisor gave up for."""
        if self.failure is not None:
            raise self.failure
        if self._over:
            raise SparkError("the workers of this stream have left")
        attempt = self._attempt
        if attempt is None or len(attempt.boundaries) < self.workers:
            return None
        if attempt.next is None:
            self._new_checkpoint = None
            boundary = min(attempt.boundaries.values())
            self._epoch_log.restored(boundary)
            attempt.next = boundary
        return attempt

    def _feed(self, attempt: _Attempt, epoch: int) -> None:
        """Order all epochs up to ``epoch`` that the attempt has not computed yet."""
        while attempt.next is not None and attempt.next <= epoch:
            attempt.order("compute" if attempt.next > self._epoch_log.committed else "replay", attempt.next)
            attempt.next += 1

    # -- one attempt after another ---------------------------------------------------------------------------------------

    def _supervise(self) -> None:
        with self._jobs.reserve(self.workers):
            self._attempt_after_attempt()
        if self.failure is not None:
            self.on_failure()

    def _attempt_after_attempt(self) -> None:
        while True:
            attempt = self._open()
            error: Exception | None = None
            try:
                self._job(attempt)
            except Exception as raised:  # Spark's, of many types
                error = raised
            attempt.run.wanted = lambda: False
            with self._changed:
                self._attempt = None
                if error is None or self._ending:  # whatever became of workers that are not wanted any more
                    self._over = True
                else:
                    self.failure = self._judge(attempt, error)
                self._changed.notify_all()
                if self._over or self.failure is not None:
                    break

    def _open(self) -> _Attempt:
        run = self._server.open_run(self.workers, patience=self._patience)
        attempt = _Attempt(run, run.id.hex()[:8])
        for kind in (Ready, Computed, Checkpointed):
            run.listen(kind, functools.partial(self._receive, attempt))
        with self._changed:
            self._attempt = attempt
            self.attempts += 1
        return attempt

    def _job(self, attempt: _Attempt) -> None:
        task = self._make_task(attempt.run, attempt.id)
        what = f"timely {self.name}: workers"
        with self._jobs.workers(what):
            places = self._jobs.session.range(0, self.workers, 1, self.workers)
            job = places.mapInArrow(carried(task.run, what), "nothing int", barrier=True)
        job.collect()

    def _judge(self, attempt: _Attempt, error: Exception) -> TimelyError | None:
        """Return what to give up for after an attempt has failed; ``None`` to try again."""
        reason = error if isinstance(error, TimelyError) else attempt.run.failure or failure_of(error)
        if reason is None:
            reason = SparkError(f"the workers of the stream were lost: {error}")
            reason.__cause__ = error
        if isinstance(reason, PeerLostError | SparkError):
            self._losses += 1
            over = self._losses >= LOSSES
        else:
            self._errors += 1
            over = self._errors >= ERRORS or isinstance(reason, _FINAL)
        then = "" if over else ", and is followed by another"
        _log.warning("attempt %s of the workers has ended%s: %s", attempt.id, then, reason)
        return reason if over else None
