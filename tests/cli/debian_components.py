"""Components of Debian's requirements by SciPy, and what a run of the demo leaves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from timely.cli.debian import requirements


def expected_components(kinds: tuple[str, ...]) -> dict[str, str]:
    """The component of each package, named by its smallest package."""
    edges = [(row["package"], row["requires"]) for row in requirements(*kinds).to_pylist()]
    names = sorted({end for edge in edges for end in edge})
    number = {name: place for place, name in enumerate(names)}
    ends = np.array([(number[package], number[requires]) for package, requires in edges])
    graph = csr_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(len(names), len(names)))
    _, labels = connected_components(graph, directed=True, connection="strong")
    smallest: dict[int, str] = {}
    for name, label in zip(names, labels.tolist()):
        smallest.setdefault(label, name)
    return {name: smallest[label] for name, label in zip(names, labels.tolist())}


def component_rows(output: Path) -> list[tuple[str, str]]:
    """The rows of the Parquet file that a run wrote."""
    table = pq.read_table(output / "components.parquet")
    assert table.column_names == ["node", "component"]
    return sorted(zip(*table.to_pydict().values()))


def printed_circles(printed: str) -> str:
    """What a run printed between its progress and the names of its files."""
    return printed[printed.index("circles of packages that require") :].partition("\nEvery package")[0]
