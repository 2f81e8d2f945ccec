"""The numbers of workers for OpenTelemetry, by its own interface: ``pip install "timely-dataflow[otel]"``.

OpenTelemetry asks when it wants to export. Counters only grow, and attributes are the same for the same dataflow on every worker.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from timely.dataflow import ScopeBuilder
from timely.errors import ConfigurationError
from timely.inspect.event_log import EventLog, OperatorTally, Tally
from timely.monitor.dataflow_position import lag, position_of
from timely.worker import Worker

try:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter_provider
except ModuleNotFoundError as error:
    raise ConfigurationError(
        'metrics for OpenTelemetry need the package opentelemetry-sdk: pip install "timely-dataflow[otel]"'
    ) from error

_OPERATORS: Final[tuple[tuple[str, str, str, Callable[[OperatorTally], float]], ...]] = (
    ("timely.operator.time", "s", "seconds that the operator has run", lambda tally: tally.seconds),
    ("timely.operator.runs", "{run}", "how often the operator was run", lambda tally: tally.runs),
    ("timely.operator.records.read", "{record}", "records that the operator has read", lambda tally: tally.read),
    ("timely.operator.records.sent", "{record}", "records that the operator has sent, for each input", lambda tally: tally.sent),
)

_WORKERS: Final[tuple[tuple[str, str, str, Callable[[Tally], float]], ...]] = (
    ("timely.worker.waited", "s", "seconds in which the worker was idle", lambda tally: tally.waited),
    ("timely.worker.progress.sent", "{batch}", "progress batches sent", lambda tally: tally.progress_sent),
    ("timely.worker.progress.received", "{batch}", "progress batches received", lambda tally: tally.progress_received),
)

_DATAFLOWS: Final[tuple[tuple[str, str, str, Callable[[ScopeBuilder[Any]], float | None]], ...]] = (
    ("timely.dataflow.epoch", "{epoch}", "the earliest epoch that is not complete", lambda scope: position_of(scope)[0]),
    ("timely.dataflow.lag", "{epoch}", "epochs between that and the latest one in use", lag),
    ("timely.dataflow.records", "{record}", "records in flight", lambda scope: sum(s.under_way() for s in scope.scopes)),
)


class WorkerMeter:
    """Gives OpenTelemetry the numbers of the workers of this process that it is to ``watch``.

    The default ``provider`` is the global one. Operators have ``timely.operator.time``, ``.runs``, ``.records.read`` and
    ``.records.sent``, with the attributes ``worker`` and ``path``. Workers have ``timely.worker.waited``, ``.progress.sent`` and
    ``.progress.received``. Running dataflows with integer times have ``timely.dataflow.epoch``, ``.lag`` (how far the frontier is
    behind the inputs) and ``.records`` in flight.

    >>> import timely
    >>> from opentelemetry.sdk.metrics import MeterProvider
    >>> from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    >>> reader = InMemoryMetricReader()
    >>> meter, worker = WorkerMeter(MeterProvider([reader])), timely.Worker()
    >>> meter.watch(worker)
    >>> with worker.dataflow(name="df") as scope:
    ...     _ = scope.to_stream(range(5)).filter(lambda x: x > 2).capture()
    >>> worker.run()
    >>> [metrics] = reader.get_metrics_data().resource_metrics[0].scope_metrics
    >>> [sent] = [metric for metric in metrics.metrics if metric.name == "timely.operator.records.sent"]
    >>> [point.value for point in sent.data.data_points if point.attributes["path"] == "/df/filter#1"]
    [2]
    """

    def __init__(self, provider: MeterProvider | None = None) -> None:
        self._tallies: list[Tally] = []
        self._watched: list[weakref.ref[_Watched]] = []
        meter = (provider or get_meter_provider()).get_meter("timely")
        for name, unit, text, of_operator in _OPERATORS:
            meter.create_observable_counter(name, [_observing(self._of_operators, of_operator)], unit, text)
        for name, unit, text, of_worker in _WORKERS:
            meter.create_observable_counter(name, [_observing(self._of_workers, of_worker)], unit, text)
        for name, unit, text, of_dataflow in _DATAFLOWS:
            meter.create_observable_gauge(name, [_observing(self._of_dataflows, of_dataflow)], unit, text)

    def watch(self, worker: Worker) -> None:
        """Give the numbers of this worker too; call it before its dataflows are built."""
        watched = _Watched(worker)
        self._tallies.append(Tally.of(watched))
        self._watched = [known for known in self._watched if known() is not None]
        self._watched.append(weakref.ref(watched))

    def _of_operators(self, number: Callable[[OperatorTally], float]) -> Iterator[Observation]:
        for tally in list(self._tallies):
            for path, operator in list(tally.operators.items()):
                yield Observation(number(operator), {"worker": tally.worker, "path": _valid(path)})

    def _of_workers(self, number: Callable[[Tally], float]) -> Iterator[Observation]:
        for tally in list(self._tallies):
            yield Observation(number(tally), {"worker": tally.worker})

    def _of_dataflows(self, number: Callable[[ScopeBuilder[Any]], float | None]) -> Iterator[Observation]:
        for watched in filter(None, [known() for known in list(self._watched)]):
            for scope in watched.of.scopes:
                measured = number(scope)
                if isinstance(measured, int | float):
                    yield Observation(measured, {"worker": watched.worker, "path": _valid(scope.path)})


def _valid(path: str) -> str:
    """Return a path as text that can be encoded: another would fail the whole export."""
    return path.encode(errors="backslashreplace").decode()


class _Watched(EventLog):
    """A log that lives as long as its worker: a compiled worker has no weak references."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker)
        self.of = worker


def _observing(observe: Callable[[Any], Iterable[Observation]], number: Any) -> Callable[[CallbackOptions], list[Observation]]:
    """Return what OpenTelemetry calls; it gives nothing if the numbers change while they are read."""

    def callback(options: CallbackOptions) -> list[Observation]:
        try:
            return list(observe(number))
        except RuntimeError:
            return []

    return callback
