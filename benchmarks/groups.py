"""The groups of benchmarks, each a module here: what ``python -m benchmarks`` runs in a process of its own."""

from __future__ import annotations

import importlib
import inspect
from typing import Any, Final

from benchmarks.report import Row

_AGAIN: Final = "cold in the first round, then warm; collector on"
_FRESH: Final = "each figure in a new process; collector on"
_COUNTED: Final = "counted, not timed"

GROUPS: Final = {
    "control": _AGAIN,
    "latency": "new workers each time, and the first requests count; collector on",
    "compiled": "new processes, the best of three runs; collector on",
    "rust": "a whole run with its start, on both sides; collector on",
    "dataplane": f"{_AGAIN}; rows of keyed: garbage is collected before each",
    "exchange": "new processes, ten epochs before the first that counts (lists of 1: none); collector on",
    "graphs": "warm; first runs in rows of their own, in new processes; collector on",
    "differential": "loading cold, changes after 300 others; collector on",
    "state_on_disk": _FRESH,
    "recordings": _AGAIN,
    "connectors": _FRESH,
    "views": "loading cold, changes warm; collector on",
    "tpcds": "loading cold, changes warm; collector on",
    "nexmark": "cold; collector on",
    "two_workers": "warm: a first run that does not count; collector on",
    "threads": "warm: a first run that does not count; collector on",
    "memory": _FRESH,
    "bounds": _FRESH,
    "spark": "one session, two runs before the first that counts; collector on",
    "streaming": "ten epochs before the first that counts; collector on",
    "sizing": _COUNTED,
    "startup": "cold; collector on",
    "scale": "new dataflows each time; collector off while they are built and let go, on in runs and where a row says so",
    "counts": f"{_COUNTED}; collector off for bytecodes",
    "peers": "cold, but Spark after a first run; collector on",
}
"""The modules here that have ``run(rounds)``, which may take more of the options below, and the state in which they measure.

``spark`` and ``streaming`` start a session.
"""


def run_group(name: str, options: dict[str, Any]) -> list[Row]:
    """Return the rows of a group, which gets those of the options that it takes."""
    run = importlib.import_module(f"benchmarks.{name}").run
    taken = inspect.signature(run).parameters
    rows: list[Row] = run(**{option: value for option, value in options.items() if option in taken})
    return rows
