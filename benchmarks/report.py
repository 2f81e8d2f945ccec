"""What benchmarks found, as Markdown for people and JSON for programs, under a header that says where and when."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from benchmarks.measure import Measured

PACKAGES = ("numpy", "pyarrow", "scipy", "pyspark")
"""The packages beside this one whose versions matter to the figures."""


@attrs.frozen
class Row:
    """One figure, and the bar it is held to: at least ``floor``, or at most with ``less``.

    ``None`` as the value is one that could not be had, for the reason in ``note``. A :class:`benchmarks.measure.Measured` is
    shown with the least and the most of its rounds.
    """

    name: str
    value: float | None
    floor: float | None = None
    aim: float | None = None
    less: bool = False
    note: str = ""

    @property
    def has_bar(self) -> bool:
        """Whether it is held to anything."""
        return (self.floor, self.aim) != (None, None)

    @property
    def met(self) -> bool | None:
        """Whether the floor is met; ``None`` where there is none, or no value."""
        if self.floor is None or self.value is None:
            return None
        return self.value <= self.floor if self.less else self.value >= self.floor

    @property
    def spread(self) -> tuple[float, float] | None:
        """The least and the most that was found in a round; ``None`` if there was only one."""
        rounds = self.value.rounds if isinstance(self.value, Measured) else ()
        return (min(rounds), max(rounds)) if len(rounds) > 1 else None


def header() -> dict[str, str]:
    """Return what one has to know to compare two reports: the machine, the versions, the time, and what else is going on."""
    versions = {name: _version(name) for name in ("timely", *PACKAGES)}
    return {
        "machine": f"{_processor()}, {os.cpu_count()} processors, {platform.system()} {platform.machine()}",
        "Python": f"{platform.python_version()} ({platform.python_implementation()})",
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items() if version),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "load over 1, 5, 15 minutes at the start": " ".join(f"{load:.1f}" for load in os.getloadavg()),
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    """Return what the processor calls itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "processor unknown"


def markdown(groups: Mapping[str, Sequence[Row]], head: Mapping[str, str]) -> str:
    """Return the header as a list, a table of the rows that have bars, and one of the other rows of each group."""
    parts = ["\n".join(f"- {name}: {value}" for name, value in head.items())]
    barred = [attrs.evolve(row, name=f"{group}: {row.name}") for group, rows in groups.items() for row in rows if row.has_bar]
    others = {f"{group}: figures without a bar": [row for row in rows if not row.has_bar] for group, rows in groups.items()}
    tables = {"Bars": barred, **others}
    return "\n\n".join([*parts, *(f"## {title}\n\n{table(rows)}" for title, rows in tables.items() if rows)])


def table(rows: Sequence[Row]) -> str:
    """Return a table of some rows, in Markdown."""
    lines = ["| workload | measured | rounds from–to | floor | aim | floor met |", "| --- | ---: | ---: | ---: | ---: | --- |"]
    return "\n".join([*lines, *map(_line, rows)])


def _line(row: Row) -> str:
    name = f"{row.name} ({row.note})" if row.note else row.name
    value = "not available" if row.value is None else _show(row.value)
    spread = "" if row.spread is None else "–".join(map(_show, row.spread))
    met = {None: "", True: "yes", False: "**no**"}[row.met]
    return f"| {name} | {value} | {spread} | {_show(row.floor)} | {_show(row.aim)} | {met} |"


def as_json(groups: Mapping[str, Sequence[Row]], head: Mapping[str, str]) -> str:
    """Return the same as JSON: ``header``, and ``rows`` with the group, the spread and whether the floor is met in each."""
    rows = [_record(group, row) for group, rows in groups.items() for row in rows]
    return json.dumps({"header": dict(head), "rows": rows}, indent=2)


def _record(group: str, row: Row) -> dict[str, Any]:
    low, high = row.spread or (None, None)
    return {"group": group, **attrs.asdict(row), "low": low, "high": high, "met": row.met}


def _show(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
