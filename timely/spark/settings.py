"""Which settings of a Spark session matter to a dataflow, which value each must or should have, and why.

:data:`RULES` is the one table. :func:`check` returns everything that could be better, :func:`require_settings` raises for what a
run cannot do without. The invariant: a session in which a run would hang or lose its workers is refused before any job starts,
with an error that names the setting and its value. ``docs/spark_operations.md`` says why other settings do not matter.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import attrs
from pyspark.sql import SparkSession

from timely.errors import SparkError
from timely.spark.connect import connect_settings, connect_slots, is_connect
from timely.spark.defaults import RunDefaults, seconds
from timely.spark.session import check_workers, concurrent_tasks, context_of, is_local, was_stopped

if TYPE_CHECKING:  # not in the client of Spark Connect alone
    from pyspark import SparkContext

EXECUTORS_APPEAR_WITHIN = 60.0
"""Seconds that a cluster gets to bring up the executors it promised, before a run is refused for want of slots."""


@attrs.frozen
class Finding:
    """One setting that is not as it should be.

    ``setting`` is its name, ``value`` what it is now, ``needed`` what to set, and ``reason`` why. A run is refused where it is
    ``required``; otherwise it is advice.
    """

    setting: str
    value: str
    needed: str
    reason: str
    required: bool

    def __str__(self) -> str:
        return f"{self.reason}. Set {self.needed} ({self.setting} is {self.value})"


class Findings(tuple[Finding, ...]):
    """What :func:`check` has found; empty where all is well. Prints as a table, what is required first.

    >>> print(Findings([Finding("spark.python.worker.reuse", "false", "spark.python.worker.reuse=true", "it is slow", False)]))
    advised   spark.python.worker.reuse=true  (now false)
              it is slow
    >>> print(Findings())
    every setting that matters is as it should be
    """

    __slots__ = ()

    @property
    def required(self) -> Findings:
        """Those for which a run is refused."""
        return Findings(finding for finding in self if finding.required)

    def __str__(self) -> str:
        if not self:
            return "every setting that matters is as it should be"
        ordered = sorted(self, key=lambda finding: not finding.required)
        return "\n".join(
            f"{'required' if finding.required else 'advised':<10}{finding.needed}  (now {finding.value})\n"
            f"{'':<10}{finding.reason}"
            for finding in ordered
        )

    __repr__ = __str__


@attrs.frozen
class ClusterFacts:
    """What the rules look at: the session's settings, and where its tasks run.

    ``settings(name, default)`` looks up a setting. ``slots`` is how many tasks can run at the same time, ``spare`` how many must
    be left over, ``hosts`` the other machines on which executors are up.
    """

    settings: Callable[[str, str], str]
    master: str
    local: bool
    slots: int
    workers: int
    hosts: frozenset[str] = frozenset()
    spare: int = 0

    def on(self, setting: str, default: str = "false") -> bool:
        """Return whether a setting is true."""
        return self.settings(setting, default).strip().lower() == "true"

    def number(self, setting: str, default: str) -> int:
        """Return the value of a setting that is a whole number; that of ``default`` where it is none."""
        try:
            return int(self.settings(setting, default))
        except ValueError:
            return int(default)


@attrs.frozen
class Rule:
    """One setting that matters; ``wrong`` says whether it is not as it should be."""

    setting: str
    default: str
    needed: str
    reason: str
    required: bool
    wrong: Callable[[ClusterFacts], bool]

    def judge(self, around: ClusterFacts) -> Finding | None:
        """Return the finding; ``None`` where the setting is as it should be."""
        if not self.wrong(around):
            return None
        value = around.settings(self.setting, self.default) or "not set"
        return Finding(self.setting, value, self.needed, self.reason, self.required)


# -- the rules ---------------------------------------------------------------------------------------------------------


def _kills_idle(around: ClusterFacts) -> bool:
    idle = around.number(_IDLE, around.settings("spark.python.worker.idleTimeoutSeconds", "0"))
    return idle > 0 and around.on(_KILL, around.settings("spark.python.worker.killOnIdleTimeout", "false"))


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1", "[::1]") or host.startswith("127.")


def _out_of_reach(around: ClusterFacts) -> bool:
    return _is_loopback(around.settings("spark.driver.host", "")) and bool(around.hosts)


def _waits_long_for_slots(around: ClusterFacts) -> bool:
    tries = around.number("spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures", "40")
    with contextlib.suppress(ValueError):  # Spark says what it does not read
        return tries * seconds(around.settings("spark.scheduler.barrier.maxConcurrentTasksCheck.interval", "15s").strip()) > 60
    return False


def _sends_in_the_clear(around: ClusterFacts) -> bool:
    encrypted = around.on("spark.network.crypto.enabled") or around.on("spark.ssl.rpc.enabled")
    return bool(around.hosts) and not (around.on("spark.authenticate") and encrypted)


_IDLE = "spark.sql.execution.pyspark.udf.idleTimeoutSeconds"
_KILL = "spark.sql.execution.pyspark.udf.killOnIdleTimeout"

RULES: tuple[Rule, ...] = (
    Rule(
        "spark.dynamicAllocation.enabled",
        "false",
        "spark.dynamicAllocation.enabled=false",
        "Spark runs no barrier stage under dynamic allocation. Ask for enough executors instead (spark.executor.instances, "
        "spark.executor.cores)",
        True,
        lambda around: not around.local and around.on("spark.dynamicAllocation.enabled"),
    ),
    Rule(
        _KILL,
        "false",
        f"{_KILL}=false",
        "a worker may compute, or wait for others, for longer than the time limit without handing over a row, and would be "
        "killed",
        True,
        _kills_idle,
    ),
    Rule(
        "spark.driver.host",
        "",
        "spark.driver.host to an address of the driver's machine that the executors can reach",
        "the workers register with the driver's process, and this is an address by which only its own machine can reach it",
        True,
        _out_of_reach,
    ),
    Rule(
        "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures",
        "40",
        "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures=3 and "
        "spark.scheduler.barrier.maxConcurrentTasksCheck.interval=5s when the session is made",
        "a stage for which executors are missing is tried for as many times as this, with the interval in between (10 minutes by "
        "default), before it fails",
        False,
        _waits_long_for_slots,
    ),
    Rule(
        "spark.authenticate",
        "false",
        "spark.authenticate=true and spark.network.crypto.enabled=true (or spark.ssl.rpc.enabled=true) when the session is made",
        "the keys by which the workers of a run know each other travel with Spark's tasks, which others on the network can read "
        "where Spark does not encrypt them",
        False,
        _sends_in_the_clear,
    ),
)
"""Every setting that matters but the number of slots, which :func:`check` works out of several. Required ones come first."""


# -- asking ------------------------------------------------------------------------------------------------------------


def check(session: SparkSession, workers: int) -> Findings:
    """Return what in a session's settings would keep ``workers`` workers from running, or from running well.

    Over Spark Connect it may run a small job, to count the slots. Raises :class:`~timely.errors.SparkError` for a session that
    was stopped, and :class:`~timely.errors.ConfigurationError` for a count that is no positive integer, or a setting
    ``spark.timely.*`` that is unknown or cannot be read.

    >>> from timely.spark import check, local_session
    >>> session = local_session(2)
    >>> check(session, workers=2)
    every setting that matters is as it should be
    >>> [(finding.setting, finding.required) for finding in check(session, workers=1000)]
    [('spark.master', True)]
    """
    check_workers(workers)
    if was_stopped(session):
        raise SparkError("this Spark session was stopped: make another one")
    RunDefaults.of(session)
    return judge(_look_around(session, workers, 0))


def judge(around: ClusterFacts) -> Findings:
    """Return the findings of all rules."""
    findings = [finding for rule in RULES if (finding := rule.judge(around)) is not None]
    if around.slots < around.workers + around.spare:
        findings.insert(0, _too_few(around))
    return Findings(findings)


def require_settings(session: SparkSession, workers: int, spare: int = 0) -> None:
    """Raise :class:`~timely.errors.SparkError` unless the session can run ``workers`` workers, and ``spare`` other tasks beside.

    Each worker needs a slot (``spark.task.cpus`` cores). Executors that are still starting are waited for.
    """
    around = _look_around(session, workers, spare)
    deadline = time.monotonic() + (0.0 if around.local else EXECUTORS_APPEAR_WITHIN)
    while (required := judge(around).required) and around.slots < workers + spare and time.monotonic() < deadline:
        if any(finding.setting == "spark.dynamicAllocation.enabled" for finding in required):
            break  # executors come and go with the work there is, so that waiting for them is no use
        time.sleep(0.2)
        around = _look_around(session, workers, spare)
    if required:
        raise SparkError(". Also, ".join(map(str, required)))


def _too_few(around: ClusterFacts) -> Finding:
    slots = around.workers + around.spare
    if around.local:
        setting, value = "spark.master", around.master
        cores = slots * around.number("spark.task.cpus", "1")
        needed = f"the master to local[{cores}], for which the session has to be stopped and made anew"
    else:
        setting = "spark.executor.instances"
        value = around.settings(setting, "not set")
        needed = (
            "more executors or cores (spark.executor.instances, spark.executor.cores, spark.cores.max), or ask for fewer workers"
        )
    cpus = around.number("spark.task.cpus", "1")
    each = f" of {cpus} cores each (spark.task.cpus)" if cpus > 1 else ""
    others = f" ({around.spare} of them for what Spark does beside them)" if around.spare else ""
    reason = (
        f"{around.workers} workers need {slots} task slots{each} at the same time{others}; {around.master} offers {around.slots}"
    )
    return Finding(setting, value, needed, reason, True)


def _look_around(session: SparkSession, workers: int, spare: int) -> ClusterFacts:
    if is_connect(session):
        return _look_through_connect(session, workers, spare)
    context = context_of(session)
    of_context = _settings_of(context)

    def settings(name: str, default: str) -> str:
        return str(session.conf.get(name, default)) if name.startswith("spark.sql.") else of_context(name, default)

    local = is_local(context)
    hosts = frozenset() if local else frozenset(host for host in executor_hosts(context) if not is_here(host))
    return ClusterFacts(settings, str(context.master), local, concurrent_tasks(context), workers, hosts, spare)


def _look_through_connect(session: SparkSession, workers: int, spare: int) -> ClusterFacts:
    """Return what a server says. The user's number of workers is trusted where nothing says how many slots there are."""
    settings = connect_settings(session)
    slots = connect_slots(session, settings)
    master = settings("spark.master", "the cluster")
    return ClusterFacts(
        settings, master, master.startswith("local"), workers + spare if slots is None else slots, workers, spare=spare
    )


_asked: WeakKeyDictionary[SparkContext, Callable[[str, str], str]] = WeakKeyDictionary()


def _settings_of(context: SparkContext) -> Callable[[str, str], str]:
    """Return what looks up a context's settings, each once: a question to Java costs a round trip."""
    settings = _asked.get(context)
    if settings is None:
        conf = context.getConf()
        settings = _asked[context] = cache(lambda name, default: str(conf.get(name, default)))
    return settings


def executor_hosts(context: SparkContext) -> frozenset[str]:
    """Return the machines on which executors are up, as the driver knows them, and the driver's own."""
    infos: Iterable[Any] = context._jsc.sc().statusTracker().getExecutorInfos()
    return frozenset(str(info.host()) for info in infos)


def is_here(host: str) -> bool:
    """Return whether a host is this machine: whether one can listen there."""
    try:
        with socket.create_server((host.strip("[]"), 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            return True
    except OSError:
        return False
