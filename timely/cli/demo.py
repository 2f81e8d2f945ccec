"""``timely demo``: which Debian packages require each other in circles?

The main job of the library from end to end: who requires whom, read from CSV; the strongly connected components of that
graph, by loops inside a loop; a Parquet file of them, a table of the largest circles, and a picture. This module is
what the two engines have in common. The invariant: the engines differ in how they find the circles, and in nothing that
is shown.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, Protocol

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
    """What the command was asked for.

    ``kind`` is one of the kinds of requirement, or ``"all"``; of the largest circles, ``top`` are printed.
    """

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

    Raises :class:`~timely.errors.TimelyError` where the engine cannot be had, :class:`OSError` where the files cannot
    be written.
    """
    where = {"spark": "Spark, local mode", "local": "threads of this process, without Spark"}[demo.engine]
    looked_at = "requirements of all kinds" if demo.kind == "all" else f"requirements of kind {demo.kind!r}"
    find = _engine(demo.engine)
    demo.output.mkdir(parents=True, exist_ok=True)
    components, drawing = demo.output / "components.parquet", demo.output / "circles.svg"
    print("Which Debian packages require each other in circles?")
    workers = "one worker" if demo.workers == 1 else f"{demo.workers} workers"
    print(f"Looking at {looked_at}, with {workers} in {where}.", flush=True)
    started = time.perf_counter()

    def say(what: str) -> None:
        print(f"  {time.perf_counter() - started:5.1f} s  {what}", flush=True)

    with debian() as data:
        findings = find(data, components, kinds=demo.kinds, workers=demo.workers, top=demo.top, say=say)
    drawing.write_text(picture(findings.largest[:DRAWN]), encoding="utf-8")
    say("picked the largest circles and drew them")
    print(f"\n{summary(findings)} The largest:\n")
    for line in table(findings.largest, shutil.get_terminal_size((100, 24)).columns):
        print(line)
    print(f"\nEvery package with its component (Parquet): {components}")
    print(f"The largest circles (SVG):                  {drawing}")
    return findings


class _Find(Protocol):
    """What an engine does."""

    def __call__(
        self, data: Debian, parquet: Path, *, kinds: Sequence[str], workers: int, top: int, say: Callable[[str], None]
    ) -> Findings: ...


def _engine(name: Engine) -> _Find:
    """Return how the engine asked for finds the circles; no other is imported."""
    if name == "spark":
        from timely.cli import cluster

        return cluster.find
    from timely.cli import local

    return local.find
