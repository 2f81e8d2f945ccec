"""OpenTelemetry gets the numbers of all watched workers when it asks.

White box: that a meter goes with its worker is seen at the worker's list of tracers.
"""

from __future__ import annotations

import gc
import importlib
import logging
import sys
import weakref
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import timely
from timely.errors import ConfigurationError
from timely.inspect import everywhere
from timely.inspect.otel import WorkerMeter
from timely.worker.internals import tracers

Numbers = dict[str, dict[tuple[Any, Any], float]]


def numbers(reader: InMemoryMetricReader) -> Numbers:
    """What is exported now, by name, and then by worker and path."""
    by_name: Numbers = {}
    data = reader.get_metrics_data()
    for resource in [] if data is None else data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    value: Any = point
                    attributes = dict(point.attributes or {})
                    by_name.setdefault(metric.name, {})[attributes["worker"], attributes.get("path")] = value.value
    return by_name


def test_operators_and_workers_are_counted_on_all_workers_of_a_process() -> None:
    reader = InMemoryMetricReader()
    meter = WorkerMeter(MeterProvider([reader]))

    def program(worker: timely.Worker) -> None:
        with worker.dataflow(name="df") as scope:
            scope.to_stream(range(10)).exchange(lambda x: x).map(str).probe()
        worker.run()

    with everywhere(meter.watch):
        timely.execute(program, workers=2)
    result = numbers(reader)
    assert result["timely.operator.records.read"][0, "/df/map#2"] == 10
    assert result["timely.operator.records.read"][1, "/df/map#2"] == 10
    assert result["timely.operator.records.sent"][0, "/df/map#2"] == 10
    assert result["timely.operator.runs"][0, "/df/map#2"] >= 1
    assert result["timely.operator.time"][0, "/df/map#2"] > 0
    assert result["timely.worker.progress.sent"][1, None] > 0
    assert result["timely.worker.progress.received"][0, None] > 0
    assert result["timely.worker.waited"][0, None] >= 0
    assert "timely.dataflow.epoch" not in result


def test_how_far_a_dataflow_is_and_how_far_behind() -> None:
    reader, worker = InMemoryMetricReader(), timely.Worker()
    WorkerMeter(MeterProvider([reader])).watch(worker)
    with worker.dataflow(name="df") as scope:
        slow, late = scope.new_input()
        quick, early = scope.new_input()
        late.concat(early).unary(timely.Pipeline, "never reads", lambda capability, info: lambda input, output: None)
    quick.send_batch([1, 2, 3])
    quick.advance_to(9)
    slow.advance_to(4)
    for _ in range(3):
        worker.step()
    result = numbers(reader)
    assert result["timely.dataflow.epoch"][0, "/df"] == 0
    assert result["timely.dataflow.lag"][0, "/df"] == 9
    assert result["timely.dataflow.records"][0, "/df"] == 3


def test_workers_that_come_one_after_the_other_are_added_up_and_forgotten() -> None:
    reader = InMemoryMetricReader()
    meter = WorkerMeter(MeterProvider([reader]))
    for total in (5, 10, 15):
        worker = timely.Worker()
        meter.watch(worker)
        with worker.dataflow(name="df") as scope:
            scope.to_stream(range(5)).map(str).probe()
        worker.run()
        assert numbers(reader)["timely.operator.records.read"][0, "/df/map#1"] == total
    last = weakref.ref(tracers(worker)[-1])  # which goes with the worker; a compiled worker takes no weak reference
    del worker, scope
    gc.collect()
    assert last() is None
    assert numbers(reader)["timely.operator.records.read"][0, "/df/map#1"] == 15


def test_times_that_are_no_integers_have_no_epoch() -> None:
    reader, worker = InMemoryMetricReader(), timely.Worker()
    WorkerMeter(MeterProvider([reader])).watch(worker)
    with worker.dataflow(timely.Product[int, int], name="df") as scope:
        handle, _ = scope.new_input()
    worker.step()
    result = numbers(reader)
    assert "timely.dataflow.epoch" not in result and "timely.dataflow.lag" not in result
    assert result["timely.dataflow.records"][0, "/df"] == 0
    handle.close()


def test_what_changes_while_it_is_read_is_left_out_this_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reader, worker = InMemoryMetricReader(), timely.Worker()
    meter = WorkerMeter(MeterProvider([reader]))
    meter.watch(worker)
    with worker.dataflow(name="df") as scope:
        handle, _ = scope.new_input()
    worker.step()

    def changing(of: object) -> Any:
        raise RuntimeError("dictionary changed size during iteration")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(type(scope.subgraph), "under_way", changing)
        assert "timely.dataflow.records" not in numbers(reader)
    assert caplog.text == ""
    assert numbers(reader)["timely.dataflow.records"][0, "/df"] == 0
    handle.close()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "timely.inspect.otel", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", None)
    with pytest.raises(ConfigurationError, match=r'pip install "timely-dataflow\[otel\]"'):
        importlib.import_module("timely.inspect.otel")


def test_a_name_that_has_what_is_no_character_can_be_exported() -> None:
    reader, worker = InMemoryMetricReader(), timely.Worker()
    WorkerMeter(MeterProvider([reader])).watch(worker)
    with worker.dataflow(name="caf\udce9") as scope:
        scope.to_stream(range(3)).map(str)
    worker.run()
    assert numbers(reader)["timely.operator.records.read"][0, r"/caf\udce9/map#1"] == 3
