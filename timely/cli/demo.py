"""``timely demo``: which Debian packages require each other in circles?

Finds the strongly connected components of the graph of who requires whom, and writes them as Parquet. The two engines differ
in where the workers run, and in nothing that is shown: the largest circles, as a table and as a picture.
"""

from __future__ import annotations

import math
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias
from xml.sax.saxutils import escape

import attrs

import timely
from timely.cli.debian import DATA, KINDS, packages, requirements
from timely.errors import ConfigurationError

Find: TypeAlias = Callable[[Sequence[str], Path, int], None]
"""Write (node, component) of the graph of these kinds of requirement to a Parquet folder, with so many workers."""

_DRAWN: Final = 6


def run(engine: str, workers: int, kind: str, output: Path, top: int) -> None:
    """Write the components and a picture of the largest circles into ``output``, and print the ``top`` largest."""
    import pyarrow.parquet as pq

    kinds = KINDS if kind == "all" else (kind,)
    find = _spark() if engine == "spark" else _threads()
    where = "Spark, local mode" if engine == "spark" else "threads of this process, without Spark"
    output.mkdir(parents=True, exist_ok=True)
    parquet, drawing = output / "components.parquet", output / "circles.svg"
    what = "requirements of all kinds" if kind == "all" else f"requirements of kind {kind!r}"
    print("Which Debian packages require each other in circles?")
    print(f"Looking at {what}, with {workers} worker{'' if workers == 1 else 's'} in {where}.", flush=True)
    started = time.perf_counter()
    find(kinds, parquet, workers)
    print(f"  {time.perf_counter() - started:5.1f} s to read the requirements and to write their components")

    component = dict(_rows(pq.read_table(parquet, columns=["node", "component"])))
    requires = requirements(*kinds)
    drawn = circles(component, _rows(requires))
    drawing.write_text(picture(drawn[:_DRAWN]), encoding="utf-8")
    within = sum(len(circle.packages) for circle in drawn)
    print(
        f"\n{len(drawn):,} circles of packages that require each other: {within:,} of {len(component):,} packages,"
        f" {requires.num_rows:,} requirements looked at. The largest:\n"
    )
    descriptions = dict(_rows(packages().select(["package", "description"])))
    for line in table(drawn[:top], descriptions, shutil.get_terminal_size((100, 24)).columns):
        print(line)
    print(f"\nEvery package with its component (Parquet): {parquet}")
    print(f"The largest circles (SVG):                  {drawing}")


def _threads() -> Find:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from timely.graphs import components_build

    build = components_build("package", "requires")

    def find(kinds: Sequence[str], parquet: Path, workers: int) -> None:
        batches = requirements(*kinds).select(["package", "requires"]).to_batches(max_chunksize=1 << 16)

        def program(worker: timely.Worker) -> list[Any]:
            with worker.dataflow(int, name="circles") as scope:
                edges, stream = scope.new_input()
                components = build(scope, stream)["components"].capture()
            with edges:
                for batch in batches[worker.index :: worker.peers]:
                    edges.send_batch(batch)
            worker.run()
            return [batch for _, batch in components.messages]

        schema = pa.schema([("node", pa.string()), ("component", pa.string())])
        components = [batch for part in timely.execute(program, workers=workers) for batch in part]
        shutil.rmtree(parquet, ignore_errors=True)
        parquet.mkdir()
        pq.write_table(pa.Table.from_batches(components, schema), parquet / "part-00000.parquet")

    return find


def _spark() -> Find:
    try:
        from pyspark.sql import functions as F
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            'the demo on Spark needs the package pyspark: pip install "timely-dataflow[spark]", or run timely demo --engine local'
        ) from error
    from timely.graphs.spark import strongly_connected_components
    from timely.spark import local_session

    def find(kinds: Sequence[str], parquet: Path, workers: int) -> None:
        session = local_session(workers)
        try:
            edges = session.read.parquet(str(DATA)).select("package", F.explode(F.concat(*kinds)).alias("requires"))
            components = strongly_connected_components(edges, src="package", dst="requires", workers=workers)
            components.write.mode("overwrite").parquet(str(parquet))
        finally:
            session.stop()

    return find


def _rows(table: Any) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns)))


LISTED: Final = 7
DRAWN: Final = 24
"""Packages of a circle in the table and in the picture: the most required ones."""

_COLOURS: Final = {"depends": "#1f4e79", "recommends": "#d08a1d", "suggests": "#8fae8b"}
_RADIUS: Final = 170.0
_WIDTH: Final = 900
_HEIGHT: Final = 440


@attrs.frozen
class Circle:
    """Packages that all require each other, the most required first; ``requirements`` maps (package, requires) to a kind."""

    name: str
    packages: tuple[str, ...]
    requirements: Mapping[tuple[str, str], str]


