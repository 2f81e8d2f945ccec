"""Edges arrive as files, and connected components are kept up to date: one epoch for each file, on Spark.

The graph is Debian's, in six pieces: who depends on whom, who recommends, who suggests whom, each in two halves. Every epoch
hands over the packages whose component has another name than before, and only these. In the middle the stream is stopped and
started again, with another number of workers; it goes on where it was.
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
    """The pieces of the graph by name: package, requires."""
    for kind in KINDS:
        edges = requirements(kind).select(["package", "requires"])
        half = edges.num_rows // 2
        yield f"{kind} 1", edges.slice(0, half)
        yield f"{kind} 2", edges.slice(half)


def build(scope: timely.ScopeBuilder[int], edges: timely.Stream[int, Any]) -> Mapping[str, timely.Stream[int, Any]]:
    """The dataflow: it is the one of a batch program."""
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
            """Have the next piece arrive, as a file that is there as a whole or not at all."""
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
