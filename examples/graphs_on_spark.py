"""Graph algorithms on DataFrames: components, PageRank and breadth-first search on Debian's dependencies.

No dataflow code is needed. Each function takes a DataFrame of edges, and returns a DataFrame with a row per node.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from timely.cli.debian import DATA
from timely.graphs.spark import breadth_first_search, connected_components, pagerank
from timely.spark import local_session


def read() -> DataFrame:
    """Return the dependencies, in Spark's cache."""
    return local_session(2).read.parquet(str(DATA)).selectExpr("package AS src", "explode(depends) AS dst").persist()


def main() -> None:
    edges = read()

    sizes = connected_components(edges).groupBy("component").count().persist()
    (largest,) = sizes.agg(F.max("count")).first() or (0,)
    print(f"{sizes.count()} components, the largest of {largest} packages")

    for node, rank in pagerank(edges).orderBy(F.desc("rank")).limit(3).collect():
        print(f"{rank:.4f} {node}")

    reached = breadth_first_search(edges, "gnome").groupBy("distance").count().orderBy("distance")
    print("gnome:", ", ".join(f"{row['count']} in {row.distance}" for row in reached.collect()))


if __name__ == "__main__":
    main()
