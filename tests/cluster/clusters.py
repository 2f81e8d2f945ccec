"""Clusters of real processes on this machine, from nothing but the installed package: for as long as a block lasts.

Every port is one that the system chose, everything listens on the loopback interface, and whatever was started is gone when the
block is left, however that happens. A process has one Spark session, so one that is up is stopped first.

White box: executors get the settings of ``local_session`` and the Java that it finds, and no public function returns these.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs
import pyspark
from pyspark.sql import SparkSession

import timely
from timely.spark import session as settings_of
from timely.spark.java import environment, java_environment
from timely.spark.session import concurrent_tasks

ROOT = Path(timely.__file__).resolve().parents[1]
HOME = Path(pyspark.__file__).resolve().parent

SLOTS = 2
"""The slots that each of these clusters has, unless it is asked for more cores."""


def slots_of(session: SparkSession) -> int:
    """Return how many tasks can run at the same time."""
    return concurrent_tasks(session.sparkContext)


@attrs.frozen
class Daemon:
    """A master or worker process that has said it is up; ``said`` is the part of its log that was looked for."""

    process: subprocess.Popen[str]
    said: str


@contextlib.contextmanager
def local_cluster(**settings: str) -> Iterator[SparkSession]:
    """A session on two executors of one core each, which are processes that the driver's own Java starts."""
    with on_this_machine(), _no_litter(HOME / "work"), _session("local-cluster[2,1,1024]", SLOTS, settings) as session:
        yield session


@contextlib.contextmanager
def standalone(work: Path, cores: int = 1, /, **settings: str) -> Iterator[SparkSession]:
    """A session on a standalone cluster: a master, and two workers with so many cores and one executor each.

    All are processes of their own, with their files in ``work``.
    """
    with on_this_machine(), contextlib.ExitStack() as stack:
        master = stack.enter_context(start_master())
        for number in range(2):
            stack.enter_context(start_worker(master.said, work / f"worker{number}", cores))
        sizes = {"spark.cores.max": str(2 * cores), "spark.executor.cores": str(cores)}
        yield stack.enter_context(_session(master.said, 2 * cores, {**sizes, **settings}))


@contextlib.contextmanager
def start_master() -> Iterator[Daemon]:
    """A master of a standalone cluster; it says where it is, as ``spark://127.0.0.1:…``."""
    options = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with _daemon("org.apache.spark.deploy.master.Master", options, r"Starting Spark master at (spark://\S+)") as daemon:
        yield daemon


@contextlib.contextmanager
def start_worker(master: str, work: Path, cores: int = 1) -> Iterator[Daemon]:
    """A worker of so many cores that has registered with ``master``."""
    options = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0", "--cores", str(cores), "--memory", "1g"]
    options += ["--work-dir", str(work), master]
    with _daemon("org.apache.spark.deploy.worker.Worker", options, r"(Successfully registered) with master") as daemon:
        yield daemon


@contextlib.contextmanager
def _daemon(name: str, options: list[str], sign: str) -> Iterator[Daemon]:
    command = [str(HOME / "bin" / "spark-class"), name, *options]
    environment = {**os.environ, "SPARK_HOME": str(HOME), "SPARK_NO_DAEMONIZE": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    rest = threading.Thread(target=process.stdout.read, daemon=True)  # a full pipe would stop it
    try:
        log = []
        for line in process.stdout:
            log.append(line)
            if match := re.search(sign, line):
                break
        else:
            raise RuntimeError(f"{name} ended with {process.wait()} before it was up:\n{''.join(log)}")
        rest.start()
        yield Daemon(process, match[1])
    finally:
        process.terminate()
        try:
            process.wait(600)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if rest.ident is not None:
            rest.join()
        process.stdout.close()


@contextlib.contextmanager
def _session(master: str, slots: int, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session whose executors are up: on a busy machine this takes longer than a run waits for them."""
    active = SparkSession.getActiveSession()
    if active is not None:
        active.stop()
    builder = SparkSession.builder.master(master).appName("timely-tests")
    local = settings_of._local_settings(SLOTS)
    executors = {
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        "spark.executor.memory": "512m" if master.startswith("spark:") else "1g",
        "spark.executor.cores": "1",
    }
    for name, value in {**local, **executors, **settings}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    deadline = time.monotonic() + 600
    try:
        while slots_of(session) < slots and time.monotonic() < deadline:
            time.sleep(0.1)
        yield session
    finally:
        session.stop()
        SparkSession.builder._options.clear()  # they would be those of the next session too


@contextlib.contextmanager
def on_this_machine() -> Iterator[None]:
    """What processes that are started inside the block find: Java, this Python, and the loopback interface to listen on."""
    chosen = environment(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1", SPARK_LOCAL_HOSTNAME="127.0.0.1")
    with chosen, java_environment():
        yield


@contextlib.contextmanager
def _no_litter(work: Path) -> Iterator[None]:
    """Remove what a ``local-cluster`` leaves in the installed package, once its executors write there no more."""
    there = work.exists()
    before = set(work.iterdir()) if there else set()
    try:
        yield
    finally:
        deadline = time.monotonic() + 600
        while work.exists() and (left := set(work.iterdir()) - before) and time.monotonic() < deadline:
            for entry in left:
                shutil.rmtree(entry, ignore_errors=True)
        if not there and work.exists():
            work.rmdir()
