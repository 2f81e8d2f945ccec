"""The rendezvous of workers that cannot reach the driver: worker 0 serves it, and an all-gather of Spark's says where.

Used over Spark Connect, where the program is outside of the cluster. Worker 0 of each attempt of the barrier stage makes the
keys, and runs the server that the driver has otherwise (:mod:`timely.spark.rendezvous`). Reports for the driver travel as one
row of the stage's output. The invariant: keys are those of one attempt, made on an executor, sent between Spark's own processes
alone. No plan has them. Worker 0 ends after all others, and only a run that has succeeded has a report.
"""

from __future__ import annotations

import base64
import contextlib
import json
import pickle
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import attrs
from pyspark import BarrierTaskContext
from pyspark.sql import DataFrame, SparkSession

from timely.errors import (
    ConfigurationError,
    GraphError,
    OperatorError,
    PeerLostError,
    SchemaError,
    SparkError,
    TimelyError,
    WorkerError,
)
from timely.spark.connect import functions_of, is_connect
from timely.spark.packing import REPORT, REPORTED, TAG
from timely.spark.rendezvous import Rendezvous, RunEntry
from timely.spark.reporting import Metrics, RunProgress, WorkerMetrics, summarize
from timely.spark.stage_messages import SILENCE, Granted, Invitation, Resumed, Returning, describe, revive
from timely.spark.versions import gathered
from timely.worker.wire import LARGEST as LARGEST_FRAME

RendezvousMode = Literal["driver", "all_gather"]
"""Who serves the rendezvous of a run's workers: the driver, or worker 0."""

_LEAVE_WITHIN = 5.0
"""Seconds that the others have to leave a run that has failed, so that they receive the reason."""

MARK = "timely-error: "

_LOOK_EVERY = 0.02

_FINAL = (ConfigurationError, GraphError, SchemaError, OperatorError, WorkerError)
"""What the program made wrong, or its functions raised: another attempt would raise the same."""


class FinalFailure(Exception):
    """An attempt has failed of what another one would fail of too, before any worker had a row to return.

    Spark would try a stage again that fails, and nobody can cancel it. So all workers end without a row but one with the error,
    which its reader raises. The invariant: no partition of such a stage has any other row.
    """

    def __init__(self, error: TimelyError) -> None:
        super().__init__(str(error))
        self.error = error


def rendezvous_mode(session: SparkSession, chosen: object) -> RendezvousMode:
    """Return who serves the rendezvous: as ``chosen``, or the driver where the program is in it.

    ``ConfigurationError`` for anything else, and for the driver over Spark Connect.
    """
    if chosen not in (None, "driver", "all_gather"):
        raise ConfigurationError(f"rendezvous must be 'driver' or 'all_gather', not {chosen!r}")
    if chosen == "driver" and is_connect(session):
        raise ConfigurationError(
            "rendezvous='driver' needs a program that runs in the driver, and that of Spark Connect does not: leave it out"
        )
    return "all_gather" if chosen == "all_gather" or is_connect(session) else "driver"


# -- the workers' side -------------------------------------------------------------------------------------------------


@attrs.frozen
class Attempt:
    """One attempt of a stage, as one worker sees it: the ``invitation`` that it registers with.

    ``report()`` returns what the driver gets to know, when this worker has finished; ``None`` if another worker has it.
    """

    invitation: Invitation
    report: Callable[[], str | None] = attrs.field(default=lambda: None)


@attrs.frozen
class GatheredRendezvous:
    """What a worker must know of a run whose driver it cannot reach; travels with the task. ``patience`` is in seconds."""

    workers: int
    patience: float = SILENCE
    largest: int = LARGEST_FRAME

    @contextlib.contextmanager
    def attempt(self, context: BarrierTaskContext) -> Iterator[Attempt]:
        """Meet the others of an attempt, in each of its tasks. Takes about a second, by which Spark's all-gather polls.

        What keeps worker 0 from serving is raised in all of them.
        """
        if context.partitionId() == 0:
            with self._serving(context) as attempt:
                yield attempt
        else:
            texts = gathered(context)
            _check(texts)
            yield Attempt(_read(texts[0]))

    @contextlib.contextmanager
    def _serving(self, context: BarrierTaskContext) -> Iterator[Attempt]:
        with contextlib.ExitStack() as stack:
            try:
                server = _server_at(_meeting_host([info.address for info in context.getTaskInfos()]))
                stack.callback(server.close)
                entry = server.open_run(self.workers, patience=self.patience, largest=self.largest)
            except Exception as error:
                _check(gathered(context, json.dumps({"error": describe(error, 0)})))
                raise
            hosting = _Hosting(attrs.evolve(server.invitation(entry), by_worker=True), entry)
            _check(gathered(context, _written(hosting.invitation)))
            stack.callback(hosting.await_others, _LEAVE_WITHIN)
            yield Attempt(hosting.invitation, hosting.report)


def _meeting_host(addresses: list[str]) -> str:
    """Return where worker 0 serves: on its executor's address, or on the loopback interface if all workers are on one machine.

    >>> _meeting_host(["10.0.0.5:4000", "10.0.0.5:4001"]), _meeting_host(["[fe80::1]:4000", "[fe80::2]:4000"])
    ('127.0.0.1', 'fe80::1')
    """
    hosts = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        hosts.append((host if host and port.isdigit() else address).strip("[]"))
    return "127.0.0.1" if len(set(hosts)) == 1 else hosts[0]


def _server_at(host: str) -> Rendezvous:
    try:
        return Rendezvous(host, host)
    except SparkError as error:
        raise SparkError(
            f"worker 0 cannot listen at {host}, which is where Spark has its executor: {error.__cause__}. Have the executors use "
            "addresses of their machines"
        ) from error


