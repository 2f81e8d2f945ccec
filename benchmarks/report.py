"""What a benchmark found, as Markdown for people and JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence

import attrs


@attrs.frozen
class Row:
    """One figure, and the bar it is held to: at least ``floor``, or at most with ``less``."""

    name: str
    value: float
    floor: float | None = None
    aim: float | None = None
    less: bool = False
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the floor is met; ``None`` where there is none."""
        if self.floor is None:
            return None
        return self.value <= self.floor if self.less else self.value >= self.floor


def markdown(rows: Sequence[Row]) -> str:
    """Return a table of the rows."""
    lines = ["| workload | measured | floor | aim | floor met |", "| --- | ---: | ---: | ---: | --- |"]
    for row in rows:
        met = {None: "", True: "yes", False: "**no**"}[row.met]
        name = f"{row.name} ({row.note})" if row.note else row.name
        lines.append(f"| {name} | {_show(row.value)} | {_show(row.floor)} | {_show(row.aim)} | {met} |")
    return "\n".join(lines)


def as_json(rows: Sequence[Row]) -> str:
    """Return the rows as JSON."""
    return json.dumps([{**attrs.asdict(row), "met": row.met} for row in rows], indent=2)


def _show(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
