"""The demo without Spark: CSV files through Arrow to timely workers in threads of this process, and to Parquet.

What :mod:`timely.cli.cluster` does with DataFrames, on tables. The invariant: the dataflow in the middle is the same,
and so is what is found. A caller may assume that the Parquet file has been written when :func:`find` returns.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import timely
from timely.cli.circles import Findings, assemble
from timely.cli.debian import Debian
from timely.errors import ConfigurationError

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv
    import pyarrow.parquet as pq
except ModuleNotFoundError as error:
    raise ConfigurationError("the demo needs the package pyarrow: pip install '.[arrow]' in a checkout of timely") from error

from timely.graphs import components_build


def find(
    data: Debian, parquet: Path, *, kinds: Sequence[str], workers: int, top: int, say: Callable[[str], None]
) -> Findings:
    """Find the circles among the requirements of ``kinds``, on ``workers`` threads, and ``say`` what has been done.

    All components, (node, component), are written to ``parquet``; the ``top`` largest circles are returned.
    """
    requires = _read(data.requires)
    requires = requires.filter(pc.is_in(requires["kind"], value_set=pa.array(kinds, pa.string())))
    say("read the requirements")
    found = components(requires.select(["package", "requires"]), workers)
    _write(found, parquet)
    say("found the components and wrote them")
    sizes = found.group_by("component").aggregate([("node", "count")])
    sizes = sizes.filter(pc.greater(sizes["node_count"], 1))
    order = [("node_count", "descending"), ("component", "ascending")]
    largest = sizes.sort_by(order).slice(0, top)["component"].combine_chunks()
    members = found.filter(pc.is_in(found["component"], value_set=largest))
    described = members.join(_read(data.packages), "node", "package", join_type="left outer")
    return Findings(
        packages=found.num_rows,
        requirements=requires.num_rows,
        circles=sizes.num_rows,
        within=pc.sum(sizes["node_count"]).as_py() or 0,
        largest=assemble(_rows(described, "component", "node", "description"), _within(requires, members)),
    )


def components(edges: pa.Table, workers: int) -> pa.Table:
    """Return the strongly connected components (node, component) of ``edges`` (package, requires)."""
    batches = edges.to_batches(max_chunksize=1 << 16)
    build = components_build("package", "requires")

    def program(worker: timely.Worker) -> list[pa.RecordBatch]:
        with worker.dataflow(int, name="circles") as scope:
            handle, stream = scope.new_input()
            found = build(scope, stream)["components"].capture()
        with handle:
            for batch in batches[worker.index :: worker.peers]:
                handle.send_batch(batch)
        worker.run()
        return [batch for _, batch in found.messages]

    outputs = [batch for part in timely.execute(program, workers=workers) for batch in part]
    schema = pa.schema([("node", pa.string()), ("component", pa.string())])
    return pa.Table.from_batches(outputs, schema)


def _read(path: Path) -> pa.Table:
    text = dict.fromkeys(("package", "requires", "kind", "description"), pa.string())
    return pa.csv.read_csv(path, convert_options=pa.csv.ConvertOptions(column_types=text))


def _write(table: pa.Table, parquet: Path) -> None:
    """Write a table as Spark does: a directory with the file in it, in the place of whatever was there."""
    if parquet.is_dir():
        shutil.rmtree(parquet)
    parquet.mkdir(parents=True)
    pq.write_table(table, parquet / "part-00000.parquet")


def _within(requires: pa.Table, members: pa.Table) -> list[tuple[Any, ...]]:
    """Return the requirements (package, requires, kind) between two members of the same component."""
    both = requires.join(members, "package", "node", join_type="inner").rename_columns({"component": "circle"})
    both = both.join(members, "requires", "node", join_type="inner")
    return _rows(both.filter(pc.equal(both["circle"], both["component"])), "package", "requires", "kind")


def _rows(table: pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    return list(zip(*(table[column].to_pylist() for column in columns)))
