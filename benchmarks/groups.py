"""The groups of benchmarks, each a module here: what ``python -m benchmarks`` runs in a process of its own."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from benchmarks.report import Row

GROUPS = (
    *("control", "latency", "compiled", "rust", "dataplane", "exchange", "pauses"),
    *("graphs", "differential", "state_on_disk", "recordings", "views", "two_workers", "threads"),
    *("memory", "bounds", "spark", "streaming"),
    *("sizing", "startup", "scale", "counts", "peers"),
)
"""The modules here that have ``run(rounds)``; it may take more of the options below. ``spark``, ``streaming``: with a session."""


def run_group(name: str, options: dict[str, Any]) -> list[Row]:
    """Return the rows of a group, which gets those of the options that it takes."""
    run = importlib.import_module(f"benchmarks.{name}").run
    taken = inspect.signature(run).parameters
    rows: list[Row] = run(**{option: value for option, value in options.items() if option in taken})
    return rows
