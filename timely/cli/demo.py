"""``timely demo``: which Debian packages require each other in circles?

The main job of the library from end to end: who requires whom, read from CSV; the strongly connected components of that
graph, by loops inside a loop; a Parquet file of them, a table of the largest circles, and a picture. This module is what the
two engines have in common. The invariant: the engines differ in how they find the circles, and in nothing that is shown.
"""

from __future__ import annotations

import shutil
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import attrs

from timely.cli.circles import KINDS, Findings
from timely.cli.debian import Debian, debian
from timely.cli.picture import picture
from timely.cli.table import summary, table

Engine = Literal["spark", "local"]

DRAWN = 6
"""Circles in the picture."""


@attrs.frozen
class Demo:
    """What the command was asked for: ``kind`` is one of the kinds of requirement or ``"all"``; ``top`` circles are shown."""

    engine: Engine
    workers: int
    kind: str
    output: Path
    top: int

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of requirement to look at."""
        return KINDS if self.kind == "all" else (self.kind,)


def default_engine() -> Engine:
    """Return ``"spark"`` where PySpark is installed, else ``"local"``.

    >>> default_engine() in ("spark", "local")
    True
    """
    return "local" if find_spec("pyspark") is None else "spark"


def run(demo: Demo) -> Findings:
    """Run the demo: write into ``demo.output``, print what was found, and return it.

    Raises :class:`~timely.errors.TimelyError` where the engine cannot be had, :class:`OSError` where the files cannot be
    written.
    """
    where = {"spark": "Spark in local mode", "local": "threads of this process, without Spark"}[demo.engine]
    looked_at = f"requirements of kind {demo.kind!r}" if demo.kind in KINDS else "requirements of all kinds"
    print(f"Which Debian packages require each other in circles? {demo.workers} workers: {where}; {looked_at}.", flush=True)
    demo.output.mkdir(parents=True, exist_ok=True)
    components, drawing = demo.output / "components.parquet", demo.output / "circles.svg"
    started = time.perf_counter()
    with debian() as data:
        findings = _find(demo, data, components)
    seconds = time.perf_counter() - started
    drawing.write_text(picture(findings.largest[:DRAWN]), encoding="utf-8")
    print(f"\n{summary(findings)}\n")
    for line in table(findings.largest, shutil.get_terminal_size((100, 24)).columns):
        print(line)
    print(f"\nFound in {seconds:.1f} seconds, start to finish.")
    print(f"Every package with its component (Parquet): {components}")
    print(f"The largest circles (SVG):                  {drawing}")
    return findings


def _find(demo: Demo, data: Debian, components: Path) -> Findings:
    """Find the circles with the engine asked for, of which only that one is imported."""
    if demo.engine == "spark":
        from timely.cli import cluster as engine
    else:
        from timely.cli import local as engine
    return engine.find(data, components, kinds=demo.kinds, workers=demo.workers, top=demo.top)
