"""PageRank of Debian's packages, on two workers.

The loop ends when all ranks together have changed by at most a millionth.
"""

from __future__ import annotations

import timely
from timely.cli.debian import requirements
from timely.graphs import pagerank


def main() -> None:
    batches = requirements("depends").select(["package", "requires"]).to_batches()

    def program(worker: timely.Worker) -> list[tuple[str, float]]:
        with worker.dataflow(int) as scope:
            edges, stream = scope.new_input()
            found = pagerank(stream, src="package", dst="requires", tolerance=1e-6).capture()
        with edges:
            for batch in batches[worker.index :: worker.peers]:
                edges.send_batch(batch)
        worker.run()
        return [row for _, rows in found.extract() for row in rows]

    ranks = [row for part in timely.execute(program, workers=2) for row in part]
    ranks.sort(key=lambda row: -row[1])
    print(f"{len(ranks)} packages; the ranks add up to {sum(rank for _, rank in ranks):.6f}")
    for package, rank in ranks[:8]:
        print(f"{rank:.4f} {package}")


if __name__ == "__main__":
    main()
