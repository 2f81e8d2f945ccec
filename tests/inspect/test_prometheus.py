"""What Prometheus scrapes; the rest of it is shown by the example of ``timely.inspect.prometheus.export``."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

import timely
from timely.inspect.prometheus import export


def test_a_name_that_has_what_is_no_character_can_be_scraped() -> None:
    registry = CollectorRegistry()
    with timely.Worker() as worker:
        export(worker, registry)
        with worker.dataflow(name="caf\udce9") as scope:
            scope.to_stream(range(3)).map(str)
        worker.run()
    assert r'path="/caf\\udce9/map#1"' in generate_latest(registry).decode()
