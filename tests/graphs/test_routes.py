"""Which worker a node belongs to: those that lie close together to one, and all workers have as many, or nearly.

White box: results do not depend on which worker has a node.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from timely.graphs.stages.edge_input import node_routes


def owners(values: pa.Array, peers: int) -> Any:
    info: Any = SimpleNamespace(peers=peers, path="test")
    result = node_routes(info, values, "src") % peers
    assert ((result >= 0) & (result < peers)).all()
    return result


@pytest.mark.parametrize("peers", [1, 2, 3, 7])
@pytest.mark.parametrize("first", [0, -50_000, 2**62])
@pytest.mark.parametrize("stride", [1, 2, 1024, 2**20])
def test_integers_are_partitioned_evenly(peers: int, first: int, stride: int) -> None:
    many = np.bincount(owners(pa.array(first + stride * np.arange(100_000)), peers), minlength=peers)
    assert many.max() <= 1.05 * 100_000 / peers + 1024  # a block


def test_numbers_that_follow_each_other_mostly_belong_to_one_worker() -> None:
    result = owners(pa.array(np.arange(100_000)), 2)
    assert np.count_nonzero(result[1:] != result[:-1]) < 100


WHOLE = [pa.uint64(), pa.int32(), pa.date32()]
NODES = [*(pa.array([0, 1, 9_999], pa.int32()).cast(kind) for kind in WHOLE), pa.array(["", "a"]), pa.array([0.5, 1.0])]


@pytest.mark.parametrize("nodes", NODES, ids=lambda nodes: str(nodes.type))
def test_equal_nodes_belong_to_one_worker_wherever_they_come_up(nodes: pa.Array) -> None:
    again = owners(pa.concat_arrays([nodes.slice(1), nodes]), 3)
    assert owners(nodes, 3).tolist() == again[len(nodes) - 1 :].tolist()