def circles(component: Mapping[str, str], requirements: Iterable[tuple[str, str, str]]) -> list[Circle]:
    """Return the components of more than one package, largest first.

    ``component`` maps each package to its component. ``requirements`` are (package, requires, kind), the strictest kinds first.

    >>> [circle.packages for circle in circles({"a": "a", "b": "a", "c": "c"}, [("a", "b", "depends"), ("b", "a", "suggests")])]
    [('a', 'b')]
    """
    members: defaultdict[str, list[str]] = defaultdict(list)
    for package, name in component.items():
        members[name].append(package)
    within: defaultdict[str, dict[tuple[str, str], str]] = defaultdict(dict)
    for package, requires, kind in requirements:
        if package != requires and component[package] == component[requires]:
            within[component[package]].setdefault((package, requires), kind)
    requirers = Counter(requires for kinds in within.values() for _, requires in kinds)
    unordered = [
        Circle(name, tuple(sorted(packages, key=lambda package: (-requirers[package], package))), within[name])
        for name, packages in members.items()
        if len(packages) > 1
    ]
    return sorted(unordered, key=lambda circle: (-len(circle.packages), circle.name))


def table(circles: Iterable[Circle], descriptions: Mapping[str, str], width: int = 100) -> Iterator[str]:
    """Yield the lines of a table, at most ``width`` characters wide.

    >>> print("\\n".join(table(circles({"egg": "egg", "hen": "egg"}, []), {"hen": "lays eggs"})))
    packages  component
           2  egg
                egg
                hen  lays eggs
    """
    yield "packages  component"
    for circle in circles:
        yield f"{len(circle.packages):8,}  {circle.name}"
        listed = circle.packages[:LISTED]
        column = max(map(len, listed))
        for package in listed:
            line = f"{'':12}{package:{column}}  {descriptions.get(package, '')}".rstrip()
            yield line if len(line) <= width else line[: width - 1].rstrip() + "…"
        if len(listed) < len(circle.packages):
            yield f"{'':12}and {len(circle.packages) - len(listed):,} more"


def picture(circles: Sequence[Circle]) -> str:
    """Return an SVG document: a panel for each circle, a dot for each package, an arrow to what it requires.

    >>> picture(circles({"a": "a", "b": "a"}, [("a", "b", "depends")])).count("<circle")
    2
    """
    rows = -(-len(circles) // 2)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * _WIDTH} {rows * _HEIGHT + 40}"'
        ' font-family="DejaVu Sans, Verdana, sans-serif" font-size="11">',
        "<title>Debian packages that require each other in circles</title>",
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for place, (kind, colour) in enumerate(_COLOURS.items()):
        lines.append(
            f'<marker id="{kind}" viewBox="0 0 8 8" refX="16" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
            f'<path d="M0,1 L8,4 L0,7 z" fill="{colour}"/></marker>'
        )
        lines.append(f'<text x="{10 + 100 * place}" y="25" fill="{colour}">{kind} →</text>')
    for place, circle in enumerate(circles):
        x, y = (place % 2 + 0.5) * _WIDTH, place // 2 * _HEIGHT + 40
        lines.append(f'<g transform="translate({x:.0f} {y:.0f})">')
        lines.extend(_panel(circle))
        lines.append("</g>")
    return "\n".join([*lines, "</svg>", ""])


def _panel(circle: Circle) -> Iterator[str]:
    drawn = circle.packages[:DRAWN]
    some = f", the {len(drawn)} most required" if len(drawn) < len(circle.packages) else ""
    title = f"{circle.name}: {len(circle.packages):,} packages{some}"
    yield f'<text text-anchor="middle" y="20" font-size="15">{escape(title)}</text>'
    places = dict(zip(drawn, _ring(len(drawn))))
    for (package, requires), kind in sorted(circle.requirements.items()):
        if package in places and requires in places:
            (x, y), (to_x, to_y) = places[package], places[requires]
            bend = f"{0.3 * (x + to_x) - 0.09 * (to_y - y):.0f},{0.3 * (y + to_y) + 0.09 * (to_x - x) + 92:.0f}"
            yield (
                f'<path class="{kind}" fill="none" stroke="{_COLOURS[kind]}" marker-end="url(#{kind})"'
                f' d="M{x:.0f},{y:.0f} Q{bend} {to_x:.0f},{to_y:.0f}"/>'
            )
    for package, (x, y) in places.items():
        anchor, label = ("start", x + 12) if x > 0 else ("end", x - 12)
        yield f'<circle cx="{x:.0f}" cy="{y:.0f}" r="5" fill="#b03a2e"/>'
        yield f'<text class="label" text-anchor="{anchor}" x="{label:.0f}" y="{y + 4:.0f}">{escape(package)}</text>'


def _ring(count: int) -> Iterator[tuple[float, float]]:
    """Yield places at even heights, half of them on each side, so that labels do not overlap."""
    right = (count + 1) // 2
    for place in range(count):
        sign, size, row = (1, right, place) if place < right else (-1, count - right, count - 1 - place)
        height = (2 * row + 1) / size - 1
        yield sign * _RADIUS * math.sqrt(1 - height * height), _RADIUS * height + 230
