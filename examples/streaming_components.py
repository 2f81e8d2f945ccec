"""Streaming on Spark: connected components of edges that arrive as files, one epoch per file.

The graph is Debian's, in six files: two each of dependencies, recommendations and suggestions. Each epoch returns only the
packages whose component has changed. In the middle the stream is restarted with another number of workers.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame

import timely
from timely.cli.debian import KINDS, requirements
from timely.graphs import connected_components
from timely.spark import local_session, stream


def pieces() -> Iterator[tuple[str, pa.Table]]:
    """The parts of the graph by name: package, requires."""
    for kind in KINDS:
        edges = requirements(kind).select(["package", "requires"])
        half = edges.num_rows // 2
        yield f"{kind} 1", edges.slice(0, half)
        yield f"{kind} 2", edges.slice(half)


def build(scope: timely.ScopeBuilder[int], edges: timely.Stream[int, Any]) -> Mapping[str, timely.Stream[int, Any]]:
    """The dataflow, as in a batch program."""
    return {"components": connected_components(edges, src="package", dst="requires")}


def main() -> None:
    session = local_session(3)
    given = iter(pieces())
    component: dict[str, str] = {}

    with tempfile.TemporaryDirectory() as folder:
        arriving, aside = Path(folder) / "edges", Path(folder) / "aside"
        arriving.mkdir()
        arrived: list[str] = []

        def arrive() -> None:
            """Add the next file atomically."""
            name, edges = next(given)
            parquet.write_table(edges, aside)
            aside.rename(arriving / f"{len(arrived)}.parquet")
            arrived.append(name)

        def show(epoch: int, tables: Mapping[str, DataFrame]) -> None:
            changes = {row.node: row.component for row in tables["components"].collect()}
            component.update(changes)
            sizes = Counter(component.values())
            (_, largest), (_, second) = sizes.most_common(2)
            print(
                f"{arrived[epoch]:<13}{len(changes):>6} rows: {len(component)} packages in {len(sizes)} components,"
                f" the largest of {largest}, the next of {second}"
            )
            if epoch in (2, 5):
                handle.stop()
            else:
                arrive()

        for workers in (2, 1):
            arrive()
            handle = stream(
                build,
                inputs={"edges": session.readStream.schema("package string, requires string").parquet(str(arriving))},
                outputs={"components": "node string, component string"},
                workers=workers,
                foreach_epoch=show,
                checkpoint=Path(folder) / "checkpoint",
            )
            handle.await_termination()


if __name__ == "__main__":
    main()
