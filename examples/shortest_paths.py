"""Shortest paths between Debian packages, weighted by installed size.

A step from a package to a dependency costs the size of the dependency. Epoch 0 has dependencies. Epoch 1 adds
recommendations, and returns only the packages that are now nearer.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

import timely
from timely.cli.debian import packages, requirements
from timely.graphs import shortest_paths

START = "gnome"
KINDS = ("depends", "recommends")


def read() -> pa.Table:
    """The requirements with their sizes: package, requires, kind, size (in MiB)."""
    sizes = packages().select(["package", "installed_kib"]).rename_columns(["requires", "kib"])
    table = requirements(*KINDS).join(sizes, "requires", join_type="left outer").combine_chunks()
    return table.append_column("size", pc.divide(pc.fill_null(table["kib"], 0), 1024.0))


def main() -> None:
    table = read()
    batches = [table.filter(pc.equal(table["kind"], kind)).combine_chunks().to_batches(20_000) for kind in KINDS]

    def program(worker: timely.Worker) -> list[tuple[int, list[tuple[str, float]]]]:
        with worker.dataflow(int) as scope:
            edges, stream = scope.new_input()
            found = shortest_paths(stream, START, src="package", dst="requires", weight="size").capture()
        for epoch in range(len(KINDS)):
            for batch in batches[epoch][worker.index :: worker.peers]:
                edges.send_batch(batch)
            edges.advance_to(epoch + 1)
        edges.close()
        worker.run()
        return found.extract()

    parts = timely.execute(program, workers=2)
    distance: dict[str, float] = {}
    for epoch, kind in enumerate(KINDS):
        rows = [row for part in parts for time, some in part if time == epoch for row in some]
        distance.update(rows)
        print(f"{kind}: {len(rows)} packages are nearer than before, {len(distance)} are reached from {START}")
        for package in ("libc6", "perl", "python3", "gcc"):
            print(f"  {package:<8} {distance[package]:8.1f} MiB" if package in distance else f"  {package:<8} not reached")


if __name__ == "__main__":
    main()
