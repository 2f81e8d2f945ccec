"""``timely demo``: which Debian packages require each other in circles?

Finds the strongly connected components of the graph of who requires whom, and writes them as Parquet. The two engines differ
in where the workers run, and in nothing that is shown: the largest circles.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs

import timely
from timely.cli.debian import DATA, KINDS, packages, requirements
from timely.errors import ConfigurationError

Find: TypeAlias = Callable[[Sequence[str], Path, int], None]
"""Write (node, component) of the graph of these kinds of requirement to a Parquet folder, with so many workers."""


def run(engine: str, workers: int, kind: str, output: Path, top: int) -> None:
    """Write the components into ``output``, and print the ``top`` largest circles."""
    import pyarrow.parquet as pq

    kinds = KINDS if kind == "all" else (kind,)
    find = _spark() if engine == "spark" else _threads()
    where = "Spark, local mode" if engine == "spark" else "threads of this process, without Spark"
    output.mkdir(parents=True, exist_ok=True)
    parquet = output / "components.parquet"
    what = "requirements of all kinds" if kind == "all" else f"requirements of kind {kind!r}"
    print("Which Debian packages require each other in circles?")
    print(f"Looking at {what}, with {workers} worker{'' if workers == 1 else 's'} in {where}.", flush=True)
    started = time.perf_counter()
    find(kinds, parquet, workers)
    print(f"  {time.perf_counter() - started:5.1f} s to read the requirements and to write their components")

    component = dict(_rows(pq.read_table(parquet, columns=["node", "component"])))
    requires = requirements(*kinds)
    largest = circles(component, _rows(requires))
    within = sum(len(circle.packages) for circle in largest)
    print(
        f"\n{len(largest):,} circles of packages that require each other: {within:,} of {len(component):,} packages,"
        f" {requires.num_rows:,} requirements looked at. The largest:\n"
    )
    descriptions = dict(_rows(packages().select(["package", "description"])))
    for line in table(largest[:top], descriptions, shutil.get_terminal_size((100, 24)).columns):
        print(line)
    print(f"\nEvery package with its component (Parquet): {parquet}")


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
"""Packages of a circle in the table: the most required ones."""


@attrs.frozen
class Circle:
    """Packages that all require each other, the most required first."""

    name: str
    packages: tuple[str, ...]


def circles(component: Mapping[str, str], requirements: Iterable[tuple[str, str, str]]) -> list[Circle]:
    """Return the components of more than one package, largest first.

    ``component`` maps each package to its component. ``requirements`` are (package, requires, kind).

    >>> [circle.packages for circle in circles({"a": "a", "b": "a", "c": "c"}, [("a", "b", "depends"), ("b", "a", "suggests")])]
    [('a', 'b')]
    """
    members: defaultdict[str, list[str]] = defaultdict(list)
    for package, name in component.items():
        members[name].append(package)
    within = {(one, other) for one, other, _ in requirements if one != other and component[one] == component[other]}
    requirers = Counter(requires for _, requires in within)
    unordered = [
        Circle(name, tuple(sorted(packages, key=lambda package: (-requirers[package], package))))
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
