"""Which Debian packages depend on each other in a circle? Strongly connected components without Spark.

The edges are Arrow batches, divided between two workers. The components are Arrow batches too, with a row per package.
"""

from __future__ import annotations

from collections import defaultdict

import timely
from timely.cli.debian import requirements
from timely.graphs import strongly_connected_components


def main() -> None:
    batches = requirements("depends").select(["package", "requires"]).to_batches()

    def program(worker: timely.Worker) -> list[tuple[str, str]]:
        with worker.dataflow(int) as scope:
            edges, stream = scope.new_input()
            found = strongly_connected_components(stream, src="package", dst="requires").capture()
        with edges:
            for batch in batches[worker.index :: worker.peers]:
                edges.send_batch(batch)
        worker.run()
        return [row for _, rows in found.extract() for row in rows]

    members: defaultdict[str, list[str]] = defaultdict(list)
    for part in timely.execute(program, workers=2):
        for package, component in part:
            members[component].append(package)
    circles = [sorted(names) for names in members.values() if len(names) > 1]
    circles.sort(key=lambda names: (-len(names), names))
    print(f"{len(circles)} circles; the largest:")
    for names in circles[:4]:
        print("-", *names)


if __name__ == "__main__":
    main()
