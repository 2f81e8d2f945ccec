"""Settings of a session that matter: what is found, what is refused, and what is said.

White box: rules about clusters are judged on facts that are made up, since the session here is local.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest
from pyspark.sql import DataFrame, SparkSession

from timely import spark as ts
from timely.errors import ConfigurationError, SparkError
from timely.spark import Findings
from timely.spark.settings import RULES, ClusterFacts, executor_hosts, is_here, judge, require_settings

ADVISED = "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures"
GUIDE = Path(__file__).resolve().parents[2] / "docs" / "spark_operations.md"

# What each rule is about, as it is wrong: the settings, and the machines of the executors.
WRONG: dict[str, tuple[dict[str, str], set[str]]] = {
    "spark.dynamicAllocation.enabled": ({"spark.dynamicAllocation.enabled": "true"}, set()),
    "spark.sql.execution.pyspark.udf.killOnIdleTimeout": (
        {"spark.python.worker.killOnIdleTimeout": "true", "spark.sql.execution.pyspark.udf.idleTimeoutSeconds": "60"},
        set(),
    ),
    "spark.driver.host": ({"spark.driver.host": "127.0.0.1"}, {"10.0.0.7"}),
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": (
        {
            "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "5",
            "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1min",
        },
        set(),
    ),
    "spark.authenticate": ({"spark.driver.host": "10.0.0.1", "spark.authenticate": "true"}, {"10.0.0.7"}),
}

FINE = {
    "spark.driver.host": "10.0.0.1",
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "3",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "5s",
}


def around(
    settings: dict[str, str], hosts: set[str] | None = None, *, local: bool = False, slots: int = 4, workers: int = 4
) -> ClusterFacts:
    master = "local[4]" if local else "spark://somewhere:7077"
    return ClusterFacts(settings.get, master, local, slots, workers, frozenset(hosts or ()))


def named(findings: Findings) -> list[str]:
    return [finding.setting for finding in findings]


def test_every_rule_has_a_case() -> None:
    assert [rule.setting for rule in RULES] == list(WRONG)


def test_nothing_is_reported_of_a_session_that_is_fine() -> None:
    assert judge(around(FINE, {"10.0.0.7"})) == ()


@pytest.mark.parametrize("setting", WRONG)
def test_a_setting_that_is_wrong_is_found(setting: str) -> None:
    settings, hosts = WRONG[setting]
    safe = {name: value for name, value in FINE.items() if setting != "spark.authenticate" or "crypto" not in name}
    (finding,) = judge(around({**safe, **settings}, hosts))
    (rule,) = [rule for rule in RULES if rule.setting == setting]
    assert finding.setting == setting
    assert finding.required is rule.required
    assert finding.value == settings.get(setting, rule.default)
    assert finding.needed in str(finding)
    assert finding.reason in str(finding)


def test_what_a_cluster_needs_is_not_asked_of_a_local_session() -> None:
    settings = {"spark.dynamicAllocation.enabled": "true", "spark.driver.host": "::1"}
    checks = {name: FINE[name] for name in FINE if "barrier" in name}
    assert judge(around({**checks, **settings}, local=True)) == ()


@pytest.mark.parametrize(("interval", "advised"), [(" 30s ", True), ("1s", False), ("0", False), ("soon", False)])
def test_how_long_a_stage_waits_for_executors(interval: str, advised: bool) -> None:
    assert (ADVISED in named(judge(around({**FINE, ADVISED.replace("maxFailures", "interval"): interval})))) is advised


@pytest.mark.parametrize(
    ("host", "executors", "reached"),
    [("localhost", set(), True), ("127.0.0.1", {"node7"}, False), ("node1", {"node7"}, True), ("::1", {"node7"}, False)],
)
def test_a_driver_out_of_reach(host: str, executors: set[str], reached: bool) -> None:
    result = judge(around({**FINE, "spark.driver.host": host}, executors))
    assert ("spark.driver.host" in named(result)) is not reached


def test_too_few_slots_come_first_and_explain_what_a_slot_is() -> None:
    settings = {**FINE, ADVISED: "50", "spark.task.cpus": "2"}
    result = judge(around(settings, slots=3))
    assert named(result) == ["spark.executor.instances", ADVISED]
    assert "4 workers need 4 task slots of 2 cores each (spark.task.cpus) at the same time" in result[0].reason
    assert named(result.required) == ["spark.executor.instances"]
    local = judge(around(settings, local=True, slots=3))[0]
    assert (local.setting, local.value) == ("spark.master", "local[4]")
    assert "local[8]" in local.needed


def test_slots_that_must_be_left_over() -> None:
    beside = attrs.evolve(around(FINE), spare=1)
    assert "4 workers need 5 task slots at the same time (1 of them" in judge(beside)[0].reason


def test_the_table_shows_what_is_required_first() -> None:
    settings = {**FINE, "spark.dynamicAllocation.enabled": "true", ADVISED: "50"}
    lines = str(Findings(reversed(judge(around(settings))))).splitlines()
    assert lines[0].split() == ["required", "spark.dynamicAllocation.enabled=false", "(now", "true)"]
    assert lines[2].startswith(f"advised   {ADVISED}=3 and ") and lines[2].endswith("(now 50)")


def test_the_guide_has_every_setting() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    assert [rule.setting for rule in RULES if f"`{rule.setting}`" not in text] == []


class Cluster:
    """A cluster as far as :func:`require_settings` looks at one: executors come up while it is being asked."""

    def __init__(self, *slots: int, master: str = "spark://somewhere:7077", started: float = 0, **settings: str) -> None:
        self.master = master
        self.startTime = 1000 * started
        self.slots = list(slots)
        self.settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.conf = SimpleNamespace(get=lambda name, default: default)
        self._jsc = SimpleNamespace(sc=lambda: self)
        self.sparkContext = self

    def getConf(self) -> dict[str, str]:
        return {"spark.driver.host": "127.0.0.1", **self.settings}

    def resourceProfileManager(self) -> Any:
        return SimpleNamespace(defaultResourceProfile=lambda: None)

    def maxNumConcurrentTasks(self, profile: Any) -> int:
        return self.slots.pop(0) if len(self.slots) > 1 else self.slots[0]

    def statusTracker(self) -> Any:
        return SimpleNamespace(getExecutorInfos=list)


def test_a_cluster_that_is_starting_is_waited_for() -> None:
    cluster = Cluster(0, 2, 4)
    require_settings(cast(SparkSession, cluster), 4)
    assert cluster.slots == [4]


def test_a_cluster_that_is_too_small_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timely.spark.settings.EXECUTORS_APPEAR_WITHIN", 0.1)
    with pytest.raises(SparkError, match=r"5 workers need 5 task slots.*offers 4.*spark.executor.instances"):
        require_settings(cast(SparkSession, Cluster(4)), 5)


def test_dynamic_allocation_is_refused_at_once() -> None:
    cluster = Cluster(0, 0, 9, spark_dynamicAllocation_enabled="true")
    with pytest.raises(SparkError, match=r"0\. Set more executors.*Also, Spark runs no barrier stage.*=false"):
        require_settings(cast(SparkSession, cluster), 4)
    assert cluster.slots == [0, 9]


# -- in a session ------------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_a_local_session_is_as_it_should_be(session: SparkSession) -> None:
    assert ts.check(session, 3) == ()
    assert str(ts.check(session, 3)) == "every setting that matters is as it should be"
    assert executor_hosts(session.sparkContext) == {"127.0.0.1"}
    assert is_here("127.0.0.1")


@pytest.mark.spark
def test_more_workers_than_slots(session: SparkSession) -> None:
    (finding,) = ts.check(session, 4)
    assert finding.required
    assert finding.reason == "4 workers need 4 task slots at the same time; local[3] offers 3"
    with pytest.raises(ConfigurationError, match="workers must be an integer"):
        ts.check(session, 0)


@pytest.fixture
def numbers(session: SparkSession) -> DataFrame:
    return session.range(3)


@pytest.mark.spark
def test_a_time_limit_for_workers_is_refused(session: SparkSession, numbers: DataFrame) -> None:
    kill, idle = (f"spark.sql.execution.pyspark.udf.{name}" for name in ("killOnIdleTimeout", "idleTimeoutSeconds"))
    session.conf.set(kill, "true")
    try:
        assert ts.check(session, 2) == ()
        session.conf.set(idle, "30")
        assert named(ts.check(session, 2).required) == [kill]
        with pytest.raises(SparkError, match=f"would be killed. Set {kill}=false"):
            ts.run(lambda scope, x: {"x": x}, {"x": numbers}, {"x": "id long"}, workers=1)
    finally:
        session.conf.unset(kill)
        session.conf.unset(idle)
