"""Connected components of a growing graph: Debian's packages, as more kinds of relations are added.

Epoch 0 has dependencies, epoch 1 adds recommendations, epoch 2 adds suggestions. Each epoch returns only the packages
whose component has changed.
"""

from __future__ import annotations

from collections import Counter

import pyarrow.compute as pc

import timely
from timely.cli.debian import requirements
from timely.graphs import connected_components

KINDS = ("depends", "recommends", "suggests")


def main() -> None:
    table = requirements()  # package, requires, kind
    batches = [table.filter(pc.equal(table["kind"], kind)).combine_chunks().to_batches(20_000) for kind in KINDS]

    def program(worker: timely.Worker) -> list[tuple[int, list[tuple[str, str]]]]:
        with worker.dataflow(int) as scope:
            edges, stream = scope.new_input()
            found = connected_components(stream, src="package", dst="requires").capture()
        for epoch in range(len(KINDS)):
            for batch in batches[epoch][worker.index :: worker.peers]:
                edges.send_batch(batch)
            edges.advance_to(epoch + 1)
        edges.close()
        worker.run()
        return found.extract()

    changes = [change for part in timely.execute(program, workers=2) for change in part]
    component: dict[str, str] = {}
    for epoch, rows in sorted(changes):
        component.update(rows)
        (_, largest), (_, second) = Counter(component.values()).most_common(2)
        components = len(set(component.values()))
        print(
            f"{KINDS[epoch]:<10} {len(rows):>6} rows: {len(component)} packages in {components} components,"
            f" the largest of {largest}, the next of {second}"
        )


if __name__ == "__main__":
    main()