def _written(invitation: Invitation) -> str:
    return json.dumps({"invitation": base64.b64encode(pickle.dumps(invitation)).decode()})


def _check(texts: list[str]) -> None:
    """Raise what a worker has sent that cannot take part; all of them do."""
    for text in texts:
        if text and "error" in (values := json.loads(text)):
            error = revive(values["error"])
            raise FinalFailure(error) if isinstance(error, _FINAL) else error


def _read(text: str) -> Invitation:
    """Return the invitation that worker 0 has sent, through Spark, which pickles the tasks too."""
    invitation: Invitation = pickle.loads(base64.b64decode(json.loads(text)["invitation"]))
    return invitation


class _Hosting:
    """The attempt as worker 0 sees it, which collects the last reports of all."""

    def __init__(self, invitation: Invitation, entry: RunEntry) -> None:
        self.invitation = invitation
        self._entry = entry
        self._final: dict[int, dict[str, Any]] = {}
        self._resumed: list[int] = []
        self._returning = False
        entry.is_final = self._is_final
        entry.listen(Returning, self._grant)
        entry.listen(WorkerMetrics, self._receive)
        entry.listen(Resumed, self._on_resumed)

    def _receive(self, worker: int, generation: int, metrics: WorkerMetrics) -> None:
        if metrics.final:
            self._final[worker] = attrs.asdict(metrics)

    def _grant(self, worker: int, generation: int, message: Returning) -> None:
        """Let a worker return rows, unless the attempt has failed, and the worker is to know it."""
        if not self._entry.stopped:
            self._returning = True
            self._entry.send(worker, Granted())

    def _is_final(self, error: TimelyError) -> bool:
        return not self._returning and isinstance(error, _FINAL)

    def _on_resumed(self, worker: int, generation: int, message: Resumed) -> None:
        if message.epoch is not None:
            self._resumed.append(message.epoch)

    def await_others(self, seconds: float) -> None:
        """Wait until all workers have left, for so many seconds at most."""
        deadline = time.monotonic() + seconds
        while self._entry.attending and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY)

    def report(self) -> str | None:
        self.await_others(float("inf"))  # the server drops those that are silent
        if (failure := self._entry.failure) is not None:
            raise FinalFailure(failure) if self._is_final(failure) else failure
        if missing := sorted(set(range(self.invitation.workers)) - set(self._final)):
            raise PeerLostError(f"worker {missing[0]} has gone away")
        return json.dumps({"workers": [self._final[index] for index in sorted(self._final)], "resumed": self._resumed})


def mark(error: TimelyError, worker: int) -> None:
    """Add a line to the text of an error with all that :func:`failure_of` needs."""
    error.add_note(MARK + json.dumps({**describe(error, worker), "trace": ""}))


def text_of(error: TimelyError) -> str:
    """Return the text of an error that is raised elsewhere, with all its notes."""
    return "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ()), ""])


# -- the driver's side -------------------------------------------------------------------------------------------------


def failure_of(error: BaseException) -> TimelyError | None:
    """Return the typed error of the worker that failed, which the exception of an action quotes; ``None`` if it quotes none.

    For runs whose workers cannot reach the program, as over Spark Connect. Elsewhere ``Result.failure`` has it.

    >>> import traceback
    >>> from timely.errors import SchemaError
    >>> error = SchemaError("there is no column 'n'")
    >>> mark(error, worker=1)
    >>> failure_of(RuntimeError("".join(traceback.format_exception(error))))
    SchemaError("there is no column 'n'")
    """
    failures = re.findall(rf"^{MARK}(\{{.*\}})\s*$", str(error), re.MULTILINE)
    return revive(json.loads(failures[-1])) if failures else None


class ObservedReports:
    """What the program gets to know of a run: the report that Spark returns beside the result of an action."""

    def __init__(self, session: SparkSession, workers: int) -> None:
        self._workers = workers
        self._functions = functions_of(session)
        self._observation: Any = _observation(session)

    def observe(self, packed: DataFrame) -> DataFrame:
        """Return the output of the barrier stage, of which Spark returns the report."""
        F = self._functions
        return packed.observe(self._observation, F.max(F.when(F.col(TAG) == REPORTED, F.col(REPORT))).alias(REPORT))

    def _report(self) -> dict[str, Any]:
        java = getattr(self._observation, "_jo", None)
        if java is not None and not java.future().isCompleted():  # to ask for it would wait
            return {}
        text = self._observation.get.get(REPORT)
        return {} if text is None else dict(json.loads(text))

    @property
    def failure(self) -> TimelyError | None:
        """Refused: only the exception that an action raises has it."""
        raise SparkError(
            "the workers of this run cannot reach the process of the program, so a result has no failure: catch what the action "
            "raises, and give it to timely.spark.failure_of"
        )

    @property
    def metrics(self) -> Metrics:
        """What each worker did; empty before a run has succeeded."""
        return Metrics(WorkerMetrics(**worker) for worker in self._report().get("workers", ()))

    @property
    def progress(self) -> RunProgress | None:
        """How the run has ended; ``None`` before."""
        return summarize(self.metrics, self._workers)

    @property
    def resumed(self) -> list[int]:
        """The epoch from which the attempt that succeeded resumed, if it did."""
        return list(self._report().get("resumed", ()))


def _observation(session: SparkSession) -> object:
    if is_connect(session):
        from pyspark.sql.connect.observation import Observation as ConnectObservation

        return ConnectObservation()
    from pyspark.sql import Observation

    return Observation()
