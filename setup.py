"""Builds the package with its engine compiled, where the machine can compile, or else as it stands.

The modules below are translated to C by mypyc, from the same source, and compiled: a minute, of one processor. Pip fetches mypyc
for that build alone. ``TIMELY_COMPILE=0 pip wheel .`` makes a pure wheel in seconds, for any machine; with ``TIMELY_COMPILE=1``
a build that cannot compile fails. The pure modules are in a compiled wheel as well, for readers, tracebacks and type checkers.

Free-threaded Python gets the pure engine. Other threads read attributes of native classes without a lock, which may crash there.

Metadata say where the project lives: ``TIMELY_HOME``, or the repository of the GitHub workflow that builds. The links of the
README then lead there; a build without a home keeps them relative.
What may be asked for otherwise is in pyproject.toml; docs/decisions/compiled-engine.md has the reasons.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ASKED = os.environ.get("TIMELY_COMPILE") or "auto"
"""``0``: pure; ``1``: compiled, or the build fails; ``auto``: compiled where that works."""

COMPILER = ["mypy>=2.4,<3", "attrs>=23.2"]  # attrs: the compiler reads the types of what the engine imports

# What one iteration of a loop, one message, or one change of a collection goes through. What is called once for each dataflow
# or is for columns alone stays as it is.
ENGINE = [
    "timely/order.py",
    "timely/progress/activation_queue.py",
    "timely/progress/antichain.py",
    "timely/progress/change_batch.py",
    "timely/progress/domain.py",
    "timely/progress/engine.py",
    "timely/progress/lattices.py",
    "timely/progress/minimal_heap.py",
    "timely/progress/refinements.py",
    "timely/progress/topology.py",
    "timely/progress/tracker.py",
    "timely/scopes/count_sinks.py",
    "timely/scopes/trusted.py",
    "timely/scopes/subgraph.py",
    "timely/dataflow/sync_activator.py",
    "timely/dataflow/port_owner.py",
    "timely/dataflow/capability.py",
    "timely/dataflow/channel.py",
    "timely/dataflow/operator.py",
    "timely/dataflow/ports.py",
    "timely/operators/input_handle.py",
    "timely/operators/notificator.py",
    "timely/operators/pending.py",
    "timely/worker/dataflows.py",
    "timely/worker/worker.py",
    "timely/differential/trace/chunk.py",
    "timely/differential/trace/compaction_frontier.py",
    "timely/differential/trace/cursors.py",
    "timely/differential/trace/entries.py",
    "timely/differential/trace/row_lists.py",
    "timely/differential/trace/trace.py",
    "timely/differential/inputs.py",
    "timely/differential/operators/aggregates.py",
    "timely/differential/operators/arrangement.py",
    "timely/differential/operators/scope_times.py",
    "timely/differential/operators/join_results.py",
    "timely/differential/operators/reduce_inputs.py",
    "timely/differential/operators/reductions.py",
    "timely/differential/operators/trace_joins.py",
]

# Types are checked as in the tests, but only in the modules that are compiled: what the others import need not be installed.
CHECKS = ["--follow-imports=silent", "--ignore-missing-imports", "--no-warn-unused-ignores", "--no-warn-unused-configs"]


EDITABLE = not {"develop", "editable_wheel"}.isdisjoint(sys.argv)

DESCRIBING = not {"egg_info", "dist_info"}.isdisjoint(sys.argv)
"""pip asks for requirements and metadata first, for editable installs too: nothing is translated for those."""


FREE_THREADED = "free-threading build" in sys.version


def can_compile() -> bool:
    """Return whether a C compiler and the headers of this Python are there, and the engine may be compiled for it."""
    if FREE_THREADED:
        return False
    command = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "").split()
    compiler = os.name == "nt" or (bool(command) and shutil.which(command[0]) is not None)
    return compiler and Path(sysconfig.get_paths()["include"], "Python.h").exists()


COMPILE = ASKED != "0" and (ASKED != "auto" or (can_compile() and not EDITABLE))


class BuildIfPossible(build_ext):
    """Compiles all or nothing: what fails in the middle is taken away, unless ``TIMELY_COMPILE=1`` asks for an error."""

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:
            if ASKED != "auto":
                raise
            print(f"the engine is not compiled, {type(error).__name__}: {error}", file=sys.stderr)
            for extension in self.extensions:
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
            self.extensions = []


def extensions() -> list[Extension]:
    """Return what there is to compile: nothing, unless that was asked for."""
    if not COMPILE:
        return []
    if FREE_THREADED:
        sys.exit("TIMELY_COMPILE: the engine is pure on free-threaded Python, where other threads may not read native attributes")
    if EDITABLE:
        sys.exit("TIMELY_COMPILE: an editable install is of sources that change, and would go on running what was compiled once")
    if DESCRIBING:
        return []
    if importlib.util.find_spec("mypyc") is None:
        if ASKED == "auto":
            return []
        sys.exit(f"TIMELY_COMPILE: compiling needs {' and '.join(COMPILER)}: install them, or build without --no-build-isolation")
    from mypyc.build import mypycify

    try:
        found: list[Extension] = mypycify([*CHECKS, *ENGINE], group_name="timely", debug_level="0")
    except (Exception, SystemExit) as error:  # it ends the process where the types are wrong
        if ASKED != "auto":
            raise
        print(f"the engine is not compiled, {type(error).__name__}: {error}", file=sys.stderr)
        return []
    for source in {Path(source) for extension in found for source in extension.sources}:
        source.write_text(without_weak_references(source.read_text()))
    return found


def without_weak_references(translated: str) -> str:
    """Return translated C in which no class has a place for weak references: like the classes with slots that it was made from.

    mypyc 2.4 gives one to every generic class, for Python 3.11, but frees what stands there as if the object owned it: a single
    weak reference to an instance ends in a crash.
    """
    return re.sub(r"^\s*\.tp_weaklistoffset\s*=.*$", "", translated, flags=re.MULTILINE)


def home() -> str:
    """Return the address of the project's repository, or nothing where a build does not know it."""
    server, repository = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
    return (os.environ.get("TIMELY_HOME") or (f"{server}/{repository}" if server and repository else "")).rstrip("/")


def readme(address: str) -> str:
    """Return the README, whose links to files lead to the repository at ``address``."""
    text = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    if not address:
        return text
    text = re.sub(r'(<img src=")(?!https?:)', rf"\1{address}/raw/main/", text)
    return re.sub(r"(\]\()(?!https?:|#)", rf"\1{address}/blob/main/", text)


def project_urls(address: str) -> dict[str, str]:
    """Return the links that PyPI shows."""
    pages = {"Documentation": "tree/main/docs", "Changelog": "blob/main/CHANGELOG.md", "Issues": "issues"}
    return {"Repository": address, **{name: f"{address}/{page}" for name, page in pages.items()}} if address else {}


options: dict[str, Any] = {"ext_modules": extensions(), "setup_requires": COMPILER if COMPILE else []}
setup(
    **options,
    cmdclass={"build_ext": BuildIfPossible},
    long_description=readme(home()),
    long_description_content_type="text/markdown",
    project_urls=project_urls(home()),
)
