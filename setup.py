"""Builds the package as it stands or, with ``TIMELY_COMPILE=1`` in the environment, with its engine compiled.

``pip wheel .`` makes a pure wheel, for any machine; it needs no compiler. ``TIMELY_COMPILE=1 pip wheel .`` makes one for this
machine's kind: the modules below are translated to C by mypyc, from the same source, and compiled; pip fetches mypyc for that
build alone. The pure modules are in that wheel as well, beside the compiled ones, for readers, tracebacks and type checkers.
What may be asked for otherwise is in pyproject.toml; docs/decisions/compiled-engine.md has the reasons.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path

from setuptools import Extension, setup

COMPILE = os.environ.get("TIMELY_COMPILE", "") not in ("", "0")

COMPILER = ["mypy>=2.4,<3", "attrs>=23.2"]  # attrs: the compiler reads the types of what the engine imports

# What one iteration of a loop, or one message on its way, goes through; whatever is called once for each dataflow stays as it is.
ENGINE = [
    "timely/order.py",
    "timely/progress/count_sink.py",
    "timely/progress/activation_queue.py",
    "timely/progress/antichain.py",
    "timely/progress/change_batch.py",
    "timely/progress/domain.py",
    "timely/progress/engine.py",
    "timely/progress/minimal_heap.py",
    "timely/progress/mutable_antichain.py",
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
    "timely/operators/notificator.py",
    "timely/operators/pending.py",
    "timely/worker/dataflows.py",
    "timely/worker/timers.py",
    "timely/worker/worker.py",
]

# Types are checked as in the tests, but only in the modules that are compiled: what the others import need not be installed.
CHECKS = ["--follow-imports=silent", "--ignore-missing-imports", "--no-warn-unused-ignores", "--no-warn-unused-configs"]


def extensions() -> list[Extension]:
    """Return what there is to compile: nothing, unless that was asked for."""
    if not COMPILE:
        return []
    if {"develop", "editable_wheel"}.intersection(sys.argv):
        sys.exit("TIMELY_COMPILE: an editable install is of sources that change, and would go on running what was compiled once")
    if importlib.util.find_spec("mypyc") is None:
        if "egg_info" in sys.argv:
            return []  # pip asks what the build requires, and installs that before it goes on
        sys.exit(f"TIMELY_COMPILE: compiling needs {' and '.join(COMPILER)}: install them, or build without --no-build-isolation")
    from mypyc.build import mypycify

    found: list[Extension] = mypycify([*CHECKS, *ENGINE], group_name="timely", debug_level="0")
    for source in {Path(source) for extension in found for source in extension.sources}:
        source.write_text(without_weak_references(source.read_text()))
    return found


def without_weak_references(translated: str) -> str:
    """Return translated C in which no class has a place for weak references: like the classes with slots that it was made from.

    mypyc 2.4 gives one to every generic class, for Python 3.11, but frees what stands there as if the object owned it: a single
    weak reference to an instance ends in a crash.
    """
    return re.sub(r"^\s*\.tp_weaklistoffset\s*=.*$", "", translated, flags=re.MULTILINE)


setup(ext_modules=extensions(), setup_requires=COMPILER if COMPILE else [])
