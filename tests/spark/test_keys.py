"""The keys of a run stay out of whatever Spark shows and keeps of it.

White box: nobody outside has the keys that must not be found.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest
from pyspark.sql import SparkSession

import timely
from timely import spark as ts
from timely.spark.rendezvous import Rendezvous, RunEntry

pytestmark = pytest.mark.spark


def build(scope: timely.ScopeBuilder[int], numbers: timely.Stream[int, Any]) -> dict[str, timely.Stream[int, Any]]:
    return {"numbers": numbers.exchange("id")}


def test_keys_are_in_no_plan_and_in_no_log(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[RunEntry] = []
    open_run = Rendezvous.open_run

    def note(server: Rendezvous, *args: Any, **options: Any) -> RunEntry:
        runs.append(open_run(server, *args, **options))
        return runs[-1]

    monkeypatch.setattr(Rendezvous, "open_run", note)
    caplog.set_level(logging.DEBUG, "timely")
    result = ts.run(build, {"numbers": session.range(100)}, {"numbers": "id long"}, workers=2)
    assert result["numbers"].count() == 100
    (run,) = runs
    shown = result["numbers"]._jdf.queryExecution().toString() + repr(result) + repr(run) + caplog.text
    for key in (run.identity.key, run.driver.key):
        lines = [line for line in key.decode().splitlines() if not line.startswith("---")]
        assert len(lines) > 1
        assert not any(line in shown for line in lines)
