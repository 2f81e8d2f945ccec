"""How hard Hypothesis searches: moderately by default, repeatably in CI, more if asked, for as long as one likes when soaking.

No profile has a deadline: how long one example takes says more about the machine than about the code. ``--soak-seconds``
says how long each soak test goes on; how much each has covered stands at the end of the run, of all its processes.

Java compiles for a quick start here, not for a long life, and starts from classes that another Java has read: the processes of
Spark that tests start live for seconds. Its Python workers are forked from a process that has loaded what they need, but not in
soak runs and on clusters. ``SPARK_SUBMIT_OPTS`` of one's own is left alone.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.support import java_archive, quick_runs
from tests.support.script_server import ScriptServer
from tests.support.spark_programs import SparkPrograms
from tests.support.work_units import work_unit

# A planted error is shrunk by many tests, and then Hypothesis explains it for longer than that took: only if more is asked for.
SHORT = [phase for phase in Phase if phase is not Phase.explain]
settings.register_profile("default", max_examples=12, deadline=None, phases=SHORT)
settings.register_profile("ci", max_examples=12, deadline=None, phases=SHORT, derandomize=True, print_blob=True)
settings.register_profile("more", max_examples=200, deadline=None)
settings.register_profile(
    "soak", max_examples=500, deadline=None, derandomize=False, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ci" if os.environ.get("CI") else "default")

# What a test does must not depend on the limits of the container that it runs in.
os.environ.setdefault("TIMELY_MEMORY", "none")

# Bytecode is kept whatever the environment says: hundreds of tests start another Python.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

COVERED = pytest.StashKey[list[str]]()
ARCHIVE = pytest.StashKey[subprocess.Popen[bytes]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak-seconds", type=float, metavar="N", help="how long each soak test goes on (20)")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[COVERED] = []
    config.pluginmanager.register(quick_runs)
    if "SPARK_SUBMIT_OPTS" not in os.environ:  # else set by hand, or by the process that started this one of several
        archive = config.rootpath / ".pytest_cache" / "spark.jsa"
        if getattr(config.option, "numprocesses", None) and not archive.exists():
            config.stash[ARCHIVE] = java_archive.start(archive)
        as_users = config.option.markexpr in ("soak", "cluster")
        os.environ["SPARK_SUBMIT_OPTS"] = java_archive.options(archive, as_users=as_users)
        if not as_users:  # functions that come over Spark Connect do not have the variables of the session
            paths = [os.environ.get("PYTHONPATH"), str(java_archive.DAEMON)]
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    if config.getoption("--soak-seconds") is not None or config.option.markexpr == "soak":
        settings.load_profile("soak")  # before any test is imported


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):  # of a process that runs some of the tests, for the one that reports
        session.config.workeroutput["covered"] = session.config.stash[COVERED]


def pytest_unconfigure(config: pytest.Config) -> None:
    if (making := config.stash.get(ARCHIVE, None)) is not None:
        making.terminate()
        making.wait()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each process whole files, and all files that start Java for the same purpose to one process."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # only where there are several processes

    scheduler = LoadFileScheduling(config, log)
    scheduler._split_scope = functools.cache(functools.partial(work_unit, config.rootpath))
    return scheduler


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[COVERED].extend(getattr(node, "workeroutput", {}).get("covered", []))  # nothing if it crashed


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.stash[COVERED]:
        terminalreporter.section("covered by soaking")
        for line in config.stash[COVERED]:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def spark_programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkPrograms]:
    """The process for programs that make a Spark session."""
    programs = SparkPrograms(tmp_path_factory.mktemp("spark"))
    yield programs
    programs.close()


@pytest.fixture(scope="session")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptServer]:
    """The process for programs without a Spark session."""
    server = ScriptServer(tmp_path_factory.mktemp("scripts"))
    yield server
    server.close()


@pytest.fixture
def soak_seconds(request: pytest.FixtureRequest) -> float:
    """Return for how many seconds a soak test goes on."""
    return float(request.config.getoption("--soak-seconds") or 20.0)


@pytest.fixture
def cover(request: pytest.FixtureRequest) -> Callable[[int, str], None]:
    """Return a function that notes how much of what a soak test has covered."""
    return lambda count, what: request.config.stash[COVERED].append(f"{count:>11,} {what} {request.node.name}")
