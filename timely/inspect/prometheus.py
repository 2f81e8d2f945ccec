"""A worker's numbers for Prometheus, by its own client: ``pip install "timely-dataflow[metrics]"``.

Counters only grow, and labels are the same for the same dataflow on every worker.
"""

from __future__ import annotations

from collections.abc import Iterator

from timely.errors import ConfigurationError
from timely.inspect.event_log import EventLog
from timely.inspect.tally import Tally
from timely.worker import Worker

try:
    from prometheus_client.core import CounterMetricFamily, Metric
    from prometheus_client.registry import REGISTRY, Collector, CollectorRegistry
except ModuleNotFoundError as error:
    raise ConfigurationError(
        'metrics for Prometheus need the package prometheus-client: pip install "timely-dataflow[metrics]"'
    ) from error


class WorkerCollector(Collector):
    """Seconds, runs, records read and sent of each operator of one worker, with the labels ``worker`` and ``path``.

    Also the idle seconds and the progress batches sent and received of the worker, with the label ``worker``.
    """

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def collect(self) -> Iterator[Metric]:
        """Yield the current numbers."""
        worker, operators = str(self._tally.worker), list(self._tally.operators.items())
        for name, text, numbers in (
            ("seconds", "seconds that the operator has run", [operator.seconds for _, operator in operators]),
            ("runs", "how often the operator was run", [float(operator.runs) for _, operator in operators]),
            ("records_read", "records that the operator has read", [float(operator.read) for _, operator in operators]),
            ("records_sent", "records that the operator has sent, for each input", [float(op.sent) for _, op in operators]),
        ):
            family = CounterMetricFamily(f"timely_operator_{name}", text, labels=["worker", "path"])
            for (path, _), number in zip(operators, numbers, strict=True):
                # A name that is no valid text would fail the whole scrape.
                family.add_metric([worker, path.encode(errors="backslashreplace").decode()], number)
            yield family
        for name, text, number in (
            ("waited_seconds", "seconds in which the worker was idle", self._tally.waited),
            ("progress_sent", "progress batches sent to the peers", float(self._tally.progress_sent)),
            ("progress_received", "progress batches received from the peers", float(self._tally.progress_received)),
        ):
            family = CounterMetricFamily(f"timely_{name}", text, labels=["worker"])
            family.add_metric([worker], number)
            yield family

    def describe(self) -> Iterator[Metric]:
        """Yield nothing: the metrics depend on the dataflows."""
        return iter(())


def export(worker: Worker, registry: CollectorRegistry = REGISTRY) -> WorkerCollector:
    """Register a worker's numbers in ``registry``, before its dataflows are built; return the collector, to unregister.

    >>> import timely
    >>> from prometheus_client import CollectorRegistry, generate_latest
    >>> worker, registry = timely.Worker(), CollectorRegistry()
    >>> _ = export(worker, registry)
    >>> with worker.dataflow(name="df") as scope:
    ...     _ = scope.to_stream(range(5)).filter(lambda x: x > 2).capture()
    >>> worker.run()
    >>> [line for line in generate_latest(registry).decode().splitlines() if "sent" in line and "filter" in line]
    ['timely_operator_records_sent_total{path="/df/filter#1",worker="0"} 2.0']
    """
    collector = WorkerCollector(Tally.of(EventLog(worker)))
    registry.register(collector)
    return collector
