"""Queries 1 and 6 of TPC-H over rows that come and go, in pathway: a program of its own, run by ``benchmarks.views``.

Arguments: a file of columns, the number of the query, the number of changes. Money and quantities are whole numbers of hundredths
there, dates days since 1970. A change takes a row away, and the next one brings it back. It prints one line of JSON: the seconds
from the first commit until the result has come out (``load``), the median for a change (``change``), and the sum of the revenues
of all groups in the end (``check``).
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pathway as pw


class Line(pw.Schema):  # type: ignore[misc]
    """A row of ``lineitem``, by its number."""

    number: int = pw.column_definition(primary_key=True)
    flag: str
    status: str
    quantity: int
    price: int
    discount: int
    tax: int
    shipped: int


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of columns."""
    with np.load(path) as columns:
        names = list(columns)
        return [dict(zip(names, row, strict=True)) for row in zip(*(columns[name].tolist() for name in names), strict=True)]


class Changes(pw.io.python.ConnectorSubject):  # type: ignore[misc]
    """Sends the lines in one commit, and then takes one away, or brings it back, in each."""

    def __init__(self, path: Path, changes: int) -> None:
        super().__init__()
        self._rows = rows_of(path)
        self._changes = changes
        self.output = threading.Event()
        self.seconds: list[float] = []

    def run(self) -> None:
        """Send, and wait for each commit to come out."""
        for row in self._rows:
            self.next(**row)
        self._commit()
        source = random.Random(3)
        for _ in range(self._changes // 2):
            row = source.choice(self._rows)
            self.delete(**row)
            self._commit()
            self.next(**row)
            self._commit()

    def _commit(self) -> None:
        self.output.clear()
        begun = time.perf_counter()
        self.commit()
        if self.output.wait(timeout=600):
            self.seconds.append(time.perf_counter() - begun)


def first_query(lines: Any) -> Any:
    """Return the groups of query 1."""
    kept = lines.filter(pw.this.shipped <= 10471)
    discounted = pw.this.price * (100 - pw.this.discount)
    return kept.groupby(pw.this.flag, pw.this.status).reduce(
        pw.this.flag,
        pw.this.status,
        quantity=pw.reducers.sum(pw.this.quantity),
        base=pw.reducers.sum(pw.this.price),
        revenue=pw.reducers.sum(discounted),
        charge=pw.reducers.sum(discounted * (100 + pw.this.tax)),
        discount=pw.reducers.sum(pw.this.discount),
        count=pw.reducers.count(),
    )


def sixth_query(lines: Any) -> Any:
    """Return the sum of query 6."""
    kept = lines.filter((pw.this.shipped >= 8766) & (pw.this.shipped < 9131) & (pw.this.quantity < 2400))
    kept = kept.filter((pw.this.discount >= 5) & (pw.this.discount <= 7))
    return kept.reduce(revenue=pw.reducers.sum(pw.this.price * pw.this.discount))


def main(path: str, query: str, changes: str) -> None:
    """Run the program."""
    subject = Changes(Path(path), int(changes))
    lines = pw.io.python.read(subject, schema=Line, autocommit_duration_ms=None)
    result = first_query(lines) if query == "1" else sixth_query(lines)
    # What comes out for a commit has to come after its result, and to change whether or not that does.
    moved = lines.reduce(total=pw.reducers.sum(1_000_003 * pw.this.number + pw.this.price))
    checked = result.reduce(check=pw.reducers.sum(pw.this.revenue))
    both = moved.join(checked).select(moved.total, checked.check)
    last = [0]

    def on_change(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            last[0] = row["check"]

    pw.io.subscribe(both, on_change, on_time_end=lambda time: subject.output.set())
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    print(json.dumps({"load": subject.seconds[0], "change": statistics.median(subject.seconds[1:]), "check": last[0]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
